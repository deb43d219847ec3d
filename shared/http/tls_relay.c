/* tls_relay.c - bytes both ways between a client's TLS and the connection behind it. Each end's silence, slowness and
 * end is the other's, so that whatever looks at a connection's socket (poured bodies, files, tunnels, who left) need
 * not know of TLS. */
#include "shared/http/tls_relay.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/http/tls_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum {
    PIECE_BYTES = 16384, /* a record's */
    TURN_PIECES = 16,
    PAIR_BYTES = 128 * 1024,   /* that may wait between relay and connection, each way */
    UNSENT_BYTES = 128 * 1024, /* that may wait in the kernel for the client */
    EMPTY_RECORDS_MAX = 256    /* one after the other that bring nothing: new keys, refused renegotiations */
};

static const uint64_t LINGER_NS = 2 * UINT64_C(1000000000);

/* One way. What was read and not yet taken is held, and nothing more is read meanwhile. */
struct flow {
    char *held;
    size_t held_at, held_size;
    bool is_over; /* its source has ended */
    bool is_told; /* ... and the other end knows */
};

struct http_tls_relay {
    struct http_worker *worker;
    struct http_connection *connection; /* NULL: it has left, or was never there: dialled */
    bool is_dialled;                    /* we are the client */
    bool has_left;                      /* whoever is inside */
    h2o_linklist_t orphans;             /* linked when it has; or with the others that were dialled */
    SSL *ssl;
    struct loop_watch *outside, *inside; /* NULL: closed */
    struct flow in, out;                 /* to the connection; to the client */
    bool is_shaken;                      /* the handshake is over */
    bool wants_write;                    /* TLS does, to go on with whatever it was at */
    bool is_broken;
    unsigned empty_records;   /* since something came */
    struct loop_timer *timer; /* runs once the connection has left, and for a turn that was cut short */
    uint64_t moved_ns;        /* boot time of the last byte out */
};

static void pump(struct http_tls_relay *relay);

/* ---- its end ---- */

static void close_both(struct http_tls_relay *relay)
{
    loop_watch_free(TAKE(relay->outside));
    loop_watch_free(TAKE(relay->inside));
    loop_timer_cancel(TAKE(relay->timer));
}

static void drop(struct http_tls_relay *relay)
{
    struct http_worker *worker = relay->worker;
    close_both(relay);
    h2o_linklist_unlink(&relay->orphans);
    worker->orphan_count -= relay->is_dialled ? 0 : 1;
    SSL_free(relay->ssl);
    free(relay->in.held);
    free(relay->out.held);
    free(relay);
    if (worker->is_stopping)
        http_worker_settle_soon(worker);
}

/* Nothing more goes either way. While there is a connection, it hears of it by its socket. */
static void end(struct http_tls_relay *relay)
{
    if (relay->has_left || relay->is_dialled)
        drop(relay);
    else
        close_both(relay);
}

/* What the kernel holds is neither sent nor read. */
static void cut_off(struct http_tls_relay *relay)
{
    static const struct sockaddr NOBODY = {.sa_family = AF_UNSPEC};
    if (relay->outside != NULL)
        (void)connect(loop_watch_fd(relay->outside), &NOBODY, sizeof NOBODY);
}

static void reset(struct http_tls_relay *relay)
{
    cut_off(relay);
    end(relay);
}

bool http_tls_relay_drop_oldest(struct http_worker *worker)
{
    if (h2o_linklist_is_empty(&worker->orphans))
        return false;
    reset(HTTP_OWNER(struct http_tls_relay, orphans, worker->orphans.next));
    return true;
}

static void on_timer(void *cookie)
{
    struct http_tls_relay *relay = cookie;
    relay->timer = NULL;
    pump(relay);
}

static void look_again(struct http_tls_relay *relay, uint64_t at_ns)
{
    if (relay->timer == NULL)
        relay->timer = loop_timer_start(relay->worker->loop, at_ns, on_timer, relay);
}

void http_tls_relay_left(struct http_tls_relay *relay)
{
    relay->connection = NULL;
    relay->has_left = true;
    relay->moved_ns = clock_boot_ns();
    h2o_linklist_insert(&relay->worker->orphans, &relay->orphans);
    relay->worker->orphan_count++;
    if (relay->outside == NULL)
        drop(relay);
    else if (relay->is_broken)
        reset(relay);
    else
        look_again(relay, relay->moved_ns);
}

void http_tls_relay_break(struct http_tls_relay *relay)
{
    relay->is_broken = true;
}

/* OpenSSL goes on within one call for as long as records come that bring nothing, which whoever sends them fast enough
 * can make for ever: the loop would serve nobody else. It tells of each one here. */
static void on_record(int is_written, int version UNUSED, int type, const void *header UNUSED, size_t size UNUSED,
                      SSL *ssl UNUSED, void *cookie)
{
    struct http_tls_relay *relay = cookie;
    if (is_written == 0 && type == SSL3_RT_HEADER && ++relay->empty_records == EMPTY_RECORDS_MAX)
        cut_off(relay);
}

static void count_records(struct http_tls_relay *relay)
{
    SSL_set_msg_callback(relay->ssl, on_record);
    SSL_set_msg_callback_arg(relay->ssl, relay);
}

/* ---- one way ---- */

enum moved { MOVED, WAITS, BROKEN };

static void hold(struct flow *flow, const char *data, size_t size)
{
    char *rest = memory_copy(data, size);
    free(flow->held);
    flow->held = rest;
    flow->held_at = 0;
    flow->held_size = size;
}

/* What OpenSSL says of a call that gave nothing. */
static enum moved judge(struct http_tls_relay *relay, int result)
{
    int why = SSL_get_error(relay->ssl, result);
    relay->wants_write = relay->wants_write || why == SSL_ERROR_WANT_WRITE;
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? WAITS : BROKEN;
}

static enum moved to_client(struct http_tls_relay *relay, const char *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        size_t sent = 0;
        ERR_clear_error();
        int result = SSL_write_ex(relay->ssl, data + at, size - at, &sent);
        if (result != 1) {
            enum moved moved = judge(relay, result);
            if (moved == WAITS)
                hold(&relay->out, data + at, size - at);
            return moved;
        }
        at += sent;
        relay->moved_ns = clock_boot_ns();
    }
    return MOVED;
}

/* And not only for writing. */
static bool is_closed(int inside)
{
    struct pollfd end = {.fd = inside};
    return poll(&end, 1, 0) == 1 && (end.revents & (POLLHUP | POLLERR)) != 0;
}

static enum moved piece_out(struct http_tls_relay *relay)
{
    struct flow *flow = &relay->out;
    if (flow->held != NULL) {
        AUTO_FREE char *held = TAKE(flow->held);
        return to_client(relay, held + flow->held_at, flow->held_size - flow->held_at);
    }
    if (flow->is_over || relay->inside == NULL)
        return WAITS;
    char piece[PIECE_BYTES];
    ssize_t got = recv(loop_watch_fd(relay->inside), piece, sizeof piece, MSG_DONTWAIT);
    if (got > 0)
        return to_client(relay, piece, (size_t)got);
    /* A reset: the connection closed its end and left bytes unread. What it sent came before. */
    flow->is_over = got == 0 || (errno != EAGAIN && errno != EINTR);
    if (flow->is_over && relay->is_dialled)
        relay->has_left = is_closed(loop_watch_fd(relay->inside));
    return WAITS;
}

/* False: nobody takes anything there any more. */
static bool to_connection(struct http_tls_relay *relay, const char *data, size_t size)
{
    struct flow *flow = &relay->in;
    ssize_t sent = send(loop_watch_fd(relay->inside), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return false;
    size_t taken = sent > 0 ? (size_t)sent : 0;
    if (taken < size)
        hold(flow, data + taken, size - taken);
    return true;
}

static enum moved piece_in(struct http_tls_relay *relay)
{
    struct flow *flow = &relay->in;
    if (flow->held != NULL && !relay->has_left) {
        AUTO_FREE char *held = TAKE(flow->held);
        bool is_taken = to_connection(relay, held + flow->held_at, flow->held_size - flow->held_at);
        return is_taken && flow->held != NULL ? WAITS : MOVED;
    }
    if (flow->is_over)
        return WAITS;
    char piece[PIECE_BYTES];
    size_t got = 0;
    ERR_clear_error();
    int result = SSL_read_ex(relay->ssl, piece, sizeof piece, &got);
    if (result == 1) {
        relay->empty_records = 0;
        if (!relay->has_left) /* else it is thrown away, as a connection that lingers does */
            (void)to_connection(relay, piece, got);
        return flow->held != NULL ? WAITS : MOVED;
    }
    flow->is_over = SSL_get_error(relay->ssl, result) == SSL_ERROR_ZERO_RETURN;
    return flow->is_over ? WAITS : judge(relay, result);
}

/* ---- the handshake ---- */

/* To somebody who speaks HTTP where TLS is spoken; he would see a closed connection else. */
static void say_in_clear(const struct http_tls_relay *relay)
{
    static const char REPLY[] =
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 109\r\n\r\n"
        "{\"error\":{\"code\":\"INVALID_REQUEST\",\"message\":\"this port speaks TLS: use an https:// URL\","
        "\"retryable\":false}}\n";
    if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST)
        (void)send(loop_watch_fd(relay->outside), REPLY, sizeof REPLY - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Without tickets nothing of ours follows the client's last word of a handshake. One that does not set TCP_NODELAY
 * keeps its request back until that is acknowledged, which would be 40 ms. */
static void acknowledge_now(const struct http_tls_relay *relay)
{
    const int on = 1;
    (void)setsockopt(loop_watch_fd(relay->outside), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

static bool shake(struct http_tls_relay *relay)
{
    ERR_clear_error();
    int result = SSL_do_handshake(relay->ssl);
    relay->is_shaken = result == 1;
    if (relay->is_shaken)
        acknowledge_now(relay);
    if (relay->is_shaken || judge(relay, result) == WAITS)
        return true;
    if (relay->is_dialled)
        log_warn("tls", "what is called by https does not prove who it is: %s",
                 X509_verify_cert_error_string(SSL_get_verify_result(relay->ssl)));
    else
        say_in_clear(relay);
    return false;
}

/* ---- both ---- */

static void on_ready(void *cookie)
{
    pump(cookie);
}

/* A FIN of either side is passed on once all that came before it was. */
static void tell_ends(struct http_tls_relay *relay)
{
    if (relay->in.is_over && relay->in.held == NULL && !relay->in.is_told && relay->inside != NULL) {
        shutdown(loop_watch_fd(relay->inside), SHUT_WR);
        relay->in.is_told = true;
    }
    if (!relay->out.is_over || relay->out.held != NULL || relay->out.is_told)
        return;
    ERR_clear_error();
    int result = SSL_shutdown(relay->ssl);
    if (result < 0 && judge(relay, result) == WAITS && relay->wants_write)
        return;
    shutdown(loop_watch_fd(relay->outside), SHUT_WR);
    relay->out.is_told = true;
    relay->moved_ns = clock_boot_ns();
}

static void wait(struct http_tls_relay *relay)
{
    bool is_blocked = relay->in.held != NULL && !relay->has_left;
    bool hears_client = !relay->is_shaken || (!relay->in.is_over && !is_blocked);
    bool hears_connection = relay->is_shaken && !relay->out.is_over && relay->out.held == NULL;
    loop_watch_readable(relay->outside, hears_client ? on_ready : NULL, relay);
    loop_watch_readable(relay->inside, hears_connection ? on_ready : NULL, relay);
    if (relay->wants_write)
        loop_watch_writable(relay->outside, on_ready, relay);
    if (is_blocked)
        loop_watch_writable(relay->inside, on_ready, relay);
}

/* What is left once the connection is gone: true when that is nothing, or nobody wants it. */
static bool is_through(struct http_tls_relay *relay)
{
    if (relay->is_dialled)
        return relay->has_left ? relay->out.held == NULL : relay->in.is_told && relay->out.is_told;
    if (!relay->has_left)
        return false;
    if (!relay->is_shaken || (relay->out.is_told && relay->in.is_over))
        return true;
    uint64_t stall_ns = (uint64_t)relay->worker->server->options.stall_ms * 1000000;
    uint64_t due_ns = relay->moved_ns + (relay->out.is_told ? LINGER_NS : stall_ns);
    look_again(relay, due_ns);
    return clock_boot_ns() >= due_ns;
}

/* The last thing its caller does. */
static void pump(struct http_tls_relay *relay)
{
    enum moved in = MOVED, out = MOVED;
    relay->wants_write = false;
    if (!relay->is_shaken && !shake(relay)) {
        end(relay);
        return;
    }
    for (int i = 0; i < TURN_PIECES && relay->is_shaken && (in == MOVED || out == MOVED); i++) {
        in = in == MOVED ? piece_in(relay) : in;
        out = out == MOVED ? piece_out(relay) : out;
    }
    if (in == BROKEN || out == BROKEN) {
        end(relay);
        return;
    }
    if (relay->is_shaken)
        tell_ends(relay);
    if (is_through(relay)) {
        end(relay);
        return;
    }
    wait(relay);
    if (relay->is_shaken && in == MOVED) /* decrypted bytes may wait, and no readiness tells of them */
        look_again(relay, clock_boot_ns());
}

/* ---- its beginning ---- */

static void set_options(int client, const int pair[2])
{
    const int on = 1, unsent = UNSENT_BYTES, room = PAIR_BYTES;
    (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* whole records are written */
    (void)setsockopt(client, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    for (int i = 0; i < 2; i++)
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
}

void http_tls_relay_start(struct http_worker *worker, int fd)
{
    AUTO_FD int client = fd;
    int pair[2];
    SSL *ssl = http_tls_connection(worker->server->options.tls);
    if (ssl == NULL || SSL_set_fd(ssl, client) != 1 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        SSL_free(ssl);
        return;
    }
    set_options(client, pair);
    struct http_tls_relay *relay = memory_new(sizeof *relay);
    *relay = (struct http_tls_relay){.worker = worker, .ssl = ssl};
    relay->outside = loop_watch_new(worker->loop, TAKE_FD(client));
    relay->inside = loop_watch_new(worker->loop, pair[1]);
    count_records(relay);
    SSL_set_accept_state(ssl);
    h2o_socket_t *socket =
        h2o_evloop_socket_create(worker->loop->evloop, pair[0], H2O_SOCKET_FLAG_IS_ACCEPTED_CONNECTION);
    relay->connection = http_connection_accept(worker, socket, relay);
    if (relay->connection == NULL) {
        http_tls_relay_break(relay);
        http_tls_relay_left(relay);
    } else {
        pump(relay);
    }
}

static bool expect(SSL *ssl, const char *name)
{
    SSL_set_connect_state(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1)
        return true;
    ERR_clear_error();
    /* What SSL_set_tlsext_host_name does, without its cast of a const; OpenSSL copies the name. */
    AUTO_FREE char *copy = memory_string(name);
    return SSL_set1_host(ssl, name) == 1 &&
           SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, copy) == 1;
}

int http_tls_relay_dial(struct http_worker *worker, int fd, const char *name)
{
    AUTO_FD int server = fd;
    int pair[2];
    SSL *ssl = worker->server->options.upstream_tls != NULL ? SSL_new(worker->server->options.upstream_tls) : NULL;
    if (ssl == NULL || SSL_set_fd(ssl, server) != 1 || !expect(ssl, name) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        SSL_free(ssl);
        return -1;
    }
    set_options(server, pair);
    struct http_tls_relay *relay = memory_new(sizeof *relay);
    *relay = (struct http_tls_relay){.worker = worker, .ssl = ssl, .is_dialled = true};
    relay->outside = loop_watch_new(worker->loop, TAKE_FD(server));
    relay->inside = loop_watch_new(worker->loop, pair[1]);
    count_records(relay);
    h2o_linklist_insert(&worker->dialled, &relay->orphans);
    look_again(relay, clock_boot_ns()); /* not now: failing would free what the caller builds on */
    return pair[0];
}

void http_tls_relay_drop_dialled(struct http_worker *worker)
{
    while (!h2o_linklist_is_empty(&worker->dialled))
        drop(HTTP_OWNER(struct http_tls_relay, orphans, worker->dialled.next));
}

int http_tls_relay_fd(const struct http_tls_relay *relay)
{
    return relay->outside != NULL ? loop_watch_fd(relay->outside) : -1;
}

bool http_tls_relay_holds(const struct http_tls_relay *relay)
{
    return relay->out.held != NULL;
}
