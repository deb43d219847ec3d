/* reap.c - see reap.h. */
#include "sandboxd/init/reap.h"

#include "sandboxd/init/command.h"
#include "sandboxd/init/family.h"
#include "sandboxd/init/helpers.h"
#include "sandboxd/init/spare.h"
#include "sandboxd/init/terminate.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum {
    REAPED_A_TURN = 64 /* user code that forks without end must not keep init from its other duties */
};

void reap_children(struct init *init)
{
    init->reap_again = false;
    for (int i = 0; i < REAPED_A_TURN; i++) {
        int status;
        struct rusage usage;
        pid_t pid = wait4(-1, &status, WNOHANG | __WALL, &usage);
        if (pid < 0 && errno == ECHILD)
            init->childless = true;
        if (pid == 0 && init->is_guest && init->end_boot_ns != 0) /* its launcher is there until it has left */
            init->childless = !family_is_any(init);
        if (pid <= 0)
            return;
        struct command *command = command_find_pid(init, pid);
        if (command != NULL)
            command_reaped(command, init, status, &usage);
        else if (!helpers_reaped(init, pid) && !spare_reaped(init, pid))
            command_orphan_reaped(init);
    }
    init->reap_again = true;
}

static void on_child_signal(struct init *init, struct watch *watch, uint32_t events)
{
    struct signalfd_siginfo signal;
    (void)events;
    if (read(watch->fd, &signal, sizeof signal) <= 0)
        return;
    if (signal.ssi_signo == SIGCHLD)
        reap_children(init);
    else
        terminate_begin(init, TERMINATE_GRACE_MS, 0);
}

bool reap_open(struct init *init, struct error *err)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (init->is_guest) { /* elsewhere its pid namespace keeps them from it (pid_namespaces(7)) */
        sigaddset(&child, SIGTERM);
        sigaddset(&child, SIGINT);
    }
    init->child_signal = (struct watch){.ready = on_child_signal, .fd = -1};
    if (sigprocmask(SIG_SETMASK, &child, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "sigprocmask");
    int fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "signalfd");
    return watch_add(init, &init->child_signal, fd, EPOLLIN, err);
}
