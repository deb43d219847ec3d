/* ports_events.c - see ports_events.h. What is sent is the difference to what was sent before, so a client that is slow
 * misses steps in between, and never an end state. */
#include "sandboxd/dialects/native/ports/ports_events.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/ports/ports_admit.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

static const uint64_t KEEPALIVE_NS = UINT64_C(10) * 1000000000;

static json_t *listener_json(const struct port_listener *listener)
{
    static const struct {
        enum port_address bit;
        const char *text;
    } ADDRESSES[] = {{PORT_ANY_V4, "0.0.0.0"},
                     {PORT_LOOPBACK_V4, "127.0.0.1"},
                     {PORT_ANY_V6, "::"},
                     {PORT_LOOPBACK_V6, "::1"},
                     {PORT_ELSEWHERE, "other"}};
    json_t *addresses = json_array();
    for (size_t i = 0; i < sizeof ADDRESSES / sizeof *ADDRESSES; i++)
        if (listener->addresses & ADDRESSES[i].bit)
            json_array_append_new(addresses, json_string(ADDRESSES[i].text));
    return json_pack("{s:i,s:o,s:b}", "port", (int)listener->port, "addresses", addresses, "reachable",
                     (listener->addresses & ~PORT_ELSEWHERE) != 0);
}

static json_t *list_json(const struct http_request *request, const struct port_list *list)
{
    json_t *ports = json_array();
    for (size_t i = 0; i < list->count; i++)
        if (ports_covers(request, list->listeners[i].port))
            json_array_append_new(ports, listener_json(&list->listeners[i]));
    return json_pack("{s:o,s:b}", "ports", ports, "truncated", list->is_cut);
}

/* ---- once ---- */

static void answer_once(uint64_t key, const struct port_list *list, const struct error *err)
{
    struct http_request *request = http_request_find(loop_current(), key);
    if (request && err)
        http_reply_error(request, err);
    else if (request)
        http_reply_json(request, 200, list_json(request, list));
}

void ports_events_once(struct http_request *request)
{
    ports_list(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, answer_once,
               http_request_number(request));
}

/* ---- as they open and close ---- */

/* The identity of a request that streams, so that a list finds it by the request's number. */
struct watching {
    struct caller caller; /* first: it is the identity's shape */
    struct http_request *request;
    struct sandboxes *sandboxes;
    uint64_t key, expires_ns; /* boot time */
    struct loop_timer *timer;
    struct port_list *sent; /* NULL: nothing yet */
    struct port_list *due;  /* what is to be sent when there is room; NULL: nothing */
    bool full;              /* waits for drained */
    bool over;              /* the request is dead for us */
};

/* NULL when it is over. */
static struct watching *find(uint64_t key)
{
    struct http_request *request = http_request_find(loop_current(), key);
    struct watching *watching = request ? http_request_identity(request) : NULL;
    return watching && !watching->over ? watching : NULL;
}

static void end(struct watching *watching)
{
    if (watching->over)
        return;
    watching->over = true;
    loop_timer_cancel(TAKE(watching->timer));
    ports_unwatch(watching->sandboxes, watching->caller.claims.sandbox_id, watching->key);
}

/* With the request. */
static void watching_free(void *identity)
{
    struct watching *watching = identity;
    end(watching);
    free(watching->sent);
    free(watching->due);
    free(watching);
}

static void on_gone(void *cookie)
{
    end(cookie);
}

static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    AUTO_TEXT text = {0};
    events_error(&text, HTTP_SSE, err);
    http_stream_send(request, text.data, text.length);
    end(cookie);
}

static void send_due(struct watching *watching);

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct watching *watching = cookie;
    watching->full = false;
    send_due(watching);
}

static const struct http_stream_events STREAM_EVENTS = {
    .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

static void fail(struct watching *watching, const struct error *err)
{
    struct http_request *request = watching->request;
    bool is_streaming = watching->sent != NULL;
    end(watching);
    if (!is_streaming) {
        http_reply_error(request, err);
        return;
    }
    AUTO_TEXT text = {0};
    events_error(&text, HTTP_SSE, err);
    http_stream_send(request, text.data, text.length);
    http_stream_end(request);
}

static void on_timer(void *cookie);

static void plan_timer(struct watching *watching)
{
    uint64_t at = watching->sent ? clock_boot_ns() + KEEPALIVE_NS : UINT64_MAX;
    at = watching->expires_ns < at ? watching->expires_ns : at;
    loop_timer_cancel(watching->timer);
    watching->timer = loop_timer_start(http_request_loop(watching->request), at, on_timer, watching);
}

/* The stream may be gone after it. */
static void send_text(struct watching *watching, const struct text *text)
{
    uint64_t key = watching->key;
    if (text->length == 0)
        return;
    bool full = http_stream_send(watching->request, text->data, text->length) >= HTTP_STREAM_FULL_BYTES;
    watching = find(key);
    if (watching)
        watching->full = full;
}

static void on_timer(void *cookie)
{
    struct watching *watching = cookie;
    uint64_t key = watching->key;
    watching->timer = NULL;
    if (clock_boot_ns() >= watching->expires_ns) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; watch again with a fresh one");
        fail(watching, &err);
        return;
    }
    AUTO_TEXT text = {0};
    events_keepalive(&text, HTTP_SSE);
    if (!watching->full)
        send_text(watching, &text);
    watching = find(key);
    if (watching)
        plan_timer(watching);
}

static void append_event(struct text *to, const struct watching *watching, const char *name,
                         const struct port_listener *listener)
{
    if (!ports_covers(watching->request, listener->port))
        return;
    json_t *object = listener_json(listener);
    json_object_set_new(object, "type", json_string(name));
    AUTO_FREE char *line = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    text_append_format(to, "event: %s\ndata: %s\n\n", name, line);
}

/* Both lists are in the order of ports. One that listens elsewhere now has opened anew. */
static void append_difference(struct text *to, const struct watching *watching)
{
    const struct port_list *before = watching->sent, *now = watching->due;
    size_t i = 0, j = 0;
    while (i < before->count || j < now->count) {
        const struct port_listener *old = &before->listeners[i], *new = &now->listeners[j];
        unsigned old_port = i < before->count ? old->port : UINT16_MAX + 1U;
        unsigned new_port = j < now->count ? new->port : UINT16_MAX + 1U;
        if (old_port < new_port)
            append_event(to, watching, "closed", old);
        else if (new_port < old_port || old->addresses != new->addresses)
            append_event(to, watching, "opened", new);
        i += old_port <= new_port;
        j += new_port <= old_port;
    }
}

static void send_due(struct watching *watching)
{
    AUTO_TEXT text = {0};
    if (!watching->due || watching->full)
        return;
    append_difference(&text, watching);
    free(watching->sent);
    watching->sent = TAKE(watching->due);
    send_text(watching, &text);
}

/* False when the stream is over. */
static bool begin(struct watching *watching, const struct port_list *list)
{
    uint64_t key = watching->key;
    watching->sent = memory_copy(list, sizeof *list);
    http_reply_header(watching->request, "Cache-Control", "no-store");
    http_reply_header(watching->request, "X-Accel-Buffering", "no");
    http_stream_start(watching->request, 200, "text/event-stream", &STREAM_EVENTS, watching);
    watching = find(key);
    if (!watching)
        return false;
    if (strcmp(http_request_method(watching->request), "HEAD") == 0) {
        end(watching);
        http_stream_end(watching->request);
        return false;
    }
    plan_timer(watching);
    json_t *object = list_json(watching->request, list);
    json_object_set_new(object, "type", json_string("ports"));
    (void)http_stream_send_json(watching->request, HTTP_SSE, "ports", object);
    return find(key) != NULL;
}

static void on_list(uint64_t key, const struct port_list *list, const struct error *err)
{
    struct watching *watching = find(key);
    if (!watching)
        return;
    if (err) {
        fail(watching, err);
        return;
    }
    if (!watching->sent) {
        (void)begin(watching, list);
        return;
    }
    free(watching->due);
    watching->due = memory_copy(list, sizeof *list);
    send_due(watching);
}

void ports_events_watch(struct http_request *request)
{
    struct watching *watching = memory_new(sizeof *watching);
    watching->caller = *caller_of(request);
    watching->request = request;
    watching->sandboxes = plane_of(request)->sandboxes;
    watching->key = http_request_number(request);
    watching->expires_ns = plane_deadline_ns(watching->caller.claims.expires_at);
    http_request_set_identity(request, watching, watching_free, watching->caller.claims.jti);
    http_request_when_gone(request, on_gone, watching);
    plan_timer(watching);
    ports_watch(watching->sandboxes, watching->caller.claims.sandbox_id, on_list, watching->key);
}
