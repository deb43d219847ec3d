/* metrics.c - one verb, answered once or again and again. */
#include "sandboxd/dialects/native/metrics.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/metrics_watch.h"
#include "sandboxd/dialects/native/events.h"
#include "shared/base/clock.h"

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

static void handle_once(struct http_request *request)
{
    static const char *const NAMES[] = {NULL};
    struct error err = {0};
    if (http_request_query_only(request, NAMES, &err))
        sandboxes_metrics(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, answer_once,
                          (void *)(uintptr_t)http_request_number(request));
    else
        http_reply_error(request, &err);
}

/* ---- again and again ---- */

static json_t *watched_figures(const struct sandbox_metrics *now, uint64_t now_ns UNUSED,
                               const struct metrics_look *before UNUSED)
{
    json_t *object = figures(now);
    json_object_set_new(object, "type", json_string("metrics"));
    return object;
}

static size_t send_figures(struct http_request *request, json_t *figures)
{
    return http_stream_send_json(request, HTTP_SSE, "metrics", figures);
}

static void append_error(struct text *to, const struct http_request *request UNUSED, const struct error *err)
{
    events_error(to, HTTP_SSE, err);
}

static void handle_watch(struct http_request *request)
{
    static const char *const NAMES[] = {"interval", NULL};
    static const struct metrics_words WORDS = {.cache_control = "no-store",
                                               .expired = "the token expired; watch again with a fresh one",
                                               .figures = watched_figures,
                                               .send = send_figures,
                                               .append_error = append_error};
    struct error err = {0};
    uint64_t interval_s = INTERVAL_S;
    if (!http_request_query_only(request, NAMES, &err) ||
        !fields_query_number(request, "interval", 1, INTERVAL_MAX_S, &interval_s, &err)) {
        http_reply_error(request, &err);
        return;
    }
    metrics_watch(request, &WORDS, interval_s * UINT64_C(1000000000), false);
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
