#include "sandboxd/templates/tool/jail_child.h"

#include "sandboxd/templates/tool/jail_rights.h"
#include "sandboxd/templates/tool/jail_root.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Descriptors of the work lie from here on; the rest is closed. */
enum { FD_CHANNEL = 3, FD_MOUNTS, FD_FILES = FD_MOUNTS + JAIL_MOUNTS_MAX, FD_END = FD_FILES + 2, FD_SPARE = 64 };

static bool receive_mounts(int channel, const struct jail_plan *plan, int mounts[static JAIL_MOUNTS_MAX],
                           struct error *err)
{
    char byte = 0;
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    ssize_t size = fd_receive_message(channel, &byte, 1, fds, &count, err);
    if (size < 0)
        return false;
    if (size != 1 || count != (plan->folder ? 2U : 1U))
        return error_set(err, ERROR_INTERNAL, "the parent went away");
    mounts[JAIL_MOUNT_ROOTFS] = fds[0];
    mounts[JAIL_MOUNT_FOLDER] = plan->folder ? fds[1] : -1;
    return true;
}

/* Puts what is kept where it belongs, /dev/null or the pipe at the standard streams, and closes all else. */
static bool arrange(const struct jail_child *child, int mounts[static JAIL_MOUNTS_MAX], struct error *err)
{
    const struct jail_plan *plan = child->plan;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int output = child->output >= 0 ? child->output : null;
    const int from[] = {null,
                        output,
                        output,
                        child->channel,
                        mounts[JAIL_MOUNT_ROOTFS],
                        mounts[JAIL_MOUNT_FOLDER],
                        plan->files[0] ? *plan->files[0] : -1,
                        plan->files[1] ? *plan->files[1] : -1};
    int aside[FD_END];
    for (int i = 0; i < FD_END; i++) {
        aside[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, FD_SPARE);
        if (from[i] >= 0 && aside[i] < 0)
            return error_set_errno(err, ERROR_INTERNAL, "set a descriptor aside");
    }
    for (int i = 0; i < FD_END; i++) {
        if (aside[i] < 0)
            (void)syscall(SYS_close, i);
        else if (dup3(aside[i], i, i < FD_CHANNEL ? 0 : O_CLOEXEC) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "place a descriptor");
    }
    if (syscall(SYS_close_range, (unsigned)FD_END, ~0U, 0U) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    for (int i = 0; i < 2; i++) {
        if (plan->files[i])
            *plan->files[i] = FD_FILES + i;
    }
    mounts[JAIL_MOUNT_ROOTFS] = FD_MOUNTS;
    mounts[JAIL_MOUNT_FOLDER] = plan->folder ? FD_MOUNTS + 1 : -1;
    return true;
}

/* A descriptor of the folder itself: that of its mount can only be passed on. */
static bool reopen(int mount, int *fd, struct error *err)
{
    *fd = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd >= 0 || error_set_errno(err, ERROR_INTERNAL, "open the rootfs");
}

static bool enter_root(const struct jail_plan *plan, const int mounts[static JAIL_MOUNTS_MAX],
                       struct jail_inside *inside, struct error *err)
{
    switch (plan->kind) {
    case JAIL_PARSE:
        return jail_root_empty(err) && reopen(mounts[JAIL_MOUNT_ROOTFS], &inside->rootfs, err) &&
               (!plan->folder || reopen(mounts[JAIL_MOUNT_FOLDER], plan->folder_fd, err)) &&
               jail_rights_for_parsing(err);
    case JAIL_FETCH:
        return jail_root_tools(mounts[JAIL_MOUNT_ROOTFS], err) && jail_rights_for_packages(err);
    case JAIL_CONFIGURE:
        return jail_root_target(mounts[JAIL_MOUNT_ROOTFS], err) && jail_rights_for_packages(err);
    }
    return error_set(err, ERROR_INTERNAL, "no such kind of jail");
}

static bool enter(const struct jail_child *child, struct jail_inside *inside, struct error *err)
{
    int mounts[JAIL_MOUNTS_MAX] = {-1, -1};
    if (!receive_mounts(child->channel, child->plan, mounts, err) || !arrange(child, mounts, err))
        return false;
    umask(022);
    if (!jail_rights_become_root(FD_CHANNEL, err) || setsid() < 0)
        return err->kind != ERROR_NONE ? false : error_set_errno(err, ERROR_INTERNAL, "setsid");
    return jail_rights_limit(child->plan->file_bytes, err) && enter_root(child->plan, mounts, inside, err);
}

_Noreturn void jail_child_run(const struct jail_child *child)
{
    struct error err = {0};
    struct jail_inside inside = {.rootfs = -1, .channel = FD_CHANNEL, .context = child->plan->context};
    if (!enter(child, &inside, &err)) {
        struct message message = {.type = MESSAGE_FAILED, .as.failed = err};
        /* Which of the two it is depends on how far it came. */
        if (!fd_send_message(FD_CHANNEL, &message, sizeof message, NULL, 0, NULL))
            (void)!fd_send_message(child->channel, &message, sizeof message, NULL, 0, NULL);
        _exit(1);
    }
    child->plan->work(&inside);
    _exit(0);
}
