#include "clients/cli/supervisor.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

static const uint64_t SECOND_NS = 1000000000;
static const uint64_t STOP_FOR_NS = 20 * 1000000000ULL;

/* One supervised program. */
struct child {
    const char *name, *path, *port_flag;
    uint16_t port;
    pid_t pid;               /* 0: not running */
    uint64_t started_boot_ns, start_at_boot_ns;
    uint64_t backoff_ns;     /* before the next start; back to the shortest after 10 s of life */
};

pid_t supervisor_running(const char *state)
{
    AUTO_FREE char *path = memory_printf("%s/up.pid", state);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) == 0)
        return 0;
    char text[24] = "";
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    uint64_t pid = 0;
    if (got <= 0 || !text_parse_u64(text, strcspn(text, "\n"), INT32_MAX, &pid))
        return 0;
    return (pid_t)pid;
}

static int take_pid_file(const char *state, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/up.pid", state);
    AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open %s", path);
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        error_set(err, ERROR_CONFLICT, "another `parley up` runs on %s", state);
        return -1;
    }
    AUTO_FREE char *text = memory_printf("%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || !fd_write_all(fd, text, strlen(text), err))
        return -1;
    return TAKE_FD(fd);
}

static void redirect(const struct supervisor *supervisor, const char *name)
{
    AUTO_FREE char *path = memory_printf("%s/log/%s.log", supervisor->state, name);
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO); /* the first start prints the admin key there: it belongs into no file */
    }
    if (supervisor->to_log_files && log >= 0)
        dup2(log, STDERR_FILENO);
}

static void start(const struct supervisor *supervisor, struct child *child)
{
    child->started_boot_ns = clock_boot_ns();
    child->pid = fork();
    if (child->pid < 0) {
        log_error("up", "fork failed: %s", strerror(errno));
        child->pid = 0;
        child->start_at_boot_ns = clock_boot_ns() + SECOND_NS;
        return;
    }
    if (child->pid > 0)
        return;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* a Ctrl-C at the terminal is for the supervisor, which stops them in order */
    redirect(supervisor, child->name);
    char port[8];
    snprintf(port, sizeof port, "%u", child->port);
    execl(child->path, child->path, "--state", supervisor->state, child->port_flag, port, (char *)NULL);
    _exit(127);
}

static void on_exit_of(struct child *child, int status)
{
    uint64_t now = clock_boot_ns();
    bool lived = now - child->started_boot_ns > 10 * SECOND_NS;
    child->backoff_ns = lived || child->backoff_ns == 0 ? SECOND_NS / 5 : child->backoff_ns * 2;
    if (child->backoff_ns > 5 * SECOND_NS)
        child->backoff_ns = 5 * SECOND_NS;
    child->start_at_boot_ns = now + child->backoff_ns;
    child->pid = 0;
    if (WIFSIGNALED(status))
        log_warn("up", "%s was killed by signal %d, starting it again", child->name, WTERMSIG(status));
    else
        log_warn("up", "%s ended with status %d, starting it again", child->name, WEXITSTATUS(status));
}

static void reap(struct child *children, size_t count, bool stopping)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (size_t i = 0; i < count; i++) {
            if (children[i].pid != pid)
                continue;
            if (stopping)
                children[i].pid = 0;
            else
                on_exit_of(&children[i], status);
        }
    }
}

static int start_due(const struct supervisor *supervisor, struct child *children, size_t count)
{
    uint64_t now = clock_boot_ns();
    int wait_ms = -1;
    for (size_t i = 0; i < count; i++) {
        if (children[i].pid)
            continue;
        if (children[i].start_at_boot_ns <= now) {
            start(supervisor, &children[i]);
            continue;
        }
        int due_ms = (int)((children[i].start_at_boot_ns - now) / 1000000) + 1;
        wait_ms = wait_ms < 0 || due_ms < wait_ms ? due_ms : wait_ms;
    }
    return wait_ms;
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* True when one of the signals that end us came. SIGHUP is the terminal going away: `up` in the foreground ends too. */
static bool told_to_stop(int signals)
{
    struct signalfd_siginfo info;
    bool stop = false;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
        stop = stop || info.ssi_signo != SIGCHLD;
    return stop;
}

static void stop_all(struct child *children, size_t count, int signals)
{
    uint64_t until = clock_boot_ns() + STOP_FOR_NS;
    for (size_t i = 0; i < count; i++) {
        if (children[i].pid)
            kill(children[i].pid, SIGTERM);
    }
    for (;;) {
        reap(children, count, true);
        size_t left = 0;
        for (size_t i = 0; i < count; i++)
            left += children[i].pid != 0;
        if (left == 0)
            return;
        if (clock_boot_ns() > until) {
            for (size_t i = 0; i < count; i++) {
                if (children[i].pid)
                    kill(children[i].pid, SIGKILL);
            }
        }
        struct pollfd poll_signals = {.fd = signals, .events = POLLIN};
        poll(&poll_signals, 1, 500);
        told_to_stop(signals);
    }
}

bool supervisor_run(const struct supervisor *supervisor, int ready_fd, struct error *err)
{
    AUTO_FREE char *log_folder = memory_printf("%s/log", supervisor->state);
    if (!fd_make_folders(supervisor->state, 0711, err) || !fd_make_folders(log_folder, 0700, err))
        return false;
    AUTO_FD int pid_file = take_pid_file(supervisor->state, err);
    if (pid_file < 0)
        return false;
    AUTO_FD int signals = open_signals();
    struct child children[] = {
        {.name = "negotiator", .path = supervisor->negotiator, .port_flag = "--port", .port = supervisor->port},
        {.name = "sandboxd",
         .path = supervisor->sandboxd,
         .port_flag = "--sandboxd-port",
         .port = (uint16_t)(supervisor->port + 1)},
    };
    const size_t count = sizeof children / sizeof *children;
    bool stop = false;
    while (!stop) {
        int wait_ms = start_due(supervisor, children, count);
        if (ready_fd >= 0)
            close(TAKE_FD(ready_fd));
        struct pollfd poll_signals = {.fd = signals, .events = POLLIN};
        poll(&poll_signals, 1, wait_ms);
        stop = told_to_stop(signals);
        reap(children, count, stop);
    }
    stop_all(children, count, signals);
    AUTO_FREE char *path = memory_printf("%s/up.pid", supervisor->state);
    unlink(path);
    return true;
}
