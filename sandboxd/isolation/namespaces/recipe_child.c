#include "sandboxd/isolation/namespaces/recipe_child.h"

#include "sandboxd/isolation/namespaces/capabilities.h"
#include "sandboxd/isolation/namespaces/devices.h"
#include "sandboxd/isolation/namespaces/mounts.h"
#include "sandboxd/isolation/namespaces/proc.h"
#include "sandboxd/isolation/namespaces/user_namespace.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "shared/base/fd.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Behind what init inherits, all gone with execve. */
enum {
    FD_PROGRAM = INHERIT_FD_JOIN + INHERIT_JOIN_MAX,
    FD_LEAF,
    FD_STAGE,
    FD_FIRST_CLOSED,
    FD_SPARE = 64, /* numbers used for a moment lie from here on */
    NUMBER_BYTES = 24
};

/* Puts `from[i]` at `to[i]` and closes all beyond; -1 in `from` stands for nothing. Two passes, as a target may be the
 * source of another. */
static bool arrange(int *from, const int *to, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        from[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, FD_SPARE);
        if (from[i] < 0)
            return error_set_errno(err, ERROR_INTERNAL, "set descriptor %d aside", to[i]);
    }
    for (size_t i = 0; i < count; i++) {
        int flags = to[i] >= FD_PROGRAM ? O_CLOEXEC : 0;
        if (dup3(from[i], to[i], flags) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "place descriptor %d", to[i]);
    }
    return true;
}

static bool take_descriptors(const struct recipe_child *child, struct error *err)
{
    const struct namespaces_guest *guest = child->host->guest;
    int program = guest ? guest->program : child->plan->init_program;
    int from[] = {child->control, child->host->seccomp, program, child->leaf, child->host->stage->folder};
    const int to[] = {INHERIT_FD_CONTROL, INHERIT_FD_SECCOMP, FD_PROGRAM, FD_LEAF, FD_STAGE};
    if (!arrange(from, to, sizeof to / sizeof to[0], err))
        return false;
    close(INHERIT_FD_LISTEN);
    close(INHERIT_FD_RUN);
    if (syscall(SYS_close_range, (unsigned)INHERIT_FD_AREA, FD_PROGRAM - 1U, 0U) < 0 ||
        syscall(SYS_close_range, (unsigned)FD_FIRST_CLOSED, ~0U, 0U) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    return true;
}

/* What needs no ids, while the parent writes the maps. The working folder goes with its mount namespace, the top of its
 * cgroup namespace is s<slot>; then to its leaf: with the launcher's descriptor, so that it is the launcher's right
 * that counts. */
static bool prepare(struct error *err)
{
    const int namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWUTS;
    if (fchdir(FD_STAGE) < 0 || syscall(SYS_unshare, namespaces) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "unshare namespaces");
    if (write(FD_LEAF, "0", 1) != 1)
        return error_set_errno(err, ERROR_INTERNAL, "move to cgroup init");
    return mounts_detach_propagation(err);
}

/* At least `least` descriptors; how many, or 0. */
static size_t receive(int fds[static FD_MESSAGE_FDS], size_t least, struct error *err)
{
    char byte = 0;
    size_t count = 0;
    ssize_t size = fd_receive_message(INHERIT_FD_CONTROL, &byte, 1, fds, &count, err);
    if (size < 0)
        return 0;
    if (size != 1 || count < least) {
        error_set(err, ERROR_GONE, "the launcher went away");
        return 0;
    }
    return count;
}

/* For the launcher that comes after this one: nothing else names a tmpfs. */
static bool keep_area(int area, struct error *err)
{
    AUTO_FD int root = openat(area, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || dup2(root, INHERIT_FD_AREA) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open the area");
    return true;
}

static bool make_root(const struct recipe_child *child, struct error *err)
{
    int fds[FD_MESSAGE_FDS];
    bool has_usr = child->plan->lower_usr != NULL, is_guest = child->host->guest != NULL;
    size_t count = receive(fds, 2U + has_usr + 2U * is_guest, err);
    if (count == 0 || !user_namespace_become_root(err))
        return false;
    const struct mounts_layers layers = {.root = fds[0],
                                         .area = fds[1],
                                         .usr = has_usr ? fds[2] : -1,
                                         .bundle = is_guest ? fds[count - 2] : -1,
                                         .tools = is_guest ? fds[count - 1] : -1,
                                         .is_usr_bare = child->host->is_rootless};
    if (!mounts_make_root(&layers, err) || (!child->plan->area_path && !keep_area(layers.area, err)))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (fds[i] != INHERIT_FD_AREA) /* there it is the area's root by now, or nothing of the kind */
            close(fds[i]);
    }
    return true;
}

static bool take_rest(size_t *joins, struct error *err)
{
    int from[FD_MESSAGE_FDS];
    int to[FD_MESSAGE_FDS] = {INHERIT_FD_LISTEN, INHERIT_FD_RUN};
    size_t count = receive(from, 2, err);
    if (count == 0 || count > 2 + INHERIT_JOIN_MAX)
        return false;
    *joins = count - 2;
    for (size_t i = 0; i < *joins; i++)
        to[2 + i] = INHERIT_FD_JOIN + (int)i;
    return arrange(from, to, count, err);
}

static bool build(const struct recipe_child *child, size_t *joins, struct error *err)
{
    return make_root(child, err) && process_attributes_reset(err) &&
           stage_enter_slot(child->host->stage, child->plan->slot, err) && proc_make(child->host->covers, err) &&
           devices_make(err) && mounts_pivot(err) && take_rest(joins, err);
}

static bool silence_standard_streams(struct error *err)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int standard = 0; standard <= 2; standard++) {
        if (fd < 0 || dup2(fd, standard) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "open /dev/null");
    }
    return true;
}

static bool become_init(size_t join_count, struct error *err)
{
    char name[] = "init";
    char joins[NUMBER_BYTES];
    snprintf(joins, sizeof joins, "%zu", join_count);
    char *const arguments[] = {name, joins, NULL};
    char *const environment[] = {NULL};
    if (!silence_standard_streams(err) || !capabilities_seal(err))
        return false;
    /* The layers' descriptors and all else that is not init's goes with execve. */
    if (syscall(SYS_close_range, (unsigned)FD_PROGRAM, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    syscall(SYS_execveat, FD_PROGRAM, "", arguments, environment, AT_EMPTY_PATH);
    return error_set_errno(err, ERROR_INTERNAL, "execute init");
}

_Noreturn void recipe_child_run(const struct recipe_child *child)
{
    struct launcher_init_message failed = {.type = LI_FAILED};
    struct error *err = &failed.as.failed;
    /* Its number may be another's before the taking fails. */
    int control = fcntl(child->control, F_DUPFD_CLOEXEC, FD_SPARE);
    bool taken = take_descriptors(child, err);
    control = taken ? INHERIT_FD_CONTROL : control;
    size_t joins = 0;
    if (taken && prepare(err) && build(child, &joins, err))
        (void)become_init(joins, err);
    _exit(launcher_init_send(control, &failed, NULL, 0, NULL) ? 1 : 2);
}
