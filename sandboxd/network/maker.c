#include "sandboxd/network/maker.h"

#include "sandboxd/network/namespace.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOCKET = 3, RETRY_MS = 1000 };

/* One byte for each that was taken; false at the end of who takes. */
static bool wait_for_room(unsigned *room)
{
    char byte = 0;
    if (*room > 0)
        return true;
    if (read(SOCKET, &byte, 1) != 1)
        return false;
    ++*room;
    return true;
}

static _Noreturn void make(unsigned room, int home)
{
    while (wait_for_room(&room)) {
        struct error ignored = {0};
        AUTO_FD int made = namespace_make(home, &ignored);
        if (made < 0) {
            usleep(RETRY_MS * 1000); /* who needs one says why it cannot be made */
            continue;
        }
        if (!fd_send_message(SOCKET, "n", 1, &made, 1, &ignored))
            _exit(1);
        room--;
    }
    _exit(0);
}

/* Nothing of the launcher's stays here but the socket. */
static _Noreturn void become_maker(int socket, unsigned count, bool is_astray, pid_t launcher)
{
    struct error ignored = {0};
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != launcher || dup2(socket, SOCKET) < 0 || syscall(SYS_close_range, SOCKET + 1U, ~0U, 0U) < 0)
        _exit(1);
    int home = is_astray ? -1 : namespace_open(&ignored);
    if (home < 0 && !is_astray)
        _exit(1);
    make(count, home);
}

bool maker_start(struct maker *maker, unsigned count, bool is_astray, struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a socket");
    AUTO_FD int ours = pair[0];
    AUTO_FD int its = pair[1];
    if (!fd_set_nonblocking(ours, err))
        return false;
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork who makes network namespaces");
    if (pid == 0)
        become_maker(its, count, is_astray, launcher);
    *maker = (struct maker){.pid = pid, .socket = TAKE_FD(ours)};
    return true;
}

int maker_take(struct maker *maker)
{
    char byte = 0;
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    struct error why = {0};
    if (maker->pid <= 0)
        return -1;
    ssize_t size = fd_receive_message(maker->socket, &byte, 1, fds, &count, &why);
    if (size == 1 && count == 1 && send(maker->socket, "t", 1, MSG_NOSIGNAL) == 1)
        return fds[0];
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    if (size >= 0 || why.system_errno != EAGAIN)
        maker_stop(maker);
    return -1;
}

void maker_wait(const struct maker *maker, int milliseconds)
{
    struct pollfd ready = {.fd = maker->socket, .events = POLLIN};
    if (maker->pid > 0)
        (void)poll(&ready, 1, milliseconds);
}

void maker_stop(struct maker *maker)
{
    if (maker->pid > 0) {
        kill(maker->pid, SIGKILL); /* our child and not yet reaped: the pid is its own */
        while (waitpid(maker->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        close(maker->socket);
    }
    *maker = MAKER_NONE;
}
