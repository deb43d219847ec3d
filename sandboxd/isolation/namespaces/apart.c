#include "sandboxd/isolation/namespaces/apart.h"

#include "sandboxd/isolation/namespaces/user_namespace.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 20 };

/* What the process apart is given, and what it gives back: it shares our memory while we wait for it (vfork(2)). */
struct errand {
    struct clone_args arguments;
    const struct recipe_child *child;
    pid_t pid;
    struct error err;
};

static int run(void *context)
{
    struct errand *errand = context;
    struct user_namespace_owner before;
    if (setns(errand->child->plan->network, CLONE_NEWNET) < 0)
        return error_set_errno(&errand->err, ERROR_INTERNAL, "enter the sandbox's network namespace");
    if (!user_namespace_begin_owner(errand->child->plan->uid_base, &before, &errand->err))
        return 0;
    long pid = syscall(SYS_clone3, &errand->arguments, sizeof errand->arguments);
    if (pid == 0)
        recipe_child_run(errand->child);
    if (pid < 0)
        error_set_errno(&errand->err, ERROR_INTERNAL, "clone3 with a user namespace");
    errand->pid = (pid_t)pid;
    user_namespace_end_owner(&before); /* that the memory may be dumped is ours, too */
    return 0;
}

pid_t apart_clone(const struct clone_args *arguments, const struct recipe_child *child, struct error *err)
{
    struct errand errand = {.arguments = *arguments, .child = child, .pid = -1};
    /* Its exit signal is that of who clones it: SIGCHLD (clone(2), CLONE_PARENT). */
    errand.arguments.flags |= CLONE_PARENT;
    errand.arguments.exit_signal = 0;
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        error_set_errno(err, ERROR_INTERNAL, "a stack for a clone");
        return -1;
    }
    /* CLONE_FILES: the pidfd is to be ours. */
    int apart = clone(run, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &errand);
    int failed = apart < 0 ? errno : 0;
    while (apart > 0 && waitpid(apart, NULL, 0) < 0 && errno == EINTR) {
    }
    munmap(stack, STACK_BYTES);
    errno = failed;
    if (failed) {
        error_set_errno(err, ERROR_INTERNAL, "clone for a clone");
        return -1;
    }
    if (errand.pid < 0 && err)
        *err = errand.err;
    return errand.pid;
}
