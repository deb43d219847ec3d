/* execd_metrics.c - how busy the processors were is what was used between two looks: a tenth of a second apart for one
 * answer, a second each for a stream. */
#include "sandboxd/dialects/execd/execd_metrics.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/metrics_watch.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#define ONCE_NS  UINT64_C(100000000)
#define WATCH_NS UINT64_C(1000000000)

static const double MIB = 1024 * 1024;

static double busy_percent(const struct sandbox_metrics *now, uint64_t now_ns, const struct metrics_look *before)
{
    double wall_ms = (double)(now_ns - before->at_ns) / 1e6;
    double cpu_ms = now->cpu_used_ms > before->cpu_used_ms ? (double)(now->cpu_used_ms - before->cpu_used_ms) : 0;
    double might_ms = wall_ms * now->limits.cpu_milli / 1000;
    double percent = might_ms > 0 ? cpu_ms / might_ms * 100 : 0;
    return percent > 100 ? 100 : percent;
}

/* From the first look on is measured. */
static json_t *figures(const struct sandbox_metrics *now, uint64_t now_ns, const struct metrics_look *before)
{
    if (!before)
        return NULL;
    return json_pack("{s:f,s:f,s:f,s:f,s:I}", "cpu_count", now->limits.cpu_milli / 1000.0, "cpu_used_pct",
                     busy_percent(now, now_ns, before), "mem_total_mib", (double)now->limits.memory_bytes / MIB,
                     "mem_used_mib", (double)now->memory_used_bytes / MIB, "timestamp", (json_int_t)clock_wall_ms());
}

/* A line of JSON. */
static size_t send_figures(struct http_request *request, json_t *figures)
{
    AUTO_FREE char *line = json_dumps(figures, JSON_COMPACT);
    AUTO_TEXT text = {0};
    json_decref(figures);
    text_append_string(&text, line ? line : "{}");
    text_append(&text, "\n", 1);
    return http_stream_send(request, text.data, text.length);
}

/* {"error": ...} as a line. */
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

static const struct metrics_words WORDS = {.cache_control = "no-cache",
                                           .expired = "the token expired",
                                           .figures = figures,
                                           .send = send_figures,
                                           .append_error = append_error};

static void handle_once(struct http_request *request)
{
    metrics_watch(request, &WORDS, ONCE_NS, true);
}

static void handle_watch(struct http_request *request)
{
    metrics_watch(request, &WORDS, WATCH_NS, false);
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
