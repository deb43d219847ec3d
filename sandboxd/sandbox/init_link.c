/* init_link.c - one SOCK_SEQPACKET connection per sandbox. */
#include "sandboxd/sandbox/init_link.h"

#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    MESSAGES_A_TURN = 64, /* so that one sandbox does not hold the loop */
    RETRY_FIRST_MS = 20,
    RETRY_LAST_MS = 1000,
    BREACH_FIRST_MS = 20,
    BREACH_LAST_MS = 60000
};
static const uint64_t NS_A_MS = 1000000;

struct waiting {
    struct waiting *next;
    struct front_init_message message;
    int fds[FI_START_FDS];
    size_t fd_count;
};

struct init_link {
    struct loop *loop;
    int run_folder;
    char socket_path[64];
    uid_t uid;
    const struct init_link_events *events;
    void *cookie;
    struct loop_watch *watch; /* NULL while not connected */
    struct loop_timer *retry;
    unsigned retry_ms;
    unsigned failures;
    unsigned breaches; /* of the rules, since the beginning: an honest init makes none */
    struct waiting *first, *last;
    size_t waiting;
    bool writing; /* waits for the socket to take more */
    bool *freed;  /* set when the link is freed inside one of its own events */
};

static void connect_or_retry(void *cookie);
static void on_readable(void *cookie);
static void send_waiting(void *cookie);

static void waiting_free(struct waiting *entry)
{
    for (size_t i = 0; i < entry->fd_count; i++)
        close(entry->fds[i]);
    free(entry);
}

/* What asks for something new: its asker is told when the connection breaks. */
static bool is_of_this_connection(uint32_t type)
{
    return type == FI_START || type == FI_DIAL || type == FI_LISTENERS;
}

/* Of what waits the rest is kept for the next connection. */
static void drop_what_was_asked(struct init_link *link)
{
    struct waiting *entry = link->first;
    link->first = link->last = NULL;
    link->waiting = 0;
    for (struct waiting *next; entry; entry = next) {
        next = entry->next;
        entry->next = NULL;
        if (is_of_this_connection(entry->message.type)) {
            waiting_free(entry);
            continue;
        }
        if (link->last)
            link->last->next = entry;
        else
            link->first = entry;
        link->last = entry;
        link->waiting++;
    }
}

/* So that one which breaks the rules upon each connection costs next to nothing, and fills no log. */
static unsigned breach_ms(const struct init_link *link)
{
    unsigned doubled = link->breaches > 12 ? 12 : link->breaches;
    unsigned delay = doubled ? (unsigned)BREACH_FIRST_MS << (doubled - 1) : 0;
    return delay > BREACH_LAST_MS ? BREACH_LAST_MS : delay;
}

static void retry_later(struct init_link *link)
{
    unsigned delay_ms = link->retry_ms < breach_ms(link) ? breach_ms(link) : link->retry_ms;
    link->retry = loop_timer_start(link->loop, clock_boot_ns() + delay_ms * NS_A_MS, connect_or_retry, link);
    link->retry_ms = link->retry_ms * 2 > RETRY_LAST_MS ? RETRY_LAST_MS : link->retry_ms * 2;
}

static void hang_up(struct init_link *link)
{
    if (link->watch)
        fd_empty(loop_watch_fd(link->watch));
    loop_watch_free(TAKE(link->watch));
}

static void disconnect(struct init_link *link)
{
    hang_up(link);
    link->writing = false;
    drop_what_was_asked(link);
    retry_later(link);
    link->events->lost(link->cookie);
}

void init_link_blame(struct init_link *link, const char *what)
{
    link->breaches++;
    if ((link->breaches & (link->breaches - 1)) == 0)
        log_warn("sandbox", "init of %s broke the rules: %s times=%u", link->socket_path, what, link->breaches);
}

void init_link_accuse(struct init_link *link, const char *what)
{
    init_link_blame(link, what);
    if (link->watch)
        disconnect(link);
}

/* The path is reached through the descriptor: the folders above may be closed to our user. */
static int connect_socket(const struct init_link *link, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!text_format(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", link->run_folder,
                     link->socket_path)) {
        error_set(err, ERROR_INVALID, "the path of init's socket is too long");
        return -1;
    }
    AUTO_FD int socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_fd < 0 || connect(socket_fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        error_set_errno(err, ERROR_INTERNAL, "connect to %s", link->socket_path);
        return -1;
    }
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    bool is_asked = link->uid != FRONT_LAUNCHER_ANY_UID; /* else the folder alone, which is the front's, tells */
    if (is_asked && (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != link->uid)) {
        error_set(err, ERROR_FORBIDDEN, "uid %u listens at %s, not the slot's %u", peer.uid, link->socket_path,
                  link->uid);
        return -1;
    }
    return TAKE_FD(socket_fd);
}

static void connect_or_retry(void *cookie)
{
    struct init_link *link = cookie;
    link->retry = NULL;
    struct error err = {0};
    int socket_fd = connect_socket(link, &err);
    if (socket_fd < 0) {
        if (++link->failures == 4) /* told once: a sandbox that is just ending looks like this too */
            log_warn("sandbox", "init does not answer: %s", err.message);
        retry_later(link);
        return;
    }
    link->failures = 0;
    link->watch = loop_watch_new(link->loop, socket_fd);
    loop_watch_readable(link->watch, on_readable, link);
    send_waiting(link);
}

struct init_link *init_link_new(struct loop *loop, int run_folder, const char *socket_path, uid_t uid,
                                const struct init_link_events *events, void *cookie)
{
    struct init_link *link = memory_new(sizeof *link);
    link->loop = loop;
    link->run_folder = run_folder;
    link->uid = uid;
    link->events = events;
    link->cookie = cookie;
    link->retry_ms = RETRY_FIRST_MS;
    if (!text_copy(link->socket_path, sizeof link->socket_path, socket_path))
        log_error("sandbox", "the path of init's socket is too long");
    connect_or_retry(link);
    return link;
}

void init_link_free(struct init_link *link)
{
    if (!link)
        return;
    if (link->freed)
        *link->freed = true;
    hang_up(link);
    loop_timer_cancel(link->retry);
    for (struct waiting *entry = link->first, *next; entry; entry = next) {
        next = entry->next;
        waiting_free(entry);
    }
    free(link);
}

/* False when the link must not be touched any more: it was freed in the event, or the connection is over. */
static bool receive_one(struct init_link *link)
{
    struct front_init_message message;
    int fds[FD_MESSAGE_FDS];
    size_t fd_count = 0;
    struct error err = {0};
    int got = front_init_receive(loop_watch_fd(link->watch), &message, FI_FROM_INIT, fds, &fd_count, &err);
    if (got < 0 && err.system_errno == EAGAIN)
        return false;
    if (got <= 0) {
        if (got < 0 && err.kind == ERROR_INVALID)
            init_link_accuse(link, err.message);
        else
            disconnect(link);
        return false;
    }
    if (message.type == FI_CURRENT)
        link->retry_ms = RETRY_FIRST_MS;
    bool freed = false;
    link->freed = &freed;
    link->events->message(link->cookie, &message, fds, fd_count);
    fd_drop_all(fds, fd_count);
    if (!freed)
        link->freed = NULL;
    return !freed && link->watch != NULL;
}

static void on_readable(void *cookie)
{
    for (int i = 0; i < MESSAGES_A_TURN; i++)
        if (!receive_one(cookie))
            return;
}

static void send_waiting(void *cookie)
{
    struct init_link *link = cookie;
    link->writing = false;
    while (link->watch && link->first) {
        struct waiting *entry = link->first;
        struct error err = {0};
        bool sent = front_init_send(loop_watch_fd(link->watch), &entry->message, entry->fds, entry->fd_count, &err);
        if (!sent && err.system_errno == EAGAIN) {
            link->writing = true;
            loop_watch_writable(link->watch, send_waiting, link);
            return;
        }
        if (!sent) { /* whatever it is: the read side sees the end, and reconnects */
            (void)shutdown(loop_watch_fd(link->watch), SHUT_RDWR);
            return;
        }
        link->first = entry->next;
        if (!link->first)
            link->last = NULL;
        link->waiting--;
        waiting_free(entry);
    }
}

/* What ends something is sent at most once for each command, and would be missed for ever: it is not counted. */
static bool is_bounded(uint32_t type)
{
    return type != FI_EOF && type != FI_FORGET && type != FI_TERMINATE && type != FI_DEADLINE;
}

static bool may_send(const struct init_link *link, uint32_t type, struct error *err)
{
    if (is_of_this_connection(type) && !link->watch)
        return error_set(err, ERROR_STARTING, "the sandbox's init is being reached; try again");
    if (link->waiting >= INIT_LINK_WAITING_MAX && is_bounded(type))
        return error_set(err, ERROR_NO_CAPACITY, "the sandbox's init does not take more commands now");
    return true;
}

bool init_link_send(struct init_link *link, const struct front_init_message *message, const int *fds, size_t fd_count,
                    struct error *err)
{
    struct waiting *entry = memory_new(sizeof *entry);
    memcpy(&entry->message, message, sizeof *message);
    entry->fd_count = fd_count;
    for (size_t i = 0; i < fd_count && i < FI_START_FDS; i++)
        entry->fds[i] = fds[i];
    if (!may_send(link, message->type, err)) {
        waiting_free(entry);
        return false;
    }
    if (link->last)
        link->last->next = entry;
    else
        link->first = entry;
    link->last = entry;
    link->waiting++;
    if (!link->writing)
        send_waiting(link);
    return true;
}
