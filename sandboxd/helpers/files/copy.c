/* copy.c - FILES_COPY, and the copying half of a move between file systems. A folder is copied under a temporary name
 * and named at the end, so what is half done is never seen as done; it is removed again when anything fails. */
#include "sandboxd/helpers/files/copy_bytes.h"
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/walk.h"
#include "shared/base/beneath.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define CONDITIONS ((uint32_t)FILES_IF_MATCH | FILES_IF_ANY | FILES_IF_NONE)

/* A folder being copied. */
struct tree {
    struct helper *helper;
    const char *root;       /* of the source: for open_regular_at */
    int top;                /* the copy */
    struct stat top_status; /* of it: should the source come to hold it, it is not entered */
    int folder;             /* of the copy, where names are made now; or -1 */
    char path[PATH_MAX];    /* of that folder, below top */
};

static int open_below(int top, const char *path, struct error *err)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = beneath_open(top, path[0] ? path : ".", &how);
    if (fd < 0)
        fail_errno(err, "opening a folder of the copy");
    return fd;
}

/* The folder of the copy that is to hold the place. */
static bool go_to(struct tree *tree, const struct walk_place *place, struct error *err)
{
    size_t size = (size_t)(place->name - place->path);
    size -= size > 0;
    if (tree->folder >= 0 && strlen(tree->path) == size && memcmp(tree->path, place->path, size) == 0)
        return true;
    if (tree->folder >= 0)
        close(tree->folder);
    memcpy(tree->path, place->path, size);
    tree->path[size] = '\0';
    tree->folder = open_below(tree->top, tree->path, err);
    return tree->folder >= 0;
}

static bool copy_link(int folder, const char *name, const struct stat *status, int to_folder, const char *to_name,
                      struct error *err)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(folder, name, target, sizeof target - 1);
    if (size < 0)
        return fail_errno(err, "reading the symlink");
    target[size] = '\0';
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, status->st_mtim};
    if (symlinkat(target, to_folder, to_name) < 0)
        return fail_errno(err, "making the symlink");
    (void)utimensat(to_folder, to_name, times, AT_SYMLINK_NOFOLLOW); /* some file systems keep none */
    return true;
}

static bool copy_file_in_tree(struct tree *tree, const struct walk_place *place, struct error *err)
{
    struct stat status;
    struct error why = {0};
    AUTO_FD int from = open_regular_at(place->folder, place->name, O_RDONLY, tree->root, &status, &why);
    if (from < 0) { /* unreadable, of several links under a scope; or gone */
        tree->helper->skipped += why.kind != ERROR_NOT_FOUND;
        return true;
    }
    AUTO_FD int to = openat(tree->folder, place->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return fail_errno(err, "making a file of the copy");
    tree->helper->count++;
    return copy_bytes(tree->helper, from, &status, to, err) && copy_attributes(to, &status, err);
}

static bool copy_link_in_tree(struct tree *tree, const struct walk_place *place, struct error *err)
{
    struct stat status;
    if (fstatat(place->folder, place->name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(status.st_mode)) {
        tree->helper->skipped++;
        return true;
    }
    tree->helper->count++;
    return copy_link(place->folder, place->name, &status, tree->folder, place->name, err);
}

static bool begin_folder(struct tree *tree, struct walk *walk, const struct walk_place *place, struct error *err)
{
    struct stat status;
    if (fstatat(place->folder, place->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    if (status.st_dev == tree->top_status.st_dev && status.st_ino == tree->top_status.st_ino)
        return true;
    if (mkdirat(tree->folder, place->name, 0700) < 0)
        return fail_errno(err, "making a folder of the copy");
    if (!walk_enter(walk)) {
        (void)unlinkat(tree->folder, place->name, AT_REMOVEDIR);
        return true;
    }
    tree->helper->count++;
    return true;
}

static bool end_folder(struct tree *tree, const struct walk_place *place, struct error *err)
{
    struct stat status;
    if (fstatat(place->folder, place->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return true; /* it went: the copy keeps 0700 */
    AUTO_FD int folder = open_below(tree->top, place->path, err);
    return folder >= 0 && copy_attributes(folder, &status, err);
}

static bool copy_one(struct tree *tree, struct walk *walk, const struct walk_place *place, struct error *err)
{
    if (place->is_leaving)
        return end_folder(tree, place, err);
    if (!helper_is_wanted(tree->helper, err) || !go_to(tree, place, err))
        return false;
    if (place->type == FILES_FOLDER)
        return begin_folder(tree, walk, place, err);
    if (place->type == FILES_REGULAR)
        return copy_file_in_tree(tree, place, err);
    if (place->type == FILES_SYMLINK)
        return copy_link_in_tree(tree, place, err);
    tree->helper->skipped++;
    return true;
}

static bool fill_tree(struct tree *tree, int from, struct error *err)
{
    AUTO(walk) *walk = walk_new(from, WALK_AROUND, err);
    if (walk == NULL)
        return false;
    struct walk_place place;
    while (walk_next(walk, &place)) {
        if (!copy_one(tree, walk, &place, err))
            return false;
    }
    tree->helper->skipped += walk_skipped(walk);
    /* What is moved is removed afterwards: it must all be there. */
    if (tree->helper->request->operation == FILES_MOVE && tree->helper->skipped > 0)
        return error_set(err, ERROR_CONFLICT, "%llu things in it cannot be moved to another file system",
                         (unsigned long long)tree->helper->skipped);
    return true;
}

/* So that all below can be removed, whatever modes have been copied already. */
static void open_modes(int top)
{
    AUTO(walk) *walk = walk_new(top, WALK_BEFORE, NULL);
    struct walk_place place;
    while (walk && walk_next(walk, &place)) {
        if (place.type != FILES_FOLDER)
            continue;
        AUTO_FD int fd = open_child_folder(place.folder, place.name, O_PATH);
        char path[32];
        if (fd >= 0 && text_format(path, sizeof path, "/proc/self/fd/%d", fd) && chmod(path, 0700) == 0)
            walk_enter(walk);
    }
}

/* Whether `folder` is the one that `top` is of, or anywhere below it. */
static bool is_inside(int folder, const struct stat *top)
{
    AUTO_FD int at = openat(folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat here = {0}, before = {0};
    for (int i = 0; at >= 0 && i < PATH_MAX && fstat(at, &here) == 0; i++) {
        if (here.st_dev == top->st_dev && here.st_ino == top->st_ino)
            return true;
        if (i > 0 && here.st_dev == before.st_dev && here.st_ino == before.st_ino)
            return false;
        before = here;
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = up;
    }
    return false;
}

static bool name_it(const struct place *to, const char *temporary, struct error *err)
{
    return renameat2(to->folder, temporary, to->folder, to->name, RENAME_NOREPLACE) == 0 ||
           fail_errno(err, "naming the copy");
}

static bool copy_folder(struct helper *helper, const char *root, const struct place *from, const struct place *to,
                        struct error *err)
{
    AUTO_FD int source = open_folder_at(from->folder, from->name, err);
    struct stat status;
    if (source < 0)
        return false;
    if (fstat(source, &status) < 0)
        return fail_errno(err, "looking at the folder");
    if (is_inside(to->folder, &status))
        return error_set(err, ERROR_CONFLICT, "a folder cannot be copied into itself");
    char name[NAME_MAX + 1];
    temporary_name(name, to->name);
    if (mkdirat(to->folder, name, 0700) < 0)
        return fail_errno(err, "making the folder");
    AUTO_FD int top = open_child_folder(to->folder, name, O_RDONLY);
    struct tree tree = {.helper = helper, .root = root, .top = top, .folder = -1};
    bool is_done = top >= 0 && fstat(top, &tree.top_status) == 0;
    if (!is_done)
        fail_errno(err, "opening the copy");
    helper->count++;
    is_done = is_done && fill_tree(&tree, source, err) && copy_attributes(top, &status, err) &&
              helper_is_wanted(helper, err) && name_it(to, name, err);
    if (tree.folder >= 0)
        close(tree.folder);
    if (is_done)
        return true;
    if (top >= 0 && fchmod(top, 0700) == 0)
        open_modes(top);
    (void)!remove_entry(to->folder, name, true, NULL);
    return false;
}

static bool copy_regular(struct helper *helper, const char *root, const struct place *from, const struct place *to,
                         uint32_t flags, struct error *err)
{
    struct stat status;
    AUTO_FD int source = open_regular_at(from->folder, from->name, O_RDONLY, root, &status, err);
    if (source < 0)
        return false;
    AUTO_TEMPORARY copy = TEMPORARY_NONE;
    helper->count++;
    return temporary_open(to, &copy, err) && copy_bytes(helper, source, &status, copy.fd, err) &&
           copy_attributes(copy.fd, &status, err) && helper_is_wanted(helper, err) &&
           temporary_place(&copy, to, flags & FILES_OVERWRITE, err);
}

static bool copy_symlink(struct helper *helper, const struct place *from, const struct stat *status,
                         const struct place *to, uint32_t flags, struct error *err)
{
    helper->count++;
    if (!(flags & FILES_OVERWRITE))
        return copy_link(from->folder, from->name, status, to->folder, to->name, err);
    char name[NAME_MAX + 1];
    temporary_name(name, to->name);
    if (!copy_link(from->folder, from->name, status, to->folder, name, err))
        return false;
    if (renameat(to->folder, name, to->folder, to->name) == 0)
        return true;
    fail_errno(err, "naming the copy");
    (void)unlinkat(to->folder, name, 0);
    return false;
}

/* What is to be replaced must be a thing that can be, by what comes. */
static bool check_target(const struct place *to, const struct stat *source, uint32_t flags, struct error *err)
{
    struct stat there;
    if (fstatat(to->folder, to->name, &there, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || fail_errno(err, "looking at the target");
    if (there.st_dev == source->st_dev && there.st_ino == source->st_ino)
        return error_set(err, ERROR_CONFLICT, "source and target are the same");
    if (!(flags & FILES_OVERWRITE))
        return error_set(err, ERROR_CONFLICT, "the target is there: %s", type_name(there.st_mode));
    if (S_ISDIR(there.st_mode) || S_ISDIR(source->st_mode))
        return error_set(err, ERROR_CONFLICT, "the target is there, %s: folders are not merged or replaced",
                         type_name(there.st_mode));
    return true;
}

bool copy_place(struct helper *helper, const char *root, const struct place *from, const struct place *to,
                uint32_t flags, struct error *err)
{
    struct stat status;
    if (fstatat(from->folder, from->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno(err, "looking at the source");
    if (!check_target(to, &status, flags, err))
        return false;
    if (S_ISREG(status.st_mode))
        return copy_regular(helper, root, from, to, flags, err);
    if (S_ISLNK(status.st_mode))
        return copy_symlink(helper, from, &status, to, flags, err);
    if (!S_ISDIR(status.st_mode))
        return error_set(err, ERROR_CONFLICT, "the source is %s: it cannot be copied", type_name(status.st_mode));
    if (!(flags & FILES_RECURSIVE))
        return error_set(err, ERROR_CONFLICT, "the source is a folder: it is copied only recursively");
    return copy_folder(helper, root, from, to, err);
}

bool files_copy(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE from = PLACE_NONE;
    AUTO_PLACE to = PLACE_NONE;
    if (!resolve_parent(helper, request->root, request->path, &from, err) ||
        !resolve_parent_made(helper, request->to_root, request->to_path, request->flags & FILES_PARENTS, &to, err))
        return false;
    struct error why = {0};
    bool is_conditional = request->flags & CONDITIONS;
    AUTO_FD int lock = is_conditional ? condition_lock(helper, &to, &why) : -1;
    if (lock < 0 && why.kind != ERROR_NONE) {
        *err = why;
        return false;
    }
    struct stat status;
    if (!condition_check(request, &to, &status, err) ||
        !copy_place(helper, request->root, &from, &to, request->flags, err))
        return false;
    if (fstatat(to.folder, to.name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno(err, "looking at the copy");
    return helper_entry(helper, &status, to.folder, to.name, "", 0, err);
}
