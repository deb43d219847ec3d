/* move.c - MOVE: rename(2), or a copy and a removal between file systems. */
#include "sandboxd/helpers/files/files_operations.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static bool fail_rename(struct error *err)
{
    if (errno == EEXIST)
        return error_set_errno(err, ERROR_CONFLICT, "the new name is there already");
    if (errno == ENOTDIR) /* the parents are folders: they are open */
        return error_set_errno(err, ERROR_CONFLICT, "a folder cannot take the place of a file");
    if (errno == EINVAL)
        return error_set_errno(err, ERROR_INVALID, "a folder cannot move into itself");
    return fail_errno(err, "rename");
}

static bool move(struct helper *helper, const struct place *from, const struct place *to, struct error *err)
{
    const struct files_request *request = helper->request;
    unsigned flags = request->flags & FILES_OVERWRITE ? 0 : RENAME_NOREPLACE;
    if (renameat2(from->folder, from->name, to->folder, to->name, flags) == 0)
        return true;
    if (errno != EXDEV)
        return fail_rename(err);
    uint32_t how = FILES_RECURSIVE | (request->flags & FILES_OVERWRITE);
    return copy_place(helper, request->root, from, to, how, err) && helper_is_wanted(helper, err) &&
           remove_entry(from->folder, from->name, true, err);
}

bool files_move(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE from = PLACE_NONE, to = PLACE_NONE;
    struct stat there, status;
    struct error why = {0};
    if (!resolve_parent(helper, request->root, request->path, &from, err) ||
        !resolve_parent_made(helper, request->to_root, request->to_path, request->flags & FILES_PARENTS, &to, err))
        return false;
    AUTO_FD int lock = condition_lock(helper, &to, &why);
    if (lock < 0 && why.kind != ERROR_NONE) {
        *err = why;
        return false;
    }
    if (!condition_check(request, &to, &there, err) || !move(helper, &from, &to, err))
        return false;
    if (fstatat(to.folder, to.name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno(err, "stat");
    return helper_entry(helper, &status, to.folder, to.name, "", 0, err);
}
