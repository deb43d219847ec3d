#include "sandboxd/launcher/front_process.h"

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

void front_process_init(struct front_process *front, char *const argv[])
{
    *front = (struct front_process){.argv = argv, .pidfd = -1, .socket = -1, .backoff_ms = BACKOFF_FIRST_MS};
}

static _Noreturn void become_front(const struct front_process *front, int socket, pid_t launcher)
{
    char number[16];
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Lost when the front gives up its uid, and taken again there; the end of the socket is the sure sign. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != launcher)
        _exit(1);
    int inherited = dup(socket); /* without O_CLOEXEC */
    snprintf(number, sizeof number, "%d", inherited);
    int null_device = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (inherited < 0 || null_device < 0 || dup2(null_device, STDIN_FILENO) < 0 ||
        setenv(FRONT_ENVIRONMENT, number, 1) < 0)
        _exit(1);
    execv("/proc/self/exe", front->argv);
    _exit(1);
}

bool front_process_start(struct front_process *front, uint64_t now_boot_ns, struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make the front's socket");
    AUTO_FD int ours = pair[0];
    AUTO_FD int its = pair[1];
    if (!fd_set_nonblocking(ours, err))
        return false;
    const int bytes = SOCKET_BYTES;
    (void)setsockopt(ours, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes); /* some dozens of sandboxes at once */
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork the front");
    if (pid == 0)
        become_front(front, its, launcher);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0U);
    if (pidfd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "pidfd_open of the front");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return false;
    }
    front->pid = pid;
    front->pidfd = pidfd;
    front->socket = TAKE_FD(ours);
    front->started_boot_ns = now_boot_ns;
    front->restart_boot_ns = 0;
    return true;
}

static void tell_death(pid_t pid, int status)
{
    if (WIFSIGNALED(status))
        log_warn("launcher", "the front was ended by signal %d pid=%d", WTERMSIG(status), (int)pid);
    else
        log_write(WEXITSTATUS(status) ? LOG_WARN : LOG_INFO, "launcher", "the front ended with status %d pid=%d",
                  WEXITSTATUS(status), (int)pid);
}

void front_process_end(struct front_process *front, uint64_t now_boot_ns)
{
    if (front->pid > 0) {
        int status = 0;
        kill(front->pid, SIGKILL); /* our child and not yet reaped: the pid is its own */
        while (waitpid(front->pid, &status, 0) < 0 && errno == EINTR) {
        }
        tell_death(front->pid, status);
        close(front->pidfd);
        close(front->socket);
        bool lived = now_boot_ns - front->started_boot_ns > LONG_LIFE_MS * MS;
        front->backoff_ms = lived ? BACKOFF_FIRST_MS : front->backoff_ms;
    }
    front->pid = 0;
    front->pidfd = front->socket = -1;
    front->restart_boot_ns = now_boot_ns + front->backoff_ms * MS;
    front->backoff_ms = front->backoff_ms * 2 < BACKOFF_MAX_MS ? front->backoff_ms * 2 : BACKOFF_MAX_MS;
}

void front_process_stop(const struct front_process *front)
{
    if (front->pid > 0)
        kill(front->pid, SIGTERM);
}
