#include "sandboxd/isolation/namespaces/recipe.h"

#include "sandboxd/isolation/namespaces/mounts.h"
#include "sandboxd/isolation/namespaces/recipe_child.h"
#include "sandboxd/isolation/namespaces/user_namespace.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BIRTH_TIMEOUT_MS = 10000, STAT_BYTES = 1024 };

static const uint64_t NAMESPACES =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;

/* --- init's socket --- */

/* A socket's address holds 107 characters and a state folder may be longer: it is named through the folder's
 * descriptor. */
static bool bind_in(int folder, const char *name, int fd, gid_t group, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof address.sun_path)
        return error_set(err, ERROR_TOO_LARGE, "the name of init's socket is too long");
    if (unlinkat(folder, name, 0) < 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_INTERNAL, "remove the old %s", name);
    /* sizeof address: Linux takes the path up to its NUL. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        fchownat(folder, name, 0, group, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(folder, name, 0660, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind init's socket");
    return true;
}

static int bind_listener(const struct isolation_plan *plan, struct error *err)
{
    char folder_path[4096];
    const char *slash = strrchr(plan->socket_path, '/');
    size_t length = slash ? (size_t)(slash - plan->socket_path) : 0;
    if (length == 0 || length >= sizeof folder_path) {
        error_set(err, ERROR_INVALID, "init's socket needs an absolute path");
        return -1;
    }
    memcpy(folder_path, plan->socket_path, length);
    folder_path[length] = '\0';
    AUTO_FD int folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (folder < 0 || fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open %s", folder_path);
        return -1;
    }
    return bind_in(folder, slash + 1, fd, plan->socket_group, err) ? TAKE_FD(fd) : -1;
}

/* --- the two ends of a birth --- */

/* What the parent holds while the child is being born. */
struct birth {
    int sync[2], ready[2]; /* [0] the parent's end, [1] the child's */
    int listener;
    pid_t pid;
    int pidfd;
};

static void birth_done(struct birth *birth)
{
    int fds[] = {birth->sync[0], birth->sync[1], birth->ready[0], birth->ready[1], birth->listener, birth->pidfd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static void drop(int *fd)
{
    close(*fd);
    *fd = -1;
}

static bool open_ends(struct birth *birth, const struct isolation_plan *plan, struct error *err)
{
    struct timeval patience = {.tv_sec = BIRTH_TIMEOUT_MS / 1000};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, birth->sync) < 0 || pipe2(birth->ready, O_CLOEXEC) < 0 ||
        setsockopt(birth->sync[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a socket pair and a pipe");
    birth->listener = bind_listener(plan, err);
    return birth->listener >= 0;
}

static bool clone_child(struct birth *birth, const struct cgroup_slot *slot, const struct recipe_child *child,
                        struct error *err)
{
    struct clone_args arguments = {.flags = NAMESPACES | CLONE_PIDFD | CLONE_INTO_CGROUP,
                                   .pidfd = (uint64_t)(uintptr_t)&birth->pidfd,
                                   .exit_signal = SIGCHLD,
                                   .cgroup = (unsigned)slot->top};
    struct user_namespace_owner before;
    if (!user_namespace_begin_owner(child->plan->uid_base, &before, err))
        return false;
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0)
        recipe_child_run(child);
    int failed = pid < 0 ? errno : 0;
    user_namespace_end_owner(&before);
    errno = failed;
    if (failed)
        return error_set_errno(err, ERROR_INTERNAL, "clone3 with all namespaces");
    birth->pid = (pid_t)pid;
    drop(&birth->sync[1]);
    drop(&birth->ready[1]);
    drop(&birth->listener);
    return true;
}

/* Gives the child its ids, and the layers that only root can idmap. */
static bool provide(struct birth *birth, const struct cgroup_layout *layout, const struct isolation_plan *plan,
                    struct error *err)
{
    if (!user_namespace_map(birth->pid, plan->uid_base, err))
        return false;
    AUTO_FD int user_namespace = user_namespace_open(birth->pid, err);
    AUTO_FD int lower_root = user_namespace < 0 ? -1 : mounts_open_lower(plan->skeleton, user_namespace, err);
    AUTO_FD int lower_usr = lower_root < 0 ? -1 : mounts_open_lower("/usr", user_namespace, err);
    if (lower_usr < 0)
        return false;
    char byte = 0;
    ssize_t got = recv(birth->sync[0], &byte, 1, 0);
    if (got < 0)
        return error_set_errno(err, ERROR_TIMEOUT, "wait for the new process");
    if (got == 0)
        return error_set(err, ERROR_INTERNAL, "the new process ended at once");
    /* It has its cgroup namespace, whose top is s<slot>; now it may go to its leaf. */
    if (!cgroup_slot_settle(layout, plan, birth->pid, err))
        return false;
    return fd_send_message(birth->sync[0], "m", 1, (const int[]){lower_root, lower_usr}, 2, err);
}

/* init's one byte, or what the child says went wrong. */
static bool wait_ready(const struct birth *birth, int timeout_ms, struct error *err)
{
    struct pollfd ready = {.fd = birth->ready[0], .events = POLLIN};
    int polled = 0;
    do {
        polled = poll(&ready, 1, timeout_ms);
    } while (polled < 0 && errno == EINTR);
    if (polled == 0)
        return error_set(err, ERROR_TIMEOUT, "init was not ready within %d ms", timeout_ms);
    union {
        struct error error;
        char byte;
    } said = {0};
    ssize_t size = read(birth->ready[0], &said, sizeof said);
    if (size == 1 && said.byte == 0)
        return true;
    if (size != (ssize_t)sizeof said.error)
        return error_set(err, ERROR_INTERNAL, "init ended before it was ready");
    said.error.message[ERROR_MESSAGE_BYTES - 1] = '\0';
    if (err)
        *err = said.error;
    return error_prefix(err, "new sandbox");
}

static void kill_child(const struct birth *birth)
{
    /* Death of a pid namespace's init kills all in it, and waiting for it waits for them (pid_namespaces(7)). */
    (void)syscall(SYS_pidfd_send_signal, birth->pidfd, SIGKILL, NULL, 0U);
    siginfo_t how;
    while (waitid(P_PIDFD, (id_t)birth->pidfd, &how, WEXITED) < 0 && errno == EINTR) {
    }
}

/* A child that failed may have said why, and knows better than we do. */
static void prefer_its_word(const struct birth *birth, struct error *err)
{
    struct error its = {0};
    (void)fcntl(birth->ready[0], F_SETFL, O_NONBLOCK);
    if (read(birth->ready[0], &its, sizeof its) != (ssize_t)sizeof its || !err)
        return;
    its.message[ERROR_MESSAGE_BYTES - 1] = '\0';
    *err = its;
    error_prefix(err, "new sandbox");
}

static bool raise_child(struct birth *birth, const struct cgroup_layout *layout, const struct isolation_plan *plan,
                        struct isolation_sandbox *born, struct error *err)
{
    if (!provide(birth, layout, plan, err)) {
        kill_child(birth);
        prefer_its_word(birth, err);
        return false;
    }
    born->init_pid = birth->pid;
    born->init_start = recipe_start_time(birth->pid);
    if (!wait_ready(birth, BIRTH_TIMEOUT_MS, err) || !cgroup_slot_open_stats(layout, plan->slot, born->stats, err)) {
        kill_child(birth);
        return false;
    }
    born->init = TAKE_FD(birth->pidfd);
    return true;
}

bool recipe_run(const struct cgroup_layout *layout, const struct cgroup_slot *slot, const struct isolation_plan *plan,
                int seccomp, struct isolation_sandbox *made, struct error *err)
{
    __attribute__((cleanup(birth_done))) struct birth birth = {{-1, -1}, {-1, -1}, -1, 0, -1};
    if (!open_ends(&birth, plan, err))
        return false;
    struct recipe_child child = {.plan = plan,
                                 .slot = slot,
                                 .sync = birth.sync[1],
                                 .ready = birth.ready[1],
                                 .listener = birth.listener,
                                 .seccomp = seccomp};
    struct isolation_sandbox born = {0};
    if (!clone_child(&birth, slot, &child, err) || !raise_child(&birth, layout, plan, &born, err))
        return false;
    *made = born;
    return true;
}

uint64_t recipe_start_time(pid_t pid)
{
    char path[32];
    char line[STAT_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (size <= 0)
        return 0;
    line[size] = '\0';
    /* The name in field 2 may hold anything, a ')' too: the last one ends it. */
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}
