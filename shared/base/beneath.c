#include "shared/base/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HOPS_MAX = 40 }; /* as the kernel's own limit */

/* Where a walk is. Invariant: `at` was reached from `top` by the names of `done`, none of them a link. */
struct walk {
    const struct open_how *how;
    int top, at;         /* O_PATH; `at` may be `top` */
    dev_t device;        /* of top, for RESOLVE_NO_XDEV */
    int hops;            /* links followed */
    char done[PATH_MAX]; /* "a/b/"; "" at the top */
    char left[PATH_MAX]; /* still to go */
};

static bool has(const struct walk *walk, uint64_t bit)
{
    return (walk->how->resolve & bit) != 0;
}

static int fail(int number)
{
    errno = number;
    return -1;
}

static bool refuse(int number)
{
    errno = number;
    return false;
}

static void move_to(struct walk *walk, int fd)
{
    if (walk->at != walk->top)
        close(walk->at);
    walk->at = fd;
}

/* The next name of what is left, taken from it; its length, 0 at the end. *is_last: only slashes follow, *is_folder: at
 * least one. */
static size_t take_name(struct walk *walk, char name[static NAME_MAX + 1], bool *is_last, bool *is_folder)
{
    const char *start = walk->left + strspn(walk->left, "/");
    size_t length = strcspn(start, "/");
    const char *rest = start + length + strspn(start + length, "/");
    *is_folder = start[length] == '/';
    *is_last = *rest == '\0';
    if (length <= NAME_MAX) {
        memcpy(name, start, length);
        name[length] = '\0';
    }
    memmove(walk->left, rest, strlen(rest) + 1);
    return length;
}

/* One name that is no link, or the link itself. gVisor follows links for O_DIRECTORY, whatever O_NOFOLLOW says: so the
 * kind is looked at instead. */
static int step(const struct walk *walk, int folder, const char *name, struct stat *status)
{
    AUTO_FD int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, status) < 0)
        return -1;
    if (has(walk, RESOLVE_NO_XDEV) && status->st_dev != walk->device)
        return fail(EXDEV);
    return TAKE_FD(fd);
}

/* From the top along the names that led here, less the last. A name that is a link by now ends it. */
static bool go_up(struct walk *walk)
{
    if (walk->done[0] == '\0')
        return has(walk, RESOLVE_IN_ROOT) || refuse(EXDEV);
    walk->done[strlen(walk->done) - 1] = '\0';
    char *last = strrchr(walk->done, '/');
    *(last ? last + 1 : walk->done) = '\0';
    move_to(walk, walk->top);
    char names[PATH_MAX];
    memcpy(names, walk->done, sizeof names);
    for (char *name = names, *slash; (slash = strchr(name, '/')) != NULL; name = slash + 1) {
        struct stat status;
        *slash = '\0';
        int fd = step(walk, walk->at, name, &status);
        if (fd < 0)
            return false;
        move_to(walk, fd);
        if (!S_ISDIR(status.st_mode))
            return refuse(S_ISLNK(status.st_mode) ? EXDEV : ENOTDIR);
    }
    return true;
}

/* Puts where the link leads before what is left. */
static bool follow(struct walk *walk, int link, bool is_folder)
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(link, "", target, sizeof target);
    if (has(walk, RESOLVE_NO_SYMLINKS) || ++walk->hops > HOPS_MAX)
        return refuse(ELOOP);
    if (length <= 0)
        return length < 0 ? false : refuse(ENOENT);
    size_t left = strlen(walk->left), slash = is_folder || left > 0 ? 1 : 0;
    if ((size_t)length + slash + left >= sizeof walk->left)
        return refuse(ENAMETOOLONG);
    if (target[0] == '/' && has(walk, RESOLVE_BENEATH))
        return refuse(EXDEV);
    memmove(walk->left + length + slash, walk->left, left + 1);
    memcpy(walk->left, target, (size_t)length);
    if (slash)
        walk->left[length] = '/';
    if (target[0] == '/') {
        move_to(walk, walk->top);
        walk->done[0] = '\0';
    }
    return true;
}

/* What was looked at, opened as it was asked for. */
static int open_looked_at(const struct walk *walk, int fd, const struct stat *status, bool must_be_folder)
{
    unsigned flags = (unsigned)walk->how->flags;
    bool is_folder = S_ISDIR(status->st_mode);
    if (S_ISLNK(status->st_mode) && !(flags & O_PATH))
        return fail(flags & O_DIRECTORY ? ENOTDIR : ELOOP);
    if ((must_be_folder || (flags & O_DIRECTORY)) && !is_folder)
        return fail(ENOTDIR);
    if (flags & O_PATH)
        return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (is_folder)
        return openat(fd, ".", (int)(flags & ~(unsigned)O_NOFOLLOW) | O_CLOEXEC);
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, (int)(flags & ~(unsigned)(O_NOFOLLOW | O_CREAT | O_EXCL)) | O_CLOEXEC);
}

static int create(const struct walk *walk, const char *name)
{
    if (!has(walk, RESOLVE_NO_SYMLINKS))
        return fail(EINVAL);
    return openat(walk->at, name, (int)walk->how->flags | O_NOFOLLOW | O_CLOEXEC, (mode_t)walk->how->mode);
}

static bool enter(struct walk *walk, int fd, const struct stat *status, const char *name)
{
    size_t done = strlen(walk->done), length = strlen(name);
    AUTO_FD int taken = fd;
    if (!S_ISDIR(status->st_mode))
        return refuse(ENOTDIR);
    if (done + length + 2 > sizeof walk->done)
        return refuse(ENAMETOOLONG);
    memcpy(walk->done + done, name, length);
    memcpy(walk->done + done + length, "/", 2);
    move_to(walk, TAKE_FD(taken));
    return true;
}

/* -2: there is more to walk. */
static int walk_one(struct walk *walk)
{
    char name[NAME_MAX + 1];
    bool is_last, is_folder;
    struct stat status;
    size_t length = take_name(walk, name, &is_last, &is_folder);
    if (length > NAME_MAX)
        return fail(ENAMETOOLONG);
    bool is_here = length == 0 || strcmp(name, ".") == 0;
    if (!is_here && strcmp(name, "..") == 0) {
        if (!go_up(walk))
            return -1;
        is_here = true;
    }
    if (is_here) {
        if (!is_last)
            return -2;
        return fstat(walk->at, &status) < 0 ? -1 : open_looked_at(walk, walk->at, &status, true);
    }
    if (is_last && !is_folder && (walk->how->flags & O_CREAT))
        return create(walk, name);
    AUTO_FD int fd = step(walk, walk->at, name, &status);
    if (fd < 0)
        return -1;
    bool keeps_link = is_last && !is_folder && (walk->how->flags & O_NOFOLLOW);
    if (S_ISLNK(status.st_mode) && !keeps_link)
        return follow(walk, fd, is_folder) ? -2 : -1;
    if (is_last)
        return open_looked_at(walk, fd, &status, is_folder);
    return enter(walk, TAKE_FD(fd), &status, name) ? -2 : -1;
}

int beneath_walk(int folder, const char *path, const struct open_how *how)
{
    struct walk walk = {.how = how};
    struct stat status;
    if (!(how->resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)))
        return fail(EINVAL);
    if (*path == '\0')
        return fail(ENOENT);
    if (strlen(path) >= sizeof walk.left)
        return fail(ENAMETOOLONG);
    if (*path == '/' && has(&walk, RESOLVE_BENEATH))
        return fail(EXDEV);
    bool is_from_root = *path == '/' && !has(&walk, RESOLVE_IN_ROOT);
    AUTO_FD int top = is_from_root ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)
                                   : openat(folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 || fstat(top, &status) < 0)
        return -1;
    walk.top = walk.at = top;
    walk.device = status.st_dev;
    memcpy(walk.left, path, strlen(path) + 1);
    int fd;
    do {
        fd = walk_one(&walk);
    } while (fd == -2);
    int number = errno;
    move_to(&walk, walk.top);
    errno = number;
    return fd;
}

int beneath_open(int folder, const char *path, const struct open_how *how)
{
    static atomic_bool is_missing; /* found out once */
    if (!is_missing) {
        struct open_how closed = *how;
        closed.flags |= O_CLOEXEC;
        int fd = (int)syscall(SYS_openat2, folder, path, &closed, sizeof closed);
        if (fd >= 0 || errno != ENOSYS)
            return fd;
        is_missing = true;
    }
    return beneath_walk(folder, path, how);
}
