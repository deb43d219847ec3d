/* attachments.c - see attachments.h. */
#include "sandboxd/launcher/attachments.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { NAME_HASH_BYTES = 16, SANDBOX_ID = 1000, NOBODY = 65534, HOSTS_MAX = 64 };

/* --- where they may be seen inside --- */

static bool is_or_is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

static bool check_path(const char *path, struct error *err)
{
    static const char *const KEPT[] = {"/proc", "/dev", "/sys", "/etc", "/usr", "/bin", "/sbin"};
    bool is_kept = path[0] != '/' || path[1] == '\0' || text_starts_with(path, "/lib");
    for (size_t i = 0; i < sizeof KEPT / sizeof KEPT[0]; i++)
        is_kept = is_kept || is_or_is_below(path, KEPT[i]);
    return !is_kept ||
           error_set(err, ERROR_INVALID,
                     "a volume cannot be at \"%s\": /, /proc, /dev, /sys, /etc, /usr, /bin, /sbin and /lib* are "
                     "the sandbox's own",
                     path);
}

static bool check_paths(const struct fl_prepare *prepare, struct error *err)
{
    for (size_t i = 0; i < prepare->volume_count; i++) {
        const char *path = prepare->volumes[i].path;
        if (!check_path(path, err))
            return false;
        for (size_t j = 0; j < i; j++) {
            const char *other = prepare->volumes[j].path;
            if (is_or_is_below(path, other) || is_or_is_below(other, path))
                return error_set(err, ERROR_INVALID, "the volumes at \"%s\" and \"%s\" contain each other", other,
                                 path);
        }
    }
    return true;
}

/* --- folders below folders --- */

/* `name` below `folder`, through no link, no mount's other end and no "..". */
static int open_below(int folder, const char *name)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, folder, name[0] ? name : ".", &how, sizeof how);
}

/* As open_below; what is not there is made, the sandbox's user's. */
static int make_below(int folder, const char *name)
{
    AUTO_FD int here = open_below(folder, ".");
    while (here >= 0 && *name) {
        size_t length = strcspn(name, "/");
        AUTO_FREE char *part = memory_copy(name, length);
        bool made = mkdirat(here, part, 0755) == 0;
        if (!made && errno != EEXIST)
            return -1;
        AUTO_FD int next = open_below(here, part);
        if (next >= 0 && made && fchownat(next, "", SANDBOX_ID, SANDBOX_ID, AT_EMPTY_PATH) < 0)
            return -1;
        close(here);
        here = TAKE_FD(next);
        name += length + (name[length] == '/');
    }
    return TAKE_FD(here);
}

static bool is_same(int a, int b)
{
    struct stat of_a;
    struct stat of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* Whether `folder` is `top` or lies somewhere below: by going up, which no link leads astray. When in doubt, yes. */
static bool is_within(int folder, int top)
{
    AUTO_FD int here = openat(folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (here >= 0) {
        if (is_same(here, top))
            return true;
        AUTO_FD int up = openat(here, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up >= 0 && is_same(here, up))
            return false;
        close(here);
        here = TAKE_FD(up);
    }
    return true;
}

/* --- a host's --- */

static bool is_kernels(int fd)
{
    struct statfs facts;
    if (fstatfs(fd, &facts) < 0)
        return true;
    switch ((unsigned long)facts.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case BPF_FS_MAGIC:
    case DEVPTS_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

/* One word of the list: its folder without slashes at the end, and whether it ends in ":ro". */
static char *take_host(const char **at, bool *read_only)
{
    size_t length = strcspn(*at, ",");
    char *word = memory_copy(*at, length);
    *at += length + ((*at)[length] == ',');
    *read_only = length > 3 && strcmp(word + length - 3, ":ro") == 0;
    if (*read_only)
        word[length -= 3] = '\0';
    while (length > 1 && word[length - 1] == '/')
        word[--length] = '\0';
    return word;
}

bool attachments_check_hosts(const char *hosts, struct error *err)
{
    unsigned count = 0;
    for (const char *at = hosts; at && *at;) {
        bool read_only = false;
        AUTO_FREE char *folder = take_host(&at, &read_only);
        if (folder[0] != '/' || folder[1] == '\0' || ++count > HOSTS_MAX)
            return error_set(
                err, ERROR_INVALID,
                "volume_hosts: \"%.80s\" is not FOLDER or FOLDER:ro, an absolute path and not / (at most %d)", folder,
                HOSTS_MAX);
    }
    return true;
}

/* The longest folder of the list that `source` is or lies below; NULL. */
static char *find_host(const char *hosts, const char *source, bool *read_only)
{
    char *best = NULL;
    for (const char *at = hosts; at && *at;) {
        bool is_read_only = false;
        char *folder = take_host(&at, &is_read_only);
        if (!is_or_is_below(source, folder) || (best && strlen(best) >= strlen(folder))) {
            free(folder);
            continue;
        }
        free(best);
        best = folder;
        *read_only = is_read_only;
    }
    return best;
}

/* The operator's own folder may be a link; what lies below may not lead through one. */
static int open_host(const char *folder, const struct fl_volume *asked)
{
    AUTO_FD int top = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *rest = asked->source + strlen(folder);
    AUTO_FD int source = top < 0 ? -1 : open_below(top, *rest == '/' ? rest + 1 : rest);
    return source < 0 ? -1 : open_below(source, asked->sub_path);
}

/* Only its owner is somebody inside. Of root's folder nobody is: what all may read can be read. */
static bool judge_host(const struct attachments_rules *rules, const char *source, struct attachment *volume,
                       struct error *err)
{
    struct stat status;
    AUTO_FD int state = open(rules->state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (state < 0 || fstat(volume->fd, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "look at %s", source);
    if (is_within(volume->fd, state) || is_within(state, volume->fd) || is_kernels(volume->fd))
        return error_set(err, ERROR_FORBIDDEN, "%s cannot be a volume: it holds state of Parley's or is the kernel's",
                         source);
    if (status.st_uid == 0 && !volume->read_only)
        return error_set(err, ERROR_FORBIDDEN, "%s belongs to root and can only be mounted read-only", source);
    volume->is_squashed = true;
    volume->owner = status.st_uid == 0 ? NOBODY : status.st_uid;
    return true;
}

static bool open_host_volume(const struct attachments_rules *rules, const struct fl_volume *asked,
                             struct attachment *volume, struct error *err)
{
    bool read_only = false;
    AUTO_FREE char *folder = find_host(rules->hosts, asked->source, &read_only);
    if (!folder)
        return error_set(err, ERROR_FORBIDDEN, "%s is not of the folders that this node's volume_hosts allows",
                         asked->source);
    volume->read_only = asked->read_only;
    if (read_only && !asked->read_only)
        return error_set(err, ERROR_FORBIDDEN, "%s can only be mounted read-only (volume_hosts)", asked->source);
    volume->fd = open_host(folder, asked);
    if (volume->fd < 0)
        return error_set_errno(err, ERROR_INVALID, "no folder %s%s%s that can be reached without links", asked->source,
                               asked->sub_path[0] ? "/" : "", asked->sub_path);
    return judge_host(rules, asked->source, volume, err);
}

/* --- a named one --- */

void attachments_disk_name(char to[static STORAGE_NAME_BYTES], const char *owner, const char *source)
{
    uint8_t hash[NAME_HASH_BYTES];
    AUTO_FREE char *both = memory_printf("%s/%s", owner, source);
    crypto_generichash(hash, sizeof hash, (const uint8_t *)both, strlen(both), NULL, 0);
    memcpy(to, "v_", 2);
    text_hex(to + 2, hash, sizeof hash);
}

static bool open_named_volume(const struct attachments_rules *rules, const struct fl_volume *asked,
                              struct attachment *volume, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    uint64_t bytes = asked->size_bytes ? asked->size_bytes : rules->default_bytes;
    attachments_disk_name(volume->disk_name, asked->owner, asked->source);
    volume->was_made = !storage_volume_exists(rules->storage, volume->disk_name);
    if (!storage_volume_open(rules->storage, volume->disk_name, bytes, path, err))
        return error_prefix(err, "volume %s", asked->source);
    AUTO_FD int top = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    volume->read_only = asked->read_only;
    volume->fd = top < 0 ? -1 : make_below(top, asked->sub_path);
    if (volume->fd >= 0)
        return true;
    return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INVALID,
                           "no folder \"%s\" in volume %s", asked->sub_path, asked->source);
}

/* --- all of them --- */

static bool open_volume(const struct attachments_rules *rules, const struct fl_volume *asked, struct attachment *volume,
                        struct error *err)
{
    volume->fd = -1;
    memcpy(volume->path, asked->path, sizeof volume->path);
    bool opened = asked->kind == FL_VOLUME_HOST ? open_host_volume(rules, asked, volume, err)
                                                : open_named_volume(rules, asked, volume, err);
    snprintf(volume->source, sizeof volume->source, "/proc/self/fd/%d", volume->fd);
    return opened;
}

bool attachments_open(const struct attachments_rules *rules, const struct fl_prepare *prepare,
                      struct attachments *volumes, struct error *err)
{
    *volumes = (struct attachments){.count = 0};
    if (!check_paths(prepare, err))
        return false;
    while (volumes->count < prepare->volume_count) {
        size_t here = volumes->count++;
        if (!open_volume(rules, &prepare->volumes[here], &volumes->list[here], err)) {
            for (size_t i = 0; i <= here; i++)
                attachments_unmake(rules, volumes, i);
            attachments_close(volumes);
            return false;
        }
    }
    return true;
}

void attachments_close(struct attachments *volumes)
{
    for (size_t i = 0; i < volumes->count; i++) {
        if (volumes->list[i].fd >= 0)
            close(volumes->list[i].fd);
    }
    volumes->count = 0;
}

void attachments_unmake(const struct attachments_rules *rules, const struct attachments *volumes, size_t i)
{
    struct error err = {0};
    const struct attachment *volume = &volumes->list[i];
    if (volume->was_made && !storage_volume_remove(rules->storage, volume->disk_name, &err) &&
        err.kind != ERROR_NOT_FOUND)
        log_error("launcher", "a volume that was made in vain is left: %s", err.message);
}

void attachments_tell(const struct attachments *volumes, struct isolation_life *life)
{
    for (size_t i = 0; i < volumes->count; i++) {
        const struct attachment *volume = &volumes->list[i];
        life->volumes[i] = (struct isolation_volume){.source = volume->source,
                                                     .path = volume->path,
                                                     .read_only = volume->read_only,
                                                     .is_squashed = volume->is_squashed,
                                                     .owner = volume->owner};
    }
    life->volume_count = volumes->count;
}
