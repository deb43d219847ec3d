/* orders.c - see orders.h; the rules are in zygotes.h. */
#include "sandboxd/init/orders.h"

#include "sandboxd/init/deadline.h"
#include "sandboxd/init/family.h"
#include "sandboxd/init/helpers.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { ATTEMPTS = 2, ERRNO_MAX = 4095 };
enum order_fd { ORDER_FD_MEMORY, ORDER_FD_STDIN, ORDER_FD_STDOUT, ORDER_FD_STDERR, ORDER_FD_HELLO, ORDER_FDS };

/* Invariant: the command's watch is the hello socket, and serial and due_boot_ns are set, when it is given. */
struct order {
    struct zygote_wish wish; /* its descriptors are ours */
    int memory, null;
    unsigned attempts;
    uint64_t serial;      /* of the zygote it was given to; 0: not yet */
    uint64_t failed_by;   /* the one that failed it before; 0: none */
    uint64_t due_boot_ns; /* of the word */
    int signal;           /* 0: none */
};

static void fail(struct command *command, struct init *init, const struct error *why);

/* ---- making ---- */

static void close_one(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* What its zygote left behind goes with the last of its orders. */
static void leave_zygote(struct init *init, uint64_t serial)
{
    if (serial != 0 && !zygotes_has(init, serial) && !orders_are_with(init, serial))
        family_kill(init, serial);
}

void order_end(struct command *command, struct init *init)
{
    struct order *order = TAKE(command->order);
    if (!order)
        return;
    leave_zygote(init, order->serial);
    close_one(order->memory);
    close_one(order->null);
    close_one(order->wish.program);
    close_one(order->wish.command);
    free(order);
}

bool order_make(struct command *command, const struct zygote_wish *wish, int memory, struct error *err)
{
    struct order *order = memory_new(sizeof *order);
    *order = (struct order){.wish = *wish};
    order->memory = fcntl(memory, F_DUPFD_CLOEXEC, 0);
    order->wish.program = fcntl(wish->program, F_DUPFD_CLOEXEC, 0);
    order->wish.command = fcntl(wish->command, F_DUPFD_CLOEXEC, 0);
    order->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    command->order = order;
    if (order->memory < 0 || order->wish.program < 0 || order->wish.command < 0 || order->null < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "descriptors for the command");
    return true;
}

/* ---- the child's word ---- */

static bool is_ours(struct init *init, const struct order *order, const struct ucred *who)
{
    siginfo_t ignored;
    return who->pid > 1 && who->uid == init->uid && command_find_pid(init, who->pid) == NULL &&
           who->pid != init->spare.pid && !helpers_has(init, who->pid) &&
           waitid(P_PID, (id_t)who->pid, &ignored, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 &&
           family_has(init, order->serial, who->pid);
}

static bool take_in(struct init *init, struct command *command, pid_t pid, struct error *err)
{
    if (!family_take(init, &command->serial, pid, err))
        return false;
    command->pid = pid;
    return true;
}

/* What happens to it from now on happens as to any other command. */
static void go(struct init *init, struct command *command, pid_t pid)
{
    struct error err = {0};
    if (!take_in(init, command, pid, &err)) {
        command_refuse(command, init, &err);
        return;
    }
    int number = command->order->signal;
    bool is_told = send(command->watch.fd, "G", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    if (!is_told) /* it has left, or does not read: reaped, now or by this */
        kill(pid, SIGKILL);
    if (number != 0)
        kill(pid, number);
    order_end(command, init);
    watch_end(init, &command->watch);
    streams_close_child_ends(&command->streams);
    command_runs(command, init);
}

static void refuse_by_errno(struct init *init, struct command *command, int number)
{
    struct error err = {0};
    struct front_init_command what;
    AUTO_FREE void *held = NULL;
    errno = number;
    if (number == EAGAIN || number == ENOMEM)
        error_set_errno(&err, ERROR_NO_CAPACITY, "fork");
    else if (front_init_command_read(command->order->memory, &what, &held, &err)) {
        errno = number;
        error_set_errno(&err, ERROR_INVALID, "cwd %s", what.cwd);
    }
    command_refuse(command, init, &err);
}

/* The size of the word; *who all 0 when the kernel gave none. Descriptors find no room, and the kernel drops them. */
static ssize_t receive_word(int socket, int32_t *word, struct ucred *who)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = word, .iov_len = sizeof *word};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    *who = (struct ucred){0};
    ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_TRUNC);
    const struct cmsghdr *head = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_CREDENTIALS)
        memcpy(who, CMSG_DATA(head), sizeof *who);
    return size;
}

/* The zygote of an order broke the rules, or is stuck: it goes, and with it all that it was given. */
static void end_zygote(struct init *init, struct command *command, const struct error *why)
{
    struct zygote *zygote = &init->zygotes[command->order->wish.number - 1];
    if (zygote->watch.fd >= 0 && zygote->serial == command->order->serial) {
        zygotes_end(init, zygote, why);
        return;
    }
    family_kill(init, command->order->serial); /* one that was replaced since */
    fail(command, init, why);
}

static void on_hello(struct init *init, struct watch *watch, uint32_t events)
{
    struct command *command = watch->owner;
    struct ucred who;
    struct error why = {0};
    int32_t word = 0;
    (void)events;
    ssize_t size = receive_word(watch->fd, &word, &who);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size <= 0) {
        error_set(&why, ERROR_INTERNAL, "the command's process ended before it began");
        fail(command, init, &why);
    } else if (size == (ssize_t)sizeof word && word > 0 && word <= ERRNO_MAX) {
        refuse_by_errno(init, command, word);
    } else if (size == (ssize_t)sizeof word && word == 0 && is_ours(init, command->order, &who)) {
        go(init, command, who.pid);
    } else {
        error_set(&why, ERROR_INTERNAL, "the process to be forked broke the rules");
        end_zygote(init, command, &why);
    }
}

/* ---- giving ---- */

/* False when the zygote takes nothing. `theirs` is the child's end of hello. */
static bool send_order(const struct command *command, int zygote, int theirs)
{
    const struct streams *streams = &command->streams;
    const int fds[ORDER_FDS] = {
        [ORDER_FD_MEMORY] = command->order->memory,
        [ORDER_FD_STDIN] = streams->stdin_end >= 0 ? streams->stdin_end : command->order->null,
        [ORDER_FD_STDOUT] = streams->stdout_end,
        [ORDER_FD_STDERR] = streams->stderr_end,
        [ORDER_FD_HELLO] = theirs,
    };
    struct error ignored = {0};
    return fd_send_message(zygote, "S", 1, fds, ORDER_FDS, &ignored);
}

static bool open_hello(struct command *command, struct init *init, int *theirs, struct error *err)
{
    int ends[2], on = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "a socket for the command");
    *theirs = ends[1];
    AUTO_FD int ours = ends[0];
    if (setsockopt(ours, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "SO_PASSCRED");
    command->watch.ready = on_hello;
    return fd_set_nonblocking(ours, err) && watch_add(init, &command->watch, TAKE_FD(ours), EPOLLIN, err);
}

/* False with an error: the zygote takes no orders. */
static bool give(struct command *command, struct init *init, const struct zygote *zygote, struct error *err)
{
    struct order *order = command->order;
    AUTO_FD int theirs = -1;
    order->serial = zygote->serial;
    if (!open_hello(command, init, &theirs, err))
        return false;
    if (!send_order(command, zygote->watch.fd, theirs))
        return error_set(err, ERROR_INTERNAL, "the process to be forked takes no orders");
    order->due_boot_ns = clock_boot_ns() + ZYGOTES_HELLO_MS * UINT64_C(1000000);
    deadline_consider(init, order->due_boot_ns);
    return true;
}

void order_give(struct command *command, struct init *init)
{
    struct error err = {0};
    struct zygote *zygote = zygotes_get(init, &command->order->wish, &err);
    if (zygote == NULL) {
        command_refuse(command, init, &err);
        return;
    }
    if (!zygote->is_ready || give(command, init, zygote, &err))
        return;
    zygotes_end(init, zygote, &err); /* which fails this one with the others */
}

/* Once more; the second time it is over. */
static void fail(struct command *command, struct init *init, const struct error *why)
{
    struct order *order = command->order;
    watch_end(init, &command->watch);
    order->failed_by = order->serial;
    order->serial = 0;
    order->due_boot_ns = 0;
    leave_zygote(init, order->failed_by);
    if (++order->attempts >= ATTEMPTS)
        command_refuse(command, init, why);
    else
        order_give(command, init);
}

void order_abandon(struct command *command, struct init *init, enum error_kind kind, const char *why)
{
    struct error err = {0};
    error_set(&err, kind, "%s", why);
    command_refuse(command, init, &err); /* the child, if there is one, finds the end of hello */
}

void order_signal(struct command *command, struct init *init, int number)
{
    if (number == SIGKILL)
        order_abandon(command, init, ERROR_GONE, "it was killed before it began");
    else
        command->order->signal = number;
}

/* ---- of all ---- */

/* From the last, as what is done to one may take it out of the table. NULL: no more. */
static struct command *previous(const struct init *init, size_t *at, uint8_t number)
{
    while (*at > 0) {
        --*at;
        struct command *command = *at < init->count ? init->commands[*at] : NULL;
        if (command && command->order && command->order->wish.number == number)
            return command;
    }
    return NULL;
}

void orders_give(struct init *init, uint8_t number)
{
    struct command *command;
    for (size_t at = init->count; (command = previous(init, &at, number)) != NULL;) {
        if (command->order->serial == 0)
            order_give(command, init);
    }
}

void orders_fail(struct init *init, uint8_t number, const struct error *why)
{
    struct command *command;
    for (size_t at = init->count; (command = previous(init, &at, number)) != NULL;) {
        struct order *order = command->order;
        /* A zygote that ends closes hello and its socket, and which of them we hear of first is chance: one attempt. */
        if (order->serial != 0 && order->serial == order->failed_by)
            order->attempts--;
        fail(command, init, why);
    }
}

void orders_refuse(struct init *init, uint8_t number, const struct error *why)
{
    struct command *command;
    for (size_t at = init->count; (command = previous(init, &at, number)) != NULL;)
        command_refuse(command, init, why);
}

void orders_time_out(struct init *init, uint64_t now_boot_ns)
{
    struct error why = {0};
    error_set(&why, ERROR_TIMEOUT, "the process to be forked did not answer within %d s", ZYGOTES_HELLO_MS / 1000);
    for (uint8_t number = 1; number <= FRONT_INIT_ZYGOTES; number++) {
        struct command *command;
        for (size_t at = init->count; (command = previous(init, &at, number)) != NULL;) {
            uint64_t due = command->order->due_boot_ns;
            if (due != 0 && due <= now_boot_ns)
                end_zygote(init, command, &why);
            else
                deadline_consider(init, due);
        }
    }
}

bool orders_are_with(const struct init *init, uint64_t serial)
{
    for (size_t i = 0; i < init->count; i++) {
        if (init->commands[i]->order && init->commands[i]->order->serial == serial)
            return true;
    }
    return false;
}
