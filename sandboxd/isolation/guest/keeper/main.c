/* main.c - parley-keeper: takes over what it inherits, starts its monitor, waits for the guest, then turns the loop
 * until the sandbox ends. Exit code 0: told to terminate, or the guest ended by itself; 10: its hard deadline came; 1:
 * it never was ready, or the monitor failed. */
#include "sandboxd/isolation/guest/keeper/keeper.h"

#include "sandboxd/init/cgroup.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_GRACE_MS = 10000 };
static const uint64_t SECOND_NS = 1000000000;

/* ---- what all use ---- */

bool keeper_watch(struct keeper *keeper, int fd, struct error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(keeper->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "epoll_ctl");
}

void keeper_arm(struct keeper *keeper)
{
    uint64_t due = keeper->end_boot_ns ? keeper->end_boot_ns : keeper->deadline_boot_ns;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(due / SECOND_NS), .tv_nsec = (long)(due % SECOND_NS)}};
    (void)timerfd_settime(keeper->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- the start ---- */

static bool read_filter(struct keeper *keeper, struct error *err)
{
    struct stat status;
    if (fstat(INHERIT_FD_SECCOMP, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fstat of the seccomp program");
    size_t size = (size_t)status.st_size, count = size / sizeof(struct sock_filter);
    if (count == 0 || count > BPF_MAXINSNS || size % sizeof(struct sock_filter) != 0)
        return error_set(err, ERROR_INVALID, "keeper: a seccomp program of %zu bytes", size);
    AUTO_FREE struct sock_filter *program = memory_array(count, sizeof *program);
    if (lseek(INHERIT_FD_SECCOMP, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "lseek of the seccomp program");
    if (!fd_read_exact(INHERIT_FD_SECCOMP, program, size, err))
        return false;
    close(INHERIT_FD_SECCOMP);
    keeper->filter = (struct sock_fprog){.len = (unsigned short)count, .filter = TAKE(program)};
    return true;
}

static bool open_signals(struct keeper *keeper, struct error *err)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t child;
    for (int number = 1; number <= SIGRTMAX; number++)
        sigaction(number, &standard, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &child, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "sigprocmask");
    keeper->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    keeper->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (keeper->signals < 0 || keeper->timer < 0)
        return error_set_errno(err, ERROR_INTERNAL, "signalfd or timerfd");
    return keeper_watch(keeper, keeper->signals, err) && keeper_watch(keeper, keeper->timer, err);
}

static bool set_up(struct keeper *keeper, int argc, char *const argv[], struct error *err)
{
    uint64_t joins = 0;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "PR_SET_DUMPABLE");
    if (getpid() != 1 || argc != 2 || !text_parse_u64(argv[1], strlen(argv[1]), INHERIT_JOIN_MAX, &joins))
        return error_set(err, ERROR_INVALID, "keeper: must be process 1 of a pid namespace; usage: keeper JOIN_COUNT");
    keeper->join_count = (size_t)joins;
    if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    keeper->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (keeper->epoll < 0)
        return error_set_errno(err, ERROR_INTERNAL, "epoll_create1");
    return fd_set_nonblocking(INHERIT_FD_LISTEN, err) && open_signals(keeper, err) && read_filter(keeper, err);
}

/* Its monitor has what it needs; nothing here needs a right from now on. */
static bool drop_rights(struct error *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    return syscall(SYS_capset, &head, none) == 0 || error_set_errno(err, ERROR_INTERNAL, "capset");
}

/* ---- the dialogue with the launcher ---- */

static bool tell(uint32_t type, const struct error *failed)
{
    struct launcher_init_message message = {.type = type};
    struct error ignored = {0};
    if (failed)
        message.as.failed = *failed;
    return launcher_init_send(INHERIT_FD_CONTROL, &message, NULL, 0, &ignored);
}

/* Waits for a message of that type; the launcher's end ends it. */
static bool ask(uint32_t type, struct launcher_init_message *message, int fds[static LAUNCHER_INIT_FDS], size_t *count,
                struct error *err)
{
    int got = launcher_init_receive(INHERIT_FD_CONTROL, message, LI_FROM_LAUNCHER, fds, count, err);
    if (got == 0)
        return error_set(err, ERROR_GONE, "keeper: the launcher went away");
    return got > 0 && (message->type == type || error_set(err, ERROR_INTERNAL, "keeper: type %u", message->type));
}

static bool take_guest(struct keeper *keeper, struct error *err)
{
    struct launcher_init_message message;
    int fds[LAUNCHER_INIT_FDS];
    size_t count = 0;
    if (!ask(LI_GUEST, &message, fds, &count, err))
        return false;
    keeper->guest = message.as.guest;
    return keeper->guest.starts_late || monitor_start(keeper, NULL, err);
}

static bool become(struct keeper *keeper, struct error *err)
{
    struct launcher_init_message message;
    int fds[LAUNCHER_INIT_FDS];
    size_t count = 0;
    if (!tell(LI_BARRIER, NULL) || !ask(LI_BECOME, &message, fds, &count, err))
        return false;
    const struct li_become *to = &message.as.become;
    if (!to->has_letter || to->volume_count > 0)
        return error_set(err, ERROR_INVALID, "keeper: a guest needs a letter, and has no volumes");
    if (keeper->guest.starts_late && !monitor_start(keeper, to, err))
        return false;
    bool is_sent = drop_rights(err) && monitor_send_letter(keeper, fds[0], err);
    close(fds[0]);
    keeper->deadline_boot_ns = to->deadline_boot_ns;
    keeper_arm(keeper);
    return is_sent;
}

/* ---- the loop ---- */

static void on_timer(struct keeper *keeper)
{
    uint64_t times = 0, now = clock_boot_ns();
    (void)!read(keeper->timer, &times, sizeof times);
    if (keeper->end_boot_ns) {
        if (now >= keeper->end_boot_ns) {
            (void)cgroup_kill_all(INHERIT_FD_RUN);
            keeper->leaving = true;
        }
    } else if (keeper->deadline_boot_ns && now >= keeper->deadline_boot_ns) {
        monitor_terminate(keeper, DEADLINE_GRACE_MS, KEEPER_DEADLINE);
    }
    keeper_arm(keeper);
}

static void turn(struct keeper *keeper)
{
    struct epoll_event event;
    if (epoll_wait(keeper->epoll, &event, 1, -1) != 1)
        return;
    int fd = event.data.fd;
    if (fd == keeper->signals)
        monitor_reap(keeper);
    else if (fd == keeper->timer)
        on_timer(keeper);
    else if (fd == keeper->output)
        monitor_read(keeper);
    else if (fd == keeper->channel)
        monitor_hear(keeper);
    else if (fd == keeper->listener)
        front_accept(keeper);
    else if (fd == keeper->front)
        front_hear(keeper);
}

/* Until the guest serves. Its launcher bounds the time. */
static bool wait_until_up(struct keeper *keeper, struct error *err)
{
    while (!keeper->is_up && !keeper->has_ended && !keeper->leaving)
        turn(keeper);
    if (keeper->is_up)
        return true;
    monitor_read(keeper); /* its last words */
    bool has_exited = WIFEXITED(keeper->status);
    return error_set(err, ERROR_INTERNAL, "%s ended (%s %d) before its guest was ready: %s", keeper->guest.arguments,
                     has_exited ? "exit" : "signal",
                     has_exited ? WEXITSTATUS(keeper->status) : WTERMSIG(keeper->status),
                     keeper->line[0] ? keeper->line : "it said nothing");
}

int main(int argc, char *argv[])
{
    static struct keeper keeper = {
        .epoll = -1, .channel = -1, .output = -1, .signals = -1, .timer = -1, .listener = -1, .front = -1};
    struct error err = {0};
    if (!set_up(&keeper, argc, argv, &err) || !take_guest(&keeper, &err) || !become(&keeper, &err) ||
        !wait_until_up(&keeper, &err) || !front_listen(&keeper, &err))
        return tell(LI_FAILED, &err) ? KEEPER_FAILED : 2;
    bool is_told = tell(LI_READY, NULL);
    close(INHERIT_FD_CONTROL);
    if (!is_told)
        return KEEPER_FAILED;
    while (!keeper.leaving)
        turn(&keeper);
    return keeper.exit_code;
}
