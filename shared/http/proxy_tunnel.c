/* proxy_tunnel.c - bytes both ways between a client and the server that said 101: each end's silence, slowness and end
 * is the other's. */
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/http/proxy_internal.h"

#include <errno.h>
#include <h2o/http1.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { PIECE_BYTES = 65536, TURN_PIECES = 8 };

static const uint64_t HALF_NS = 60 * UINT64_C(1000000000); /* one end is through, and the other says nothing */

/* One way. What was read and not yet taken is held, and nothing more is read meanwhile. */
struct flow {
    char *held;
    size_t held_at, held_size;
    bool is_over;   /* its source sent a FIN */
    bool is_passed; /* ... and so did we */
};

struct http_tunnel {
    struct http_request *request;
    struct http_relay *relay; /* NULL: it is over */
    struct flow in, out;      /* to the upstream; to the client */
    struct loop_timer *timer; /* runs once one end is through */
    uint64_t moved_ns;        /* boot time of the last byte */
};

static void pump(struct http_tunnel *tunnel);

static int client_fd(const struct http_tunnel *tunnel)
{
    return h2o_socket_get_fd(tunnel->request->connection->socket);
}

static int upstream_fd(const struct http_tunnel *tunnel)
{
    return loop_watch_fd(tunnel->relay->upstream);
}

/* ---- its end ---- */

static void close_upstream(struct http_tunnel *tunnel)
{
    loop_timer_cancel(TAKE(tunnel->timer));
    struct http_relay *relay = TAKE(tunnel->relay);
    if (relay != NULL)
        http_relay_finish(relay);
}

void http_tunnel_gone(struct http_tunnel *tunnel)
{
    close_upstream(tunnel);
}

void http_tunnel_free(struct http_tunnel *tunnel)
{
    if (tunnel == NULL)
        return;
    close_upstream(tunnel);
    free(tunnel->in.held);
    free(tunnel->out.held);
    free(tunnel);
}

void http_tunnel_cut(struct http_tunnel *tunnel)
{
    struct http_request *request = tunnel->request;
    if (tunnel->relay == NULL)
        return;
    http_stream_linger_never(request);
    close_upstream(tunnel);
    http_request_drop(request);
}

static void end(struct http_tunnel *tunnel)
{
    struct http_request *request = tunnel->request;
    close_upstream(tunnel);
    http_request_end(request);
    http_connection_doom(request->connection);
}

/* ---- one way ---- */

enum moved { MOVED, WAITS_FOR_SOURCE, WAITS_FOR_ROOM, BROKEN };

static enum moved send_piece(struct flow *flow, int to, const char *data, size_t size, size_t *sent)
{
    ssize_t got = send(to, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        return BROKEN;
    *sent = got > 0 ? (size_t)got : 0;
    if (*sent == size)
        return MOVED;
    char *rest = memory_copy(data + *sent, size - *sent);
    free(flow->held);
    flow->held = rest;
    flow->held_at = 0;
    flow->held_size = size - *sent;
    return WAITS_FOR_ROOM;
}

static enum moved send_held(struct flow *flow, int to, size_t *sent)
{
    ssize_t got = send(to, flow->held + flow->held_at, flow->held_size - flow->held_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? WAITS_FOR_ROOM : BROKEN;
    *sent = (size_t)got;
    flow->held_at += (size_t)got;
    if (flow->held_at < flow->held_size)
        return WAITS_FOR_ROOM;
    free(TAKE(flow->held));
    return MOVED;
}

static enum moved move_piece(struct flow *flow, int from, int to, size_t *sent)
{
    char piece[PIECE_BYTES];
    if (flow->held != NULL)
        return send_held(flow, to, sent);
    if (flow->is_over)
        return WAITS_FOR_SOURCE;
    ssize_t got = fd_receive(from, piece, sizeof piece);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? WAITS_FOR_SOURCE : BROKEN;
    flow->is_over = got == 0;
    return got > 0 ? send_piece(flow, to, piece, (size_t)got, sent) : WAITS_FOR_SOURCE;
}

static bool move(struct http_tunnel *tunnel, struct flow *flow, int from, int to)
{
    enum moved moved = MOVED;
    for (int i = 0; i < TURN_PIECES && moved == MOVED; i++) {
        size_t sent = 0;
        moved = move_piece(flow, from, to, &sent);
        if (sent > 0)
            tunnel->moved_ns = clock_boot_ns();
        if (flow == &tunnel->out)
            tunnel->request->sent_bytes += sent;
    }
    if (moved == BROKEN)
        return false;
    if (flow->is_over && flow->held == NULL && !flow->is_passed) {
        shutdown(to, SHUT_WR);
        flow->is_passed = true;
        tunnel->moved_ns = clock_boot_ns();
    }
    return true;
}

/* ---- both ---- */

static void on_client_readable(h2o_socket_t *socket, const char *broken UNUSED)
{
    const struct http_connection *connection = socket->on_close.data;
    pump(connection->request->tunnel);
}

static void on_client_writable(h2o_socket_t *socket, const char *broken UNUSED)
{
    const struct http_connection *connection = socket->on_close.data;
    if (connection->request != NULL && connection->request->tunnel != NULL)
        pump(connection->request->tunnel);
}

static void on_upstream(void *cookie)
{
    pump(cookie);
}

static void wait(struct http_tunnel *tunnel)
{
    h2o_socket_t *client = tunnel->request->connection->socket;
    bool is_reading = !tunnel->in.is_over && tunnel->in.held == NULL;
    if (is_reading != (bool)h2o_socket_is_reading(client)) {
        if (is_reading)
            h2o_socket_read_start(client, on_client_readable);
        else
            h2o_socket_read_stop(client);
    }
    if (tunnel->out.held != NULL && !h2o_socket_is_writing(client))
        h2o_socket_notify_write(client, on_client_writable);
    bool is_listening = !tunnel->out.is_over && tunnel->out.held == NULL;
    loop_watch_readable(tunnel->relay->upstream, is_listening ? on_upstream : NULL, tunnel);
    if (tunnel->in.held != NULL)
        loop_watch_writable(tunnel->relay->upstream, on_upstream, tunnel);
}

static void on_timer(void *cookie)
{
    struct http_tunnel *tunnel = cookie;
    tunnel->timer = NULL;
    uint64_t due_ns = tunnel->moved_ns + HALF_NS;
    if (clock_boot_ns() >= due_ns)
        http_tunnel_cut(tunnel);
    else
        tunnel->timer = loop_timer_start(tunnel->request->worker->loop, due_ns, on_timer, tunnel);
}

/* The last thing its caller does. */
static void pump(struct http_tunnel *tunnel)
{
    if (tunnel->relay == NULL)
        return;
    if (!move(tunnel, &tunnel->in, client_fd(tunnel), upstream_fd(tunnel)) ||
        !move(tunnel, &tunnel->out, upstream_fd(tunnel), client_fd(tunnel))) {
        http_tunnel_cut(tunnel);
        return;
    }
    if (tunnel->in.is_passed && tunnel->out.is_passed) {
        end(tunnel);
        return;
    }
    if ((tunnel->in.is_passed || tunnel->out.is_passed) && tunnel->timer == NULL)
        tunnel->timer = loop_timer_start(tunnel->request->worker->loop, tunnel->moved_ns + HALF_NS, on_timer, tunnel);
    wait(tunnel);
}

/* ---- its beginning ---- */

static void hold(struct flow *flow, const char *data, size_t size)
{
    flow->held = size > 0 ? memory_copy(data, size) : NULL;
    flow->held_size = size;
}

/* libh2o has freed its connection and request; the socket is ours. NULL: it was broken, and all is freed. */
static void on_upgraded(void *cookie UNUSED, h2o_socket_t *h2o, size_t head_bytes UNUSED)
{
    if (h2o == NULL)
        return;
    struct http_connection *connection = h2o->on_close.data;
    struct http_tunnel *tunnel = connection->request->tunnel;
    connection->is_upgraded = true;
    h2o->data = NULL;
    h2o_buffer_dispose(&h2o->input); /* the head; what came behind it is the surplus */
    h2o_buffer_init(&h2o->input, &h2o_socket_buffer_prototype);
    const int on = 1;
    (void)setsockopt(h2o_socket_get_fd(h2o), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    hold(&tunnel->in, connection->surplus, connection->surplus_bytes);
    http_connection_set_surplus(connection, NULL, 0);
    if (connection->worker->is_stopping)
        http_tunnel_cut(tunnel);
    else
        pump(tunnel);
}

static void set_reply_headers(struct http_relay *relay)
{
    const char *value;
    bool has_protocol = false;
    for (const char *name = NULL; (name = http_answer_next(&relay->answer, name, &value)) != NULL;) {
        if (strcmp(name, "upgrade") == 0)
            http_reply_header(relay->request, "Upgrade", value);
        has_protocol = has_protocol || strcmp(name, "sec-websocket-protocol") == 0;
    }
    http_relay_set_headers(relay);
    if (relay->wants_parley && !has_protocol) /* a browser that offered one wants one */
        http_reply_header(relay->request, "Sec-WebSocket-Protocol", "parley.v1");
}

void http_tunnel_start(struct http_relay *relay, const char *data, size_t size)
{
    struct http_request *request = relay->request;
    struct http_tunnel *tunnel = memory_new(sizeof *tunnel);
    tunnel->request = request;
    tunnel->relay = relay;
    tunnel->moved_ns = clock_boot_ns();
    hold(&tunnel->out, data, size);
    loop_timer_cancel(TAKE(relay->timer));
    loop_watch_readable(relay->upstream, NULL, NULL);
    set_reply_headers(relay);
    request->tunnel = tunnel;
    request->phase = HTTP_SOCKET;
    request->gone = NULL;
    http_reply_prepare(request, 101, NULL);
    h2o_http1_upgrade(request->h2o, NULL, 0, on_upgraded, NULL);
}
