/* connection.c - see connection.h. */
#include "sandboxd/init/connection.h"

#include "sandboxd/init/deadline.h"
#include "sandboxd/init/dial.h"
#include "sandboxd/init/helpers.h"
#include "sandboxd/init/terminate.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    LAST_MESSAGES = 1024 /* more than a socket holds */
};

static void forget_untold(struct init *init)
{
    struct command *command;
    while ((command = TAILQ_FIRST(&init->untold)) != NULL) {
        TAILQ_REMOVE(&init->untold, command, link);
        command->is_untold = false;
        if (command->state == COMMAND_REFUSED)
            command_free(command, init);
    }
}

static void forget_gift(struct init *init)
{
    if (init->gift.fd >= 0)
        close(init->gift.fd);
    init->gift = (struct gift){.fd = -1};
}

static void drop(struct init *init)
{
    forget_gift(init);
    watch_end(init, &init->connection);
    forget_untold(init);
    init->blocked = init->mute = false;
}

static void set_blocked(struct init *init, bool blocked)
{
    if (init->blocked == blocked)
        return;
    init->blocked = blocked;
    watch_change(init, &init->connection, blocked ? EPOLLOUT : EPOLLIN);
}

/* False when it must wait: the socket is full, or there is no front any more. */
static bool send_message(struct init *init, const struct front_init_message *message, const int *fds, size_t count)
{
    struct error err = {0};
    if (front_init_send(init->connection.fd, message, fds, count, &err))
        return true;
    init->mute = err.system_errno == EPIPE || err.system_errno == ECONNRESET;
    if (init->mute || err.system_errno == EAGAIN)
        set_blocked(init, !init->mute);
    else
        drop(init);
    return false;
}

static bool send_welcome(struct init *init)
{
    struct front_init_message message = {.type = FI_WELCOME};
    message.as.welcome = (struct fi_welcome){
        .version = FRONT_INIT_VERSION, .commands = (uint32_t)init->count, .deadline_boot_ns = init->deadline_boot_ns};
    init->welcome_told = send_message(init, &message, NULL, 0);
    return init->welcome_told;
}

static bool send_current(struct init *init)
{
    struct front_init_message message = {.type = FI_CURRENT};
    init->current_told = send_message(init, &message, NULL, 0);
    return init->current_told;
}

static bool send_started(struct init *init, struct command *command)
{
    int fds[FI_FDS_MAX];
    size_t count = streams_list(&command->streams, fds);
    struct front_init_message message = {.type = FI_STARTED};
    struct fi_started *started = &message.as.started;
    memcpy(started->id, command->id, sizeof started->id);
    memcpy(started->title, command->title, sizeof started->title);
    started->has_stdin = streams_have_stdin(&command->streams);
    started->terminal = command->streams.is_terminal;
    started->stdin_bytes = command->streams.stdin_bytes;
    started->pid = command->pid;
    started->start_boot_ns = command->start_boot_ns;
    started->start_wall_ms = command->start_wall_ms;
    started->timeout_ms = command->timeout_ms;
    if (!send_message(init, &message, fds, count))
        return false;
    command->started_told = true;
    return true;
}

static bool send_exited(struct init *init, struct command *command)
{
    struct front_init_message message = {.type = FI_EXITED, .as.exited = command->exited};
    if (!send_message(init, &message, NULL, 0))
        return false;
    command->end_told = true;
    return true;
}

static bool send_refused(struct init *init, const struct command *command)
{
    struct front_init_message message = {.type = FI_REFUSED, .as.refused.error = command->refusal};
    memcpy(message.as.refused.id, command->id, sizeof message.as.refused.id);
    return send_message(init, &message, NULL, 0);
}

/* All there is to say about one. After false `command` may be gone. */
static bool send_untold(struct init *init, struct command *command)
{
    if (command->state == COMMAND_REFUSED) {
        if (!send_refused(init, command))
            return false;
        command_free(command, init);
        return true;
    }
    if (!command->started_told && !send_started(init, command))
        return false;
    if (command->state == COMMAND_ENDED && !command->end_told && !send_exited(init, command))
        return false;
    TAILQ_REMOVE(&init->untold, command, link);
    command->is_untold = false;
    return true;
}

static bool send_gift(struct init *init)
{
    if (!send_message(init, &init->gift.message, &init->gift.fd, init->gift.fd >= 0))
        return false;
    forget_gift(init);
    return true;
}

static void flush(struct init *init)
{
    if (init->mute)
        return;
    if (!init->welcome_told && !send_welcome(init))
        return;
    if (init->gift.is_due && !send_gift(init))
        return;
    struct command *command;
    while ((command = TAILQ_FIRST(&init->untold)) != NULL) {
        if (!send_untold(init, command))
            return;
    }
    if (!init->current_told && !send_current(init))
        return;
    set_blocked(init, false);
}

static void enqueue(struct init *init, struct command *command)
{
    if (command->is_untold || command->state == COMMAND_STARTING || command->state == COMMAND_FORGOTTEN)
        return;
    TAILQ_INSERT_TAIL(&init->untold, command, link);
    command->is_untold = true;
}

void connection_tell(struct init *init, struct command *command)
{
    if (init->connection.fd < 0) {
        if (command->state == COMMAND_REFUSED)
            command_free(command, init);
        return;
    }
    enqueue(init, command);
    if (!init->blocked)
        flush(init);
}

void connection_give(struct init *init, const struct front_init_message *message, int fd)
{
    forget_gift(init); /* of a front that is being parted with */
    init->gift = (struct gift){.is_due = true, .message = *message, .fd = fd};
    if (init->connection.fd < 0 || init->mute)
        forget_gift(init);
    else if (!init->blocked)
        flush(init);
}

bool connection_is_told(const struct init *init)
{
    return init->connection.fd < 0 || init->mute || (TAILQ_EMPTY(&init->untold) && init->current_told);
}

static void on_name(struct init *init, const struct front_init_message *message)
{
    struct command *command = command_find(init, message->as.name.id);
    if (command == NULL)
        return; /* forgotten meanwhile */
    if (message->type == FI_KILL)
        command_kill(command, init);
    else if (message->type == FI_EOF)
        command_end_stdin(command);
    else
        command_forget(command, init);
}

static void on_signal(struct init *init, const struct fi_signal *signal)
{
    struct command *command = command_find(init, signal->id);
    if (command != NULL)
        command_signal(command, init, signal->number);
}

static void on_message(struct init *init, const struct front_init_message *message, const int *fds)
{
    switch ((enum front_init_type)message->type) {
    case FI_START:
        command_start(init, &message->as.start, fds);
        return;
    case FI_SIGNAL:
        on_signal(init, &message->as.signal);
        return;
    case FI_KILL:
    case FI_EOF:
    case FI_FORGET:
        on_name(init, message);
        return;
    case FI_TERMINATE:
        terminate_begin(init, message->as.terminate.grace_ms, 0);
        return;
    case FI_DEADLINE:
        deadline_set_hard(init, message->as.deadline.boot_ns);
        return;
    case FI_HELPER:
        helpers_start(init, fds[0]);
        return;
    case FI_DIAL:
        dial_start(init, &message->as.dial);
        return;
    case FI_LISTENERS:
        dial_give_listeners(init);
        return;
    case FI_WELCOME:
    case FI_STARTED:
    case FI_REFUSED:
    case FI_EXITED:
    case FI_CURRENT:
    case FI_DIALED:
    case FI_LISTENERS_IS:
        return; /* front_init_receive let none through */
    }
}

/* False when there is none now, or no connection any more. */
static bool take_message(struct init *init)
{
    struct front_init_message message;
    int fds[FI_FDS_MAX];
    size_t count = 0;
    struct error err = {0};
    int got = front_init_receive(init->connection.fd, &message, FI_FROM_FRONT, fds, &count, &err);
    if (got < 0 && err.system_errno == EAGAIN)
        return false;
    if (got < 0 && err.system_errno == ECONNRESET)
        return true; /* said once, when it went without reading all; what it sent follows */
    /* A front that sends what is none of the messages is out of step: a new connection tells it everything anew. */
    if (got <= 0) {
        drop(init);
        return false;
    }
    on_message(init, &message, fds);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return init->connection.fd >= 0;
}

/* What a front asked before it went is done; a START too, the next front will hear of it. */
static void part_with_front(struct init *init)
{
    for (int i = 0; i < LAST_MESSAGES && init->connection.fd >= 0; i++) {
        if (!take_message(init))
            break;
    }
    drop(init);
}

static void on_connection(struct init *init, struct watch *watch, uint32_t events)
{
    (void)watch;
    if (!init->blocked)
        (void)take_message(init);
    else if (events & (EPOLLHUP | EPOLLERR))
        part_with_front(init);
    else
        flush(init);
}

static void on_listener(struct init *init, struct watch *watch, uint32_t events)
{
    (void)events;
    int socket = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0)
        return;
    part_with_front(init);
    if (!watch_add(init, &init->connection, socket, EPOLLIN, NULL))
        return;
    init->welcome_told = init->current_told = false;
    for (size_t i = 0; i < init->count; i++) {
        init->commands[i]->started_told = init->commands[i]->end_told = false;
        enqueue(init, init->commands[i]);
    }
    flush(init);
}

bool connection_listen(struct init *init, int socket, struct error *err)
{
    init->connection = (struct watch){.ready = on_connection, .fd = -1};
    init->listener = (struct watch){.ready = on_listener, .fd = -1};
    if (listen(socket, 16) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "listen");
    return watch_add(init, &init->listener, socket, EPOLLIN, err);
}

void connection_close(struct init *init)
{
    char byte;
    if (init->connection.fd < 0)
        return;
    ssize_t size;
    do {
        size = recv(init->connection.fd, &byte, sizeof byte, MSG_DONTWAIT);
    } while (size > 0);
    drop(init);
}
