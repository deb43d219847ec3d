/* kernel_reply.c - a run's events in, a reply out. */
#include "sandboxd/dialects/native/kernels/kernel_reply.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/kernels/kernel_outcome.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>

static const uint64_t KEEPALIVE_NS = UINT64_C(10) * 1000000000;

struct kernel_reply {
    struct http_request *request;
    struct kernel_run *run;
    enum kernel_framing framing;
    struct kernel_outcome outcome; /* of one JSON */
    struct loop_timer *timer;
    uint64_t expires_ns; /* boot time */
    bool streaming;      /* the reply has started */
    bool full;           /* waits for drained */
    bool pulling, over;  /* over inside pull: freed at its end */
};

static void pull(void *cookie);

/* Nothing reaches it any more; whoever runs its steps frees it. */
static void reply_over(struct kernel_reply *reply)
{
    if (reply->over)
        return;
    kernel_run_close(TAKE(reply->run));
    loop_timer_cancel(TAKE(reply->timer));
    reply->over = true;
}

static void reply_free(struct kernel_reply *reply)
{
    kernel_outcome_done(&reply->outcome);
    free(reply);
}

static void on_gone(void *cookie)
{
    struct kernel_reply *reply = cookie;
    reply_over(reply);
    if (!reply->pulling)
        reply_free(reply);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct kernel_reply *reply = cookie;
    if (!reply->full)
        return;
    reply->full = false;
    pull(reply);
}

static enum http_framing framing_of(const struct kernel_reply *reply)
{
    return reply->framing == KERNEL_SSE ? HTTP_SSE : HTTP_NDJSON;
}

/* The token holds no more: the last event says so. The run goes on. */
static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    AUTO_TEXT text = {0};
    events_error(&text, framing_of(cookie), err);
    http_stream_send(request, text.data, text.length);
    on_gone(cookie);
}

/* A client that takes nothing keeps the context waiting: not for long. */
static const struct http_stream_events STREAM_EVENTS = {
    .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

/* ---- the end of the reply; each leaves it over ---- */

static void end_stream(struct kernel_reply *reply)
{
    if (!reply->over)
        http_stream_end(reply->request);
    reply_over(reply);
}

/* The run was recorded before it was asked for. */
static void record_failure(struct http_request *request, const struct error *err)
{
    char detail[96];
    (void)snprintf(detail, sizeof detail, "kernel=%.64s", http_request_parameter(request, "id"));
    plane_record_failure(request, "code.run", detail, error_http_status(err->kind), err->message);
}

static void fail(struct kernel_reply *reply, const struct error *err)
{
    struct http_request *request = reply->request;
    if (!reply->streaming) {
        reply_over(reply);
        record_failure(request, err);
        http_reply_error(request, err);
        return;
    }
    AUTO_TEXT text = {0};
    events_error(&text, framing_of(reply), err);
    http_stream_send(request, text.data, text.length);
    end_stream(reply);
}

/* ---- one step each ---- */

static void start_stream(struct kernel_reply *reply)
{
    if (reply->framing == KERNEL_ONE_JSON)
        return;
    reply->streaming = true;
    http_reply_header(reply->request, "Cache-Control", "no-store");
    http_reply_header(reply->request, "X-Accel-Buffering", "no");
    http_stream_start(reply->request, 200, reply->framing == KERNEL_SSE ? "text/event-stream" : "application/x-ndjson",
                      &STREAM_EVENTS, reply);
}

/* A large one, as it was made into text: {"a":...} becomes {"type":...,"a":...}. Takes it. */
static void send_text(struct kernel_reply *reply, const struct kernel_event *event)
{
    AUTO_FREE char *body = event->text;
    AUTO_TEXT text = {0};
    if (reply->framing == KERNEL_SSE)
        text_append_format(&text, "event: %s\ndata: ", event->type);
    text_append_format(&text, "{\"type\":\"%s\",", event->type);
    text_append_string(&text, body + 1);
    text_append_string(&text, reply->framing == KERNEL_SSE ? "\n\n" : "\n");
    reply->full = http_stream_send(reply->request, text.data, text.length) >= HTTP_STREAM_FULL_BYTES;
}

/* The type stands first. Takes the body. */
static void send_event(struct kernel_reply *reply, const struct kernel_event *event)
{
    if (event->text) {
        send_text(reply, event);
        return;
    }
    json_t *object = json_pack("{s:s}", "type", event->type);
    json_object_update(object, event->body);
    json_decref(event->body);
    size_t waiting = http_stream_send_json(reply->request, framing_of(reply), event->type, object);
    reply->full = waiting >= HTTP_STREAM_FULL_BYTES;
}

static void on_told(struct kernel_reply *reply, const struct kernel_event *event)
{
    if (reply->framing == KERNEL_ONE_JSON)
        kernel_outcome_add(&reply->outcome, event);
    else
        send_event(reply, event);
}

static void on_done(struct kernel_reply *reply, const struct kernel_event *event)
{
    if (reply->framing != KERNEL_ONE_JSON) {
        send_event(reply, event);
        end_stream(reply);
        return;
    }
    struct http_request *request = reply->request;
    json_t *object = kernel_outcome_finish(&reply->outcome, event->body);
    reply_over(reply);
    http_reply_json(request, 200, object);
}

static void take_event(struct kernel_reply *reply, const struct kernel_event *event)
{
    switch (event->kind) {
    case KERNEL_EVENT_ACCEPTED:
        start_stream(reply);
        return;
    case KERNEL_EVENT_TOLD:
        on_told(reply, event);
        return;
    case KERNEL_EVENT_DONE:
        on_done(reply, event);
        return;
    case KERNEL_EVENT_FAILED:
        fail(reply, &event->error);
        return;
    }
}

static void pull(void *cookie)
{
    struct kernel_reply *reply = cookie;
    struct kernel_event event;
    reply->pulling = true; /* the request may end inside any of these */
    while (!reply->over && !reply->full && kernel_run_next(reply->run, &event))
        take_event(reply, &event);
    reply->pulling = false;
    if (reply->over)
        reply_free(reply);
}

/* ---- time ---- */

static void plan_timer(struct kernel_reply *reply);

static void tell_time(struct kernel_reply *reply)
{
    if (clock_boot_ns() >= reply->expires_ns) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; the run goes on");
        fail(reply, &err);
        return;
    }
    if (reply->full || !reply->streaming)
        return;
    AUTO_TEXT text = {0};
    events_keepalive(&text, framing_of(reply));
    reply->full = http_stream_send(reply->request, text.data, text.length) >= HTTP_STREAM_FULL_BYTES;
}

static void on_timer(void *cookie)
{
    struct kernel_reply *reply = cookie;
    reply->timer = NULL;
    reply->pulling = true;
    tell_time(reply);
    reply->pulling = false;
    if (reply->over)
        reply_free(reply);
    else
        plan_timer(reply);
}

static void plan_timer(struct kernel_reply *reply)
{
    uint64_t at = clock_boot_ns() + KEEPALIVE_NS;
    at = reply->expires_ns < at ? reply->expires_ns : at;
    reply->timer = loop_timer_start(http_request_loop(reply->request), at, on_timer, reply);
}

struct kernel_run *kernel_reply_new(struct http_request *request, enum kernel_framing framing)
{
    struct kernel_reply *reply = memory_new(sizeof *reply);
    reply->request = request;
    reply->framing = framing;
    reply->expires_ns = plane_deadline_ns(caller_of(request)->claims.expires_at + PLANE_AFTER_EXPIRY_S);
    reply->run = kernel_run_new(pull, reply);
    if (framing != KERNEL_ONE_JSON)
        kernel_run_takes_text(reply->run);
    plane_stay(request);
    plan_timer(reply);
    http_request_when_gone(request, on_gone, reply);
    return reply->run;
}
