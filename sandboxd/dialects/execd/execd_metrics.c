/* execd_metrics.c - how busy the processors were is what was used between two looks: a tenth of a second apart for one
 * answer, a second each for a stream. */
#include "sandboxd/dialects/execd/execd_metrics.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

#define ONCE_NS  UINT64_C(100000000)
#define WATCH_NS UINT64_C(1000000000)

static const double MIB = 1024 * 1024;

/* The identity of such a request, so that a verb's answer finds it by the request's number. */
struct watching {
    struct caller caller; /* first: it is the identity's shape */
    struct http_request *request;
    bool goes_on;     /* a stream */
    bool has_look;    /* the two below hold */
    uint64_t look_ns; /* boot time */
    uint64_t look_cpu_ms;
    uint64_t expires_ns, due_ns; /* boot time */
    struct loop_timer *timer;
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

/* {"error": ...} as a line, and the end. */
static void append_error(struct text *to, const struct http_request *request, const struct error *err)
{
    json_t *body = execd_error(request, err);
    json_t *line = body && json_object_get(body, "error")
                       ? json_incref(body)
                       : json_pack("{s:O}", "error", json_object_get(body, "message"));
    AUTO_FREE char *text = json_dumps(line, JSON_COMPACT);
    text_append_string(to, text ? text : "{}");
    text_append(to, "\n", 1);
    json_decref(line);
    json_decref(body);
}

static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    AUTO_TEXT text = {0};
    append_error(&text, request, err);
    http_stream_send(request, text.data, text.length);
    end(cookie);
}

static const struct http_stream_events STREAM_EVENTS = {
    .drained = on_drained, .gone = on_gone, .cut = on_cut, .cut_stalled = true};

/* ---- figures ---- */

static double busy_percent(const struct watching *watching, const struct sandbox_metrics *now, uint64_t now_ns)
{
    double wall_ms = (double)(now_ns - watching->look_ns) / 1e6;
    double cpu_ms = now->cpu_used_ms > watching->look_cpu_ms ? (double)(now->cpu_used_ms - watching->look_cpu_ms) : 0;
    double might_ms = wall_ms * now->limits.cpu_milli / 1000;
    double percent = might_ms > 0 ? cpu_ms / might_ms * 100 : 0;
    return percent > 100 ? 100 : percent;
}

static json_t *figures(const struct watching *watching, const struct sandbox_metrics *now, uint64_t now_ns)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:I}", "cpu_count", now->limits.cpu_milli / 1000.0, "cpu_used_pct",
                     busy_percent(watching, now, now_ns), "mem_total_mib", (double)now->limits.memory_bytes / MIB,
                     "mem_used_mib", (double)now->memory_used_bytes / MIB, "timestamp", (json_int_t)clock_wall_ms());
}

/* ---- looks ---- */

static void on_answer(void *cookie, const struct verb_answer *answer);

static void *number_cookie(const struct http_request *request)
{
    return (void *)(uintptr_t)http_request_number(request);
}

static void look(const struct watching *watching)
{
    sandboxes_metrics(plane_of(watching->request)->sandboxes, watching->caller.claims.sandbox_id, on_answer,
                      number_cookie(watching->request));
}

static void fail(struct watching *watching, const struct error *err)
{
    struct http_request *request = watching->request;
    bool is_streaming = watching->goes_on && watching->has_look;
    end(watching);
    if (!is_streaming) {
        http_reply_error(request, err);
        return;
    }
    AUTO_TEXT text = {0};
    append_error(&text, request, err);
    http_stream_send(request, text.data, text.length);
    http_stream_end(request);
}

static void on_timer(void *cookie);

static void plan(struct watching *watching, uint64_t due_ns)
{
    uint64_t at = due_ns < watching->expires_ns ? due_ns : watching->expires_ns;
    watching->due_ns = due_ns;
    loop_timer_cancel(watching->timer);
    watching->timer = loop_timer_start(http_request_loop(watching->request), at, on_timer, watching);
}

static void on_timer(void *cookie)
{
    struct watching *watching = cookie;
    watching->timer = NULL;
    if (clock_boot_ns() >= watching->expires_ns) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired");
        fail(watching, &err);
        return;
    }
    plan(watching, UINT64_MAX); /* until the answer is there */
    look(watching);
}

/* NULL: it is over. */
static struct watching *start_stream(struct watching *watching)
{
    struct http_request *request = watching->request;
    void *cookie = number_cookie(request);
    http_reply_header(request, "Cache-Control", "no-cache");
    http_reply_header(request, "X-Accel-Buffering", "no");
    http_stream_start(request, 200, "text/event-stream", &STREAM_EVENTS, watching);
    watching = find(cookie);
    if (watching && strcmp(http_request_method(request), "HEAD") == 0) {
        end(watching);
        http_stream_end(request);
        return NULL;
    }
    return watching;
}

/* The first look: from it on is measured. */
static void begin(struct watching *watching)
{
    if (watching->goes_on)
        watching = start_stream(watching);
    if (watching)
        plan(watching, clock_boot_ns() + (watching->goes_on ? WATCH_NS : ONCE_NS));
}

/* The stream may be gone after it. */
static void send_figures(struct watching *watching, json_t *figures)
{
    void *cookie = number_cookie(watching->request);
    AUTO_FREE char *line = json_dumps(figures, JSON_COMPACT);
    AUTO_TEXT text = {0};
    json_decref(figures);
    text_append_string(&text, line ? line : "{}");
    text_append(&text, "\n", 1);
    bool full = http_stream_send(watching->request, text.data, text.length) >= HTTP_STREAM_FULL_BYTES;
    watching = find(cookie);
    if (watching)
        watching->full = full;
}

static void on_answer(void *cookie, const struct verb_answer *answer)
{
    struct watching *watching = find(cookie);
    if (!watching)
        return;
    if (answer->error.kind != ERROR_NONE) {
        fail(watching, &answer->error);
        return;
    }
    uint64_t now_ns = clock_boot_ns();
    bool is_first = !watching->has_look;
    json_t *shown = is_first || watching->full ? NULL : figures(watching, answer->metrics, now_ns);
    watching->has_look = true;
    watching->look_ns = now_ns;
    watching->look_cpu_ms = answer->metrics->cpu_used_ms;
    if (is_first) {
        begin(watching);
    } else if (!watching->goes_on) {
        struct http_request *request = watching->request;
        end(watching);
        http_reply_json(request, 200, shown);
    } else {
        plan(watching, now_ns + WATCH_NS);
        if (shown)
            send_figures(watching, shown);
    }
}

static void start(struct http_request *request, bool goes_on)
{
    struct watching *watching = memory_new(sizeof *watching);
    watching->caller = *caller_of(request);
    watching->request = request;
    watching->goes_on = goes_on;
    watching->expires_ns = plane_deadline_ns(watching->caller.claims.expires_at);
    http_request_set_identity(request, watching, watching_free, watching->caller.claims.jti);
    http_request_when_gone(request, on_gone, watching);
    plan(watching, UINT64_MAX);
    look(watching);
}

static void handle_once(struct http_request *request)
{
    start(request, false);
}

static void handle_watch(struct http_request *request)
{
    start(request, true);
}

static const struct http_route ROUTES[] = {
    {"GET", EXECD_PREFIX "/metrics", EXECD_CARRIERS, "", 0, handle_once},
    {"GET", EXECD_PREFIX "/metrics/watch", EXECD_CARRIERS, "", 0, handle_watch},
};

const struct http_route *execd_metrics_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
