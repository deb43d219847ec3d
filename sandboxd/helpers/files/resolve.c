/* resolve.c - from a path to a descriptor. All confinement of a path scope is here: the scope's folder is opened
 * without any link in its way, what is below it with RESOLVE_BENEATH (base/beneath.h), for every hop of a link that is
 * followed by hand anew. */
#include "sandboxd/helpers/files/helper.h"

#include "shared/base/beneath.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    HOPS_MAX = 40, /* as the kernel's own limit */
    RETRIES = 1000 /* EAGAIN: something was renamed while a ".." was looked at */
};

void place_done(struct place *place)
{
    if (place->folder >= 0)
        close(place->folder);
    place->folder = -1;
}

bool is_scoped(const char *root)
{
    return root[0] != 0 && !text_equal(root, "/");
}

bool check_links(const char *root, const struct stat *status, struct error *err)
{
    if (!is_scoped(root) || !S_ISREG(status->st_mode) || status->st_nlink <= 1)
        return true;
    return error_set(err, ERROR_FORBIDDEN, "the file has %llu hard links; one may lie outside what the token may see",
                     (unsigned long long)status->st_nlink);
}

bool is_scope_root(const char *root, const char *path)
{
    return text_equal(path, "/") || (is_scoped(root) && text_equal(root, path));
}

static int open_below(int folder, const char *path, int flags, uint64_t resolve)
{
    int more = flags & O_PATH ? O_CLOEXEC : O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    const struct open_how how = {.flags = (unsigned)(flags | more), .resolve = resolve | RESOLVE_NO_MAGICLINKS};
    for (int i = 0;; i++) {
        int fd = beneath_open(folder, path, &how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || (errno == EAGAIN && i >= RETRIES))
            return fd;
        /* EAGAIN is a lease too, when it is no O_PATH: that does not pass by itself. */
        if (errno == EAGAIN && (flags & (O_PATH | O_DIRECTORY)) == 0)
            return fd;
        sched_yield();
    }
}

/* The scope's folder; no link may lead to it: it would lead elsewhere tomorrow. */
static int open_scope(const struct helper *helper, const char *root, struct error *err)
{
    int fd = open_below(helper->root_fd, root + 1, O_PATH | O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (fd < 0 && (errno == ELOOP || errno == EXDEV))
        error_set_errno(err, ERROR_FORBIDDEN, "a link stands in the way to the folder that the token may see");
    else if (fd < 0)
        fail_errno(err, "the folder that the token may see");
    return fd;
}

static bool fail_outside(struct error *err)
{
    return error_set_errno(err, ERROR_FORBIDDEN, "leads outside what the token may see");
}

/* `path` starts with root; what follows may have any segments. */
static int open_path(const struct helper *helper, const char *root, const char *path, int flags, struct error *err)
{
    if (!is_scoped(root)) {
        int fd = open_below(helper->root_fd, path, flags, RESOLVE_IN_ROOT);
        if (fd < 0)
            fail_errno(err, "open");
        return fd;
    }
    AUTO_FD int scope = open_scope(helper, root, err);
    if (scope < 0)
        return -1;
    const char *rest = path + strlen(root);
    rest += strspn(rest, "/");
    int fd = open_below(scope, *rest ? rest : ".", flags, RESOLVE_BENEATH);
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        fail_outside(err);
    else if (fd < 0)
        fail_errno(err, "open");
    return fd;
}

int resolve_open(const struct helper *helper, const char *root, const char *path, int flags, struct error *err)
{
    return open_path(helper, root, path, flags, err);
}

/* By the O_PATH descriptor itself: the file that was looked at, not what has its name now. */
static int reopen(int path_fd, int flags, struct error *err)
{
    char link[32];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", path_fd);
    int fd = open(link, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == EWOULDBLOCK)
        error_set_errno(err, ERROR_CONFLICT, "a command holds a lease on the file");
    else if (fd < 0)
        fail_errno(err, "open");
    return fd;
}

static int open_looked_at(int path_fd, int flags, const char *root, struct stat *status, struct error *err)
{
    struct stat before, after;
    if (fstat(path_fd, &before) < 0) {
        fail_errno(err, "fstat");
        return -1;
    }
    if (!S_ISREG(before.st_mode)) {
        error_set(err, ERROR_CONFLICT, "is %s, not a regular file", type_name(before.st_mode));
        return -1;
    }
    if (!check_links(root, &before, err))
        return -1;
    AUTO_FD int fd = reopen(path_fd, flags, err);
    if (fd < 0)
        return -1;
    /* Again: another link may have been made meanwhile. */
    if (fstat(fd, &after) < 0 || !S_ISREG(after.st_mode)) {
        error_set(err, ERROR_CONFLICT, "changed while it was opened");
        return -1;
    }
    if (!check_links(root, &after, err))
        return -1;
    *status = after;
    return TAKE_FD(fd);
}

int resolve_regular(const struct helper *helper, const char *root, const char *path, int flags, struct stat *status,
                    struct error *err)
{
    AUTO_FD int path_fd = open_path(helper, root, path, O_PATH, err);
    return path_fd < 0 ? -1 : open_looked_at(path_fd, flags, root, status, err);
}

int open_regular_at(int folder, const char *name, int flags, const char *root, struct stat *status, struct error *err)
{
    AUTO_FD int path_fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (path_fd < 0) {
        fail_errno(err, "open");
        return -1;
    }
    return open_looked_at(path_fd, flags, root, status, err);
}

int open_child_folder(int folder, const char *name, int flags)
{
    const struct open_how how = {.flags = (unsigned)flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return beneath_open(folder, name, &how);
}

int open_folder_at(int folder, const char *name, struct error *err)
{
    int fd = open_below(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (fd < 0)
        fail_errno(err, "open of a folder");
    return fd;
}

/* Into a folder's path (as written, "" being "/") and a last name. */
static bool split(const char *path, char folder[static PATH_MAX], char name[static NAME_MAX + 1], struct error *err)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && path[start - 1] != '/')
        start--;
    size_t size = length - start;
    if (size == 0 || (size == 1 && path[start] == '.') || (size == 2 && path[start] == '.' && path[start + 1] == '.'))
        return error_set(err, ERROR_CONFLICT, "is a folder that has no name of its own there");
    if (size > NAME_MAX || start >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return fail_errno(err, "the path");
    }
    memcpy(name, path + start, size);
    name[size] = 0;
    memcpy(folder, path, start);
    folder[start] = 0;
    return true;
}

/* As open_path; the caller has seen that it is not the root. */
static bool open_parent(const struct helper *helper, const char *root, const char *path, struct place *place,
                        struct error *err)
{
    char folder[PATH_MAX];
    struct place got = PLACE_NONE;
    if (!split(path, folder, got.name, err))
        return false;
    got.folder = open_path(helper, root, folder, O_PATH | O_DIRECTORY, err);
    if (got.folder < 0)
        return false;
    place_done(place);
    *place = got;
    return true;
}

bool resolve_parent(const struct helper *helper, const char *root, const char *path, struct place *place,
                    struct error *err)
{
    if (is_scope_root(root, path))
        return error_set(err, ERROR_FORBIDDEN, "this folder itself cannot be changed here, only what is in it");
    return open_parent(helper, root, path, place, err);
}

static bool make_folder(const struct helper *helper, const char *root, const char *path, struct error *err)
{
    struct error why = {0};
    AUTO_FD int there = open_path(helper, root, path, O_PATH | O_DIRECTORY, &why);
    if (there >= 0)
        return true;
    AUTO_PLACE place = PLACE_NONE;
    if (why.system_errno != ENOENT) {
        *err = why;
        return false;
    }
    if (!open_parent(helper, root, path, &place, err))
        return false;
    /* A link to nowhere is there and is none: the next step says so. */
    return mkdirat(place.folder, place.name, 0755) == 0 || errno == EEXIST || fail_errno(err, "mkdir");
}

static bool make_parents(const struct helper *helper, const char *root, const char *path, struct error *err)
{
    char prefix[PATH_MAX];
    if (!text_copy(prefix, sizeof prefix, path))
        return error_set(err, ERROR_INVALID, "the path is too long");
    size_t start = is_scoped(root) ? strlen(root) : 0;
    for (char *slash = strchr(prefix + start + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool is_made = make_folder(helper, root, prefix, err);
        *slash = '/';
        if (!is_made)
            return false;
    }
    return true;
}

bool resolve_parent_made(const struct helper *helper, const char *root, const char *path, bool makes_parents,
                         struct place *place, struct error *err)
{
    struct error why = {0};
    if (resolve_parent(helper, root, path, place, &why))
        return true;
    if (makes_parents && why.system_errno == ENOENT)
        return make_parents(helper, root, path, err) && resolve_parent(helper, root, path, place, err);
    *err = why;
    return false;
}

/* Where the link leads, as a path that starts with root again: the folder as it was written, then the target; the
 * kernel follows both and keeps to the scope. */
static bool follow(const char *root, char path[static PATH_MAX], const char *target, struct error *err)
{
    char folder[PATH_MAX], name[NAME_MAX + 1], next[PATH_MAX];
    if (target[0] == '/' && is_scoped(root)) {
        errno = EXDEV;
        return fail_outside(err);
    }
    if (!split(path, folder, name, err))
        return false;
    bool fits = target[0] == '/' ? text_copy(next, sizeof next, target)
                                 : text_format(next, sizeof next, "%s%s", folder, target);
    if (!fits) {
        errno = ENAMETOOLONG;
        return fail_errno(err, "where the link leads");
    }
    memcpy(path, next, PATH_MAX);
    return true;
}

bool resolve_target(const struct helper *helper, const char *root, const char *path, bool makes_parents,
                    struct place *place, struct error *err)
{
    char current[PATH_MAX], target[PATH_MAX];
    if (!text_copy(current, sizeof current, path))
        return error_set(err, ERROR_INVALID, "the path is too long");
    if (!resolve_parent_made(helper, root, path, makes_parents, place, err))
        return false;
    for (int hops = 0; hops <= HOPS_MAX; hops++) {
        ssize_t length = readlinkat(place->folder, place->name, target, sizeof target - 1);
        if (length < 0 && (errno == EINVAL || errno == ENOENT))
            return true; /* no link */
        if (length < 0)
            return fail_errno(err, "readlink");
        target[length] = 0;
        if (!follow(root, current, target, err) || !open_parent(helper, root, current, place, err))
            return false;
    }
    errno = ELOOP;
    return fail_errno(err, "follow");
}
