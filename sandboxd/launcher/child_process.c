#include "sandboxd/launcher/child_process.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MS = 1000000;
enum { BACKOFF_FIRST_MS = 20, BACKOFF_MAX_MS = 5000, LONG_LIFE_MS = 5000, SOCKET_BYTES = 1 << 20 };

static _Noreturn void become_child(const struct child_process *child, int socket, pid_t launcher)
{
    char number[16];
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Lost when it gives up its uid, and taken again there; the end of the socket is the sure sign. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != launcher)
        _exit(1);
    int inherited = dup(socket); /* without O_CLOEXEC */
    snprintf(number, sizeof number, "%d", inherited);
    int null_device = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (inherited < 0 || null_device < 0 || dup2(null_device, STDIN_FILENO) < 0 ||
        setenv(child->environment, number, 1) < 0)
        _exit(1);
    execv(child->program, child->argv);
    _exit(1);
}

bool child_process_start(struct child_process *child, uint64_t now_boot_ns, struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a socket for %s", child->what);
    AUTO_FD int ours = pair[0];
    AUTO_FD int its = pair[1];
    if (!fd_set_nonblocking(ours, err))
        return false;
    const int bytes = SOCKET_BYTES;
    (void)setsockopt(ours, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes); /* some dozens of sandboxes at once */
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork %s", child->what);
    if (pid == 0)
        become_child(child, its, launcher);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0U);
    if (pidfd < 0 && errno != ENOSYS) { /* a guest's kernel may have none, and its launcher does without */
        error_set_errno(err, ERROR_INTERNAL, "pidfd_open of %s", child->what);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return false;
    }
    child->pid = pid;
    child->pidfd = pidfd;
    child->socket = TAKE_FD(ours);
    child->started_boot_ns = now_boot_ns;
    child->restart_boot_ns = 0;
    return true;
}

static void tell_death(const struct child_process *child, int status)
{
    if (WIFSIGNALED(status))
        log_warn("launcher", "%s was ended by signal %d pid=%d", child->what, WTERMSIG(status), (int)child->pid);
    else
        log_write(WEXITSTATUS(status) ? LOG_WARN : LOG_INFO, "launcher", "%s ended with status %d pid=%d", child->what,
                  WEXITSTATUS(status), (int)child->pid);
}

void child_process_end(struct child_process *child, uint64_t now_boot_ns)
{
    if (child->pid > 0) {
        int status = 0;
        kill(child->pid, SIGKILL); /* our child and not yet reaped: the pid is its own */
        while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
        }
        tell_death(child, status);
        if (child->pidfd >= 0)
            close(child->pidfd);
        fd_empty(child->socket);
        close(child->socket);
        bool lived = now_boot_ns - child->started_boot_ns > LONG_LIFE_MS * MS;
        child->backoff_ms = lived ? 0 : child->backoff_ms;
    }
    if (child->backoff_ms == 0)
        child->backoff_ms = BACKOFF_FIRST_MS;
    child->pid = 0;
    child->pidfd = child->socket = -1;
    child->restart_boot_ns = now_boot_ns + child->backoff_ms * MS;
    child->backoff_ms = child->backoff_ms * 2 < BACKOFF_MAX_MS ? child->backoff_ms * 2 : BACKOFF_MAX_MS;
}

void child_process_stop(const struct child_process *child)
{
    if (child->pid > 0)
        kill(child->pid, SIGTERM);
}
