#include "clients/c/tunnels.h"

#include "clients/c/websocket.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURN_MAX_MS = 1000, READ_BYTES = 65536, AHEAD_BYTES = 262144, JTI_BYTES = 64 };

struct port {
    uint16_t remote;
    int listener;
};

struct connection {
    struct connection *next;
    struct tunnels *tunnels;
    uint16_t port;
    int local;
    struct websocket *socket;
    char jti[JTI_BYTES]; /* of the token that it was given last */
    struct text out;     /* to the local end, from `out_at` on */
    size_t out_at;
    bool is_open;
    bool local_ended, told_end; /* says no more; the other side knows */
    bool app_ended;             /* says no more; told to the local end when `out` is */
    bool is_broken;             /* the local end has gone */
    struct error said;          /* the last error frame */
};

struct tunnels {
    struct tunnels_wanted wanted;
    CURLM *multi;
    struct grant_keeper *keeper;
    struct port ports[TUNNELS_PORTS_MAX];
    size_t port_count;
    struct connection *connections;
    size_t connection_count;
    struct error failure;
};

struct tunnels *tunnels_new(const struct tunnels_wanted *wanted, struct error *err)
{
    AUTO(tunnels) *tunnels = memory_new(sizeof *tunnels);
    tunnels->wanted = *wanted;
    tunnels->multi = curl_multi_init();
    if (!tunnels->multi) {
        error_set(err, ERROR_INTERNAL, "libcurl does not start");
        return NULL;
    }
    tunnels->keeper = grant_keeper_new(wanted->keeping);
    return TAKE(tunnels);
}

static void connection_free(struct connection *connection)
{
    struct tunnels *tunnels = connection->tunnels;
    struct connection **at = &tunnels->connections;
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    tunnels->connection_count--;
    websocket_free(connection->socket);
    close(connection->local);
    text_done(&connection->out);
    free(connection);
}

void tunnels_free(struct tunnels *tunnels)
{
    if (!tunnels)
        return;
    while (tunnels->connections)
        connection_free(tunnels->connections);
    for (size_t i = 0; i < tunnels->port_count; i++)
        close(tunnels->ports[i].listener);
    grant_keeper_free(tunnels->keeper);
    curl_multi_cleanup(tunnels->multi);
    free(tunnels);
}

bool tunnels_listen(struct tunnels *tunnels, uint16_t port, uint16_t local, uint16_t *bound, struct error *err)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(local), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int on = 1;
    if (tunnels->port_count == TUNNELS_PORTS_MAX)
        return error_set(err, ERROR_INVALID, "at most %d ports at once", TUNNELS_PORTS_MAX);
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "socket");
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) < 0)
        return error_set_errno(err, errno == EADDRINUSE ? ERROR_CONFLICT : ERROR_INTERNAL, "listening at 127.0.0.1:%u",
                               local);
    *bound = ntohs(at.sin_port);
    tunnels->ports[tunnels->port_count++] = (struct port){.remote = port, .listener = TAKE_FD(fd)};
    return true;
}

/* ---- the local end ---- */

static void write_local(struct connection *connection)
{
    while (connection->out_at < connection->out.length) {
        ssize_t size = send(connection->local, connection->out.data + connection->out_at,
                            connection->out.length - connection->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0 && errno != EAGAIN)
            connection->is_broken = true;
        if (size < 0)
            break;
        connection->out_at += (size_t)size;
    }
    bool is_through = connection->out_at == connection->out.length;
    if (is_through) {
        connection->out.length = connection->out_at = 0;
        if (connection->app_ended)
            (void)shutdown(connection->local, SHUT_WR);
    }
    if (connection->socket)
        websocket_pause(connection->socket, !is_through);
}

static bool may_read(const struct connection *connection)
{
    return connection->is_open && !connection->local_ended && websocket_waiting(connection->socket) < AHEAD_BYTES;
}

static void read_local(struct connection *connection)
{
    char data[READ_BYTES];
    while (may_read(connection)) {
        ssize_t size = recv(connection->local, data, sizeof data, MSG_DONTWAIT);
        if (size > 0) {
            websocket_send(connection->socket, false, data, (size_t)size);
            continue;
        }
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0 && errno != EAGAIN)
            connection->is_broken = true;
        connection->local_ended = size == 0 || connection->is_broken;
        break;
    }
    if (connection->local_ended && !connection->told_end && connection->is_open) {
        static const char END[] = "{\"type\":\"eof\"}";
        websocket_send(connection->socket, true, END, sizeof END - 1);
        connection->told_end = true;
    }
}

/* ---- what the other side says ---- */

static void take_text(struct connection *connection, const char *data, size_t size)
{
    json_t *frame = json_loadb(data, size, 0, NULL);
    const char *type = json_string_value(json_object_get(frame, "type"));
    if (type && strcmp(type, "eof") == 0)
        connection->app_ended = true;
    if (type && strcmp(type, "error") == 0) {
        const char *code = json_string_value(json_object_get(frame, "code"));
        const char *message = json_string_value(json_object_get(frame, "message"));
        error_set(&connection->said, error_kind_of_code(code ? code : ""), "%s", message ? message : "an error");
    }
    json_decref(frame);
}

static void on_message(void *cookie, bool is_text, const char *data, size_t size)
{
    struct connection *connection = cookie;
    if (is_text)
        take_text(connection, data, size);
    else
        text_append(&connection->out, data, size);
    write_local(connection);
}

/* ---- connections ---- */

static void note(const struct tunnels *tunnels, uint16_t port, const char *sentence)
{
    if (tunnels->wanted.note)
        tunnels->wanted.note(tunnels->wanted.cookie, port, sentence);
}

static void connect_to_sandbox(struct connection *connection)
{
    struct tunnels *tunnels = connection->tunnels;
    const struct grant *grant = tunnels->wanted.keeping->grant;
    struct error err = {0};
    AUTO_FREE char *url = memory_printf("%s/tunnels/%u", grant->http, connection->port);
    const struct websocket_wanted wanted = {
        .url = url, .credential = grant->token, .message = on_message, .cookie = connection};
    (void)snprintf(connection->jti, sizeof connection->jti, "%s", grant->jti);
    connection->socket = websocket_new(&wanted, tunnels->multi, &err);
    if (connection->socket)
        return;
    note(tunnels, connection->port, err.message);
    connection_free(connection);
}

static void accept_one(struct tunnels *tunnels, const struct port *port)
{
    int local = accept4(port->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (local < 0)
        return;
    struct connection *connection = memory_new(sizeof *connection);
    connection->next = tunnels->connections;
    connection->tunnels = tunnels;
    connection->port = port->remote;
    connection->local = local;
    tunnels->connections = connection;
    tunnels->connection_count++;
    connect_to_sandbox(connection);
}

static bool is_of_token(enum error_kind kind)
{
    return kind == ERROR_TOKEN_EXPIRED || kind == ERROR_TOKEN_REVOKED || kind == ERROR_UNAUTHENTICATED;
}

/* Why it ended, where that was not by both ends' leave. */
static bool ended_badly(const struct connection *connection, const struct websocket_end *end, struct error *err)
{
    if (end->code == 0)
        *err = end->error;
    else if (connection->said.kind != ERROR_NONE)
        *err = connection->said;
    else if (end->code != 1000)
        error_set(err, ERROR_NODE_UNREACHABLE, "the connection was ended: %s",
                  end->reason[0] ? end->reason : "it broke");
    return err->kind != ERROR_NONE;
}

static void on_closed(struct connection *connection, const struct websocket_end *end)
{
    struct tunnels *tunnels = connection->tunnels;
    const struct linger at_once = {.l_onoff = 1};
    struct error err = {0};
    if (ended_badly(connection, end, &err)) {
        if (is_of_token(err.kind) && strcmp(connection->jti, tunnels->wanted.keeping->grant->jti) == 0)
            grant_keeper_refused(tunnels->keeper);
        note(tunnels, connection->port, err.message);
        if (err.kind == ERROR_GONE && tunnels->failure.kind == ERROR_NONE)
            tunnels->failure = err;
        (void)setsockopt(connection->local, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); /* as it broke there */
    }
    connection_free(connection);
}

/* The grant was refreshed meanwhile: the connection goes on with its token. */
static void renew_token(struct connection *connection)
{
    const struct grant *grant = connection->tunnels->wanted.keeping->grant;
    if (!connection->is_open || strcmp(connection->jti, grant->jti) == 0)
        return;
    char *frame = memory_printf("{\"type\":\"auth\",\"token\":\"%s\"}", grant->token);
    websocket_send(connection->socket, true, frame, strlen(frame));
    sodium_memzero(frame, strlen(frame));
    free(frame);
    (void)snprintf(connection->jti, sizeof connection->jti, "%s", grant->jti);
}

/* True: come again without waiting. The connection may be gone after it. */
static bool follow(struct connection *connection)
{
    struct websocket_end end;
    bool more = websocket_turn(connection->socket);
    enum websocket_state state = websocket_state(connection->socket, &end);
    connection->is_open = state == WEBSOCKET_OPEN;
    if (state == WEBSOCKET_CLOSED && connection->out_at < connection->out.length && !connection->is_broken) {
        write_local(connection); /* what came before the end */
        return false;
    }
    if (state == WEBSOCKET_CLOSED) {
        on_closed(connection, &end);
        return true;
    }
    write_local(connection);
    read_local(connection);
    renew_token(connection);
    if (!connection->is_broken)
        return more;
    connection_free(connection);
    return true;
}

/* ---- the loop ---- */

/* True: the keeper has got somewhere. */
static bool take_results(struct tunnels *tunnels)
{
    int left;
    bool kept = false;
    for (CURLMsg *message; (message = curl_multi_info_read(tunnels->multi, &left)) != NULL;) {
        CURL *done = message->easy_handle;
        CURLcode code = message->data.result;
        bool is_socket = false;
        for (struct connection *each = tunnels->connections; each && !is_socket; each = each->next)
            is_socket = websocket_done(each->socket, done, code);
        if (message->msg != CURLMSG_DONE || is_socket)
            continue;
        curl_multi_remove_handle(tunnels->multi, done);
        kept = grant_keeper_done(tunnels->keeper, done, code) || kept;
    }
    return kept;
}

/* The keeper has no token any more, and will have none. */
static bool check_token(struct tunnels *tunnels)
{
    struct error err = {0};
    bool has_ended = clock_wall_ms() > tunnels->wanted.keeping->grant->expires_ms;
    if (grant_keeper_state(tunnels->keeper, &err) == GRANT_KEEPER_FAILED && (has_ended || is_of_token(err.kind)) &&
        tunnels->failure.kind == ERROR_NONE) {
        tunnels->failure = err;
        error_prefix(&tunnels->failure, "the token ended and there is no other");
    }
    return tunnels->failure.kind == ERROR_NONE;
}

static unsigned collect(const struct tunnels *tunnels, struct curl_waitfd *waits)
{
    unsigned count = 0;
    for (size_t i = 0; i < tunnels->port_count && tunnels->connection_count < TUNNELS_CONNECTIONS_MAX; i++)
        waits[count++] = (struct curl_waitfd){.fd = tunnels->ports[i].listener, .events = CURL_WAIT_POLLIN};
    for (const struct connection *each = tunnels->connections; each; each = each->next) {
        bool writes = each->out_at < each->out.length, reads = may_read(each);
        if (writes || reads)
            waits[count++] = (struct curl_waitfd){
                .fd = each->local,
                .events = (short)((writes ? CURL_WAIT_POLLOUT : 0) | (reads ? CURL_WAIT_POLLIN : 0))};
        if (websocket_wait(each->socket, &waits[count]))
            count++;
    }
    return count;
}

static void accept_all(struct tunnels *tunnels)
{
    for (size_t i = 0; i < tunnels->port_count && tunnels->connection_count < TUNNELS_CONNECTIONS_MAX; i++)
        accept_one(tunnels, &tunnels->ports[i]);
}

bool tunnels_turn(struct tunnels *tunnels, struct error *err)
{
    int running;
    bool more = false;
    unsigned wait_ms = grant_keeper_turn(tunnels->keeper, tunnels->multi);
    accept_all(tunnels);
    curl_multi_perform(tunnels->multi, &running);
    more = take_results(tunnels);
    for (struct connection *each = tunnels->connections, *next; each; each = next) {
        next = each->next;
        more = follow(each) || more;
    }
    if (!check_token(tunnels)) {
        *err = tunnels->failure;
        return false;
    }
    AUTO_FREE struct curl_waitfd *waits =
        memory_array(tunnels->port_count + 2 * tunnels->connection_count + 1, sizeof *waits);
    unsigned count = collect(tunnels, waits);
    wait_ms = wait_ms < TURN_MAX_MS ? wait_ms : TURN_MAX_MS;
    curl_multi_poll(tunnels->multi, waits, count, more ? 0 : (int)wait_ms, NULL);
    return true;
}
