/* stat.c - STAT, CHMOD. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/names.h"

#include <fcntl.h>
#include <stdio.h>

bool files_stat(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    struct stat status;
    int follow = request->flags & FILES_FOLLOW ? 0 : O_NOFOLLOW;
    AUTO_FD int fd = resolve_open(helper, request->root, request->path, O_PATH | follow, err);
    if (fd < 0)
        return false;
    if (fstat(fd, &status) < 0)
        return fail_errno(err, "stat");
    return helper_entry(helper, &status, fd, "", "", 0, err);
}

/* Of the file that was looked at, whatever has its name by now; chmod(2) follows this link of our own. */
static bool change_mode(int fd, mode_t mode, struct error *err)
{
    char link[32];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return chmod(link, mode) == 0 || fail_errno(err, "chmod");
}

bool files_chmod(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE place = PLACE_NONE;
    struct stat status;
    if (!resolve_target(helper, request->root, request->path, false, &place, err) ||
        !condition_check(request, &place, &status, err))
        return false;
    AUTO_FD int fd = openat(place.folder, place.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return fail_errno(err, "open");
    if (S_ISLNK(status.st_mode))
        return error_set(err, ERROR_CONFLICT, "became a symbolic link");
    /* The owner first: to change it takes setuid bits away. A mode that it has already nobody need be allowed. */
    if (!check_links(request->root, &status, err) || !names_give(helper, fd, err))
        return false;
    if (fstat(fd, &status) < 0)
        return fail_errno(err, "stat");
    bool is_other = (request->flags & FILES_MODE) && (status.st_mode & 07777) != request->mode;
    if (is_other && !change_mode(fd, request->mode, err))
        return false;
    if (fstat(fd, &status) < 0)
        return fail_errno(err, "stat");
    return helper_entry(helper, &status, fd, "", "", 0, err);
}
