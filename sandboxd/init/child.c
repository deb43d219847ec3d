/* child.c - see child.h. The order matters: cgroups and /dev/null need init's rights, cwd must not have them, and the
 * seccomp program comes last, because it need not allow any of what stands before it. */
#include "sandboxd/init/child.h"

#include "sandboxd/init/inherit.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static bool set_up_stdio(const struct child_plan *plan, struct error *err)
{
    int input = plan->stdin_end;
    if (input < 0)
        input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open /dev/null");
    if (dup2(input, 0) < 0 || dup2(plan->stdout_end, 1) < 0 || dup2(plan->stderr_end, 2) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "dup2 of the standard streams");
    /* All is O_CLOEXEC from birth; this is for the one that may be forgotten. */
    if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    return true;
}

static bool join_cgroups(const struct child_plan *plan, struct error *err)
{
    for (size_t i = 0; i < plan->join_count; i++) {
        if (write(plan->join[i], "0", 1) != 1)
            return error_set_errno(err, ERROR_INTERNAL, "joining cgroup %zu", i);
    }
    return true;
}

static bool drop_capability_bounds(struct error *err)
{
    for (unsigned long capability = 0; capability < 64; capability++) {
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
            continue;
        if (errno == EINVAL && capability > 0)
            return true; /* beyond the kernel's last */
        return error_set_errno(err, ERROR_INTERNAL, "dropping capability %lu", capability);
    }
    return true;
}

/* By raw system calls: glibc's would ask all threads of a process it does not know was cloned. */
static bool become_user(struct error *err)
{
    if (!drop_capability_bounds(err))
        return false;
    /* Where setgroups(2) is denied (user_namespaces(7)), having none already is as good. */
    if (syscall(SYS_setgroups, 0, NULL) < 0 && syscall(SYS_getgroups, 0, NULL) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "setgroups");
    if (syscall(SYS_setresgid, INHERIT_USER_GID, INHERIT_USER_GID, INHERIT_USER_GID) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setresgid");
    if (syscall(SYS_setresuid, INHERIT_USER_UID, INHERIT_USER_UID, INHERIT_USER_UID) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setresuid");
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    if (syscall(SYS_capset, &head, none) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "capset");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "no_new_privs");
    /* Until execve this is a process of ours under the user's uid: nobody may look into it. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "PR_SET_DUMPABLE");
    return true;
}

static bool prepare(const struct child_plan *plan, struct error *err)
{
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0 || setsid() < 0)
        return error_set_errno(err, ERROR_INTERNAL, "a session of its own");
    if (!set_up_stdio(plan, err) || !join_cgroups(plan, err))
        return false;
    if (setrlimit(RLIMIT_NOFILE, plan->files) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "RLIMIT_NOFILE");
    umask(022);
    if (!become_user(err))
        return false;
    if (chdir(plan->command->cwd) < 0)
        return error_set_errno(err, ERROR_INVALID, "cwd %s", plan->command->cwd);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, plan->filter) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "seccomp");
    return true;
}

static enum error_kind kind_of_execve(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR:
        return ERROR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return ERROR_FORBIDDEN;
    case E2BIG:
        return ERROR_TOO_LARGE;
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
        return ERROR_NO_CAPACITY;
    case ENOEXEC:
    case ELOOP:
    case EISDIR:
    case ENAMETOOLONG:
        return ERROR_INVALID;
    default:
        return ERROR_INTERNAL;
    }
}

static bool refuse_execve(const char *name, int number, struct error *err)
{
    if (number == ENOENT || number == ENOTDIR)
        return error_set(err, ERROR_NOT_FOUND, "command not found: %s", name);
    errno = number;
    return error_set_errno(err, kind_of_execve(number), "cannot execute %s", name);
}

static const char *search_path(char *const *variables)
{
    for (; *variables; variables++) {
        if (text_starts_with(*variables, "PATH="))
            return *variables + strlen("PATH=");
    }
    return DEFAULT_PATH;
}

/* "folder/name", an empty folder being "."; false when it is longer than a path can be. */
static bool join_path(char to[static PATH_MAX], const char *folder, size_t length, const char *name)
{
    if (length == 0)
        return text_format(to, PATH_MAX, "./%s", name);
    return length < PATH_MAX && text_format(to, PATH_MAX, "%.*s/%s", (int)length, folder, name);
}

/* As execvpe(3), which allocates nothing either, but looks into our own environment for PATH. */
static bool execute(const struct front_init_command *command, struct error *err)
{
    char path[PATH_MAX];
    const char *name = command->arguments[0];
    if (strchr(name, '/') != NULL) {
        execve(name, command->arguments, command->variables);
        return refuse_execve(name, errno, err);
    }
    if (*name == 0)
        return error_set(err, ERROR_NOT_FOUND, "command not found: its name is empty");
    int seen = ENOENT;
    for (const char *at = search_path(command->variables);;) {
        size_t length = strcspn(at, ":");
        if (join_path(path, at, length, name)) {
            execve(path, command->arguments, command->variables);
            if (errno == EACCES)
                seen = EACCES; /* another of that name may do */
            else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV)
                return refuse_execve(path, errno, err);
        }
        if (at[length] == 0)
            return refuse_execve(name, seen, err);
        at += length + 1;
    }
}

_Noreturn void child_run(const struct child_plan *plan)
{
    struct error err = {0};
    if (prepare(plan, &err))
        execute(plan->command, &err);
    ssize_t told = write(plan->refusal, &err, sizeof err);
    _exit(told == (ssize_t)sizeof err ? 127 : 126);
}
