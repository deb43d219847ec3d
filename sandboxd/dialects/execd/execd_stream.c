/* execd_stream.c - see execd_stream.h. */
#include "sandboxd/dialects/execd/execd_stream.h"

#include "sandboxd/dialects/execd/execd_events.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

static const uint64_t PING_NS = UINT64_C(3) * 1000000000;

enum { KEEP_BYTES = 64 * 1024 }; /* a larger buffer goes when it is empty */

struct execd_stream {
    struct http_request *request; /* NULL: gone */
    const struct execd_stream_owner *owner;
    void *cookie;
    struct loop_timer *timer;
    uint64_t expires_ns; /* boot time */
    struct text text;
    bool has_begun, is_full;
    unsigned inside; /* calls that are under way: freed behind the last of them */
    bool is_closed;
};

static void plan_timer(struct execd_stream *stream);

static void leave(struct execd_stream *stream)
{
    if (--stream->inside > 0 || !stream->is_closed)
        return;
    text_done(&stream->text);
    free(stream);
}

/* Nothing of the request is touched any more. */
static void forget_request(struct execd_stream *stream)
{
    stream->request = NULL;
    loop_timer_cancel(TAKE(stream->timer));
}

static void on_gone(void *cookie)
{
    struct execd_stream *stream = cookie;
    stream->inside++;
    forget_request(stream);
    if (!stream->is_closed)
        stream->owner->gone(stream->cookie);
    leave(stream);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct execd_stream *stream = cookie;
    stream->inside++;
    stream->is_full = false;
    stream->owner->drained(stream->cookie);
    leave(stream);
}

static void put_error(struct text *to, const struct error *err)
{
    const char *const traceback[] = {err->message};
    execd_event_error(to, error_code(err->kind), err->message, traceback, 1);
}

/* The token holds no more: the last event says so. What runs goes on. */
static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    AUTO_TEXT text = {0};
    put_error(&text, err);
    http_stream_send(request, text.data, text.length);
    on_gone(cookie);
}

static const struct http_stream_events EVENTS = {.drained = on_drained, .gone = on_gone, .cut = on_cut},
                                       CUT_EVENTS = {
                                           .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

struct execd_stream *execd_stream_new(struct http_request *request, int64_t expires_s,
                                      const struct execd_stream_owner *owner, void *cookie)
{
    struct execd_stream *stream = memory_new(sizeof *stream);
    *stream = (struct execd_stream){
        .request = request, .owner = owner, .cookie = cookie, .expires_ns = plane_deadline_ns(expires_s)};
    plane_stay(request);
    http_request_when_gone(request, on_gone, stream);
    return stream;
}

void execd_stream_begin(struct execd_stream *stream, const char *id)
{
    if (!stream->request || stream->has_begun)
        return;
    stream->has_begun = true;
    stream->inside++;
    http_stream_start_json(stream->request, 200, HTTP_BLANK_LINE, stream->owner->cut_stalled ? &CUT_EVENTS : &EVENTS,
                           stream);
    execd_event_text(&stream->text, "init", id, strlen(id));
    execd_event_ping(&stream->text);
    execd_stream_flush(stream);
    if (stream->request)
        plan_timer(stream);
    leave(stream);
}

bool execd_stream_has_begun(const struct execd_stream *stream)
{
    return stream->has_begun;
}

struct text *execd_stream_text(struct execd_stream *stream)
{
    return &stream->text;
}

bool execd_stream_has_room(const struct execd_stream *stream)
{
    return stream->request && !stream->is_full;
}

static void empty(struct text *text)
{
    if (text->capacity > KEEP_BYTES)
        text_done(text);
    text->length = 0;
}

void execd_stream_flush(struct execd_stream *stream)
{
    stream->inside++;
    if (stream->request && stream->text.length > 0) {
        size_t waiting = http_stream_send(stream->request, stream->text.data, stream->text.length);
        stream->is_full = waiting >= HTTP_STREAM_FULL_BYTES;
        empty(&stream->text);
    }
    leave(stream);
}

void execd_stream_end(struct execd_stream *stream)
{
    stream->inside++;
    stream->is_closed = true;
    if (stream->has_begun)
        execd_stream_flush(stream);
    struct http_request *request = stream->request;
    if (request) {
        forget_request(stream);
        http_stream_end(request);
    }
    leave(stream);
}

void execd_stream_fail(struct execd_stream *stream, const struct error *err)
{
    struct http_request *request = stream->request;
    if (stream->has_begun) {
        put_error(&stream->text, err);
        execd_stream_end(stream);
        return;
    }
    stream->inside++;
    stream->is_closed = true;
    forget_request(stream);
    if (request)
        http_reply_error(request, err);
    leave(stream);
}

void execd_stream_close(struct execd_stream *stream)
{
    struct error err = {0};
    if (!stream)
        return;
    struct http_request *request = stream->request;
    if (request && !stream->has_begun) {
        error_set(&err, ERROR_INTERNAL, "given up before it began");
        execd_stream_fail(stream, &err);
        return;
    }
    stream->inside++;
    stream->is_closed = true;
    forget_request(stream);
    if (request)
        http_stream_abort(request);
    leave(stream);
}

/* ---- time ---- */

/* The owner hears of it as if the client had left. */
static void expire(struct execd_stream *stream)
{
    struct error err = {0};
    struct http_request *request = stream->request;
    error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; what runs goes on");
    if (stream->has_begun) {
        put_error(&stream->text, &err);
        execd_stream_flush(stream);
    }
    if (!stream->request)
        return;
    forget_request(stream);
    if (stream->has_begun)
        http_stream_end(request);
    else
        http_reply_error(request, &err);
    stream->owner->gone(stream->cookie);
}

static void on_timer(void *cookie)
{
    struct execd_stream *stream = cookie;
    stream->timer = NULL;
    stream->inside++;
    if (clock_boot_ns() >= stream->expires_ns) {
        expire(stream);
    } else if (!stream->is_full) {
        execd_event_ping(&stream->text);
        execd_stream_flush(stream);
    }
    if (stream->request)
        plan_timer(stream);
    leave(stream);
}

static void plan_timer(struct execd_stream *stream)
{
    uint64_t at = clock_boot_ns() + PING_NS;
    at = stream->expires_ns < at ? stream->expires_ns : at;
    stream->timer = loop_timer_start(http_request_loop(stream->request), at, on_timer, stream);
}
