/* proxy.c - a request that is passed on: from its order to the end of its answer. */
#include "shared/http/proxy.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/http/proxy_internal.h"
#include "shared/http/tls_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { READ_BYTES = 65536 };

/* ---- its order ---- */

void http_proxy_order_copy(struct http_proxy_order *to, const struct http_proxy_order *from)
{
    *to = *from;
    to->target = memory_string(from->target);
    to->host = memory_string(from->host);
    to->upstream_tls = memory_string(from->upstream_tls);
    to->secret = memory_string(from->secret);
    to->body = from->body_replaced ? memory_copy(from->body != NULL ? from->body : "", from->body_size) : NULL;
    struct http_pair *headers = memory_array(from->header_count + 1, sizeof *headers);
    for (size_t i = 0; i < from->header_count; i++)
        headers[i] = (struct http_pair){memory_string(from->headers[i].name), memory_string(from->headers[i].value)};
    to->headers = headers;
}

void http_proxy_order_done(struct http_proxy_order *order)
{
    for (size_t i = 0; i < order->header_count; i++) {
        free((char *)(uintptr_t)order->headers[i].name);
        free((char *)(uintptr_t)order->headers[i].value);
    }
    free((void *)(uintptr_t)order->headers);
    free((char *)(uintptr_t)order->target);
    free((char *)(uintptr_t)order->host);
    free((char *)(uintptr_t)order->upstream_tls);
    free((char *)(uintptr_t)order->secret);
    free((void *)(uintptr_t)order->body);
}

/* ---- its end ---- */

static void free_relay(struct http_relay *relay)
{
    loop_watch_free(relay->pipe);
    if (relay->upstream != NULL)
        fd_hang_up(loop_watch_fd(relay->upstream));
    loop_watch_free(relay->upstream);
    loop_timer_cancel(relay->timer);
    http_answer_done(&relay->answer);
    text_done(&relay->out);
    text_done(&relay->first);
    http_proxy_order_done(&relay->order);
    free(relay);
}

/* The request no longer knows of it. */
static void detach(struct http_relay *relay)
{
    struct http_request *request = relay->request;
    request->gone = NULL;
    request->pour.goes_on = false;
    if (relay->body == RELAY_BODY_POURED)
        http_pour_stop(request);
    if (relay->upstream != NULL)
        loop_watch_readable(relay->upstream, NULL, NULL);
}

void http_relay_finish(struct http_relay *relay)
{
    struct http_proxy_order *order = &relay->order;
    detach(relay);
    if (relay->is_reusable && order->kept != NULL)
        order->kept(order->cookie, TAKE(relay->upstream));
    if (order->over != NULL)
        order->over(order->cookie);
    free_relay(relay);
}

static bool is_stale(const struct http_relay *relay)
{
    return relay->order.stale != NULL && !relay->answer.has_begun && relay->body != RELAY_BODY_POURED &&
           !relay->is_timed_out;
}

void http_relay_fail(struct http_relay *relay, const struct error *err)
{
    struct http_request *request = relay->request;
    struct error copy = *err;
    if (is_stale(relay)) {
        void (*stale)(void *, struct http_request *) = relay->order.stale;
        void *cookie = relay->order.cookie;
        detach(relay);
        free_relay(relay);
        stale(cookie, request);
        return;
    }
    bool is_started = relay->is_started;
    if (!is_started && relay->order.failed != NULL)
        relay->order.failed(relay->order.cookie, &copy);
    http_relay_finish(relay);
    if (is_started)
        http_stream_abort(request);
    else
        http_reply_error(request, &copy);
}

static void on_gone(void *cookie)
{
    http_relay_finish(cookie);
}

/* ---- the reply ---- */

static void on_readable(void *cookie);

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct http_relay *relay = cookie;
    relay->is_full = false;
    loop_watch_readable(relay->upstream, on_readable, relay);
}

static const struct http_stream_events EVENTS = {.drained = on_drained, .gone = on_gone};

static bool names_it(const struct http_answer *answer, const char *wanted)
{
    const char *value;
    for (const char *name = NULL; (name = http_answer_next(answer, name, &value)) != NULL;) {
        if (strcmp(name, "connection") == 0 && http_relay_list_has(value, wanted))
            return true;
    }
    return false;
}

/* Below /c/{token} a page's address is a credential, which it must not send to others. */
static bool is_ours(const struct http_relay *relay, const char *name)
{
    bool is_fixed = strcmp(name, "content-length") == 0 || strcmp(name, "date") == 0 ||
                    strcmp(name, "x-request-id") == 0 || http_relay_is_hop(name);
    return is_fixed || (relay->request->match.is_by_token && strcmp(name, "referrer-policy") == 0) ||
           names_it(&relay->answer, name);
}

void http_relay_set_headers(struct http_relay *relay)
{
    const struct http_proxy_order *order = &relay->order;
    const char *value;
    for (const char *name = NULL; (name = http_answer_next(&relay->answer, name, &value)) != NULL;) {
        if (is_ours(relay, name))
            continue;
        const char *shown = value;
        if (order->answer_header == NULL || order->answer_header(order->cookie, name, &shown))
            http_reply_header(relay->request, name, shown);
    }
}

/* All of it is here, or there is none. */
static void reply_whole(struct http_relay *relay)
{
    struct http_request *request = relay->request;
    const struct http_answer *answer = &relay->answer;
    http_reply_prepare(request, answer->status, NULL);
    size_t size = answer->has_body ? relay->first.length : 0;
    uint64_t length = answer->has_body ? size : answer->length;
    char *data = h2o_mem_alloc_pool(&request->h2o->pool, size + 1);
    if (size > 0)
        memcpy(data, relay->first.data, size);
    http_relay_finish(relay);
    http_reply_finish_of(request, data, size, length);
}

static void start_reply(struct http_relay *relay)
{
    loop_timer_cancel(TAKE(relay->timer));
    http_relay_set_headers(relay);
    if (relay->answer.state == HTTP_ANSWER_END) {
        reply_whole(relay);
        return;
    }
    relay->is_started = true;
    http_stream_start_of(relay->request, relay->answer.status, relay->answer.length, &EVENTS, relay);
    if (relay->first.length > 0)
        http_stream_send(relay->request, relay->first.data, relay->first.length);
    text_done(&relay->first);
}

static void on_body(void *cookie, const char *data, size_t size)
{
    struct http_relay *relay = cookie;
    if (!relay->is_started)
        text_append(&relay->first, data, size);
    else if (http_stream_send(relay->request, data, size) >= HTTP_STREAM_FULL_BYTES)
        relay->is_full = true;
}

/* ---- what the upstream says ---- */

/* The last thing its caller does. */
static void settle(struct http_relay *relay)
{
    struct http_request *request = relay->request;
    if (!relay->is_started && relay->answer.state != HTTP_ANSWER_HEAD) {
        bool is_whole = relay->answer.state == HTTP_ANSWER_END;
        start_reply(relay);
        if (is_whole)
            return;
    } else if (relay->answer.state == HTTP_ANSWER_END) {
        http_relay_finish(relay);
        http_stream_end(request);
        return;
    }
    if (relay->is_full)
        loop_watch_readable(relay->upstream, NULL, NULL);
}

static void take(struct http_relay *relay, const char *data, size_t size)
{
    struct http_answer *answer = &relay->answer;
    struct error err;
    size_t at = 0;
    while (at < size && answer->state != HTTP_ANSWER_END && answer->state != HTTP_ANSWER_UPGRADED) {
        size_t used;
        if (!http_answer_read(answer, data + at, size - at, &used, &err)) {
            http_relay_fail(relay, &err);
            return;
        }
        at += used;
    }
    if (answer->state == HTTP_ANSWER_UPGRADED) {
        http_tunnel_start(relay, data + at, size - at);
        return;
    }
    /* A body that may not be there (HEAD, 204, 304) some send all the same, later: to the next one it would be an
     * answer. */
    relay->is_reusable =
        answer->state == HTTP_ANSWER_END && answer->keeps_alive && answer->has_body && at == size && relay->is_sent;
    settle(relay);
}

static void take_end(struct http_relay *relay, int error_number)
{
    struct error err;
    errno = error_number;
    if (error_number != 0)
        error_set_errno(&err, ERROR_BAD_GATEWAY, "what listens there is not to be reached");
    if (error_number == 0 && http_answer_read_end(&relay->answer, &err))
        settle(relay);
    else
        http_relay_fail(relay, &err);
}

static void on_readable(void *cookie)
{
    struct http_relay *relay = cookie;
    char data[READ_BYTES];
    ssize_t got = fd_receive(loop_watch_fd(relay->upstream), data, sizeof data);
    if (got > 0)
        take(relay, data, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        take_end(relay, got == 0 ? 0 : errno);
}

/* ---- its beginning ---- */

static void on_timer(void *cookie);

static void set_timer(struct http_relay *relay)
{
    uint64_t at_ns = clock_boot_ns() + (uint64_t)relay->order.head_timeout_ms * 1000000;
    if (relay->order.head_timeout_ms != 0)
        relay->timer = loop_timer_start(relay->request->worker->loop, at_ns, on_timer, relay);
}

static void on_timer(void *cookie)
{
    struct http_relay *relay = cookie;
    relay->timer = NULL;
    if (!relay->is_sent && relay->pipe != NULL) {
        set_timer(relay); /* the client's time is limited by its own rules */
        return;
    }
    struct error err;
    relay->is_timed_out = true;
    error_set(&err, ERROR_TIMEOUT, "what listens there has not answered within %u ms", relay->order.head_timeout_ms);
    http_relay_fail(relay, &err);
}

static struct loop_watch *watch_upstream(struct http_request *request, const struct http_proxy_order *order)
{
    if (order->kept_upstream != NULL)
        return order->kept_upstream;
    const int on = 1;
    (void)setsockopt(order->upstream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* others have no such thing */
    int flags = fcntl(order->upstream, F_GETFL);
    if (flags >= 0)
        (void)fcntl(order->upstream, F_SETFL, flags | O_NONBLOCK);
    int upstream = order->upstream;
    if (order->upstream_tls != NULL)
        upstream = http_tls_relay_dial(request->worker, upstream, order->upstream_tls);
    return upstream >= 0 ? loop_watch_new(request->worker->loop, upstream) : NULL;
}

void http_proxy(struct http_request *request, const struct http_proxy_order *order)
{
    struct http_relay *relay = memory_new(sizeof *relay);
    relay->request = request;
    http_proxy_order_copy(&relay->order, order);
    relay->upstream = watch_upstream(request, order);
    if (request->phase != HTTP_OPEN || request->h2o == NULL) {
        if (order->over != NULL)
            order->over(order->cookie);
        free_relay(relay);
        return;
    }
    http_request_when_gone(request, on_gone, relay);
    struct error err;
    http_relay_choose_body(relay);
    if (relay->upstream == NULL) {
        error_set(&err, ERROR_NO_CAPACITY, "no room for another connection by TLS");
        relay->order.stale = NULL;
        http_relay_fail(relay, &err);
        return;
    }
    if (!http_relay_write_head(relay, &err) || !http_relay_start_body(relay, &err)) {
        relay->order.stale = NULL;
        http_relay_fail(relay, &err);
        return;
    }
    http_answer_init(&relay->answer, strcmp(request->head.method, "HEAD") == 0, relay->asks_upgrade, on_body, relay);
    set_timer(relay);
    loop_watch_readable(relay->upstream, on_readable, relay);
    http_relay_send(relay);
}
