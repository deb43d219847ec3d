/* child.c - see child.h. The order matters: cgroups and /dev/null need init's rights, which are given up before
 * anything of the command is looked at; what follows the seccomp program (dup2, chdir, reading the command) it allows
 * to all. */
#include "sandboxd/init/child.h"

#include "sandboxd/helpers/files/helper.h"
#include "sandboxd/init/helpers.h"
#include "sandboxd/init/rights.h"
#include "sandboxd/init/zygotes.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

enum { FIRST_OUT_OF_THE_WAY = 10 }; /* below FRONT_INIT_FILES_MIN with all that is moved there */

/* v1 counts who moves in, but refuses forks alone (kernel/cgroup/pids.c): so by API any number of commands could run in
 * there. One more that ends at once is asked for in its place. */
static bool has_room(struct error *err)
{
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    if (pid < 0)
        return error_set_errno(err, errno == EAGAIN || errno == ENOMEM ? ERROR_NO_CAPACITY : ERROR_INTERNAL,
                               "the sandbox has as many processes as it may have");
    return waitpid(pid, NULL, 0) == pid || error_set_errno(err, ERROR_INTERNAL, "waitpid");
}

static bool join_cgroups(const struct child_plan *plan, struct error *err)
{
    for (size_t i = 0; i < plan->join_count; i++) {
        if (write(plan->join[i], "0", 1) != 1)
            return error_set_errno(err, ERROR_INTERNAL, "joining cgroup %zu", i);
    }
    return plan->join_count == 0 || has_room(err);
}

/* By raw system calls: glibc's would ask all threads of a process it does not know was cloned. */
static bool become_user(const struct child_plan *plan, struct error *err)
{
    /* Where setgroups(2) is denied (user_namespaces(7)), having none already is as good. */
    bool has_mark = plan->mark != 0;
    if (syscall(SYS_setgroups, has_mark ? 1 : 0, has_mark ? &plan->mark : NULL) < 0 &&
        (has_mark || syscall(SYS_getgroups, 0, NULL) != 0))
        return error_set_errno(err, ERROR_INTERNAL, "setgroups");
    if (syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setresgid");
    if (syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setresuid");
    if (!(plan->as_root ? rights_take_root(err) : rights_take_none(err)))
        return false;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "no_new_privs");
    /* Until execve this is a process of ours under the user's uid: nobody may look into it. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "PR_SET_DUMPABLE");
    return true;
}

/* stdin, unless the command has its own. */
static bool open_null(struct error *err)
{
    AUTO_FD int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open /dev/null");
    return true;
}

/* One that waits holds nothing of other commands: it would keep their stdin open. */
static bool close_all_but(int socket, struct error *err)
{
    bool is_closed = (socket == 3 || syscall(SYS_close_range, 3U, (unsigned)socket - 1, 0U) == 0) &&
                     syscall(SYS_close_range, (unsigned)socket + 1, (unsigned)INT_MAX, 0U) == 0;
    return is_closed || error_set_errno(err, ERROR_INTERNAL, "close_range");
}

/* What needs to know nothing of the command. `socket` -1: the command is at hand. */
static bool prepare(const struct child_plan *plan, int socket, struct error *err)
{
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0 || setsid() < 0)
        return error_set_errno(err, ERROR_INTERNAL, "a session of its own");
    if (!open_null(err) || !join_cgroups(plan, err) || (socket >= 0 && !close_all_but(socket, err)))
        return false;
    if (setrlimit(RLIMIT_NOFILE, &plan->files) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "RLIMIT_NOFILE");
    umask(022);
    if (!become_user(plan, err))
        return false;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, plan->filter) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "seccomp");
    return true;
}

/* prepare() made the session that it becomes the controlling terminal of; its first group is in the foreground. */
static bool take_terminal(int terminal, struct error *err)
{
    if (dup2(terminal, 0) < 0 || dup2(terminal, 1) < 0 || dup2(terminal, 2) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "dup2 of the terminal");
    if (ioctl(0, TIOCSCTTY, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "TIOCSCTTY");
    return true;
}

static bool take_streams(const struct child_order *order, struct error *err)
{
    if (order->terminal_end >= 0)
        return take_terminal(order->terminal_end, err);
    if ((order->stdin_end >= 0 && dup2(order->stdin_end, 0) < 0) || dup2(order->stdout_end, 1) < 0 ||
        dup2(order->stderr_end, 2) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "dup2 of the standard streams");
    return true;
}

static bool move_up(int *fd, struct error *err)
{
    if (*fd < 0 || *fd >= FIRST_OUT_OF_THE_WAY)
        return true;
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, FIRST_OUT_OF_THE_WAY);
    if (moved < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "a descriptor for the command");
    *fd = moved;
    return true;
}

/* Out of the way of the numbers that a command finds its own at. While there are many of init's descriptors here this
 * must come before its own limit. */
static bool clear_way(struct child_order *order, struct error *err)
{
    return order->program < 0 ||
           (move_up(&order->refusal, err) && move_up(&order->program, err) && move_up(&order->order_socket, err));
}

static bool take_program(const struct child_order *order, struct error *err)
{
    if ((order->program >= 0 && dup2(order->program, FRONT_INIT_PROGRAM) < 0) ||
        (order->order_socket >= 0 && dup2(order->order_socket, ZYGOTES_FD) < 0))
        return error_set_errno(err, ERROR_INTERNAL, "dup2 of the program");
    return true;
}

static bool take_place(const struct child_order *order, struct error *err)
{
    if (!take_streams(order, err))
        return false;
    /* All is O_CLOEXEC from birth; this is for the one that may be forgotten. */
    if (syscall(SYS_close_range, 3U, (unsigned)INT_MAX, CLOSE_RANGE_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    if (!take_program(order, err))
        return false;
    if (chdir(order->command->cwd) < 0)
        return error_set_errno(err, ERROR_INVALID, "cwd %s", order->command->cwd);
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

/* By the shell that it is meant for, or by the one that is there. */
static bool execute_line(const struct front_init_command *command, struct error *err)
{
    static const char PLAIN_SHELL[] = "/bin/sh";
    char shell[sizeof PLAIN_SHELL];
    memcpy(shell, PLAIN_SHELL, sizeof shell);
    char *const plain[] = {shell, command->arguments[1], command->arguments[2], NULL};
    execve(command->arguments[0], command->arguments, command->variables);
    if (errno != ENOENT && errno != ENOTDIR)
        return refuse_execve(command->arguments[0], errno, err);
    execve(shell, plain, command->variables);
    return refuse_execve(shell, errno, err);
}

/* As execvpe(3), which allocates nothing either, but looks into our own environment for PATH. */
static bool execute(const struct front_init_command *command, struct error *err)
{
    char path[PATH_MAX];
    const char *name = command->arguments[0];
    if (command->is_line)
        return execute_line(command, err);
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

static _Noreturn void refuse(int refusal, const struct error *err)
{
    ssize_t told = write(refusal, err, sizeof *err);
    _exit(told == (ssize_t)sizeof *err ? 127 : 126);
}

static _Noreturn void become(const struct child_order *order)
{
    struct error err = {0};
    if (take_place(order, &err))
        execute(order->command, &err);
    refuse(order->refusal, &err);
}

_Noreturn void child_run(const struct child_plan *plan, const struct child_order *order)
{
    struct error err = {0};
    struct child_order own = *order;
    if (!clear_way(&own, &err) || !prepare(plan, -1, &err))
        refuse(own.refusal, &err);
    become(&own);
}

bool child_send_order(int socket, const struct child_order *order, int memory)
{
    int fds[CHILD_FDS] = {memory, order->refusal};
    size_t count = 2;
    uint8_t flags = 0;
    if (order->terminal_end >= 0) {
        flags |= CHILD_TERMINAL;
        fds[count++] = order->terminal_end;
    } else if (order->stdin_end >= 0) {
        flags |= CHILD_STDIN;
        fds[count++] = order->stdin_end;
    }
    if (order->terminal_end < 0) {
        fds[count++] = order->stdout_end;
        fds[count++] = order->stderr_end;
    }
    if (order->program >= 0) {
        flags |= CHILD_PROGRAM;
        fds[count++] = order->program;
    }
    struct error ignored = {0};
    return fd_send_message(socket, &flags, sizeof flags, fds, count, &ignored);
}

/* The next descriptor, or -1 without the flag. */
static int take_next(const int *fds, size_t *at, bool is_there)
{
    return is_there ? fds[(*at)++] : -1;
}

/* Leaves when none comes: init is gone, or wants another kind of child. */
static struct child_order receive_order(int socket, int *memory)
{
    uint8_t flags;
    int fds[FD_MESSAGE_FDS];
    size_t count = 0, at = 0;
    struct error err = {0};
    if (fd_receive_message(socket, &flags, sizeof flags, fds, &count, &err) != 1)
        _exit(126);
    struct child_order order = {.order_socket = -1};
    *memory = take_next(fds, &at, true);
    order.refusal = take_next(fds, &at, true);
    order.terminal_end = take_next(fds, &at, flags & CHILD_TERMINAL);
    order.stdin_end = take_next(fds, &at, flags & CHILD_STDIN);
    order.stdout_end = take_next(fds, &at, !(flags & CHILD_TERMINAL));
    order.stderr_end = take_next(fds, &at, !(flags & CHILD_TERMINAL));
    order.program = take_next(fds, &at, flags & CHILD_PROGRAM);
    if (at != count)
        _exit(126);
    return order;
}

_Noreturn void child_wait(const struct child_plan *plan, int socket)
{
    struct error err = {0};
    struct front_init_command command;
    void *held;
    int memory;
    (void)prctl(PR_SET_NAME, CHILD_WAIT_NAME, 0, 0, 0);
    /* A failure is told by the next child, which is made for a command and fails in the same way. */
    if (!prepare(plan, socket, &err))
        _exit(126);
    struct child_order order = receive_order(socket, &memory);
    if (!front_init_command_read(memory, &command, &held, &err))
        refuse(order.refusal, &err);
    order.command = &command;
    if (!clear_way(&order, &err))
        refuse(order.refusal, &err);
    become(&order);
}

_Noreturn void child_help(const struct child_plan *plan, int socket)
{
    struct error err = {0};
    (void)prctl(PR_SET_NAME, HELPERS_NAME, 0, 0, 0);
    if (!prepare(plan, socket, &err)) {
        helpers_refuse(socket, &err);
        _exit(126);
    }
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        _exit(126);
    files_helper_run(socket, root);
}
