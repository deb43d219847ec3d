#include "sandboxd/templates/tool/tree_file.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_file(const struct tree *tree, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .mode = flags & O_CREAT ? 0644 : 0,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    return (int)syscall(SYS_openat2, tree->root, path, &how, sizeof how);
}

static bool is_regular(int fd, const char *path, off_t *size, struct error *err)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return tree_fail(err, "look at", path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERROR_INVALID, "%s is no regular file", path);
    *size = status.st_size;
    return true;
}

char *tree_file_read(const struct tree *tree, const char *path, size_t max, size_t *size, struct error *err)
{
    AUTO_FD int fd = open_file(tree, path, O_RDONLY);
    off_t length = 0;
    if (fd < 0) {
        tree_fail(err, "open", path);
        return NULL;
    }
    if (!is_regular(fd, path, &length, err))
        return NULL;
    if (length < 0 || (uint64_t)length > max) {
        error_set(err, ERROR_TOO_LARGE, "%s has more than %zu bytes", path, max);
        return NULL;
    }
    AUTO_FREE char *bytes = memory_new((size_t)length + 1);
    if (!fd_read_exact(fd, bytes, (size_t)length, err))
        return NULL;
    *size = (size_t)length;
    return TAKE(bytes);
}

bool tree_file_append(struct tree *tree, const char *path, const char *text, struct error *err)
{
    AUTO_FD int fd = open_file(tree, path, O_WRONLY | O_APPEND | O_CREAT);
    off_t length = 0;
    if (fd < 0)
        return tree_fail(err, "open", path);
    return is_regular(fd, path, &length, err) && fd_write_all(fd, text, strlen(text), err);
}
