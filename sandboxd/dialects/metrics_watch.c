#include "sandboxd/dialects/metrics_watch.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

/* The identity of such a request, so that a verb's answer finds it by the request's number. */
struct watching {
    struct caller caller; /* first: it is the identity's shape */
    struct http_request *request;
    const struct metrics_words *words;
    uint64_t interval_ns, expires_ns; /* the last in boot time */
    struct metrics_look look;         /* the last one, when has_look */
    bool has_look;
    bool once;
    struct loop_timer *timer;
    bool streaming;
    bool full; /* what was sent waits: the next figures are left out */
    bool over; /* the request is dead for us */
};

static void *number_cookie(const struct http_request *request)
{
    return (void *)(uintptr_t)http_request_number(request);
}

/* NULL when it is over. */
static struct watching *find(void *cookie)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    struct watching *watching = request ? http_request_identity(request) : NULL;
    return watching && !watching->over ? watching : NULL;
}

/* ---- the end ---- */

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

static void send_error(const struct watching *watching, struct http_request *request, const struct error *err)
{
    AUTO_TEXT text = {0};
    watching->words->append_error(&text, request, err);
    http_stream_send(request, text.data, text.length);
}

static void on_cut(struct http_request *request, void *cookie, const struct error *err)
{
    struct watching *watching = cookie;
    end(watching);
    send_error(watching, request, err);
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
    send_error(watching, request, err);
    http_stream_end(request);
}

/* ---- looks ---- */

static void on_answer(void *cookie, const struct verb_answer *answer);

static void look(const struct watching *watching)
{
    sandboxes_metrics(plane_of(watching->request)->sandboxes, watching->caller.claims.sandbox_id, on_answer,
                      number_cookie(watching->request));
}

static void on_timer(void *cookie);

/* The next look; UINT64_MAX: only the end of the token. */
static void plan(struct watching *watching, uint64_t due_ns)
{
    uint64_t at = due_ns < watching->expires_ns ? due_ns : watching->expires_ns;
    loop_timer_cancel(watching->timer);
    watching->timer = loop_timer_start(http_request_loop(watching->request), at, on_timer, watching);
}

static void on_timer(void *cookie)
{
    struct watching *watching = cookie;
    watching->timer = NULL;
    if (clock_boot_ns() >= watching->expires_ns) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "%s", watching->words->expired);
        fail(watching, &err);
        return;
    }
    plan(watching, UINT64_MAX); /* until the answer is there */
    look(watching);
}

/* ---- figures ---- */

/* False when it is over by then. */
static bool start_stream(struct watching *watching)
{
    struct http_request *request = watching->request;
    void *cookie = number_cookie(request);
    watching->streaming = true;
    http_reply_header(request, "Cache-Control", watching->words->cache_control);
    http_reply_header(request, "X-Accel-Buffering", "no");
    http_stream_start(request, 200, "text/event-stream", &STREAM_EVENTS, watching);
    if (!find(cookie))
        return false;
    if (strcmp(http_request_method(request), "HEAD") != 0)
        return true;
    end(watching);
    http_stream_end(request);
    return false;
}

/* The stream may be gone after it. */
static void send_figures(struct watching *watching, json_t *figures)
{
    void *cookie = number_cookie(watching->request);
    bool full = watching->words->send(watching->request, figures) >= HTTP_STREAM_FULL_BYTES;
    watching = find(cookie);
    if (watching)
        watching->full = full;
}

static json_t *take_look(struct watching *watching, const struct sandbox_metrics *now, uint64_t now_ns)
{
    json_t *figures =
        watching->full ? NULL : watching->words->figures(now, now_ns, watching->has_look ? &watching->look : NULL);
    watching->has_look = true;
    watching->look = (struct metrics_look){.at_ns = now_ns, .cpu_used_ms = now->cpu_used_ms};
    return figures;
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
    json_t *figures = take_look(watching, answer->metrics, now_ns);
    if (watching->once && figures) {
        end(watching);
        http_reply_json(watching->request, 200, figures);
        return;
    }
    if (!watching->once && !watching->streaming && !start_stream(watching)) {
        json_decref(figures);
        return;
    }
    plan(watching, now_ns + watching->interval_ns);
    if (figures)
        send_figures(watching, figures);
}

void metrics_watch(struct http_request *request, const struct metrics_words *words, uint64_t interval_ns, bool once)
{
    struct watching *watching = memory_new(sizeof *watching);
    watching->caller = *caller_of(request);
    watching->request = request;
    watching->words = words;
    watching->interval_ns = interval_ns;
    watching->once = once;
    watching->expires_ns = plane_deadline_ns(watching->caller.claims.expires_at);
    http_request_set_identity(request, watching, watching_free, watching->caller.claims.jti);
    http_request_when_gone(request, on_gone, watching);
    plan(watching, UINT64_MAX);
    look(watching);
}
