#include "shared/http/websocket.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"
#include "shared/http/websocket_frames.h"

#include <errno.h>
#include <h2o/http1.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum {
    READ_TURN_BYTES = 65536,                         /* of one socket, before the others have their turn */
    READ_STOP_BYTES = 2 * HTTP_WEBSOCKET_FULL_BYTES, /* waiting: the peer takes nothing, so it is not listened to. More
                                                        than a sender that heeds FULL ever lets wait, so that its peer
                                                        can interrupt it */
    CUT_BYTES = 8 << 20,                             /* a sender that never looks at what waits */
    IGNORED_BYTES = 4 << 20,                         /* while the peer's close frame is awaited */
    UNSENT_BYTES = 128 << 10, /* in the kernel; it would take MiB for a peer that takes nothing */
    KEEP_BYTES = 4096,        /* a larger buffer goes when it is empty */
    REASON_BYTES = HTTP_CONTROL_BYTES - 2
};

static const uint64_t CLOSE_NS = 2000000000; /* for the peer to take the close frame and send its own */

enum state {
    OPEN,
    CLOSING, /* our close frame is queued, its owner is through with it; the peer's close frame is awaited */
    LAST,    /* nothing more is read; it goes when all is written */
    DEAD     /* the connection is doomed */
};

struct http_websocket {
    struct http_request *request; /* which owns it */
    const struct http_websocket_events *events;
    void *cookie;
    struct http_frames *frames;
    enum state state;
    bool is_paused;
    bool is_interrupted; /* bytes that were read already may wait in `frames` or the surplus */
    bool is_drained;     /* of this turn: the kernel has no more */
    bool is_at_end;      /* the peer's FIN or reset was read */
    bool is_flying;      /* one write at a time */
    bool is_owed_drained;
    bool wants_ping, wants_pong;
    size_t pong_bytes;
    char pong[HTTP_CONTROL_BYTES]; /* only the newest ping is answered (RFC 6455, 5.5.3) */
    size_t budget;                 /* bytes that may still be read in this turn */
    struct text waiting, flying;   /* whole frames */
    struct loop_timer *timer, *resume;
    uint64_t timer_ns;           /* when the timer fires */
    uint64_t heard_ns, asked_ns; /* the last byte from the peer; our ping that is not answered, 0: none */
    uint64_t end_ns;             /* not OPEN: given up then */
    uint64_t acked;
    size_t ignored_bytes;
};

static void fly(struct http_websocket *socket);
static void arm(struct http_websocket *socket);

static h2o_socket_t *socket_of(const struct http_websocket *socket)
{
    return socket->request->connection->socket;
}

static size_t pending(const struct http_websocket *socket)
{
    return socket->waiting.length + socket->flying.length;
}

static bool wants_read(const struct http_websocket *socket)
{
    if (!socket->request->connection->is_upgraded)
        return false;
    bool is_taken = !socket->is_paused && pending(socket) <= READ_STOP_BYTES;
    return socket->state == CLOSING || (socket->state == OPEN && is_taken);
}

/* ---- its end ---- */

static void doom(struct http_websocket *socket)
{
    socket->state = DEAD;
    text_done(&socket->waiting);
    http_connection_doom(socket->request->connection);
}

/* The owner is through with it: what waits goes out, then a close frame. Code 0: an empty one. */
static void begin_end(struct http_websocket *socket, enum state state, int code, const char *reason)
{
    char data[HTTP_CONTROL_BYTES] = {(char)(code >> 8), (char)(code & 0xFF)};
    size_t size = strnlen(reason, REASON_BYTES);
    size = text_utf8_prefix(reason, size);
    memcpy(data + 2, reason, size);
    http_frame_append(&socket->waiting, HTTP_OPCODE_CLOSE, data, code != 0 ? 2 + size : 0);
    socket->state = state;
    http_frames_ignore(socket->frames);
    http_request_end(socket->request);
    socket->end_ns = clock_boot_ns() + CLOSE_NS;
    arm(socket);
    fly(socket);
}

static void end_and_tell(struct http_websocket *socket, enum state state, int code, const char *reason)
{
    begin_end(socket, state, code, reason);
    socket->events->closed(socket->cookie);
}

void http_websocket_gone(struct http_websocket *socket)
{
    socket->state = DEAD;
    socket->events->closed(socket->cookie);
}

void http_websocket_free(struct http_websocket *socket)
{
    if (socket == NULL)
        return;
    loop_timer_cancel(socket->timer);
    loop_timer_cancel(socket->resume);
    http_frames_free(socket->frames);
    text_done(&socket->waiting);
    text_done(&socket->flying);
    free(socket);
}

/* ---- what comes in ---- */

static ssize_t take_surplus(struct http_connection *connection, void *to, size_t size)
{
    size_t taken = connection->surplus_bytes < size ? connection->surplus_bytes : size;
    memcpy(to, connection->surplus, taken);
    AUTO_FREE char *rest = TAKE(connection->surplus);
    http_connection_set_surplus(connection, rest + taken, connection->surplus_bytes - taken);
    return (ssize_t)taken;
}

static ssize_t on_read(void *cookie, void *to, size_t size)
{
    struct http_websocket *socket = cookie;
    struct http_connection *connection = socket->request->connection;
    size_t room = size < socket->budget ? size : socket->budget;
    if (room == 0 || socket->is_drained)
        return -1;
    if (connection->surplus_bytes > 0)
        return take_surplus(connection, to, room);
    ssize_t got = read(h2o_socket_get_fd(connection->socket), to, room);
    socket->is_at_end = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    socket->is_drained = got < (ssize_t)room;
    if (got <= 0)
        return -1;
    socket->budget -= (size_t)got;
    socket->ignored_bytes += socket->state == OPEN ? 0 : (size_t)got;
    socket->heard_ns = clock_boot_ns();
    return got;
}

static void on_event(struct http_websocket *socket, enum http_frames_kind kind, const struct http_frames_event *event)
{
    if (kind == HTTP_FRAMES_MESSAGE) {
        socket->events->message(socket, socket->cookie, event->is_text, event->data, event->size);
    } else if (kind == HTTP_FRAMES_PING) {
        memcpy(socket->pong, event->data, event->size);
        socket->pong_bytes = event->size;
        socket->wants_pong = true;
        fly(socket);
    } else if (kind == HTTP_FRAMES_CLOSE || kind == HTTP_FRAMES_BROKEN) {
        if (socket->state == OPEN)
            end_and_tell(socket, LAST, event->code, "");
        else
            socket->state = LAST;
    }
}

static void update_reading(struct http_websocket *socket);

/* The last of a turn: may free the socket. */
static void settle(struct http_websocket *socket)
{
    struct http_connection *connection = socket->request->connection;
    if (socket->state == LAST && connection->is_upgraded && !socket->is_flying && socket->waiting.length == 0)
        http_connection_leave(connection);
    else
        update_reading(socket);
}

/* Halves of messages count towards what all bodies may hold; false when that is too much. */
static bool charge(struct http_websocket *socket)
{
    struct http_request *request = socket->request;
    struct http_server *server = request->worker->server;
    size_t held = http_frames_held(socket->frames);
    size_t before = atomic_fetch_add(&server->spooled_bytes, held - request->spooled_bytes); /* may go down: wraps */
    size_t all = before + (held - request->spooled_bytes);
    request->spooled_bytes = held;
    return held == 0 || all <= server->options.spool_max_bytes;
}

static void receive(struct http_websocket *socket)
{
    socket->budget = READ_TURN_BYTES;
    socket->is_drained = socket->is_interrupted = false;
    bool is_dry = false;
    while (!is_dry && wants_read(socket)) {
        struct http_frames_event event;
        enum http_frames_kind kind = http_frames_next(socket->frames, &event);
        is_dry = kind == HTTP_FRAMES_NONE;
        on_event(socket, kind, &event);
    }
    socket->is_interrupted = !is_dry;
    if (!charge(socket) && socket->state == OPEN)
        end_and_tell(socket, LAST, 1013, "too many messages are being received at once");
    if (is_dry && socket->is_at_end && socket->state == OPEN)
        http_request_cut(socket->request);
    else if ((is_dry && socket->is_at_end) || socket->ignored_bytes > IGNORED_BYTES)
        doom(socket);
    settle(socket);
}

static void on_readable(h2o_socket_t *h2o, const char *broken UNUSED)
{
    const struct http_connection *connection = h2o->on_close.data;
    receive(connection->request->websocket);
}

static void on_resume(void *cookie)
{
    struct http_websocket *socket = cookie;
    socket->resume = NULL;
    receive(socket);
}

static void update_reading(struct http_websocket *socket)
{
    h2o_socket_t *h2o = socket_of(socket);
    bool is_wanted = wants_read(socket);
    bool is_reading = socket->request->connection->is_upgraded && h2o_socket_is_reading(h2o);
    if (is_reading && !is_wanted)
        h2o_socket_read_stop(h2o);
    if (is_reading || !is_wanted)
        return;
    h2o_socket_read_start(h2o, on_readable);
    /* For bytes that wait here no readiness is told. Not now: the caller does not expect messages. */
    if (socket->is_interrupted && socket->resume == NULL)
        socket->resume = loop_timer_start(socket->request->worker->loop, clock_boot_ns(), on_resume, socket);
}

/* ---- what goes out ---- */

static void on_written(h2o_socket_t *h2o, const char *broken)
{
    const struct http_connection *connection = h2o->on_close.data;
    struct http_websocket *socket = connection->request->websocket;
    socket->is_flying = false;
    if (socket->flying.capacity > KEEP_BYTES)
        text_done(&socket->flying);
    socket->flying.length = 0;
    if (broken != NULL) {
        doom(socket);
        return;
    }
    fly(socket);
    if (!socket->is_flying && socket->state == OPEN && socket->is_owed_drained) {
        socket->is_owed_drained = false;
        if (socket->events->drained != NULL)
            socket->events->drained(socket, socket->cookie);
    }
    settle(socket);
}

static void fly(struct http_websocket *socket)
{
    if (socket->is_flying || socket->state == DEAD || !socket->request->connection->is_upgraded)
        return;
    /* Not behind a close frame; and one each however many there were, for a peer that takes nothing. */
    if (socket->state == OPEN && socket->wants_pong)
        http_frame_append(&socket->waiting, HTTP_OPCODE_PONG, socket->pong, socket->pong_bytes);
    if (socket->state == OPEN && socket->wants_ping)
        http_frame_append(&socket->waiting, HTTP_OPCODE_PING, NULL, 0);
    socket->wants_pong = socket->wants_ping = false;
    if (socket->waiting.length == 0)
        return;
    struct text swap = socket->flying;
    socket->flying = socket->waiting;
    socket->waiting = swap;
    socket->is_flying = true;
    socket->request->sent_bytes += socket->flying.length;
    h2o_iovec_t buffer = h2o_iovec_init(socket->flying.data, socket->flying.length);
    h2o_socket_write(socket_of(socket), &buffer, 1, on_written);
}

/* ---- silence ---- */

static uint64_t option_ns(unsigned ms)
{
    return (uint64_t)ms * 1000000;
}

static uint64_t next_look_ns(const struct http_websocket *socket)
{
    const struct http_server_options *options = &socket->request->worker->server->options;
    if (socket->state != OPEN)
        return socket->end_ns;
    return socket->asked_ns != 0 ? socket->asked_ns + option_ns(options->pong_ms)
                                 : socket->heard_ns + option_ns(options->ping_ms);
}

/* What it takes says that it lives, too: our ping may stand behind much that it has yet to read, and a peer whose owner
 * pauses is not listened to. */
static void look_at_it(struct http_websocket *socket, uint64_t now_ns)
{
    uint64_t acked = http_peer_acked(socket->request->connection);
    bool is_busy = pending(socket) > 0 || http_peer_has_to_take(socket->request->connection);
    bool is_moving = acked != socket->acked;
    if (socket->is_paused || (is_busy && is_moving))
        socket->heard_ns = now_ns;
    socket->acked = acked;
    if (socket->heard_ns > socket->asked_ns)
        socket->asked_ns = 0;
}

static void judge_silence(struct http_websocket *socket, uint64_t now_ns)
{
    look_at_it(socket, now_ns);
    bool is_overdue = now_ns >= next_look_ns(socket);
    if (is_overdue && socket->asked_ns != 0) {
        end_and_tell(socket, CLOSING, 4408, "nothing was heard for too long");
    } else if (is_overdue || socket->is_paused) { /* of a peer that is not listened to, its kernel answers */
        socket->asked_ns = socket->is_paused ? 0 : now_ns;
        socket->wants_ping = true;
        fly(socket);
    }
}

static void on_timer(void *cookie)
{
    struct http_websocket *socket = cookie;
    socket->timer = NULL;
    uint64_t now_ns = clock_boot_ns();
    if (socket->state == OPEN) {
        judge_silence(socket, now_ns);
    } else if (now_ns >= next_look_ns(socket)) {
        doom(socket);
        return;
    }
    arm(socket);
    update_reading(socket);
}

/* The timer stays where it is when it comes early enough: it looks and sets itself again. */
static void arm(struct http_websocket *socket)
{
    uint64_t at_ns = next_look_ns(socket);
    if (socket->timer != NULL && socket->timer_ns <= at_ns)
        return;
    loop_timer_cancel(socket->timer);
    socket->timer = loop_timer_start(socket->request->worker->loop, at_ns, on_timer, socket);
    socket->timer_ns = at_ns;
}

/* ---- its beginning ---- */

/* libh2o has freed its connection and request; the socket is ours. NULL: it was broken, and all is freed. */
static void on_upgraded(void *cookie UNUSED, h2o_socket_t *h2o, size_t head_bytes UNUSED)
{
    if (h2o == NULL)
        return;
    struct http_connection *connection = h2o->on_close.data;
    struct http_websocket *socket = connection->request->websocket;
    connection->is_upgraded = true;
    h2o->data = NULL;
    h2o_buffer_dispose(&h2o->input); /* the head; what came behind it is the surplus */
    h2o_buffer_init(&h2o->input, &h2o_socket_buffer_prototype);
    const int on = 1, unsent = UNSENT_BYTES;
    (void)setsockopt(h2o_socket_get_fd(h2o), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(h2o_socket_get_fd(h2o), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    if (connection->worker->is_stopping)
        http_websocket_stop(socket);
    fly(socket);
    receive(socket);
}

static void start_upgrade(struct http_request *request, const char *protocol)
{
    char accepted[HTTP_ACCEPT_KEY_BYTES];
    http_websocket_accept_key(request, accepted);
    http_reply_header(request, "Upgrade", "websocket");
    http_reply_header(request, "Sec-WebSocket-Accept", accepted);
    if (protocol != NULL && http_websocket_offers(request, protocol))
        http_reply_header(request, "Sec-WebSocket-Protocol", protocol);
    http_reply_prepare(request, 101, NULL);
    h2o_http1_upgrade(request->h2o, NULL, 0, on_upgraded, NULL);
}

struct http_websocket *http_websocket_accept(struct http_request *request, const char *protocol, size_t message_max,
                                             const struct http_websocket_events *events, void *cookie)
{
    if (request->phase != HTTP_OPEN || request->h2o == NULL)
        return NULL;
    struct http_websocket *socket = memory_new(sizeof *socket);
    socket->request = request;
    socket->events = events;
    socket->cookie = cookie;
    socket->frames = http_frames_new(on_read, socket, message_max);
    socket->heard_ns = clock_boot_ns();
    request->websocket = socket;
    request->phase = HTTP_SOCKET;
    request->gone = NULL;
    arm(socket);
    start_upgrade(request, protocol);
    return socket;
}

/* ---- what its owner says ---- */

struct http_request *http_websocket_request(const struct http_websocket *socket)
{
    return socket->request;
}

void http_websocket_set_message_max(struct http_websocket *socket, size_t message_max)
{
    http_frames_set_max(socket->frames, message_max);
}

size_t http_websocket_send(struct http_websocket *socket, bool is_text, const void *data, size_t size)
{
    if (socket->state != OPEN)
        return socket->state == DEAD ? CUT_BYTES : 0;
    http_frame_append(&socket->waiting, is_text ? HTTP_OPCODE_TEXT : HTTP_OPCODE_BINARY, data, size);
    socket->is_owed_drained = true;
    fly(socket);
    if (pending(socket) > CUT_BYTES)
        doom(socket); /* `closed` is told when the connection goes */
    else
        update_reading(socket);
    return socket->state == DEAD ? CUT_BYTES : pending(socket);
}

void http_websocket_pause(struct http_websocket *socket, bool is_paused)
{
    if (socket->is_paused == is_paused || socket->state != OPEN)
        return;
    socket->is_paused = is_paused;
    if (!is_paused) {
        socket->heard_ns = clock_boot_ns();
        socket->asked_ns = 0;
    }
    update_reading(socket);
}

void *http_websocket_find(struct loop *loop, uint64_t number)
{
    const struct http_request *request = http_request_find(loop, number);
    bool is_open = request != NULL && request->phase == HTTP_SOCKET && request->websocket->state == OPEN;
    return is_open ? request->websocket->cookie : NULL;
}

void http_websocket_close(struct http_websocket *socket, int code, const char *reason)
{
    if (socket->state == OPEN) {
        begin_end(socket, CLOSING, code, reason);
        update_reading(socket);
    } else if (socket->request->phase == HTTP_SOCKET) {
        http_request_end(socket->request); /* was cut before its owner was told */
    }
}

/* ---- what the server says ---- */

void http_websocket_revoke(struct http_websocket *socket, const struct error *err)
{
    if (socket->state != OPEN)
        return;
    socket->waiting.length = 0; /* what flies ends with a frame */
    if (socket->events->cut != NULL)
        socket->events->cut(socket, socket->cookie, err);
    http_websocket_close(socket, 4401, error_code(err->kind));
    if (socket->events->cut == NULL)
        socket->events->closed(socket->cookie);
}

void http_websocket_stop(struct http_websocket *socket)
{
    if (socket->state != OPEN)
        return;
    end_and_tell(socket, CLOSING, 1001, "the server stops");
    update_reading(socket);
}
