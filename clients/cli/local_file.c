#include "clients/cli/local_file.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <errno.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
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

struct timespec local_file_time(int64_t ns)
{
    int64_t seconds = ns / 1000000000 - (ns % 1000000000 < 0);
    return (struct timespec){.tv_sec = seconds, .tv_nsec = ns - seconds * 1000000000};
}

unsigned local_file_mask(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0777U & ~mask;
}

/* ---- one that is whole or not there ---- */

bool local_file_begin(struct local_file *file, int folder, const char *path, struct error *err)
{
    const char *name;
    AUTO_FD int parent = local_file_parent(folder, path, &name, err);
    if (parent < 0)
        return false;
    char id[RANDOM_ID_BYTES];
    random_id(id, "tmp");
    AUTO_FREE char *beside = memory_printf(".%.200s.%s", name, id);
    int fd = openat(parent, beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno == EACCES ? ERROR_FORBIDDEN : ERROR_INTERNAL, "%.160s", path);
    *file =
        (struct local_file){.fd = fd, .parent = TAKE_FD(parent), .name = memory_string(name), .beside = TAKE(beside)};
    return true;
}

bool local_file_finish(struct local_file *file, unsigned mode, const struct timespec *time, struct error *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time ? *time : (struct timespec){0}};
    if (fchmod(file->fd, mode & local_file_mask()) != 0 || (time && futimens(file->fd, times) != 0))
        return error_set_errno(err, ERROR_INTERNAL, "mode and time of %.160s", file->name);
    if (renameat(file->parent, file->beside, file->parent, file->name) != 0)
        return error_set_errno(err, errno == EISDIR ? ERROR_CONFLICT : ERROR_INTERNAL, "%.160s", file->name);
    free(file->beside);
    file->beside = NULL;
    return true;
}

void local_file_done(struct local_file *file)
{
    if (!file->name)
        return;
    if (file->beside)
        unlinkat(file->parent, file->beside, 0);
    close(file->fd);
    close(file->parent);
    free(file->name);
    free(file->beside);
    *file = (struct local_file){0};
}

/* ---- fetching ---- */

static bool write_fd(void *cookie, const void *data, size_t size, struct error *err)
{
    const int *fd = cookie;
    return fd_write_all(*fd, data, size, err);
}

/* What a name of the user's leads to, when something else than a regular file would be replaced. */
static bool fetch_to_special(struct remote_files *files, const char *remote, const char *path, struct error *err)
{
    AUTO_FD int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_FORBIDDEN, "%.160s", path);
    return remote_files_read(files, remote, write_fd, &fd, err);
}

bool local_file_fetch(struct remote_files *files, const char *remote, const struct remote_entry *entry, int folder,
                      const char *path, bool keeps_time, struct error *err)
{
    struct stat status;
    AUTO_FREE char *target = NULL;
    if (folder == AT_FDCWD && stat(path, &status) == 0) {
        if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
            return fetch_to_special(files, remote, path, err);
        target = realpath(path, NULL);
    }
    AUTO_LOCAL_FILE file = {0};
    struct timespec time = local_file_time(entry->mtime_ns);
    return local_file_begin(&file, folder, target ? target : path, err) &&
           remote_files_read(files, remote, write_fd, &file.fd, err) &&
           local_file_finish(&file, entry->mode, keeps_time ? &time : NULL, err);
}
