#include "sandboxd/egress/dns_server.h"

#include "sandboxd/egress/acceptor.h"
#include "sandboxd/egress/lookup.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/node_protocol/egress_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static const uint64_t SECOND = 1000000000;

enum {
    QUERIES_A_SECOND = 200,
    QUERIES_AT_ONCE = 400,
    DATAGRAMS_A_TURN = 32,
    STREAMS_MAX = 16, /* TCP connections at once */
    STREAMS_A_SECOND = 50,
    STREAM_IDLE_S = 10,
    LENGTH_BYTES = 2 /* before a message over TCP (RFC 1035, 4.2.2) */
};

/* A query under way. */
struct request {
    struct request *next;
    struct dns_server *server;
    struct stream *stream; /* NULL: came by UDP from `from` */
    struct sockaddr_storage from;
    socklen_t from_bytes;
    struct dns_query query;
    struct lookup *lookup;
};

/* A TCP connection: one query at a time. */
struct stream {
    struct stream *next;
    struct dns_server *server;
    struct loop_watch *watch;
    struct loop_timer *timer;
    struct request *request; /* its query under way; in the server's list too */
    uint8_t in[LENGTH_BYTES + DNS_QUERY_BYTES];
    size_t in_bytes;
    uint8_t *out; /* what the socket did not take yet */
    size_t out_bytes, out_sent;
};

struct dns_server {
    struct sandbox *sandbox;
    struct loop_watch *udp;
    struct acceptor *tcp;
    struct request *requests;
    struct stream *streams;
    unsigned stream_count;
    struct rate rate;         /* of queries */
    struct loop_timer *timer; /* until datagrams are read again */
};

/* ---- replies ---- */

static bool is_reachable(uint32_t address)
{
    return !egress_is_blocked(ntohl(address));
}

static size_t write_reply(uint8_t *to, size_t room, const struct dns_query *query, const struct lookup_result *result)
{
    if (result->answer == NULL)
        return dns_reply_write(to, room, query, result->addresses.rcode, &result->addresses);
    size_t size = dns_reply_pass(to, room, query, result->answer, result->answer_size, is_reachable);
    return size > 0 ? size : dns_reply_write(to, room, query, DNS_SERVFAIL, NULL);
}

static void request_free(struct request *request)
{
    struct request **at = &request->server->requests;
    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    lookup_cancel(request->lookup);
    dns_query_done(&request->query);
    free(request);
}

static void stream_reply(struct stream *stream, const struct dns_query *query, const struct lookup_result *result);

static void reply(struct request *request, const struct lookup_result *result)
{
    if (request->stream != NULL) {
        request->stream->request = NULL;
        stream_reply(request->stream, &request->query, result);
        return;
    }
    uint8_t out[DNS_UDP_BYTES_MOST];
    size_t size = write_reply(out, request->query.udp_bytes, &request->query, result);
    /* A full socket loses a datagram, as the network does. */
    if (size > 0)
        (void)sendto(loop_watch_fd(request->server->udp), out, size, MSG_DONTWAIT | MSG_NOSIGNAL,
                     (const struct sockaddr *)&request->from, request->from_bytes);
}

static void on_looked_up(void *cookie, const struct lookup_result *result)
{
    struct request *request = cookie;
    request->lookup = NULL;
    reply(request, result);
    request_free(request);
}

/* Begins with the query in `data`; false when it may not even be replied to. */
static bool begin(struct request *request, const void *data, size_t size)
{
    struct dns_server *server = request->server;
    request->next = server->requests;
    server->requests = request;
    int rcode = dns_query_read(&request->query, data, size);
    if (rcode < 0) {
        request_free(request);
        return false;
    }
    if (rcode != DNS_OK) {
        const struct lookup_result result = {.addresses.rcode = (enum dns_rcode)rcode};
        on_looked_up(request, &result);
        return true;
    }
    const struct dns_query *query = &request->query;
    struct lookup *lookup = lookup_start(server->sandbox, query->name, query->type, on_looked_up, request);
    if (lookup != NULL) /* else the request is over and gone */
        request->lookup = lookup;
    return true;
}

/* ---- UDP ---- */

static void on_datagram(void *cookie);

static void on_waited(void *cookie)
{
    struct dns_server *server = cookie;
    server->timer = NULL;
    loop_watch_readable(server->udp, on_datagram, server);
}

/* Beyond its rate a sandbox's datagrams wait in its socket, and are lost there. */
static void wait_a_while(struct dns_server *server)
{
    loop_watch_readable(server->udp, NULL, NULL);
    server->timer = loop_timer_start(server->sandbox->house->loop, clock_boot_ns() + RATE_WAIT_NS, on_waited, server);
}

static void on_datagram(void *cookie)
{
    struct dns_server *server = cookie;
    for (int i = 0; i < DATAGRAMS_A_TURN; i++) {
        if (!rate_take(&server->rate, clock_boot_ns())) {
            wait_a_while(server);
            return;
        }
        uint8_t data[DNS_QUERY_BYTES + 1];
        struct request *request = memory_new(sizeof *request);
        request->server = server;
        request->from_bytes = sizeof request->from;
        ssize_t size = recvfrom(loop_watch_fd(server->udp), data, sizeof data, MSG_DONTWAIT,
                                (struct sockaddr *)&request->from, &request->from_bytes);
        if (size < 0) {
            free(request);
            return;
        }
        (void)begin(request, data, (size_t)size);
    }
}

/* ---- TCP ---- */

static void stream_free(struct stream *stream)
{
    struct dns_server *server = stream->server;
    struct stream **at = &server->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    server->stream_count--;
    if (stream->request != NULL)
        request_free(stream->request);
    loop_timer_cancel(stream->timer);
    loop_watch_free(stream->watch);
    free(stream->out);
    free(stream);
}

static void on_stream_idle(void *cookie)
{
    struct stream *stream = cookie;
    stream->timer = NULL;
    stream_free(stream);
}

static void rearm(struct stream *stream)
{
    loop_timer_cancel(stream->timer);
    stream->timer = loop_timer_start(stream->server->sandbox->house->loop, clock_boot_ns() + STREAM_IDLE_S * SECOND,
                                     on_stream_idle, stream);
}

static void on_stream_readable(void *cookie);

static void on_stream_writable(void *cookie)
{
    struct stream *stream = cookie;
    ssize_t sent = send(loop_watch_fd(stream->watch), stream->out + stream->out_sent,
                        stream->out_bytes - stream->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        stream_free(stream);
        return;
    }
    stream->out_sent += sent > 0 ? (size_t)sent : 0;
    if (stream->out_sent < stream->out_bytes) {
        loop_watch_writable(stream->watch, on_stream_writable, stream);
        return;
    }
    free(TAKE(stream->out));
    rearm(stream);
    loop_watch_readable(stream->watch, on_stream_readable, stream);
}

static void stream_reply(struct stream *stream, const struct dns_query *query, const struct lookup_result *result)
{
    stream->out = memory_new(LENGTH_BYTES + DNS_MESSAGE_BYTES);
    size_t size = write_reply(stream->out + LENGTH_BYTES, DNS_MESSAGE_BYTES, query, result);
    stream->out[0] = (uint8_t)(size >> 8);
    stream->out[1] = (uint8_t)(size & 255);
    stream->out_bytes = LENGTH_BYTES + size;
    stream->out_sent = 0;
    /* By the loop, not from here: the connection may end by it. */
    loop_watch_writable(stream->watch, on_stream_writable, stream);
}

static void take_query(struct stream *stream)
{
    struct request *request = memory_new(sizeof *request);
    request->server = stream->server;
    request->stream = stream;
    stream->request = request;
    stream->in_bytes = 0;
    loop_watch_readable(stream->watch, NULL, NULL);
    if (!begin(request, stream->in + LENGTH_BYTES, (size_t)(stream->in[0] << 8 | stream->in[1]))) {
        stream->request = NULL;
        stream_free(stream);
    }
}

static void take_query_in_time(struct stream *stream);

static void on_stream_waited(void *cookie)
{
    struct stream *stream = cookie;
    stream->timer = NULL;
    rearm(stream);
    take_query_in_time(stream);
}

/* Beyond the sandbox's rate it waits for its turn. */
static void take_query_in_time(struct stream *stream)
{
    struct dns_server *server = stream->server;
    uint64_t now_ns = clock_boot_ns();
    if (rate_take(&server->rate, now_ns)) {
        take_query(stream);
        return;
    }
    loop_watch_readable(stream->watch, NULL, NULL);
    loop_timer_cancel(stream->timer);
    stream->timer = loop_timer_start(server->sandbox->house->loop, now_ns + RATE_WAIT_NS, on_stream_waited, stream);
}

/* How long the query is, with its length; 0 while that is not known. */
static size_t query_bytes(const struct stream *stream)
{
    return stream->in_bytes < LENGTH_BYTES ? 0 : LENGTH_BYTES + (size_t)(stream->in[0] << 8 | stream->in[1]);
}

/* Reads no further than one query, so that a next one waits in the socket. */
static void on_stream_readable(void *cookie)
{
    struct stream *stream = cookie;
    size_t wanted = query_bytes(stream);
    wanted = wanted > 0 ? wanted : LENGTH_BYTES;
    ssize_t got =
        recv(loop_watch_fd(stream->watch), stream->in + stream->in_bytes, wanted - stream->in_bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    stream->in_bytes += got > 0 ? (size_t)got : 0;
    wanted = query_bytes(stream);
    if (got <= 0 || wanted == LENGTH_BYTES || wanted > sizeof stream->in)
        stream_free(stream);
    else if (wanted > 0 && stream->in_bytes == wanted)
        take_query_in_time(stream);
}

static void on_connection(void *cookie, int fd)
{
    struct dns_server *server = cookie;
    if (server->stream_count == STREAMS_MAX) {
        close(fd);
        return;
    }
    struct stream *stream = memory_new(sizeof *stream);
    stream->server = server;
    stream->next = server->streams;
    server->streams = stream;
    server->stream_count++;
    stream->watch = loop_watch_new(server->sandbox->house->loop, fd);
    rearm(stream);
    loop_watch_readable(stream->watch, on_stream_readable, stream);
}

/* ---- both ---- */

struct dns_server *dns_server_new(struct sandbox *sandbox, int udp, int tcp)
{
    struct dns_server *server = memory_new(sizeof *server);
    *server = (struct dns_server){
        .sandbox = sandbox,
        .udp = loop_watch_new(sandbox->house->loop, udp),
        .tcp = acceptor_new(sandbox->house->loop, tcp, RATE_OF(STREAMS_A_SECOND, STREAMS_MAX), on_connection, server),
        .rate = RATE_OF(QUERIES_A_SECOND, QUERIES_AT_ONCE)};
    loop_watch_readable(server->udp, on_datagram, server);
    return server;
}

void dns_server_free(struct dns_server *server)
{
    if (server == NULL)
        return;
    while (server->streams != NULL)
        stream_free(server->streams);
    while (server->requests != NULL)
        request_free(server->requests);
    loop_timer_cancel(server->timer);
    loop_watch_free(server->udp);
    acceptor_free(server->tcp);
    free(server);
}
