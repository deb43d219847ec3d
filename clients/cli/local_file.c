#include "clients/cli/local_file.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <errno.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int local_file_parent(int folder, const char *path, const char **name, struct error *err)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    size_t length = slash ? (size_t)(slash - path) : 0;
    AUTO_FREE char *parent = memory_copy(length ? path : ".", length ? length + 1 : 2);
    parent[length ? length : 1] = 0;
    if (slash == path)
        memcpy(parent, "/", 2);
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = folder == AT_FDCWD ? 0 : RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int opened = (int)syscall(SYS_openat2, folder, parent, &how, sizeof how);
    if (opened < 0)
        error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_FORBIDDEN, "%.160s", parent);
    return opened;
}

static bool write_fd(void *cookie, const void *data, size_t size, struct error *err)
{
    const int *fd = cookie;
    return fd_write_all(*fd, data, size, err);
}

static bool fetch_to(struct remote_files *files, const char *remote, const struct remote_entry *entry, int fd,
                     bool keeps_time, struct error *err)
{
    if (!remote_files_read(files, remote, write_fd, &fd, err))
        return false;
    mode_t mask = umask(0);
    umask(mask);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = entry->mtime_ns / 1000000000, .tv_nsec = entry->mtime_ns % 1000000000}};
    if (fchmod(fd, entry->mode & 0777U & ~mask) != 0 || (keeps_time && futimens(fd, times) != 0))
        return error_set_errno(err, ERROR_INTERNAL, "mode and time");
    return true;
}

bool local_file_fetch(struct remote_files *files, const char *remote, const struct remote_entry *entry, int folder,
                      const char *path, bool keeps_time, struct error *err)
{
    const char *name;
    AUTO_FD int parent = local_file_parent(folder, path, &name, err);
    if (parent < 0)
        return false;
    char id[RANDOM_ID_BYTES];
    random_id(id, "tmp");
    AUTO_FREE char *beside = memory_printf(".%.200s.%s", name, id);
    AUTO_FD int fd = openat(parent, beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno == EACCES ? ERROR_FORBIDDEN : ERROR_INTERNAL, "%.160s", path);
    bool good = fetch_to(files, remote, entry, fd, keeps_time, err);
    if (good && renameat(parent, beside, parent, name) != 0)
        good = error_set_errno(err, errno == EISDIR ? ERROR_CONFLICT : ERROR_INTERNAL, "%.160s", path);
    if (!good)
        unlinkat(parent, beside, 0);
    return good;
}
