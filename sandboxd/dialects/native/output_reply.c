/* output_reply.c - follower in, events out. */
#include "sandboxd/dialects/native/output_reply.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum {
    CHUNK_BYTES = 32 * 1024,
    ONE_JSON_BYTES = 1024 * 1024 /* of each stream; more than the follower gives at the end */
};
static const uint64_t KEEPALIVE_NS = UINT64_C(10) * 1000000000;

struct output_reply {
    struct http_request *request;
    struct output_reply_plan plan;
    struct follower *follower;
    struct loop_timer *timer;
    uint64_t expires_ns;               /* boot time */
    bool streaming;                    /* the reply has started */
    bool full;                         /* waits for drained */
    bool pulling, over;                /* over inside pull: freed at its end */
    bool skipped;                      /* a stream's rest waits for more bytes, and nothing was sent since */
    struct text texts[OUTPUT_STREAMS]; /* ONE_JSON */
    bool truncated[OUTPUT_STREAMS];
};

static void pull(void *cookie);
static void plan_timer(struct output_reply *reply);

/* Nothing reaches it any more; whoever runs its steps frees it. */
static void reply_over(struct output_reply *reply)
{
    if (reply->over)
        return;
    follower_close(TAKE(reply->follower));
    loop_timer_cancel(TAKE(reply->timer));
    reply->over = true;
}

static void reply_free(struct output_reply *reply)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        text_done(&reply->texts[i]);
    free(reply);
}

static void on_gone(void *cookie)
{
    struct output_reply *reply = cookie;
    reply_over(reply);
    if (!reply->pulling)
        reply_free(reply);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct output_reply *reply = cookie;
    follower_delivered(reply->follower);
    if (!reply->full)
        return;
    reply->full = false;
    pull(reply);
}

/* The token holds no more: the last event says so. The command goes on. */
static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    const struct output_reply *reply = cookie;
    AUTO_TEXT text = {0};
    events_error(&text, reply->plan.framing, err);
    http_stream_send(request, text.data, text.length);
    on_gone(cookie);
}

static const struct http_stream_events STREAM_EVENTS = {.drained = on_drained, .gone = on_gone, .cut = on_cut};

static void send_text(struct output_reply *reply, const struct text *text)
{
    reply->full = http_stream_send(reply->request, text->data, text->length) >= HTTP_STREAM_FULL_BYTES;
}

/* ---- the end of the reply; each leaves it over ---- */

static void end_stream(struct output_reply *reply)
{
    if (!reply->over)
        http_stream_end(reply->request);
    if (!reply->over)
        reply_over(reply);
}

static void fail(struct output_reply *reply, const struct error *err)
{
    if (!reply->streaming) {
        struct http_request *request = reply->request;
        reply_over(reply);
        http_reply_error(request, err);
        return;
    }
    AUTO_TEXT text = {0};
    events_error(&text, reply->plan.framing, err);
    send_text(reply, &text);
    end_stream(reply);
}

static void put_stream(json_t *object, enum output_stream stream, const struct text *text)
{
    const char *data = text->data ? text->data : "";
    if (text_utf8_prefix(data, text->length) == text->length) {
        json_object_set_new(object, output_stream_name(stream), json_stringn(data, text->length));
        return;
    }
    AUTO_FREE char *encoded = memory_new((text->length + 2) / 3 * (size_t)4 + 1);
    (void)text_base64_encode(encoded, data, text->length);
    json_object_set_new(object, stream == OUTPUT_STDOUT ? "stdout_b64" : "stderr_b64", json_string(encoded));
}

static void answer_one_json(struct output_reply *reply, const struct process_view *view)
{
    json_t *object = json_object();
    json_object_set_new(object, "id", json_string(view->id));
    bool truncated = false;
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        put_stream(object, (enum output_stream)i, &reply->texts[i]);
        truncated = truncated || reply->truncated[i] || reply->texts[i].length < view->length[i];
    }
    events_put_end(object, &view->end);
    json_object_set_new(object, "timed_out", json_boolean(view->end.timed_out));
    json_object_set_new(object, "oom", json_boolean(view->end.oom));
    json_object_set_new(object, "truncated", json_boolean(truncated));
    struct http_request *request = reply->request;
    reply_over(reply);
    http_reply_json(request, 200, object);
}

/* ---- one step each ---- */

static void on_started(struct output_reply *reply, const struct process_view *view)
{
    if (reply->plan.kind == OUTPUT_REPLY_ONE_JSON)
        return;
    if (reply->plan.kind == OUTPUT_REPLY_STARTED) {
        struct http_request *request = reply->request;
        json_t *object = events_process(view);
        reply_over(reply);
        http_reply_json(request, 201, object);
        return;
    }
    reply->streaming = true;
    http_reply_header(reply->request, "Cache-Control", "no-store");
    http_reply_header(reply->request, "X-Accel-Buffering", "no");
    http_stream_start(reply->request, 200,
                      reply->plan.framing == HTTP_SSE ? "text/event-stream" : "application/x-ndjson", &STREAM_EVENTS,
                      reply);
    if (reply->over)
        return;
    AUTO_TEXT text = {0};
    events_started(&text, reply->plan.framing, view);
    send_text(reply, &text);
    if (!reply->over)
        plan_timer(reply);
}

static void collect(struct output_reply *reply, const struct follower_item *item, const uint8_t *data)
{
    struct text *text = &reply->texts[item->stream];
    if (item->offset > 0 && text->length == 0)
        reply->truncated[item->stream] = true;
    size_t room = ONE_JSON_BYTES > text->length ? ONE_JSON_BYTES - text->length : 0;
    if (item->size > room)
        reply->truncated[item->stream] = true;
    text_append(text, data, item->size < room ? item->size : room);
    follower_consumed(reply->follower, item->stream, item->size);
    follower_delivered(reply->follower);
}

/* The beginning of a character waits for its rest. True when the other stream may have something meanwhile: when it was
 * not just there that we came from. */
static bool skip(struct output_reply *reply, enum output_stream stream)
{
    bool other_has_data = follower_skip(reply->follower, stream), again = other_has_data && !reply->skipped;
    reply->skipped = true;
    return again;
}

/* False when nothing more can be sent now: what is there is the beginning of a character. */
static bool on_data(struct output_reply *reply, const struct follower_item *item, const uint8_t *data)
{
    if (reply->plan.kind == OUTPUT_REPLY_ONE_JSON) {
        collect(reply, item, data);
        return true;
    }
    bool is_text;
    bool last = item->stage == FOLLOWER_LAST || reply->plan.kind == OUTPUT_REPLY_SNAPSHOT;
    size_t size = events_split(data, item->size, last, &is_text);
    if (size == 0)
        return skip(reply, item->stream);
    reply->skipped = false;
    AUTO_TEXT text = {0};
    events_data(&text, reply->plan.framing, item->stream, item->offset, data, size, is_text);
    follower_consumed(reply->follower, item->stream, size);
    send_text(reply, &text);
    return true;
}

static void on_gap(struct output_reply *reply, const struct follower_item *item)
{
    reply->truncated[item->stream] = true;
    if (!reply->streaming)
        return;
    AUTO_TEXT text = {0};
    events_gap(&text, reply->plan.framing, item->stream, item->offset, item->gap_to);
    send_text(reply, &text);
}

static void on_ended(struct output_reply *reply, const struct process_view *view)
{
    if (reply->plan.kind == OUTPUT_REPLY_ONE_JSON) {
        answer_one_json(reply, view);
        return;
    }
    AUTO_TEXT text = {0};
    events_exit(&text, reply->plan.framing, view);
    send_text(reply, &text);
    end_stream(reply);
}

/* False when there is nothing more to do now. */
static bool step(struct output_reply *reply, uint8_t *buffer)
{
    struct follower_item item;
    switch (follower_next(reply->follower, &item, buffer, CHUNK_BYTES)) {
    case FOLLOWER_STARTED:
        on_started(reply, item.view);
        return true;
    case FOLLOWER_DATA:
        return on_data(reply, &item, buffer);
    case FOLLOWER_GAP:
        on_gap(reply, &item);
        return true;
    case FOLLOWER_ENDED:
        on_ended(reply, item.view);
        return false;
    case FOLLOWER_FAILED:
        fail(reply, item.error);
        return false;
    case FOLLOWER_NOTHING:
        if (reply->plan.kind == OUTPUT_REPLY_SNAPSHOT && reply->streaming)
            end_stream(reply);
        return false;
    }
    return false;
}

static void pull(void *cookie)
{
    struct output_reply *reply = cookie;
    if (reply->full)
        return;
    uint8_t buffer[CHUNK_BYTES];
    reply->skipped = false;
    reply->pulling = true; /* the request may end inside any of these */
    while (!reply->over && !reply->full && step(reply, buffer)) {
    }
    reply->pulling = false;
    if (reply->over)
        reply_free(reply);
}

/* ---- time ---- */

static void tell_time(struct output_reply *reply)
{
    if (clock_boot_ns() >= reply->expires_ns) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; the command goes on, follow it with a fresh one");
        fail(reply, &err);
        return;
    }
    if (reply->full || !reply->streaming)
        return;
    AUTO_TEXT text = {0};
    events_keepalive(&text, reply->plan.framing);
    send_text(reply, &text);
}

static void on_timer(void *cookie)
{
    struct output_reply *reply = cookie;
    reply->timer = NULL;
    reply->pulling = true;
    tell_time(reply);
    reply->pulling = false;
    if (reply->over)
        reply_free(reply);
    else
        plan_timer(reply);
}

static void plan_timer(struct output_reply *reply)
{
    uint64_t at = reply->streaming ? clock_boot_ns() + KEEPALIVE_NS : UINT64_MAX;
    at = reply->expires_ns < at ? reply->expires_ns : at;
    reply->timer = loop_timer_start(http_request_loop(reply->request), at, on_timer, reply);
}

struct output_reply *output_reply_new(struct http_request *request, const struct output_reply_plan *plan)
{
    struct output_reply *reply = memory_new(sizeof *reply);
    reply->request = request;
    reply->plan = *plan;
    reply->expires_ns = plane_deadline_ns(plan->expires_s);
    reply->follower = follower_new(plan->mode, plan->offsets, pull, reply);
    plane_stay(request);
    if (plan->kind == OUTPUT_REPLY_ONE_JSON) /* a stream's begins with it */
        plan_timer(reply);
    http_request_when_gone(request, on_gone, reply);
    return reply;
}

struct follower *output_reply_follower(struct output_reply *reply)
{
    return reply->follower;
}
