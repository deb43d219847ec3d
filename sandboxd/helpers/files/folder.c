/* folder.c - MKDIR. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/names.h"

#include <errno.h>
#include <fcntl.h>

/* A link to a folder is a folder that is there. */
static bool answer(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    struct stat status;
    AUTO_FD int fd = resolve_open(helper, request->root, request->path, O_PATH, err);
    if (fd < 0)
        return false;
    if (fstat(fd, &status) < 0)
        return fail_errno(err, "stat");
    if (!S_ISDIR(status.st_mode))
        return error_set(err, ERROR_CONFLICT, "is %s, not a folder", type_name(status.st_mode));
    return helper_entry(helper, &status, fd, "", "", 0, err);
}

static bool make(struct helper *helper, const struct place *place, struct error *err)
{
    const struct files_request *request = helper->request;
    mode_t mode = request->flags & FILES_MODE ? request->mode : 0755;
    if (mkdirat(place->folder, place->name, mode & 0777) < 0)
        return errno == EEXIST ? answer(helper, err) : fail_errno(err, "mkdir");
    helper->count = 1;
    AUTO_FD int fd = open_folder_at(place->folder, place->name, err);
    struct stat status;
    /* The umask took some bits; but one that may not even be read by its maker has those it has. */
    if (fd < 0)
        return (request->flags & FILES_MODE) && !(mode & 0400) ? answer(helper, err) : false;
    if (!names_give(helper, fd, err))
        return false;
    if ((request->flags & FILES_MODE) && fchmod(fd, mode) < 0)
        return fail_errno(err, "chmod");
    if (fstat(fd, &status) < 0)
        return fail_errno(err, "stat");
    return helper_entry(helper, &status, fd, "", "", 0, err);
}

bool files_mkdir(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE place = PLACE_NONE;
    if (is_scope_root(request->root, request->path))
        return answer(helper, err);
    return resolve_parent_made(helper, request->root, request->path, request->flags & FILES_PARENTS, &place, err) &&
           make(helper, &place, err);
}
