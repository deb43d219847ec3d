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

enum { ANSWER_FD = STDERR_FILENO + 1, HIGH_FD = 64 };
_Static_assert(ERRAND_KEPT_FD == ANSWER_FD + 1, "kept ones follow the answer");

/* The answer and the kept ones become ANSWER_FD and those behind it: by way of numbers that none of them has. */
static bool keep_descriptors(int answer, const int *keep, size_t count)
{
    int high[ERRAND_KEPT_MAX + 1];
    for (size_t i = 0; i <= count; i++) {
        high[i] = fcntl(i == 0 ? answer : keep[i - 1], F_DUPFD, HIGH_FD);
        if (high[i] < 0)
            return false;
    }
    for (size_t i = 0; i <= count; i++) {
        if (dup2(high[i], ANSWER_FD + (int)i) < 0)
            return false;
    }
    return syscall(SYS_close_range, ANSWER_FD + 1 + (unsigned)count, ~0U, 0) == 0;
}

struct deed {
    bool (*run)(void *context, struct error *err);
    void *context;
    const int *keep;
    size_t count;
};

static _Noreturn void run(int answer, const struct deed *deed, pid_t launcher)
{
    struct error err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    /* A descriptor of the lock kept here would keep the next launcher away. */
    if (getppid() != launcher || !keep_descriptors(answer, deed->keep, deed->count))
        _exit(1);
    if (!deed->run(deed->context, &err) && err.kind == ERROR_NONE)
        error_set(&err, ERROR_INTERNAL, "it failed and did not say why");
    _exit(fd_write_all(ANSWER_FD, &err, sizeof err, NULL) ? 0 : 1);
}

struct errand *errand_start(bool (*deed)(void *context, struct error *err), void *context, struct error *err)
{
    return errand_start_keeping(deed, context, NULL, 0, err);
}

struct errand *errand_start_keeping(bool (*deed)(void *context, struct error *err), void *context, const int *keep,
                                    size_t count, struct error *err)
{
    const struct deed its_deed = {.run = deed, .context = context, .keep = keep, .count = count};
    int ends[2];
    if (count > ERRAND_KEPT_MAX) {
        error_set(err, ERROR_INTERNAL, "an errand keeps at most %d descriptors", ERRAND_KEPT_MAX);
        return NULL;
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "make a pipe");
        return NULL;
    }
    AUTO_FD int ours = ends[0];
    AUTO_FD int its = ends[1];
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid == 0)
        run(its, &its_deed, launcher);
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
