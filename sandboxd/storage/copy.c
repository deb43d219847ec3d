#include "sandboxd/storage/copy.h"

#include "sandboxd/storage/copy_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { INODE_BYTES = 1024, IDS = 65536, NOBODY = 65534, LINK_NAME_BYTES = 24, BLOCK_BYTES = 512 };

static int open_entry(int folder, const char *name, int flags)
{
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    return (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
}

static uint32_t map_id(const struct copy *copy, uint32_t id)
{
    uint32_t inside = id - copy->uid_from;
    return copy->uid_to + (inside < IDS ? inside : NOBODY);
}

/* Owner first: chown(2) takes set-uid bits and capabilities away. Times last. */
static bool set_attributes(const struct copy *copy, const struct stat *status, int folder, const char *name,
                           struct error *err)
{
    const struct timespec times[2] = {status->st_atim, status->st_mtim};
    if (fchownat(folder, name, map_id(copy, status->st_uid), map_id(copy, status->st_gid), AT_SYMLINK_NOFOLLOW) < 0)
        return copy_fail(err, "chown");
    if (!S_ISLNK(status->st_mode) && fchmodat(folder, name, status->st_mode & 07777, 0) < 0)
        return copy_fail(err, "chmod");
    return utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) == 0 || copy_fail(err, "set times");
}

/* As set_attributes for a folder that is open: by its "." */
static bool set_folder_attributes(const struct copy *copy, int from, int to, struct error *err)
{
    struct stat status;
    if (fstat(from, &status) < 0)
        return copy_fail(err, "stat");
    return copy_attributes(from, to, copy->uid_from, copy->uid_to, err) && set_attributes(copy, &status, to, ".", err);
}

/* --- files with many names --- */

static void name_link(char name[static LINK_NAME_BYTES], const struct stat *status)
{
    snprintf(name, LINK_NAME_BYTES, "%" PRIu64, (uint64_t)status->st_ino);
}

/* True when the file was copied before: it has got this name too. */
static bool link_known(const struct copy *copy, const struct stat *status, int to, const char *name)
{
    char known[LINK_NAME_BYTES];
    name_link(known, status);
    return status->st_nlink > 1 && linkat(copy->links, known, to, name, 0) == 0;
}

static bool remember_link(const struct copy *copy, const struct stat *status, int to, const char *name,
                          struct error *err)
{
    char known[LINK_NAME_BYTES];
    name_link(known, status);
    return status->st_nlink < 2 || linkat(to, name, copy->links, known, 0) == 0 || copy_fail(err, "link");
}

/* --- one entry --- */

static bool copy_regular(const struct copy *copy, int from, int to, const char *name, struct error *err)
{
    struct stat status;
    AUTO_FD int source = open_entry(from, name, O_RDONLY);
    if (source < 0 || fstat(source, &status) < 0)
        return copy_fail(err, "open");
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERROR_CONFLICT, "a file changed while it was copied");
    AUTO_FD int target = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (target < 0)
        return copy_fail(err, "create");
    if (!copy_data(source, target, status.st_size, err))
        return false;
    if (fchown(target, map_id(copy, status.st_uid), map_id(copy, status.st_gid)) < 0)
        return copy_fail(err, "chown");
    return copy_attributes(source, target, copy->uid_from, copy->uid_to, err);
}

static bool copy_symlink(int from, int to, const char *name, struct error *err)
{
    char target[PATH_MAX + 1];
    ssize_t size = readlinkat(from, name, target, sizeof target - 1);
    if (size < 0)
        return copy_fail(err, "readlink");
    target[size] = '\0';
    return symlinkat(target, to, name) == 0 || copy_fail(err, "symlink");
}

/* Neither is opened: a FIFO or a whiteout (a character device 0:0) is made anew. */
static bool copy_special(const struct stat *status, int to, const char *name, struct error *err)
{
    return mknodat(to, name, (status->st_mode & S_IFMT) | 0600, 0) == 0 || copy_fail(err, "mknod");
}

static bool is_copied(const struct stat *status)
{
    return S_ISREG(status->st_mode) || S_ISLNK(status->st_mode) || S_ISFIFO(status->st_mode) ||
           (S_ISCHR(status->st_mode) && status->st_rdev == 0);
}

static bool copy_entry(struct copy *copy, const struct stat *status, int from, int to, const char *name,
                       struct error *err)
{
    bool ok = S_ISREG(status->st_mode)   ? copy_regular(copy, from, to, name, err)
              : S_ISLNK(status->st_mode) ? copy_symlink(from, to, name, err)
                                         : copy_special(status, to, name, err);
    copy->bytes += (uint64_t)status->st_blocks * BLOCK_BYTES;
    /* The mode and the times come after the bytes; a file's capability stays, as chmod does not touch it. */
    if (ok && S_ISREG(status->st_mode)) {
        const struct timespec times[2] = {status->st_atim, status->st_mtim};
        ok = (fchmodat(to, name, status->st_mode & 07777, 0) == 0 && utimensat(to, name, times, 0) == 0) ||
             copy_fail(err, "chmod");
    } else if (ok) {
        ok = set_attributes(copy, status, to, name, err);
    }
    return ok && remember_link(copy, status, to, name, err);
}

/* --- folders --- */

static bool copy_folder(struct copy *copy, int from, int to, unsigned depth, struct error *err);

static bool enter_folder(struct copy *copy, int from, int to, const char *name, unsigned depth, struct error *err)
{
    if (depth == COPY_DEPTH_MAX)
        return error_set(err, ERROR_INVALID, "folders are more than %d deep: that cannot be copied", COPY_DEPTH_MAX);
    AUTO_FD int source = open_entry(from, name, O_RDONLY | O_DIRECTORY);
    if (source < 0 || mkdirat(to, name, 0700) < 0)
        return copy_fail(err, "copy a folder");
    AUTO_FD int target = open_entry(to, name, O_RDONLY | O_DIRECTORY);
    if (target < 0)
        return copy_fail(err, "open a folder");
    return copy_folder(copy, source, target, depth + 1, err);
}

static bool copy_named(struct copy *copy, int from, int to, const char *name, unsigned depth, struct error *err)
{
    struct stat status;
    if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return copy_fail(err, "stat");
    if (S_ISDIR(status.st_mode))
        return enter_folder(copy, from, to, name, depth, err);
    if (!is_copied(&status))
        return true;
    copy->bytes += INODE_BYTES;
    return link_known(copy, &status, to, name) || copy_entry(copy, &status, from, to, name, err);
}

static void close_folder(DIR **folder)
{
    if (*folder)
        closedir(*folder);
}

static bool copy_folder(struct copy *copy, int from, int to, unsigned depth, struct error *err)
{
    AUTO_FD int again = open_entry(from, ".", O_RDONLY | O_DIRECTORY);
    __attribute__((cleanup(close_folder))) DIR *folder = again < 0 ? NULL : fdopendir(again);
    if (folder == NULL)
        return copy_fail(err, "read a folder");
    again = -1; /* the stream's */
    copy->bytes += INODE_BYTES;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!copy_named(copy, from, to, entry->d_name, depth, err))
            return false;
    }
    return errno ? copy_fail(err, "read a folder") : set_folder_attributes(copy, from, to, err);
}

bool copy_tree(struct copy *copy, int from, int to, struct error *err)
{
    return copy_folder(copy, from, to, 0, err);
}
