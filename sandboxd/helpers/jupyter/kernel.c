#include "sandboxd/helpers/jupyter/kernel.h"

#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct plumbing {
    int null, out[2], err[2], failure[2];
};

static void close_plumbing(struct plumbing *pipes)
{
    int *const all[] = {&pipes->null,   &pipes->out[0],     &pipes->out[1],    &pipes->err[0],
                        &pipes->err[1], &pipes->failure[0], &pipes->failure[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (*all[i] >= 0)
            close(TAKE_FD(*all[i]));
}

static bool open_plumbing(struct plumbing *pipes, struct error *err)
{
    *pipes = (struct plumbing){-1, {-1, -1}, {-1, -1}, {-1, -1}};
    pipes->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (pipes->null < 0 || pipe2(pipes->out, O_CLOEXEC) < 0 || pipe2(pipes->err, O_CLOEXEC) < 0 ||
        pipe2(pipes->failure, O_CLOEXEC) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "make the kernel's pipes");
        close_plumbing(pipes);
        return false;
    }
    if (fd_set_nonblocking(pipes->out[0], err) && fd_set_nonblocking(pipes->err[0], err))
        return true;
    close_plumbing(pipes);
    return false;
}

static _Noreturn void become_kernel(const struct plumbing *pipes, char **arguments)
{
    sigset_t none;
    sigemptyset(&none);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)setsid();
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(pipes->null, STDIN_FILENO) >= 0 && dup2(pipes->out[1], STDOUT_FILENO) >= 0 &&
        dup2(pipes->err[1], STDERR_FILENO) >= 0 &&
        syscall(SYS_close_range, 3U, ~0U, (unsigned)CLOSE_RANGE_CLOEXEC) == 0)
        execvp(arguments[0], arguments);
    int failure = errno;
    if (write(pipes->failure[1], &failure, sizeof failure) < 0)
        _exit(126);
    _exit(127);
}

/* The pipe closes when the program is executed. */
static bool was_executed(struct plumbing *pipes, const char *program, struct error *err)
{
    int failure = 0;
    ssize_t got;
    close(TAKE_FD(pipes->failure[1]));
    do {
        got = read(pipes->failure[0], &failure, sizeof failure);
    } while (got < 0 && errno == EINTR);
    if (got == 0)
        return true;
    errno = failure;
    return error_set_errno(err, failure == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL,
                           "start the kernel's program %.100s", program);
}

bool kernel_start(struct kernel *kernel, const struct kernelspec *spec, const char *connection_file, struct error *err)
{
    struct plumbing pipes;
    char parent[16];
    if (!open_plumbing(&pipes, err))
        return false;
    /* As Jupyter does: kernels that know it end with their parent, and greet nobody on a terminal. */
    (void)snprintf(parent, sizeof parent, "%d", (int)getpid());
    (void)setenv("JPY_PARENT_PID", parent, 1);
    kernelspec_set_environment(spec);
    char **arguments = kernelspec_arguments(spec, connection_file);
    pid_t pid = fork();
    if (pid == 0)
        become_kernel(&pipes, arguments);
    bool fine =
        pid > 0 ? was_executed(&pipes, arguments[0], err) : error_set_errno(err, ERROR_INTERNAL, "fork the kernel");
    kernelspec_arguments_free(arguments);
    *kernel = KERNEL_NONE;
    if (pid > 0 && !fine)
        (void)waitpid(pid, NULL, 0);
    if (fine) {
        kernel->pid = kernel->group = pid;
        kernel->outputs[0] = TAKE_FD(pipes.out[0]);
        kernel->outputs[1] = TAKE_FD(pipes.err[0]);
    }
    close_plumbing(&pipes);
    return fine;
}

void kernel_signal(const struct kernel *kernel, int number)
{
    if (kernel->pid > 0)
        (void)kill(-kernel->group, number);
}

bool kernel_has_ended(struct kernel *kernel)
{
    int status = 0;
    if (kernel->pid > 0 && waitpid(kernel->pid, &status, WNOHANG) == kernel->pid) {
        kernel->status = status;
        kernel->pid = 0;
    }
    return kernel->pid == 0;
}

void kernel_end(struct kernel *kernel)
{
    if (kernel->group > 0)
        (void)kill(-kernel->group, SIGKILL);
    while (kernel->pid > 0)
        if (waitpid(kernel->pid, &kernel->status, 0) == kernel->pid || errno != EINTR)
            kernel->pid = 0;
    for (int i = 0; i < 2; i++)
        if (kernel->outputs[i] >= 0)
            close(TAKE_FD(kernel->outputs[i]));
}

void kernel_tell_end(const struct kernel *kernel, char *to, size_t size)
{
    if (WIFSIGNALED(kernel->status))
        (void)snprintf(to, size, "was killed by signal %d", WTERMSIG(kernel->status));
    else
        (void)snprintf(to, size, "ended with status %d", WEXITSTATUS(kernel->status));
}

int kernel_exit_status(const struct kernel *kernel)
{
    return WIFSIGNALED(kernel->status) ? 128 + WTERMSIG(kernel->status) : WEXITSTATUS(kernel->status);
}
