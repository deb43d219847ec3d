#include "sandboxd/isolation/namespaces/cgroups.h"

#include "sandboxd/isolation/namespaces/user_namespace.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = CGROUP_PATH_BYTES + 64, VALUE_BYTES = 48 };

/* What init may nest below s<slot>: run/<command>/.., as many commands as it keeps and some room. */
static const char DEPTH_MAX[] = "3";
static const char DESCENDANTS_MAX[] = "4096";

static void slot_path(char to[static PATH_BYTES], const char *base, uint32_t slot, const char *rest)
{
    snprintf(to, PATH_BYTES, "%s/s%" PRIu32 "%s", base, slot, rest); /* fits: base is below CGROUP_PATH_BYTES */
}

void cgroup_slot_close(struct cgroup_slot *slot)
{
    int fds[] = {slot->top, slot->leaf, slot->run};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    for (size_t i = 0; i < slot->join_count; i++)
        close(slot->join[i]);
    *slot = CGROUP_SLOT_NONE;
}

static bool write_at(int folder, const char *file, const char *value, struct error *err)
{
    AUTO_FD int fd = openat(folder, file, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value))
        return error_set_errno(err, ERROR_INTERNAL, "cgroup: write %s to %s", value, file);
    return true;
}

static bool make_at(int folder, const char *name, struct error *err)
{
    if (mkdirat(folder, name, 0755) == 0)
        return true;
    return error_set_errno(err, errno == EEXIST ? ERROR_CONFLICT : ERROR_INTERNAL, "make cgroup %s", name);
}

static int open_folder(int at, const char *name, struct error *err)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, ERROR_INTERNAL, "open cgroup %s", name);
    return fd;
}

/* Makes base/s<slot>; -1 on failure. */
static int make_slot_folder(const char *base, uint32_t slot, struct error *err)
{
    char path[PATH_BYTES];
    slot_path(path, base, slot, "");
    return make_at(AT_FDCWD, path, err) ? open_folder(AT_FDCWD, path, err) : -1;
}

/* --- making --- */

/* What v1 asks of who moves a process, besides a right over the file: that it be the host's root, or the process's own
 * user, when it opens (kernel/cgroup/cgroup-v1.c, __cgroup1_procs_write). A user's launcher is the latter by opening as
 * the slot's root. */
static int open_join(const struct cgroup_layout *layout, int folder, uid_t owner, struct error *err)
{
    struct user_namespace_owner before;
    if (!layout->is_delegated)
        return openat(folder, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (!user_namespace_begin_owner(owner, &before, err))
        return -1;
    int fd = openat(folder, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    int failed = errno;
    user_namespace_end_owner(&before);
    errno = failed;
    return fd;
}

static bool make_v1(const struct cgroup_layout *layout, uint32_t slot, uid_t owner, struct cgroup_slot *made,
                    struct error *err)
{
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (!layout->v1[i][0])
            continue;
        AUTO_FD int folder = make_slot_folder(layout->v1[i], slot, err);
        if (folder < 0)
            return false;
        int join = open_join(layout, folder, owner, err);
        if (join < 0)
            return error_set_errno(err, ERROR_INTERNAL, "open the v1 %s cgroup", CGROUP_CONTROLLER_NAMES[i]);
        made->join[made->join_count++] = join;
    }
    return true;
}

/* What delegation takes (cgroups(7), "Delegation"): `run` and its procs; and (cgroup_slot_make) the procs of the common
 * ancestor of `init` and `run`, against which a move from one to the other is checked. Limits stay root's. */
static bool delegate(const struct cgroup_slot *made, uid_t owner, struct error *err)
{
    static const char *const OF_RUN[] = {"cgroup.procs", "cgroup.subtree_control", "cgroup.threads"};
    if (fchown(made->run, owner, owner) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "delegate the cgroup");
    for (size_t i = 0; i < sizeof OF_RUN / sizeof OF_RUN[0]; i++) {
        if (fchownat(made->run, OF_RUN[i], owner, owner, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "delegate run/%s", OF_RUN[i]);
    }
    return true;
}

bool cgroup_slot_make(const struct cgroup_layout *layout, uint32_t slot, uid_t owner, struct cgroup_slot *made,
                      struct error *err)
{
    AUTO_CGROUP_SLOT making = CGROUP_SLOT_NONE;
    making.top = make_slot_folder(layout->unified, slot, err);
    if (making.top < 0 || !make_at(making.top, "init", err))
        return false;
    making.leaf = openat(making.top, "init/cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (making.leaf < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open cgroup init/cgroup.procs");
    if (fchownat(making.top, "cgroup.procs", owner, owner, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "delegate the cgroup");
    *made = making;
    making = CGROUP_SLOT_NONE;
    return true;
}

bool cgroup_slot_complete(const struct cgroup_layout *layout, uint32_t slot, uid_t owner, struct cgroup_slot *made,
                          struct error *err)
{
    if (!make_at(made->top, "run", err))
        return false;
    made->run = open_folder(made->top, "run", err);
    return made->run >= 0 && write_at(made->top, "cgroup.max.depth", DEPTH_MAX, err) &&
           write_at(made->top, "cgroup.max.descendants", DESCENDANTS_MAX, err) && delegate(made, owner, err) &&
           make_v1(layout, slot, owner, made, err);
}

/* --- looking --- */

bool cgroup_slot_open_stats(const struct cgroup_layout *layout, uint32_t slot, int stats[ISOLATION_STATS],
                            struct error *err)
{
    bool memory_v1 = layout->v1[CGROUP_MEMORY][0] != '\0';
    bool pids_v1 = layout->v1[CGROUP_PIDS][0] != '\0';
    const char *memory_base = memory_v1 ? layout->v1[CGROUP_MEMORY] : layout->unified;
    struct {
        const char *base, *file;
        int flags;
    } files[ISOLATION_STATS] = {
        {layout->unified, "/cgroup.kill", O_WRONLY},
        {layout->unified, "/run/cgroup.freeze", O_RDWR},
        {layout->unified, "/run/cgroup.events", O_RDONLY},
        {layout->unified, "/run/cpu.stat", O_RDONLY},
        {memory_base, memory_v1 ? "/memory.usage_in_bytes" : "/run/memory.current", O_RDONLY},
        {memory_base, memory_v1 ? "/memory.oom_control" : "/run/memory.events", O_RDONLY},
        {pids_v1 ? layout->v1[CGROUP_PIDS] : layout->unified, pids_v1 ? "/pids.current" : "/run/pids.current",
         O_RDONLY},
    };
    static const enum cgroup_controller controllers[ISOLATION_STATS] = {
        CGROUP_CONTROLLERS, CGROUP_CONTROLLERS, CGROUP_CONTROLLERS, CGROUP_CONTROLLERS, /* v2's own */
        CGROUP_MEMORY,      CGROUP_MEMORY,      CGROUP_PIDS};
    int opened[ISOLATION_STATS];
    for (size_t i = 0; i < ISOLATION_STATS; i++) {
        char path[PATH_BYTES];
        slot_path(path, files[i].base, slot, files[i].file);
        /* What nobody counts reads as nothing. */
        bool is_missing = controllers[i] < CGROUP_CONTROLLERS && layout->is_missing[controllers[i]];
        opened[i] = open(is_missing ? "/dev/null" : path, files[i].flags | O_CLOEXEC);
        if (opened[i] >= 0)
            continue;
        error_set_errno(err, ERROR_INTERNAL, "open cgroup file %s", path);
        while (i-- > 0)
            close(opened[i]);
        return false;
    }
    memcpy(stats, opened, sizeof opened);
    return true;
}

int cgroup_slot_open_run(const struct cgroup_layout *layout, uint32_t slot, struct error *err)
{
    char path[PATH_BYTES];
    slot_path(path, layout->unified, slot, "/run");
    return open_folder(AT_FDCWD, path, err);
}

bool cgroup_slot_has_init(const struct cgroup_layout *layout, uint32_t slot, pid_t pid)
{
    char path[PATH_BYTES];
    slot_path(path, layout->unified, slot, "/init/cgroup.procs");
    AUTO_FREE char *members = fd_read_file(path, 4096, NULL, NULL);
    char expected[VALUE_BYTES];
    snprintf(expected, sizeof expected, "%d\n", (int)pid);
    return text_equal(members, expected);
}

pid_t cgroup_slot_init(const struct cgroup_layout *layout, uint32_t slot)
{
    char path[PATH_BYTES];
    uint64_t pid = 0;
    slot_path(path, layout->unified, slot, "/init/cgroup.procs");
    AUTO_FREE char *members = fd_read_file(path, 4096, NULL, NULL);
    return members && text_parse_u64(members, strcspn(members, "\n"), INT32_MAX, &pid) ? (pid_t)pid : 0;
}

size_t cgroup_slot_list(const struct cgroup_layout *layout, uint32_t *slots, size_t max)
{
    size_t count = 0;
    DIR *folder = opendir(layout->unified);
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry && count < max; entry = readdir(folder)) {
        uint64_t slot = 0;
        const char *name = entry->d_name;
        if (name[0] == 's' && text_parse_u64(name + 1, strlen(name + 1), UINT32_MAX, &slot))
            slots[count++] = (uint32_t)slot;
    }
    if (folder)
        closedir(folder);
    return count;
}

/* --- ending --- */

bool cgroup_slot_kill(const struct cgroup_layout *layout, uint32_t slot, struct error *err)
{
    char path[PATH_BYTES];
    slot_path(path, layout->unified, slot, "/cgroup.kill");
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return true;
    if (fd < 0 || write(fd, "1", 1) != 1)
        return error_set_errno(err, ERROR_INTERNAL, "kill cgroup of slot %" PRIu32, slot);
    return true;
}

static bool remove_one(int at, const char *name, struct error *err)
{
    if (unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return true;
    return error_set_errno(err, errno == EBUSY ? ERROR_STARTING : ERROR_INTERNAL, "remove cgroup %s", name);
}

/* Removes the cgroup folder `name` with all below; the kernel bounds the depth (DEPTH_MAX), so this does too. */
static bool remove_below(int at, const char *name, unsigned depth, struct error *err)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return true;
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL)
        return error_set_errno(err, ERROR_INTERNAL, "open cgroup %s", name);
    bool removed = true;
    for (const struct dirent *entry = readdir(folder); entry && removed; entry = readdir(folder)) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' && depth > 0)
            removed = remove_below(dirfd(folder), entry->d_name, depth - 1, err);
    }
    closedir(folder);
    return removed && remove_one(at, name, err);
}

/* Whether anything lives in the slot: then nothing of it is touched. */
static bool is_populated(const struct cgroup_layout *layout, uint32_t slot)
{
    char path[PATH_BYTES];
    slot_path(path, layout->unified, slot, "/cgroup.events");
    AUTO_FREE char *events = fd_read_file(path, 4096, NULL, NULL);
    return events && strstr(events, "populated 1");
}

bool cgroup_slot_remove(const struct cgroup_layout *layout, uint32_t slot, struct error *err)
{
    char path[PATH_BYTES];
    if (is_populated(layout, slot))
        return error_set(err, ERROR_STARTING, "something still dies in the cgroup of slot %" PRIu32, slot);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        slot_path(path, layout->v1[i], slot, "");
        if (layout->v1[i][0] && !remove_one(AT_FDCWD, path, err))
            return false;
    }
    /* The v2 folder goes last: it is what names the slot for cgroup_slot_list. */
    slot_path(path, layout->unified, slot, "");
    return remove_below(AT_FDCWD, path, 5, err);
}
