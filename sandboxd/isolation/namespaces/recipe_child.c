#include "sandboxd/isolation/namespaces/recipe_child.h"

#include "sandboxd/isolation/namespaces/capabilities.h"
#include "sandboxd/isolation/namespaces/devices.h"
#include "sandboxd/isolation/namespaces/mounts.h"
#include "sandboxd/isolation/namespaces/network.h"
#include "sandboxd/isolation/namespaces/user_namespace.h"
#include "shared/base/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Behind what init inherits, both gone with execve. */
enum {
    FD_PROGRAM = INHERIT_FD_JOIN + INHERIT_JOIN_MAX,
    FD_SYNC,
    FD_FIRST_CLOSED,
    FD_SPARE = 64, /* numbers used for a moment lie from here on */
    NUMBER_BYTES = 24
};

enum lower { LOWER_ROOT, LOWER_USR, LOWERS };

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
    int from[6 + INHERIT_JOIN_MAX] = {child->listener,           child->ready, child->slot->run, child->seccomp,
                                      child->plan->init_program, child->sync};
    int to[6 + INHERIT_JOIN_MAX] = {INHERIT_FD_LISTEN,  INHERIT_FD_READY, INHERIT_FD_RUN,
                                    INHERIT_FD_SECCOMP, FD_PROGRAM,       FD_SYNC};
    size_t count = 6;
    for (size_t i = 0; i < child->slot->join_count; i++, count++) {
        from[count] = child->slot->join[i];
        to[count] = INHERIT_FD_JOIN + (int)i;
    }
    if (!arrange(from, to, count, err))
        return false;
    unsigned first_free = INHERIT_FD_JOIN + (unsigned)child->slot->join_count;
    if (first_free < FD_PROGRAM && syscall(SYS_close_range, first_free, FD_PROGRAM - 1U, 0U) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    if (syscall(SYS_close_range, (unsigned)FD_FIRST_CLOSED, ~0U, 0U) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    return true;
}

/* What needs no ids, while the parent writes the maps. */
static bool prepare(const struct recipe_child *child, struct error *err)
{
    if (syscall(SYS_unshare, CLONE_NEWCGROUP) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "unshare the cgroup namespace");
    if (!fd_send_message(FD_SYNC, "c", 1, NULL, 0, err))
        return false;
    if (syscall(SYS_sethostname, child->plan->hostname, strlen(child->plan->hostname)) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "sethostname");
    return network_loopback_up(err) && mounts_detach_propagation(err);
}

static bool receive_lowers(int lowers[static LOWERS], struct error *err)
{
    char byte = 0;
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    ssize_t size = fd_receive_message(FD_SYNC, &byte, 1, fds, &count, err);
    if (size < 0)
        return false;
    if (size != 1 || count != LOWERS)
        return error_set(err, ERROR_INTERNAL, "the launcher went away");
    memcpy(lowers, fds, sizeof(int) * LOWERS);
    return true;
}

static bool build(const struct recipe_child *child, struct error *err)
{
    int lowers[LOWERS];
    return receive_lowers(lowers, err) && user_namespace_become_root(err) && process_attributes_reset(err) &&
           mounts_make_root(child->plan, lowers[LOWER_ROOT], lowers[LOWER_USR], err) && mounts_make_proc(err) &&
           devices_make(child->plan->memory_bytes, err) && mounts_pivot(err);
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

static bool become_init(const struct recipe_child *child, struct error *err)
{
    char name[] = "init";
    char deadline[NUMBER_BYTES];
    char joins[NUMBER_BYTES];
    snprintf(deadline, sizeof deadline, "%" PRIu64, child->plan->deadline_boot_ns);
    snprintf(joins, sizeof joins, "%zu", child->slot->join_count);
    char *const arguments[] = {name, deadline, joins, NULL};
    char *const environment[] = {NULL};
    if (!silence_standard_streams(err) || !capabilities_limit(err))
        return false;
    /* The lower layers' descriptors and all else that is not init's goes with execve. */
    if (syscall(SYS_close_range, (unsigned)FD_PROGRAM, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    syscall(SYS_execveat, FD_PROGRAM, "", arguments, environment, AT_EMPTY_PATH);
    return error_set_errno(err, ERROR_INTERNAL, "execute init");
}

_Noreturn void recipe_child_run(const struct recipe_child *child)
{
    struct error err = {0};
    /* Its number may be another's before the taking fails. */
    int ready = fcntl(child->ready, F_DUPFD_CLOEXEC, FD_SPARE);
    bool taken = take_descriptors(child, &err);
    ready = taken ? INHERIT_FD_READY : ready;
    if (taken && prepare(child, &err) && build(child, &err))
        (void)become_init(child, &err);
    ssize_t written = write(ready, &err, sizeof err); /* atomic: below PIPE_BUF */
    _exit(written == (ssize_t)sizeof err ? 1 : 2);
}
