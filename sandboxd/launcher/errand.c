/* errand.c - see errand.h. */
#include "sandboxd/launcher/errand.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct errand {
    pid_t pid;
    int answer; /* its end of the pipe: a struct error, then the end */
};

static _Noreturn void run(int answer, bool (*deed)(void *context, struct error *err), void *context, pid_t launcher)
{
    struct error err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    /* A descriptor of the lock kept here would keep the next launcher away. */
    if (getppid() != launcher || dup2(answer, STDERR_FILENO + 1) < 0 ||
        syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0) < 0)
        _exit(1);
    if (!deed(context, &err) && err.kind == ERROR_NONE)
        error_set(&err, ERROR_INTERNAL, "it failed and did not say why");
    _exit(fd_write_all(STDERR_FILENO + 1, &err, sizeof err, NULL) ? 0 : 1);
}

struct errand *errand_start(bool (*deed)(void *context, struct error *err), void *context, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "make a pipe");
        return NULL;
    }
    AUTO_FD int ours = ends[0];
    AUTO_FD int its = ends[1];
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid == 0)
        run(its, deed, context, launcher);
    if (pid < 0) {
        error_set_errno(err, ERROR_INTERNAL, "fork");
        return NULL;
    }
    struct errand *errand = memory_new(sizeof *errand);
    errand->pid = pid;
    errand->answer = TAKE_FD(ours);
    return errand;
}

int errand_fd(const struct errand *errand)
{
    return errand->answer;
}

static void end(struct errand *errand)
{
    close(errand->answer);
    while (waitpid(errand->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    free(errand);
}

bool errand_finish(struct errand *errand, struct error *err)
{
    struct error why = {0};
    bool told = fd_read_exact(errand->answer, &why, sizeof why, NULL);
    end(errand);
    if (!told)
        return error_set(err, ERROR_INTERNAL, "the child that did it was killed");
    if (why.kind != ERROR_NONE && err)
        *err = why;
    return why.kind == ERROR_NONE;
}

void errand_cancel(struct errand *errand)
{
    if (!errand)
        return;
    kill(errand->pid, SIGKILL); /* our child, not reaped yet: the pid is its own */
    end(errand);
}
