/* list.c - FILES_LIST: a folder and what is below it, to a depth. Symlinks are shown, never followed. helper->count and
 * the request's limit are of what is below; the folder itself comes first and is not counted. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static bool list_below(struct helper *helper, struct walk *walk, struct error *err)
{
    const struct files_request *request = helper->request;
    struct walk_place place;
    while (walk_next(walk, &place)) {
        if (request->limit > 0 && helper->count == request->limit) {
            helper->is_truncated = true;
            return true;
        }
        struct stat status;
        if (fstatat(place.folder, place.name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
            helper->skipped += errno != ENOENT;
            continue;
        }
        if (!helper_entry(helper, &status, place.folder, place.name, place.path, place.path_size, err))
            return false;
        helper->count++;
        if (S_ISDIR(status.st_mode) && place.depth < request->depth)
            walk_enter(walk);
    }
    return true;
}

bool files_list(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    if (!helper_end_with_front(helper, err))
        return false;
    AUTO_FD int folder = resolve_open(helper, request->root, request->path, O_RDONLY | O_DIRECTORY, err);
    if (folder < 0)
        return false;
    struct stat status;
    if (fstat(folder, &status) < 0)
        return fail_errno(err, "looking at the folder");
    AUTO(walk) *walk = walk_new(folder, WALK_BEFORE, err);
    if (walk == NULL || !helper_entry(helper, &status, folder, "", "", 0, err) || !list_below(helper, walk, err))
        return false;
    helper->skipped += walk_skipped(walk);
    return true;
}
