/* put.c - a whole file into its place. */
#include "sandboxd/helpers/files/put.h"

#include "sandboxd/helpers/files/names.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

static const int64_t NANO = 1000000000;

bool put_may_replace(const struct stat *status, struct error *err)
{
    if (status->st_mode == 0 || S_ISREG(status->st_mode))
        return true;
    return error_set(err, ERROR_CONFLICT, "is %s, not a regular file", type_name(status->st_mode));
}

static mode_t mode_for(const struct files_request *request, const struct stat *replaced)
{
    if (request->flags & FILES_MODE)
        return request->mode;
    if (replaced->st_mode == 0)
        return 0644;
    /* Another's rights to act as him do not become ours. */
    return replaced->st_mode & (replaced->st_uid == geteuid() ? 07777 : 0777);
}

static bool dress(const struct helper *helper, int file, const struct stat *replaced, struct error *err)
{
    const struct files_request *request = helper->request;
    if (!names_give(helper, file, err))
        return false;
    if (fchmod(file, mode_for(request, replaced)) < 0)
        return fail_errno(err, "chmod");
    if (!(request->flags & FILES_MTIME))
        return true;
    int64_t seconds = request->mtime_ns / NANO, rest = request->mtime_ns % NANO;
    struct timespec mtime = {.tv_sec = rest < 0 ? seconds - 1 : seconds, .tv_nsec = rest < 0 ? rest + NANO : rest};
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime};
    return futimens(file, times) == 0 || fail_errno(err, "setting the time");
}

bool put_in_locked(struct helper *helper, struct temporary *file, const struct place *place, bool *is_new,
                   struct error *err)
{
    struct stat there, made;
    const struct files_request *request = helper->request;
    if (!condition_check(request, place, &there, err) || !put_may_replace(&there, err) ||
        !dress(helper, file->fd, &there, err) || !helper_is_wanted(helper, err))
        return false;
    bool replaces = (request->flags & FILES_IF_NONE) == 0;
    if (!temporary_place(file, place, replaces, err)) {
        if (!replaces && err->system_errno == EEXIST)
            error_set(err, ERROR_PRECONDITION, "it is there already");
        return false;
    }
    if (fstat(file->fd, &made) < 0)
        return fail_errno(err, "fstat");
    *is_new = there.st_mode == 0;
    return helper_entry(helper, &made, place->folder, place->name, "", 0, err);
}

bool put_in_place(struct helper *helper, struct temporary *file, const struct place *place, bool *is_new,
                  struct error *err)
{
    struct error why = {0};
    AUTO_FD int lock = condition_lock(helper, place, &why);
    if (lock < 0 && why.kind != ERROR_NONE) {
        *err = why;
        return false;
    }
    return put_in_locked(helper, file, place, is_new, err);
}
