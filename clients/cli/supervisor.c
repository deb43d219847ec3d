#include "clients/cli/supervisor.h"

#include "clients/cli/enrolment.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/trust/trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>

static const uint64_t SECOND_NS = 1000000000;
static const uint64_t STOP_FOR_NS = 20 * 1000000000ULL;
enum { FAILURES_MAX = 5 }; /* starts in a row that end at once before we give up */

/* One supervised program. */
struct child {
    const char *name, *path, *port_flag;
    uint16_t port;
    bool (*prepare)(const struct supervisor *supervisor,
                    struct error *err); /* before it, in its process; may be NULL */
    pid_t pid;                          /* 0: not running */
    uint64_t started_boot_ns, start_at_boot_ns;
    unsigned failures;   /* starts in a row that ended by themselves within a second */
    uint64_t backoff_ns; /* before the next start; back to the shortest after 10 s of life */
};

/* Whether /proc/<pid>/exe is a program of that name. */
static bool is_program(const char *pid, const char *name)
{
    char target[PATH_MAX];
    AUTO_FREE char *link = memory_printf("/proc/%s/exe", pid);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    char *deleted = strstr(target, " (deleted)"); /* a newer build took its place */
    if (deleted)
        *deleted = '\0';
    const char *slash = strrchr(target, '/');
    return slash && strcmp(slash + 1, name) == 0;
}

/* What both programs take for themselves when it is there (config_default_tls). */
static bool has_tls(const struct supervisor *supervisor)
{
    AUTO_FREE char *file = memory_printf("%s/tls/server.pem", supervisor->state);
    return access(file, F_OK) == 0;
}

char *supervisor_url(const struct supervisor *supervisor, unsigned offset)
{
    return memory_printf("%s://127.0.0.1:%u", has_tls(supervisor) ? "https" : "http", supervisor->port + offset);
}

bool supervisor_trust(const struct supervisor *supervisor, struct error *err)
{
    AUTO_FREE char *file = memory_printf("%s/tls/ca.pem", supervisor->state);
    return !has_tls(supervisor) || trust_set(file, NULL, err);
}

pid_t supervisor_running(const char *state, uint16_t *port)
{
    AUTO_FREE char *path = memory_printf("%s/up.pid", state);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) == 0)
        return 0;
    char text[40] = "";
    uint64_t pid = 0, told_port = 0;
    if (pread(fd, text, sizeof text - 1, 0) <= 0)
        return 0;
    char *second = text + strcspn(text, " ");
    if (*second == ' ')
        *second++ = '\0';
    second[strcspn(second, "\n")] = '\0';
    if (!text_parse_u64(text, strlen(text), INT32_MAX, &pid) ||
        !text_parse_u64(second, strlen(second), UINT16_MAX, &told_port) || !is_program(text, "parley"))
        return 0;
    if (port)
        *port = (uint16_t)told_port;
    return (pid_t)pid;
}

bool supervisor_stop(const char *state, pid_t pid, struct error *err)
{
    if (kill(pid, SIGTERM) != 0)
        return error_set_errno(err, ERROR_FORBIDDEN, "stop the supervisor (pid %d)", (int)pid);
    uint64_t until = clock_boot_ns() + 2 * STOP_FOR_NS;
    while (supervisor_running(state, NULL) == pid) {
        if (clock_boot_ns() > until)
            return error_set(err, ERROR_TIMEOUT, "the supervisor (pid %d) did not stop within 40 s", (int)pid);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return true;
}

/* One of our planes, started for this state folder: "... --state <state> ...". */
static bool is_plane_of(const char *pid, const char *state)
{
    if (!is_program(pid, "parley-negotiator") && !is_program(pid, "parley-sandboxd"))
        return false;
    AUTO_FREE char *path = memory_printf("/proc/%s/cmdline", pid);
    char words[4096];
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, words, sizeof words - 1);
    if (size <= 0)
        return false;
    words[size] = '\0';
    bool is_state = false;
    for (const char *word = words; word < words + size; word += strlen(word) + 1) {
        if (is_state && strcmp(word, state) == 0)
            return true;
        is_state = strcmp(word, "--state") == 0;
    }
    return false;
}

static size_t signal_leftovers(const char *state, int number)
{
    size_t found = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes)) != NULL;) {
        uint64_t pid;
        if (!text_parse_u64(entry->d_name, strlen(entry->d_name), INT32_MAX, &pid) ||
            !is_plane_of(entry->d_name, state))
            continue;
        found++;
        kill((pid_t)pid, number);
    }
    if (processes)
        closedir(processes);
    return found;
}

void supervisor_end_leftovers(const char *state)
{
    uint64_t until = clock_boot_ns() + STOP_FOR_NS;
    size_t left = signal_leftovers(state, SIGTERM);
    while (left > 0) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        left = signal_leftovers(state, clock_boot_ns() > until ? SIGKILL : 0);
    }
}

static int take_pid_file(const struct supervisor *supervisor, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/up.pid", supervisor->state);
    AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open %s", path);
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        error_set(err, ERROR_CONFLICT, "another `parley up` runs on %s", supervisor->state);
        return -1;
    }
    AUTO_FREE char *text = memory_printf("%d %u\n", (int)getpid(), supervisor->port);
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

static _Noreturn void become(const struct supervisor *supervisor, const struct child *child)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* a Ctrl-C at the terminal is for the supervisor, which stops them in order */
    redirect(supervisor, child->name);
    struct error err = {0};
    if (child->prepare && !child->prepare(supervisor, &err)) {
        log_error("up", "%s: %s", child->name, err.message);
        log_flush();
        _exit(1);
    }
    char port[8];
    snprintf(port, sizeof port, "%u", child->port);
    execl(child->path, child->path, "--state", supervisor->state, child->port_flag, port, (char *)NULL);
    _exit(127);
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
    if (child->pid == 0)
        become(supervisor, child);
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
    bool failed = WIFEXITED(status) && now - child->started_boot_ns < SECOND_NS;
    child->failures = failed ? child->failures + 1 : 0;
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

/* A program that fails at every start needs a person: a taken port, a damaged file. */
static const struct child *hopeless(const struct child *children, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (children[i].failures >= FAILURES_MAX)
            return &children[i];
    }
    return NULL;
}

bool supervisor_run(const struct supervisor *supervisor, int ready_fd, struct error *err)
{
    AUTO_FREE char *log_folder = memory_printf("%s/log", supervisor->state);
    if (!fd_make_folders(supervisor->state, 0711, err) || !fd_make_folders(log_folder, 0700, err))
        return false;
    AUTO_FD int pid_file = take_pid_file(supervisor, err);
    if (pid_file < 0)
        return false;
    AUTO_FD int signals = open_signals();
    struct child children[] = {
        {.name = "negotiator", .path = supervisor->negotiator, .port_flag = "--port", .port = supervisor->port},
        {.name = "sandboxd",
         .path = supervisor->sandboxd,
         .port_flag = "--sandboxd-port",
         .port = (uint16_t)(supervisor->port + 1),
         .prepare = enrolment_ensure},
    };
    const size_t count = sizeof children / sizeof *children;
    supervisor_end_leftovers(supervisor->state);
    bool stop = false;
    while (!stop && !hopeless(children, count)) {
        int wait_ms = start_due(supervisor, children, count);
        if (ready_fd >= 0)
            close(TAKE_FD(ready_fd));
        struct pollfd poll_signals = {.fd = signals, .events = POLLIN};
        poll(&poll_signals, 1, wait_ms);
        stop = told_to_stop(signals);
        reap(children, count, stop);
    }
    const struct child *failing = stop ? NULL : hopeless(children, count);
    stop_all(children, count, signals);
    AUTO_FREE char *path = memory_printf("%s/up.pid", supervisor->state);
    unlink(path);
    return failing == NULL || error_set(err, ERROR_INTERNAL, "%s failed at %d starts in a row: given up", failing->name,
                                        (int)FAILURES_MAX);
}
