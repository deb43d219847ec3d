/* write.c - WRITE: a file is there whole or not at all. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/put.h"

bool files_write(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE place = PLACE_NONE;
    AUTO_TEMPORARY file = TEMPORARY_NONE;
    struct stat there;
    bool is_new;
    if (!resolve_target(helper, request->root, request->path, request->flags & FILES_PARENTS, &place, err) ||
        !condition_check(request, &place, &there, err) || !put_may_replace(&there, err) ||
        !temporary_open(&place, &file, err))
        return false;
    struct pour pour = {.pipe = helper->descriptor, .file = file.fd, .max = UINT64_MAX};
    if (!pour_all(helper, &pour, err) || !put_in_place(helper, &file, &place, &is_new, err))
        return false;
    helper->count = is_new;
    return true;
}
