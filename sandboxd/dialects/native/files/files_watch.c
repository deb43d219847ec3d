/* files_watch.c - EVENT records in, SSE events out. The head goes out when the helper watches: its first record says
 * so. */
#include "sandboxd/dialects/native/files/files_watch.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

static const uint64_t KEEPALIVE_NS = UINT64_C(10) * 1000000000;

struct watching {
    struct http_request *request;
    struct files_call *call;
    struct loop_timer *timer;
    uint64_t expires_ns; /* boot time */
    bool streaming;
    bool full;       /* waits for drained */
    bool busy, over; /* over inside a step: freed at its end */
};

static void plan_timer(struct watching *watching);

/* Nothing reaches it any more; whoever runs its steps frees it. */
static void watching_over(struct watching *watching)
{
    if (watching->over)
        return;
    files_cancel(TAKE(watching->call));
    loop_timer_cancel(TAKE(watching->timer));
    watching->over = true;
}

static void step_done(struct watching *watching)
{
    watching->busy = false;
    if (watching->over)
        free(watching);
}

static void on_gone(void *cookie)
{
    struct watching *watching = cookie;
    watching_over(watching);
    if (!watching->busy)
        free(watching);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct watching *watching = cookie;
    watching->full = false;
    if (watching->call)
        files_pause(watching->call, false);
}

static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    AUTO_TEXT text = {0};
    events_error(&text, HTTP_SSE, err);
    http_stream_send(request, text.data, text.length);
    on_gone(cookie);
}

static const struct http_stream_events STREAM_EVENTS = {
    .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

static void send_text(struct watching *watching, const struct text *text)
{
    if (watching->over || http_stream_send(watching->request, text->data, text->length) < HTTP_STREAM_FULL_BYTES ||
        watching->over)
        return;
    watching->full = true; /* what happens meanwhile waits in the kernel, whose queue says when it is full */
    if (watching->call)
        files_pause(watching->call, true);
}

static void start_stream(struct watching *watching)
{
    watching->streaming = true;
    http_reply_header(watching->request, "Cache-Control", "no-store");
    http_reply_header(watching->request, "X-Accel-Buffering", "no");
    http_stream_start(watching->request, 200, "text/event-stream", &STREAM_EVENTS, watching);
    if (!watching->over)
        plan_timer(watching);
}

static void end_stream(struct watching *watching)
{
    if (!watching->over)
        http_stream_end(watching->request);
    watching_over(watching);
}

static void fail(struct watching *watching, const struct error *err)
{
    if (!watching->streaming) {
        struct http_request *request = watching->request;
        watching_over(watching);
        http_reply_error(request, err);
        return;
    }
    AUTO_TEXT text = {0};
    events_error(&text, HTTP_SSE, err);
    send_text(watching, &text);
    end_stream(watching);
}

/* ---- the operation ---- */

static const char *name_of(enum files_event event)
{
    static const char *const NAMES[] = {
        [FILES_CREATED] = "created", [FILES_MODIFIED] = "modified", [FILES_DELETED] = "deleted",
        [FILES_MOVED] = "moved",     [FILES_OVERFLOW] = "overflow", [FILES_GONE] = "gone"};
    return NAMES[event];
}

static void append_event(struct text *text, const struct files_record *record)
{
    const char *name = name_of(record->event);
    text_append_format(text, "event: %s\ndata: {\"type\":\"%s\"", name, name);
    if (record->event != FILES_OVERFLOW && record->event != FILES_GONE) {
        text_append(text, ",", 1);
        files_entry_text(text, "path", record->path);
    }
    if (record->event == FILES_MOVED) {
        text_append(text, ",", 1);
        files_entry_text(text, "from", record->from);
    }
    text_append_format(text, "%s}\n\n", record->is_folder ? ",\"folder\":true" : "");
}

static void on_record(void *cookie, const struct files_record *record, int descriptor)
{
    struct watching *watching = cookie;
    if (descriptor >= 0)
        close(descriptor);
    watching->busy = true;
    if (!watching->streaming)
        start_stream(watching);
    bool is_head = !watching->over && strcmp(http_request_method(watching->request), "HEAD") == 0;
    if (is_head) {
        end_stream(watching);
    } else if (record->kind == FILES_EVENT) {
        AUTO_TEXT text = {0};
        append_event(&text, record);
        send_text(watching, &text);
        if (record->event == FILES_GONE && !watching->over)
            end_stream(watching);
    }
    step_done(watching);
}

static void on_over(void *cookie, const struct files_record *done UNUSED, const struct error *err)
{
    struct watching *watching = cookie;
    watching->call = NULL;
    watching->busy = true;
    if (!watching->streaming && !err)
        start_stream(watching);
    if (err)
        fail(watching, err);
    else
        end_stream(watching);
    step_done(watching);
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

/* ---- time ---- */

static void tell_time(struct watching *watching)
{
    if (clock_boot_ns() >= watching->expires_ns) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; watch again with a fresh one");
        fail(watching, &err);
        return;
    }
    if (watching->full || !watching->streaming)
        return;
    AUTO_TEXT text = {0};
    events_keepalive(&text, HTTP_SSE);
    send_text(watching, &text);
}

static void on_timer(void *cookie)
{
    struct watching *watching = cookie;
    watching->timer = NULL;
    watching->busy = true;
    tell_time(watching);
    if (!watching->over)
        plan_timer(watching);
    step_done(watching);
}

static void plan_timer(struct watching *watching)
{
    uint64_t at = watching->streaming ? clock_boot_ns() + KEEPALIVE_NS : UINT64_MAX;
    at = watching->expires_ns < at ? watching->expires_ns : at;
    loop_timer_cancel(watching->timer);
    watching->timer = loop_timer_start(http_request_loop(watching->request), at, on_timer, watching);
}

void files_watch_start(struct http_request *request, const struct files_request *asked)
{
    const struct capability_claims *claims = &caller_of(request)->claims;
    struct watching *watching = memory_new(sizeof *watching);
    watching->request = request;
    watching->expires_ns = plane_deadline_ns(claims->expires_at);
    watching->call = files_start(plane_of(request)->sandboxes, claims->sandbox_id, asked, -1, &EVENTS, watching);
    http_request_when_gone(request, on_gone, watching);
    plan_timer(watching);
}
