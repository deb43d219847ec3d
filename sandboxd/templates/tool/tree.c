#include "sandboxd/templates/tool/tree.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void tree_init(struct tree *tree, int root, const struct tree_limits *limits)
{
    *tree = (struct tree){.root = root, .limits = *limits, .parent_fd = -1};
}

static void forget_parent(struct tree *tree)
{
    if (tree->parent_fd >= 0)
        close(tree->parent_fd);
    tree->parent_fd = -1;
}

void tree_done(struct tree *tree)
{
    forget_parent(tree);
    inodes_done(&tree->touched);
}

bool tree_fail(struct error *err, const char *what, const char *path)
{
    enum error_kind kind = ERROR_INTERNAL;
    if (errno == ENOSPC || errno == EDQUOT)
        kind = ERROR_DISK_FULL;
    else if (errno == ENOENT)
        kind = ERROR_NOT_FOUND;
    else if (errno == ENOTDIR || errno == ELOOP || errno == ENAMETOOLONG || errno == EXDEV || errno == EEXIST)
        kind = ERROR_INVALID;
    return error_set_errno(err, kind, "%s %.120s", what, path);
}

/* --- names --- */

/* One part, appended to `path`. */
static bool append_part(char path[static TREE_PATH_BYTES], const char *part, size_t length, struct error *err)
{
    size_t used = strlen(path);
    if (length == 2 && memcmp(part, "..", 2) == 0)
        return error_set(err, ERROR_INVALID, "its name has \"..\"");
    if (length > NAME_MAX || used + length + 2 > TREE_PATH_BYTES)
        return error_set(err, ERROR_INVALID, "its name is longer than %d", length > NAME_MAX ? NAME_MAX : PATH_MAX - 1);
    if (used > 0)
        path[used++] = '/';
    memcpy(path + used, part, length);
    path[used + length] = '\0';
    return true;
}

bool tree_path(const char *name, char path[static TREE_PATH_BYTES], struct error *err)
{
    char whole[TREE_PATH_BYTES] = "";
    unsigned depth = 0;
    if (name[0] == '\0')
        return error_set(err, ERROR_INVALID, "its name is empty");
    if (name[0] == '/')
        return error_set(err, ERROR_INVALID, "its name is absolute");
    for (const char *part = name; *part; part += strspn(part, "/")) {
        size_t length = strcspn(part, "/");
        if (length != 1 || part[0] != '.') {
            if (!append_part(whole, part, length, err))
                return false;
            depth++;
        }
        part += length;
    }
    if (depth > TREE_DEPTH_MAX)
        return error_set(err, ERROR_INVALID, "it lies deeper than %d folders", TREE_DEPTH_MAX);
    memcpy(path, whole, sizeof whole);
    return true;
}

const char *tree_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* --- parents --- */

static int open_in_root(const struct tree *tree, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    return (int)syscall(SYS_openat2, tree->root, path[0] ? path : ".", &how, sizeof how);
}

static int keep_parent(struct tree *tree, const char *path, int fd)
{
    forget_parent(tree);
    memcpy(tree->parent, path, strlen(path) + 1);
    tree->parent_fd = fd;
    return fd;
}

static void parent_of(const char *path, char parent[static TREE_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, length);
    parent[length] = '\0';
}

int tree_find_parent(struct tree *tree, const char *path, struct error *err)
{
    char parent[TREE_PATH_BYTES];
    parent_of(path, parent);
    if (tree->parent_fd >= 0 && strcmp(parent, tree->parent) == 0)
        return tree->parent_fd;
    int fd = open_in_root(tree, parent);
    if (fd >= 0)
        return keep_parent(tree, parent, fd);
    tree_fail(err, "open folder", parent);
    return -1;
}

/* Makes the folder `path`, whose own parent is there. */
static bool make_folder(struct tree *tree, const char *path, struct error *err)
{
    AUTO_FD int at = -1;
    char parent[TREE_PATH_BYTES];
    parent_of(path, parent);
    at = open_in_root(tree, parent);
    if (at < 0)
        return tree_fail(err, "open folder", parent);
    int made = mkdirat(at, tree_base(path), 0755);
    if (made < 0 && errno == EEXIST)
        return error_set(err, ERROR_INVALID, "%.120s is a link to nothing", path);
    if (made < 0 || fchmodat(at, tree_base(path), 0755, 0) < 0)
        return tree_fail(err, "make folder", path);
    return tree_count_entry(tree, err) && tree_touch(tree, at, tree_base(path), err);
}

static bool make_folders(struct tree *tree, const char *path, struct error *err)
{
    char partial[TREE_PATH_BYTES];
    memcpy(partial, path, strlen(path) + 1);
    for (char *end = partial; end;) {
        end = strchr(end, '/');
        if (end)
            *end = '\0';
        AUTO_FD int there = open_in_root(tree, partial);
        if (there < 0 && errno != ENOENT)
            return tree_fail(err, "open folder", partial);
        if (there < 0 && !make_folder(tree, partial, err))
            return false;
        if (end)
            *end++ = '/';
    }
    return true;
}

int tree_parent(struct tree *tree, const char *path, struct error *err)
{
    struct error why = {0};
    int fd = tree_find_parent(tree, path, &why);
    if (fd >= 0)
        return fd;
    if (why.kind != ERROR_NOT_FOUND) {
        error_set(err, why.kind, "%s", why.message);
        return -1;
    }
    char parent[TREE_PATH_BYTES];
    parent_of(path, parent);
    return make_folders(tree, parent, err) ? tree_find_parent(tree, path, err) : -1;
}

/* --- entries --- */

bool tree_remove(struct tree *tree, int parent, const char *base, struct error *err)
{
    struct stat status;
    if (fstatat(parent, base, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || tree_fail(err, "look at", base);
    if (S_ISREG(status.st_mode))
        return unlinkat(parent, base, 0) == 0 || tree_fail(err, "remove", base);
    /* Folders go by their names from here; what was on the way to the kept parent may be among them. */
    if (fchdir(parent) < 0)
        return tree_fail(err, "enter the folder of", base);
    if (tree->parent_fd != parent)
        forget_parent(tree);
    else
        tree->parent[0] = '/', tree->parent[1] = '\0'; /* no path of the tree: not found again, closed with the next */
    AUTO_FREE char *relative = memory_printf("./%s", base);
    bool removed = fd_remove_tree(relative, err);
    (void)!fchdir(tree->root);
    return removed;
}

bool tree_count_entry(struct tree *tree, struct error *err)
{
    if (tree->entries >= tree->limits.entries)
        return error_set(err, ERROR_TOO_LARGE, "there are more than %" PRIu64 " entries (--max-entries)",
                         tree->limits.entries);
    tree->entries++;
    return true;
}

bool tree_count_bytes(struct tree *tree, uint64_t bytes, struct error *err)
{
    if (bytes > tree->limits.bytes - tree->bytes)
        return error_set(err, ERROR_TOO_LARGE, "there are more than %" PRIu64 " MiB of files (--max-mb)",
                         tree->limits.bytes >> 20);
    tree->bytes += bytes;
    return true;
}

bool tree_touch(struct tree *tree, int parent, const char *base, struct error *err)
{
    struct stat status;
    if (fstatat(parent, base, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_fail(err, "look at", base);
    inodes_add(&tree->touched, status.st_ino);
    return true;
}

void tree_next_layer(struct tree *tree)
{
    inodes_done(&tree->touched);
}
