#include "sandboxd/isolation/namespaces/own_root.h"

#include "shared/base/cleanup.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 16, LINK_BYTES = 4096 };

bool own_root_open(const char *folder, struct error *err)
{
    if (!fd_make_folders(folder, 0700, err))
        return false;
    return mount("parley", folder, "tmpfs", MS_NOSUID | MS_NODEV, "size=1g,mode=0700") == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "mount a tmpfs at %s", folder);
}

void own_root_close(const char *folder)
{
    (void)umount2(folder, MNT_DETACH);
    (void)rmdir(folder);
}

/* --- copying --- */

/* One entry of a folder, from one to the other. */
struct entry {
    int from, to;
    const char *name;
    struct stat status;
    uint32_t base;
};

static bool fail(const struct entry *entry, struct error *err)
{
    return error_set_errno(err, errno == ENOSPC ? ERROR_DISK_FULL : ERROR_INTERNAL, "copy %s of a template",
                           entry->name);
}

static bool take_owner(const struct entry *entry)
{
    return fchownat(entry->to, entry->name, entry->base + entry->status.st_uid, entry->base + entry->status.st_gid,
                    AT_SYMLINK_NOFOLLOW) == 0;
}

static bool copy_file(const struct entry *entry, struct error *err)
{
    const int how = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    AUTO_FD int source = openat(entry->from, entry->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_FD int target = openat(entry->to, entry->name, how, 0600);
    off_t left = entry->status.st_size;
    while (source >= 0 && target >= 0 && left > 0) {
        ssize_t sent = sendfile(target, source, NULL, (size_t)left);
        if (sent <= 0)
            return fail(entry, err);
        left -= sent;
    }
    bool is_done =
        source >= 0 && target >= 0 && take_owner(entry) && fchmod(target, entry->status.st_mode & 01777) == 0;
    return is_done || fail(entry, err);
}

static bool copy_link(const struct entry *entry, struct error *err)
{
    char target[LINK_BYTES];
    ssize_t length = readlinkat(entry->from, entry->name, target, sizeof target - 1);
    if (length < 0)
        return fail(entry, err);
    target[length] = '\0';
    return (symlinkat(target, entry->to, entry->name) == 0 && take_owner(entry)) || fail(entry, err);
}

static bool copy_entries(int from, int to, uint32_t base, unsigned depth, struct error *err);

/* Its mode last: until then it is the launcher's to fill. */
static bool copy_folder(const struct entry *entry, unsigned depth, struct error *err)
{
    const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    if (mkdirat(entry->to, entry->name, 0700) < 0)
        return fail(entry, err);
    AUTO_FD int source = openat(entry->from, entry->name, how);
    AUTO_FD int target = openat(entry->to, entry->name, how);
    if (source < 0 || target < 0 || depth == 0)
        return fail(entry, err);
    if (!copy_entries(TAKE_FD(source), target, entry->base, depth - 1, err))
        return false;
    return (take_owner(entry) && fchmod(target, entry->status.st_mode & 01777) == 0) || fail(entry, err);
}

static bool copy_entry(const struct entry *entry, unsigned depth, struct error *err)
{
    switch (entry->status.st_mode & S_IFMT) {
    case S_IFDIR:
        return copy_folder(entry, depth, err);
    case S_IFREG:
        return copy_file(entry, err);
    case S_IFLNK:
        return copy_link(entry, err);
    default:
        return true; /* a skeleton has nothing else */
    }
}

/* Takes `from`. */
static bool copy_entries(int from, int to, uint32_t base, unsigned depth, struct error *err)
{
    DIR *folder = fdopendir(from);
    if (!folder) {
        close(from);
        return error_set_errno(err, ERROR_INTERNAL, "read a folder of a template");
    }
    bool is_done = true;
    for (const struct dirent *found = readdir(folder); found && is_done; found = readdir(folder)) {
        struct entry entry = {.from = dirfd(folder), .to = to, .name = found->d_name, .base = base};
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
            continue;
        is_done = fstatat(entry.from, entry.name, &entry.status, AT_SYMLINK_NOFOLLOW) == 0
                      ? copy_entry(&entry, depth, err)
                      : fail(&entry, err);
    }
    closedir(folder);
    return is_done;
}

/* --- a slot's --- */

/* ".../base-0123/rootfs": "base-0123". The caller frees. */
static char *version_of(const char *rootfs)
{
    const char *end = strrchr(rootfs, '/');
    const char *start = end;
    while (start && start > rootfs && start[-1] != '/')
        start--;
    return memory_copy(start ? start : "", start ? (size_t)(end - start) : 0);
}

static bool copy_to(const char *rootfs, const char *path, uint32_t base, struct error *err)
{
    AUTO_FREE char *above = memory_copy(path, (size_t)(strrchr(path, '/') - path));
    const char *last = strrchr(rootfs, '/');
    AUTO_FREE char *around = memory_copy(rootfs, last ? (size_t)(last - rootfs) : 0);
    AUTO_FD int from = open(around, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int to = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct entry entry = {.from = from, .to = to, .name = last ? last + 1 : "", .base = base};
    if (from < 0 || to < 0 || fstatat(from, entry.name, &entry.status, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", rootfs);
    return copy_folder(&entry, DEPTH_MAX, err) &&
           (renameat(to, entry.name, to, strrchr(path, '/') + 1) == 0 || fail(&entry, err));
}

bool own_root_make(const char *folder, uint32_t slot, uint32_t base, const char *rootfs,
                   char path[static OWN_ROOT_PATH_BYTES], struct error *err)
{
    AUTO_FREE char *version = version_of(rootfs);
    AUTO_FREE char *own = memory_printf("%s/%" PRIu32, folder, slot);
    if (!text_format(path, OWN_ROOT_PATH_BYTES, "%s/%s", own, version) || !version[0])
        return error_set(err, ERROR_TOO_LARGE, "the path of a slot's template is too long");
    if (access(path, F_OK) == 0)
        return true;
    return fd_remove_tree(own, err) && fd_make_folders(own, 0700, err) && copy_to(rootfs, path, base, err);
}
