/* metrics.c - one verb, answered once or again and again. */
#include "sandboxd/dialects/native/metrics.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

enum { INTERVAL_S = 2, INTERVAL_MAX_S = 60 };

static json_t *figures(const struct sandbox_metrics *metrics)
{
    const struct fl_limits *limits = &metrics->limits;
    char started[CLOCK_TEXT_BYTES];
    int64_t uptime_ms = clock_wall_ms() - metrics->started_ms;
    clock_format(started, metrics->started_ms);
    return json_pack(
        "{s:{s:I,s:I},s:{s:I,s:I,s:I},s:{s:I,s:I},s:{s:I,s:I,s:s},s:{s:I,s:I},s:{s:I,s:I},s:{s:I},s:b,s:s,s:I}", "cpu",
        "limit_milli", (json_int_t)limits->cpu_milli, "used_ms", (json_int_t)metrics->cpu_used_ms, "memory",
        "limit_bytes", (json_int_t)limits->memory_bytes, "used_bytes", (json_int_t)metrics->memory_used_bytes,
        "oom_kills", (json_int_t)metrics->oom_kills, "pids", "limit", (json_int_t)limits->pids, "used",
        (json_int_t)metrics->pids_used, "disk", "limit_bytes", (json_int_t)limits->disk_bytes, "used_bytes",
        (json_int_t)metrics->disk_used_bytes, "storage", metrics->storage, "commands", "limit",
        (json_int_t)limits->commands, "running", (json_int_t)metrics->commands_running, "output", "limit_bytes",
        (json_int_t)limits->output_bytes, "kept_bytes", (json_int_t)metrics->kept_bytes, "open_files", "limit",
        (json_int_t)limits->open_files, "paused", metrics->paused, "started_at", started, "uptime_ms",
        (json_int_t)(uptime_ms > 0 ? uptime_ms : 0));
}

/* ---- once ---- */

static void answer_once(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    if (!request)
        return;
    if (answer->error.kind == ERROR_NONE)
        http_reply_json(request, 200, figures(answer->metrics));
    else
        http_reply_error(request, &answer->error);
}

static void *number_cookie(const struct http_request *request)
{
    return (void *)(uintptr_t)http_request_number(request);
}

static void ask(struct http_request *request, void (*answered)(void *cookie, const struct verb_answer *answer))
{
    sandboxes_metrics(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, answered,
                      number_cookie(request));
}

static void handle_once(struct http_request *request)
{
    static const char *const NAMES[] = {NULL};
    struct error err = {0};
    if (http_request_query_only(request, NAMES, &err))
        ask(request, answer_once);
    else
        http_reply_error(request, &err);
}

/* ---- again and again ---- */

/* The identity of a request that streams, so that a verb's answer finds it by the request's number. */
struct watching {
    struct caller caller; /* first: it is the identity's shape */
    struct http_request *request;
    uint64_t interval_ns, expires_ns, due_ns; /* the last two in boot time */
    struct loop_timer *timer;
    bool streaming;
    bool full; /* what was sent waits: the next figures are left out */
    bool over; /* the request is dead for us */
};

/* NULL when it is over. */
static struct watching *find(void *cookie)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    struct watching *watching = request ? http_request_identity(request) : NULL;
    return watching && !watching->over ? watching : NULL;
}

static void end(struct watching *watching)
{
    watching->over = true;
    loop_timer_cancel(TAKE(watching->timer));
}

/* With the request. */
static void watching_free(void *identity)
{
    end(identity);
    free(identity);
}

static void on_gone(void *cookie)
{
    end(cookie);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct watching *watching = cookie;
    watching->full = false;
}

static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    AUTO_TEXT text = {0};
    events_error(&text, HTTP_SSE, err);
    http_stream_send(request, text.data, text.length);
    end(cookie);
}

static const struct http_stream_events STREAM_EVENTS = {
    .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

static void fail(struct watching *watching, const struct error *err)
{
    struct http_request *request = watching->request;
    end(watching);
    if (!watching->streaming) {
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
    uint64_t at = watching->due_ns < watching->expires_ns ? watching->due_ns : watching->expires_ns;
    loop_timer_cancel(watching->timer);
    watching->timer = loop_timer_start(http_request_loop(watching->request), at, on_timer, watching);
}

/* The stream may be gone after it. */
static void send_figures(struct watching *watching, const struct sandbox_metrics *metrics)
{
    json_t *object = figures(metrics);
    json_object_set_new(object, "type", json_string("metrics"));
    void *cookie = number_cookie(watching->request);
    bool full = http_stream_send_json(watching->request, HTTP_SSE, "metrics", object) >= HTTP_STREAM_FULL_BYTES;
    watching = find(cookie);
    if (watching)
        watching->full = full;
}

static void answer_watch(void *cookie, const struct verb_answer *answer)
{
    struct watching *watching = find(cookie);
    if (!watching)
        return;
    if (answer->error.kind != ERROR_NONE) {
        fail(watching, &answer->error);
        return;
    }
    if (!watching->streaming) {
        watching->streaming = true;
        http_reply_header(watching->request, "Cache-Control", "no-store");
        http_reply_header(watching->request, "X-Accel-Buffering", "no");
        http_stream_start(watching->request, 200, "text/event-stream", &STREAM_EVENTS, watching);
        if (!find(cookie))
            return;
    }
    watching->due_ns = clock_boot_ns() + watching->interval_ns;
    plan_timer(watching);
    if (strcmp(http_request_method(watching->request), "HEAD") == 0) {
        end(watching);
        http_stream_end(watching->request);
    } else if (!watching->full) {
        send_figures(watching, answer->metrics);
    }
}

static void on_timer(void *cookie)
{
    struct watching *watching = cookie;
    watching->timer = NULL;
    if (clock_boot_ns() >= watching->expires_ns) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; watch again with a fresh one");
        fail(watching, &err);
        return;
    }
    watching->due_ns = UINT64_MAX; /* until the answer is there */
    plan_timer(watching);
    ask(watching->request, answer_watch);
}

static void handle_watch(struct http_request *request)
{
    static const char *const NAMES[] = {"interval", NULL};
    struct error err = {0};
    uint64_t interval_s = INTERVAL_S;
    if (!http_request_query_only(request, NAMES, &err) ||
        !fields_query_number(request, "interval", 1, INTERVAL_MAX_S, &interval_s, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct watching *watching = memory_new(sizeof *watching);
    watching->caller = *caller_of(request);
    watching->request = request;
    watching->interval_ns = interval_s * UINT64_C(1000000000);
    watching->expires_ns = plane_deadline_ns(watching->caller.claims.expires_at);
    watching->due_ns = UINT64_MAX;
    http_request_set_identity(request, watching, watching_free, watching->caller.claims.jti);
    http_request_when_gone(request, on_gone, watching);
    plan_timer(watching);
    ask(request, answer_watch);
}

#define CAPABILITY (HTTP_BEARER | HTTP_PATH)

static const struct http_route ROUTES[] = {
    {"GET", "/s/{sandbox}/metrics", CAPABILITY, "", 0, handle_once},
    {"GET", "/s/{sandbox}/metrics/watch", CAPABILITY, "", 0, handle_watch},
};

const struct http_route *metrics_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
