/* entry.c - what stat(2) says as an ENTRY, and what errno says as a kind of error. */
#include "sandboxd/helpers/files/helper.h"

#include "sandboxd/helpers/files/names.h"
#include "sandboxd/helpers/files/walk.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum error_kind kind_of_errno(int number)
{
    switch (number) {
    case EACCES:
    case EPERM:
    case EROFS:
        return ERROR_FORBIDDEN;
    case ENOENT:
    case ENOTDIR:
        return ERROR_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
    case ETXTBSY:
    case EWOULDBLOCK:
    case EBUSY:
        return ERROR_CONFLICT;
    case ENOSPC:
    case EDQUOT:
        return ERROR_DISK_FULL;
    case ENAMETOOLONG:
    case EINVAL:
    case ELOOP:
        return ERROR_INVALID;
    case EFBIG:
        return ERROR_TOO_LARGE;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return ERROR_NO_CAPACITY;
    default:
        return ERROR_INTERNAL;
    }
}

bool fail_errno(struct error *err, const char *format, ...)
{
    char what[128];
    int number = errno;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    errno = number;
    bool is_full = kind_of_errno(number) == ERROR_DISK_FULL;
    return error_set_errno(err, kind_of_errno(number), "%s%s", what,
                           is_full ? ": the sandbox's disk, or the volume it is on, is full" : "");
}

const char *type_name(mode_t mode)
{
    static const char *const names[] = {
        [FILES_REGULAR] = "a regular file",
        [FILES_FOLDER] = "a folder",
        [FILES_SYMLINK] = "a symbolic link",
        [FILES_FIFO] = "a FIFO",
        [FILES_SOCKET] = "a socket",
        [FILES_CHAR_DEVICE] = "a character device",
        [FILES_BLOCK_DEVICE] = "a block device",
    };
    return names[walk_type_of_mode(mode)];
}

static int64_t nanoseconds(struct timespec time)
{
    int64_t whole;
    if (__builtin_mul_overflow((int64_t)time.tv_sec, (int64_t)1000000000, &whole) ||
        __builtin_add_overflow(whole, (int64_t)time.tv_nsec, &whole))
        return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return whole;
}

struct files_version version_of(const struct stat *status)
{
    return (struct files_version){.inode = status->st_ino,
                                  .size = (uint64_t)status->st_size,
                                  .mtime_ns = nanoseconds(status->st_mtim),
                                  .ctime_ns = nanoseconds(status->st_ctim)};
}

bool is_same_version(const struct files_version *a, const struct files_version *b)
{
    return a->inode == b->inode && a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

void entry_fill(struct entry *entry, const struct stat *status, int folder, const char *name, const char *path,
                size_t path_size)
{
    entry->record = (struct files_record){.kind = FILES_ENTRY,
                                          .type = walk_type_of_mode(status->st_mode),
                                          .mode = status->st_mode & 07777,
                                          .uid = status->st_uid,
                                          .gid = status->st_gid,
                                          .links = status->st_nlink,
                                          .version = version_of(status),
                                          .path = {.data = path, .size = path_size}};
    if (entry->record.type != FILES_SYMLINK)
        return;
    ssize_t length = readlinkat(folder, name, entry->target, sizeof entry->target);
    if (length > 0 && length <= FRONT_FILES_PATH_MAX)
        entry->record.target = (struct files_bytes){.data = entry->target, .size = (size_t)length};
}

/* Into memory of its own: the next name takes the place of the last. */
static struct files_bytes keep_name(char to[static FRONT_FILES_USER_MAX], struct files_bytes name)
{
    memcpy(to, name.data, name.size);
    return (struct files_bytes){.data = to, .size = name.size};
}

bool helper_entry(struct helper *helper, const struct stat *status, int folder, const char *name, const char *path,
                  size_t path_size, struct error *err)
{
    struct entry entry;
    entry_fill(&entry, status, folder, name, path, path_size);
    entry.record.owner = keep_name(entry.owner, names_of(helper, NAMES_USERS, status->st_uid));
    entry.record.group = keep_name(entry.group, names_of(helper, NAMES_GROUPS, status->st_gid));
    return helper_record(helper, &entry.record, err);
}
