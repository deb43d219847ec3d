#include "sandboxd/templates/tool/jail.h"

#include "sandboxd/templates/tool/jail_child.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Behind all slots of sandboxes (launcher/slots.h): 4000 of 65,536 from 0x70000000 on. */
enum { RANGES = 16, SUBIDS_MAX_BYTES = 1024 * 1024 };
static const uint32_t RANGE_FIRST = 0x70000000U + 4000U * JAIL_IDS;
static const char RANGE_FOLDER[] = "/run/parley/imports";
static const uint64_t NS_PER_S = 1000000000;

/* --- ids --- */

/* Whether /etc/subuid or subgid ("name:start:count" a line) give some of the range to somebody. */
static bool is_given_away(uint64_t first)
{
    static const char *const FILES[] = {"/etc/subuid", "/etc/subgid"};
    bool given = false;
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        AUTO_FREE char *text = fd_read_file(FILES[i], SUBIDS_MAX_BYTES, NULL, NULL);
        for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            uint64_t start = 0;
            uint64_t count = 0;
            if (sscanf(line, "%*[^:\n]:%" SCNu64 ":%" SCNu64, &start, &count) == 2)
                given = given || (start < first + JAIL_IDS && first < start + count);
        }
    }
    return given;
}

/* The kernel frees it with us. */
static bool take_range(struct jail *jail, uint32_t *base, struct error *err)
{
    if (!fd_make_folders(RANGE_FOLDER, 0700, err))
        return false;
    for (unsigned i = 0; i < RANGES; i++) {
        if (is_given_away(RANGE_FIRST + i * JAIL_IDS))
            continue;
        AUTO_FREE char *path = memory_printf("%s/%u", RANGE_FOLDER, i);
        AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            jail->range = TAKE_FD(fd);
            *base = RANGE_FIRST + i * JAIL_IDS;
            return true;
        }
    }
    return error_set(err, ERROR_NO_CAPACITY,
                     "no range of ids is free (%d from %" PRIu32
                     " on): too many templates are being made, or /etc/subuid "
                     "gives them away",
                     RANGES, RANGE_FIRST);
}

static bool write_map(pid_t pid, const char *file, uint32_t base, struct error *err)
{
    AUTO_FREE char *path = memory_printf("/proc/%d/%s", (int)pid, file);
    AUTO_FREE char *map = memory_printf("0 %" PRIu32 " %u", base, JAIL_IDS);
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, map, strlen(map)) != (ssize_t)strlen(map))
        return error_set_errno(err, ERROR_INTERNAL, "write %s", path);
    return true;
}

/* --- mounts: the folder on disk has ids 0..65535, which are the child's --- */

enum mount_mode { MOUNT_WRITE, MOUNT_READ };

static int open_mount(const char *path, int user_namespace, enum mount_mode mode, struct error *err)
{
    AUTO_FD int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open_tree %s", path);
        return -1;
    }
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                                    .userns_fd = (unsigned)user_namespace};
    if (mode == MOUNT_READ)
        attributes.attr_set |= MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC;
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0)
        return TAKE_FD(tree);
    error_set_errno(err, ERROR_INTERNAL, "idmap the mount of %s (its file system must allow it)", path);
    /* What all may read can be read without. */
    return mode == MOUNT_READ ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

static bool give_mounts(const struct jail *jail, const struct jail_plan *plan, pid_t pid, struct error *err)
{
    AUTO_FREE char *path = memory_printf("/proc/%d/ns/user", (int)pid);
    AUTO_FD int user_namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (user_namespace < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    AUTO_FD int rootfs = open_mount(plan->rootfs, user_namespace, MOUNT_WRITE, err);
    if (rootfs < 0)
        return false;
    AUTO_FD int folder = plan->folder ? open_mount(plan->folder, user_namespace, MOUNT_READ, err) : -1;
    if (plan->folder && folder < 0)
        return false;
    return fd_send_message(jail->channel, "m", 1, (const int[]){rootfs, folder}, plan->folder ? 2 : 1, err);
}

/* --- starting --- */

static long clone_child(const struct jail_plan *plan, int *pidfd)
{
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    if (plan->kind != JAIL_FETCH)
        flags |= CLONE_NEWNET;
    struct clone_args arguments = {
        .flags = flags | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)pidfd, .exit_signal = SIGCHLD};
    return syscall(SYS_clone3, &arguments, sizeof arguments);
}

static bool start(struct jail *jail, const struct jail_plan *plan, struct error *err)
{
    int channel[2];
    int output[2] = {-1, -1};
    uint32_t base = 0;
    if (!take_range(jail, &base, err))
        return false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a socket pair");
    jail->channel = channel[0];
    AUTO_FD int inner = channel[1];
    if (plan->kind != JAIL_PARSE && pipe2(output, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a pipe");
    jail->output = output[0];
    AUTO_FD int inner_output = output[1];
    long pid = clone_child(plan, &jail->pidfd);
    if (pid == 0) {
        const struct jail_child child = {.plan = plan, .channel = inner, .output = inner_output};
        jail_child_run(&child);
    }
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "clone3 with all namespaces");
    return write_map((pid_t)pid, "uid_map", base, err) && write_map((pid_t)pid, "gid_map", base, err) &&
           give_mounts(jail, plan, (pid_t)pid, err);
}

bool jail_start(struct jail *jail, const struct jail_plan *plan, unsigned seconds, struct error *err)
{
    *jail = JAIL_NONE;
    jail->deadline = clock_boot_ns() + seconds * NS_PER_S;
    if (start(jail, plan, err))
        return true;
    jail_done(jail);
    return false;
}

/* --- listening --- */

static int how_it_ended(struct jail *jail, struct error *err)
{
    siginfo_t how = {0};
    int waited = 0;
    do {
        waited = waitid(P_PIDFD, (id_t)jail->pidfd, &how, WEXITED);
    } while (waited < 0 && errno == EINTR);
    close(jail->pidfd);
    jail->pidfd = -1;
    if (waited == 0 && how.si_code == CLD_EXITED && how.si_status == 0)
        return 0;
    if (waited == 0 && how.si_code == CLD_EXITED)
        error_set(err, ERROR_INTERNAL, "it ended with status %d", how.si_status);
    else
        error_set(err, ERROR_INTERNAL, "it ended by signal %d (out of memory, or killed)", how.si_status);
    return -1;
}

static int take_message(struct jail *jail, struct message *message, struct error *err)
{
    ssize_t size = recv(jail->channel, message, sizeof *message, MSG_DONTWAIT);
    if (size == 0) {
        close(jail->channel);
        jail->channel = -1;
        return 0;
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (size != (ssize_t)sizeof *message) {
        error_set(err, ERROR_INVALID, "the child without rights sent something else than a message");
        return -1;
    }
    if (message_check(message, err))
        return 1;
    error_prefix(err, "what the child without rights sent");
    return -1;
}

static int take_line(struct jail *jail, struct message *message)
{
    char byte = 0;
    ssize_t got = read(jail->output, &byte, 1);
    if (got <= 0 && !(got < 0 && errno == EINTR)) {
        close(jail->output);
        jail->output = -1;
        byte = '\n'; /* ends what has no end */
        got = jail->line_length > 0;
    }
    if (got > 0 && byte != '\n' && byte != '\r' && jail->line_length < sizeof jail->line - 1) {
        jail->line[jail->line_length++] = byte;
        return 0;
    }
    if (got <= 0 || (byte != '\n' && byte != '\r') || jail->line_length == 0)
        return 0;
    *message = (struct message){.type = MESSAGE_TEXT};
    memcpy(message->as.text, jail->line, jail->line_length);
    jail->line_length = 0;
    return message_check(message, NULL) ? 1 : 0;
}

/* What is ready, or 0 when the time is up. */
static int wait_for(const struct jail *jail, struct pollfd polled[static 3])
{
    const int fds[3] = {jail->channel, jail->output, jail->pidfd};
    for (size_t i = 0; i < 3; i++)
        polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    /* Its end counts once all it said was read. */
    if (jail->channel >= 0 || jail->output >= 0)
        polled[2].fd = -1;
    uint64_t now = clock_boot_ns();
    if (now >= jail->deadline)
        return 0;
    uint64_t left_ms = (jail->deadline - now) / 1000000 + 1;
    return poll(polled, 3, left_ms > 60000 ? 60000 : (int)left_ms);
}

int jail_next(struct jail *jail, struct message *message, struct error *err)
{
    for (;;) {
        struct pollfd polled[3];
        int ready = wait_for(jail, polled);
        if (ready == 0 && clock_boot_ns() >= jail->deadline) {
            error_set(err, ERROR_TIMEOUT, "it takes too long (--timeout)");
            return -1;
        }
        if (ready <= 0)
            continue;
        int taken = 0;
        if (polled[0].revents)
            taken = take_message(jail, message, err);
        else if (polled[1].revents)
            taken = take_line(jail, message);
        else if (polled[2].revents)
            return how_it_ended(jail, err);
        if (taken != 0)
            return taken;
    }
}

void jail_done(struct jail *jail)
{
    if (jail->pidfd >= 0) {
        /* Its death is that of all in its pid namespace, and waiting for it waits for them (pid_namespaces(7)). */
        (void)syscall(SYS_pidfd_send_signal, jail->pidfd, SIGKILL, NULL, 0U);
        (void)how_it_ended(jail, NULL);
    }
    const int fds[] = {jail->channel, jail->output, jail->range};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    *jail = JAIL_NONE;
}
