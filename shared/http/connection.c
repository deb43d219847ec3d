/* connection.c - one client connection: bounded reads, deadlines, and the hand-over of each request to libh2o. */
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"
#include "shared/http/proxy_internal.h"
#include "shared/http/tls_relay.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

enum {
    HEAD_READ_BYTES = 16384,
    HEAD_RESERVE_BYTES = 4096,
    RESERVE_BYTES = 65536,
    LINGER_BYTES = 4 << 20,
    SPOOL_THRESHOLD_BYTES = 1 << 20,
    LOOKS_FOR_ROOM = 64,
    LOOKS_A_STALL = 6 /* how often a reply on its way is looked at */
};

static const uint64_t SECOND_NS = 1000000000;
static const uint64_t KEEP_ALIVE_NS = 60 * SECOND_NS; /* an idle connection between two requests */
static const uint64_t LINGER_NS = 2 * SECOND_NS;

static void on_timer(void *cookie);

static uint64_t head_timeout_ns(const struct http_connection *connection)
{
    return (uint64_t)connection->worker->server->options.head_timeout_ms * 1000000;
}

static uint64_t stall_ns(const struct http_connection *connection)
{
    return (uint64_t)connection->worker->server->options.stall_ms * 1000000;
}

/* Something is on its way that the client may not leave lying: a finished reply, or what a stream said so of. */
static bool has_to_take(const struct http_connection *connection)
{
    const struct http_request *request = connection->request;
    if (connection->state != HTTP_RUNNING || request == NULL)
        return false;
    return request->phase == HTTP_ENDED || (request->phase == HTTP_STREAMING && request->stream.events->cut_stalled);
}

/* HEAD: a whole one is waited for, not just any. */
static bool is_asked(const struct http_connection *connection)
{
    return connection->has_bytes || connection->is_fresh;
}

/* When this connection has to be looked at next; UINT64_MAX: never, something else will move it. */
static uint64_t next_look_ns(const struct http_connection *connection, uint64_t now_ns)
{
    switch (connection->state) {
    case HTTP_HEAD:
        /* An idle one too, so that the timer need not be moved when a request begins. */
        return (is_asked(connection) ? connection->since_ns : now_ns) + head_timeout_ns(connection);
    case HTTP_BODY: {
        uint64_t graced_ns =
            connection->since_ns + (uint64_t)connection->worker->server->options.body_grace_ms * 1000000;
        return graced_ns > now_ns ? graced_ns : now_ns + SECOND_NS;
    }
    case HTTP_RUNNING:
        return has_to_take(connection) ? now_ns + stall_ns(connection) / LOOKS_A_STALL : UINT64_MAX;
    case HTTP_LINGER:
        return connection->since_ns + LINGER_NS;
    }
    return UINT64_MAX;
}

/* The timer stays where it is when it comes early enough: it looks and sets itself again. */
static void arm(struct http_connection *connection, uint64_t now_ns)
{
    uint64_t at_ns = next_look_ns(connection, now_ns);
    if (at_ns == UINT64_MAX || (connection->timer != NULL && connection->timer_ns <= at_ns))
        return;
    loop_timer_cancel(connection->timer);
    connection->timer = loop_timer_start(connection->worker->loop, at_ns, on_timer, connection);
    connection->timer_ns = at_ns;
}

void http_connection_set_state(struct http_connection *connection, enum http_state state)
{
    connection->state = state;
    connection->since_ns = clock_boot_ns();
    arm(connection, connection->since_ns);
}

void http_connection_expect_taking(struct http_connection *connection)
{
    connection->moved_ns = clock_boot_ns();
    arm(connection, connection->moved_ns);
}

static bool is_overdue(struct http_connection *connection, uint64_t now_ns)
{
    uint64_t waited_ns = now_ns - connection->since_ns;
    if (connection->state == HTTP_LINGER)
        return waited_ns >= LINGER_NS;
    if (connection->state == HTTP_HEAD) {
        return waited_ns >= (is_asked(connection) ? head_timeout_ns(connection) : KEEP_ALIVE_NS);
    }
    if (!has_to_take(connection))
        return false;
    uint64_t acked = http_peer_acked(connection);
    bool is_idle = connection->request->phase == HTTP_STREAMING && !connection->request->stream.is_flying;
    if (is_idle || acked != connection->acked) {
        connection->acked = acked;
        connection->moved_ns = now_ns;
    }
    return now_ns - connection->moved_ns >= stall_ns(connection);
}

static void on_timer(void *cookie)
{
    struct http_connection *connection = cookie;
    connection->timer = NULL;
    uint64_t now_ns = clock_boot_ns();
    if (is_overdue(connection, now_ns)) {
        if (connection->request != NULL)
            http_stream_linger_never(connection->request); /* what it did not take is not kept for it */
        http_connection_doom(connection);
        return;
    }
    arm(connection, now_ns);
    if (connection->state != HTTP_BODY || !http_guard_is_slow(connection, now_ns))
        return;
    if (!h2o_socket_is_reading(connection->socket)) {
        http_connection_doom(connection); /* libh2o is sending something of its own */
    } else {
        struct error err;
        error_set(&err, ERROR_TIMEOUT, "the body came slower than %u bytes a second",
                  connection->worker->server->options.body_min_rate);
        http_guard_refuse(connection, &err, 408);
    }
}

/* The socket is closed already; libh2o has disposed of the request before. */
static void on_close(void *data)
{
    struct http_connection *connection = data;
    struct http_worker *worker = connection->worker;
    struct http_request *request = TAKE(connection->request);
    if (request != NULL)
        http_request_free(request);
    if (worker->current == connection)
        worker->current = NULL;
    h2o_linklist_unlink(&connection->all);
    if (h2o_linklist_is_linked(&connection->unguarded))
        h2o_linklist_unlink(&connection->unguarded);
    if (h2o_linklist_is_linked(&connection->doomed))
        h2o_linklist_unlink(&connection->doomed);
    loop_timer_cancel(connection->timer);
    if (connection->tls != NULL)
        http_tls_relay_left(connection->tls);
    free(connection->surplus);
    free(connection);
    worker->connection_count--;
    atomic_store_explicit(&worker->connected, (int64_t)worker->connection_count, memory_order_relaxed);
    if (worker->is_stopping)
        http_worker_settle_soon(worker);
}

static void close_now(struct http_connection *connection)
{
    if (connection->is_upgraded)
        h2o_socket_close(connection->socket);
    else
        connection->h2o_read(connection->socket, h2o_socket_error_closed);
}

enum filled { FILLED_SOME, FILLED_NOTHING, FILLED_END, FILLED_NO_ROOM };

/* A buffer over 1 MiB is a file that libh2o doubles; where the folder has no room for that its descriptor would leak.
 */
static bool has_room(const struct http_connection *connection, size_t more)
{
    const h2o_buffer_t *input = connection->socket->input;
    if (!connection->worker->server->spools)
        return true;
    if (input->bytes == NULL || input->capacity - input->size >= more || input->capacity < SPOOL_THRESHOLD_BYTES / 2)
        return true;
    struct statvfs folder;
    if (statvfs(connection->worker->server->spool_folder, &folder) != 0)
        return false;
    return folder.f_bavail > (4 * input->capacity + more) / folder.f_frsize;
}

/* `*fresh`: the bytes that came. */
static enum filled fill(struct http_connection *connection, size_t room, size_t *fresh)
{
    h2o_socket_t *socket = connection->socket;
    /* A head goes into one of the small buffers that libh2o keeps for reuse. */
    size_t wanted = connection->state == HTTP_HEAD ? HEAD_RESERVE_BYTES : RESERVE_BYTES;
    size_t reserve = room < wanted ? room : wanted;
    if (!has_room(connection, reserve))
        return FILLED_NO_ROOM;
    h2o_iovec_t space = h2o_buffer_reserve(&socket->input, reserve);
    if (space.base == NULL)
        return FILLED_NO_ROOM;
    ssize_t got = read(h2o_socket_get_fd(socket), space.base, space.len < room ? space.len : room);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? FILLED_NOTHING : FILLED_END;
    socket->input->size += (size_t)got;
    *fresh = (size_t)got;
    return got > 0 ? FILLED_SOME : FILLED_END;
}

static void drain(struct http_connection *connection)
{
    char scrap[HEAD_READ_BYTES];
    ssize_t got = read(h2o_socket_get_fd(connection->socket), scrap, sizeof scrap);
    if (got > 0)
        connection->drained_bytes += (size_t)got;
    bool is_over = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (is_over || connection->drained_bytes > LINGER_BYTES)
        close_now(connection);
}

static void on_readable(h2o_socket_t *socket, const char *broken UNUSED)
{
    struct http_connection *connection = socket->on_close.data;
    if (connection->state == HTTP_LINGER) {
        drain(connection);
        return;
    }
    bool is_head = connection->state == HTTP_HEAD;
    size_t fresh = 0;
    enum filled filled = fill(connection, is_head ? HEAD_READ_BYTES : http_guard_body_room(connection), &fresh);
    if (filled == FILLED_END) {
        close_now(connection);
    } else if (filled == FILLED_NO_ROOM) {
        struct error err;
        error_set(&err, ERROR_DISK_FULL, "no room to receive the body");
        http_guard_refuse(connection, &err, 0);
    } else if (filled == FILLED_SOME && is_head) {
        http_guard_head(connection);
    } else if (filled == FILLED_SOME) {
        http_guard_body(connection, fresh);
    }
}

void http_connection_leave(struct http_connection *connection)
{
    shutdown(h2o_socket_get_fd(connection->socket), SHUT_WR);
    http_peer_forget(connection);
    http_request_free(TAKE(connection->request));
    http_connection_set_state(connection, HTTP_LINGER);
    h2o_socket_read_start(connection->socket, on_readable);
}

bool http_connection_feed(struct http_connection *connection)
{
    struct http_worker *worker = connection->worker;
    worker->current = connection;
    connection->h2o_read(connection->socket, NULL);
    if (worker->current != connection)
        return false;
    worker->current = NULL;
    return true;
}

void http_connection_set_surplus(struct http_connection *connection, const char *data, size_t size)
{
    free(connection->surplus);
    connection->surplus = size > 0 ? memory_copy(data, size) : NULL;
    connection->surplus_bytes = size;
}

void http_connection_request_ended(struct http_connection *connection)
{
    http_peer_forget(connection);
    connection->request = NULL;
    connection->has_bytes = connection->is_fresh = false;
    connection->scanned = 0;
    http_connection_set_state(connection, HTTP_HEAD);
    http_worker_settle_soon(connection->worker);
    if (!h2o_linklist_is_linked(&connection->unguarded))
        h2o_linklist_insert(&connection->worker->unguarded, &connection->unguarded);
}

void http_connection_linger(struct http_connection *connection)
{
    http_connection_set_surplus(connection, NULL, 0);
    http_connection_set_state(connection, HTTP_LINGER);
}

void http_connection_doom(struct http_connection *connection)
{
    http_worker_settle_soon(connection->worker);
    if (!h2o_linklist_is_linked(&connection->doomed))
        h2o_linklist_insert(&connection->worker->doomed, &connection->doomed);
}

static void start_with_surplus(struct http_connection *connection)
{
    AUTO_FREE char *surplus = TAKE(connection->surplus);
    if (surplus == NULL)
        return;
    h2o_iovec_t space = h2o_buffer_reserve(&connection->socket->input, connection->surplus_bytes);
    memcpy(space.base, surplus, connection->surplus_bytes);
    connection->socket->input->size += connection->surplus_bytes;
    connection->surplus_bytes = 0;
    http_guard_head(connection);
}

/* For the next request libh2o has called h2o_socket_read_start itself. */
static void guard_again(struct http_connection *connection)
{
    h2o_socket_read_start(connection->socket, on_readable);
    if (connection->state == HTTP_LINGER)
        shutdown(h2o_socket_get_fd(connection->socket), SHUT_WR);
    else if (connection->worker->is_stopping)
        http_connection_doom(connection);
    else
        start_with_surplus(connection);
}

void http_connections_settle(struct http_worker *worker)
{
    /* Each of the two may close any connection, so both begin anew with whatever is first. */
    while (!h2o_linklist_is_empty(&worker->unguarded)) {
        struct http_connection *connection = HTTP_OWNER(struct http_connection, unguarded, worker->unguarded.next);
        h2o_linklist_unlink(&connection->unguarded);
        guard_again(connection);
    }
    while (!h2o_linklist_is_empty(&worker->doomed))
        close_now(HTTP_OWNER(struct http_connection, doomed, worker->doomed.next));
}

void http_connections_close_idle(struct http_worker *worker)
{
    for (h2o_linklist_t *link = worker->connections.next; link != &worker->connections; link = link->next) {
        struct http_connection *connection = HTTP_OWNER(struct http_connection, all, link);
        if (connection->state == HTTP_HEAD)
            http_connection_doom(connection);
        else if (connection->is_upgraded && connection->request != NULL && connection->request->tunnel != NULL)
            http_tunnel_cut(connection->request->tunnel);
        else if (connection->is_upgraded && connection->request != NULL)
            http_websocket_stop(connection->request->websocket);
    }
}

static void set_peer(struct http_connection *connection)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (connection->tls == NULL)
        length = h2o_socket_getpeername(connection->socket, (struct sockaddr *)&address);
    else if (getpeername(http_tls_relay_fd(connection->tls), (struct sockaddr *)&address, &length) != 0)
        length = 0;
    connection->has_peer = length > 0 && address_of_socket(&connection->peer, (struct sockaddr *)&address);
}

/* Ends the one that came first of those that owe nobody anything, so that many who say nothing keep nobody out. Whoever
 * is passed over goes to the end of the list. */
static bool make_room(struct http_worker *worker)
{
    for (int looked = 0; looked < LOOKS_FOR_ROOM && !h2o_linklist_is_empty(&worker->connections); looked++) {
        struct http_connection *first = HTTP_OWNER(struct http_connection, all, worker->connections.next);
        h2o_linklist_unlink(&first->all);
        h2o_linklist_insert(&worker->connections, &first->all);
        bool is_idle = first->state == HTTP_HEAD || first->state == HTTP_LINGER;
        if (is_idle && !h2o_linklist_is_linked(&first->doomed)) {
            http_connection_doom(first);
            return true;
        }
    }
    return false;
}

static bool has_place(struct http_worker *worker)
{
    size_t count = worker->connection_count + worker->orphan_count;
    return count < worker->server->connections_max || http_tls_relay_drop_oldest(worker) || make_room(worker);
}

struct http_connection *http_connection_accept(struct http_worker *worker, h2o_socket_t *socket,
                                               struct http_tls_relay *tls)
{
    if (!has_place(worker)) {
        h2o_socket_close(socket);
        return NULL;
    }
    struct http_connection *connection = memory_new(sizeof *connection);
    connection->worker = worker;
    connection->socket = socket;
    connection->tls = tls;
    connection->is_fresh = true;
    socket->on_close.cb = on_close;
    socket->on_close.data = connection;
    set_peer(connection);
    h2o_linklist_insert(&worker->connections, &connection->all);
    worker->connection_count++;
    atomic_store_explicit(&worker->connected, (int64_t)worker->connection_count, memory_order_relaxed);
    h2o_socket_dont_read(socket, 1); /* only on_readable reads, and no more than it wants */
    h2o_accept(&worker->accept, socket);
    connection->h2o_read = socket->_cb.read;
    h2o_socket_read_start(socket, on_readable);
    http_connection_set_state(connection, HTTP_HEAD);
    return connection;
}
