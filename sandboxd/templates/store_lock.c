#include "sandboxd/templates/store_lock.h"

#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

static int lock_open(int fd, int operation, const char *path, struct error *err)
{
    AUTO_FD int taken = fd;
    int locked = -1;
    do {
        locked = taken < 0 ? -1 : flock(taken, operation);
    } while (locked < 0 && taken >= 0 && errno == EINTR);
    if (locked == 0)
        return TAKE_FD(taken);
    if (taken >= 0 && errno == EWOULDBLOCK)
        error_set(err, ERROR_CONFLICT, "%s is locked by another process", path);
    else
        error_set_errno(err, ERROR_INTERNAL, "lock %s", path);
    return -1;
}

int store_lock(const char *folder, enum store_lock_mode mode, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/.lock", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return lock_open(fd, mode == STORE_LOCK_TRY ? LOCK_EX | LOCK_NB : LOCK_EX, path, err);
}

int store_lock_folder(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return lock_open(fd, LOCK_EX | LOCK_NB, path, err);
}

bool store_sync(const char *folder, struct error *err)
{
    AUTO_FD int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "sync folder %s", folder);
    return true;
}
