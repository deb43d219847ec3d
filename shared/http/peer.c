/* peer.c - notices a client that leaves while its request runs and nothing is read from its connection.
 *
 * close(2) and shutdown(SHUT_WR) look the same from here: a FIN. So a client that sent one is asked, with bytes that
 * mean nothing: an interim "100 Continue" before the reply, a leading zero of the next chunk's size in a stream. One
 * that has closed answers with a reset; one that still reads gets its reply. HTTP/1.0 has no such bytes: there a FIN
 * counts as gone after GRACE_NS. */
#include "shared/base/clock.h"
#include "shared/http/http_internal.h"
#include "shared/http/tls_relay.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { EVENTS_MAX = 64 };

static const uint64_t FIRST_PROBE_NS = 200 * (uint64_t)1000000; /* most replies are there before */
static const uint64_t GRACE_NS = 5 * (uint64_t)1000000000;

bool http_peers_open(struct http_worker *worker, struct error *err)
{
    worker->peer_epoll = epoll_create1(EPOLL_CLOEXEC);
    return worker->peer_epoll >= 0 || error_set_errno(err, ERROR_INTERNAL, "epoll for clients that leave");
}

static void control(const struct http_connection *connection, int operation, uint32_t events, uint64_t number)
{
    struct epoll_event event = {.events = events, .data.u64 = number};
    (void)epoll_ctl(connection->worker->peer_epoll, operation, h2o_socket_get_fd(connection->socket), &event);
    if (connection->tls == NULL || http_tls_relay_fd(connection->tls) < 0)
        return;
    /* A FIN is passed on behind what came before it; a reset is told at once, also while nothing is read there. */
    event.events &= ~(uint32_t)EPOLLRDHUP;
    (void)epoll_ctl(connection->worker->peer_epoll, operation, http_tls_relay_fd(connection->tls), &event);
}

/* The client's own socket. */
static int client_fd(const struct http_connection *connection)
{
    return connection->tls != NULL ? http_tls_relay_fd(connection->tls) : h2o_socket_get_fd(connection->socket);
}

void http_peer_watch(struct http_request *request)
{
    request->connection->is_peer_watched = true;
    control(request->connection, EPOLL_CTL_ADD, EPOLLRDHUP | EPOLLONESHOT, request->number);
}

void http_peer_forget(struct http_connection *connection)
{
    if (!connection->is_peer_watched)
        return;
    connection->is_peer_watched = false;
    control(connection, EPOLL_CTL_DEL, 0, 0);
}

uint64_t http_peer_acked(const struct http_connection *connection)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(client_fd(connection), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return 0;
    return info.tcpi_bytes_acked;
}

bool http_peer_has_to_take(const struct http_connection *connection)
{
    int unacked = 0, unread = 0;
    if (connection->tls != NULL &&
        (http_tls_relay_holds(connection->tls) ||
         (ioctl(h2o_socket_get_fd(connection->socket), SIOCOUTQ, &unread) == 0 && unread > 0)))
        return true;
    return ioctl(client_fd(connection), SIOCOUTQ, &unacked) == 0 && unacked > 0;
}

/* A WebSocket's peer that sent a FIN is through, as soon as what it sent before was read: reading tells. Only one that
 * is not read from, because its owner pauses, is waited for, and not for ever. */
static bool can_probe(const struct http_request *request)
{
    bool is_mute = request->stream.is_muted || (request->stream.is_sized && !request->stream.is_flying);
    return request->phase != HTTP_SOCKET && request->head.is_1_1 && !is_mute;
}

static bool probe(struct http_request *request)
{
    static const char CONTINUE[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (request->phase == HTTP_STREAMING)
        return http_stream_probe(request);
    ssize_t sent = send(h2o_socket_get_fd(request->connection->socket), CONTINUE, sizeof CONTINUE - 1,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == (ssize_t)sizeof CONTINUE - 1;
}

static void on_probe(void *cookie)
{
    struct http_request *request = cookie;
    request->probe = NULL;
    if (request->phase != HTTP_OPEN && request->phase != HTTP_STREAMING && request->phase != HTTP_SOCKET)
        return;
    bool is_there = can_probe(request) && probe(request);
    if (is_there)
        request->probe = loop_timer_start(request->worker->loop, clock_boot_ns() + GRACE_NS, on_probe, request);
    else
        http_request_cut(request);
}

static void on_event(struct http_worker *worker, const struct epoll_event *event)
{
    struct http_request *request = http_request_find(worker->loop, event->data.u64);
    if (request == NULL)
        return;
    if ((event->events & (EPOLLHUP | EPOLLERR)) != 0) {
        http_request_cut(request);
        return;
    }
    if (request->probe != NULL)
        return;
    /* Errors are still told, also with an empty set. */
    control(request->connection, EPOLL_CTL_MOD, EPOLLONESHOT, request->number);
    if (request->tunnel != NULL)
        return; /* its end is passed on when it is read, and what comes back is its own */
    uint64_t at_ns = clock_boot_ns() + (can_probe(request) ? FIRST_PROBE_NS : GRACE_NS);
    request->probe = loop_timer_start(worker->loop, at_ns, on_probe, request);
}

void http_peers_on_ready(h2o_socket_t *socket, const char *broken UNUSED)
{
    struct http_worker *worker = socket->data;
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(worker->peer_epoll, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++)
        on_event(worker, &events[i]);
}
