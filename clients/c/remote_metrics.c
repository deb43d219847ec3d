#include "clients/c/remote_metrics.h"

#include "clients/c/call.h"
#include "clients/c/remote_http.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

static const size_t EVENT_MAX_BYTES = 65536;

/* A stream of events (SSE) and who wants to see them. */
struct watching {
    struct text line, data; /* of the event that comes */
    bool (*visit)(void *cookie, const json_t *metrics);
    void *cookie;
    size_t seen;
    enum { METRICS, FAILURE, OTHER } kind; /* of the event that comes */
    bool is_left;                          /* visit has enough */
};

bool remote_metrics_get(const struct grant *grant, json_t **metrics, struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s/metrics", grant->http);
    struct call call = {.method = "GET", .url = url, .credential = grant->token};
    return call_json(&call, metrics, NULL, err);
}

/* An event is over: false when nothing more is to come, with err. */
static bool take_event(struct watching *watching, struct error *err)
{
    json_t *event = watching->data.length ? json_loadb(watching->data.data, watching->data.length, 0, NULL) : NULL;
    bool goes_on = true;
    if (json_is_object(event) && watching->kind == METRICS) {
        watching->seen++;
        watching->is_left = !watching->visit(watching->cookie, event);
        goes_on = !watching->is_left || error_set(err, ERROR_GONE, "enough was seen");
    } else if (json_is_object(event) && watching->kind == FAILURE) {
        const char *message = json_string_value(json_object_get(event, "message"));
        goes_on = error_set(err, error_kind_of_code(json_string_value(json_object_get(event, "code"))), "%s",
                            message ? message : "the node ended the stream without a reason");
    }
    json_decref(event);
    watching->data.length = 0;
    watching->kind = METRICS;
    return goes_on;
}

static bool starts_with(const char *line, size_t length, const char *start)
{
    return length >= strlen(start) && memcmp(line, start, strlen(start)) == 0;
}

static bool take_line(struct watching *watching, struct error *err)
{
    const char *line = watching->line.data ? watching->line.data : "";
    size_t length = watching->line.length;
    length -= length > 0 && line[length - 1] == '\r';
    if (length == 0)
        return take_event(watching, err);
    if (starts_with(line, length, "data:"))
        text_append(&watching->data, line + 5, length - 5);
    else if (starts_with(line, length, "event:"))
        watching->kind = memmem(line, length, "metrics", 7) ? METRICS
                         : memmem(line, length, "error", 5) ? FAILURE
                                                            : OTHER;
    return true;
}

static bool on_bytes(void *cookie, const void *data, size_t size, struct error *err)
{
    struct watching *watching = cookie;
    const char *at = data, *end = at + size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        if (watching->line.length + watching->data.length + length > EVENT_MAX_BYTES)
            return error_set(err, ERROR_INTERNAL, "the node's event is over 64 KiB");
        text_append(&watching->line, at, length);
        at += length + (stop != NULL);
        if (!stop)
            break;
        if (!take_line(watching, err))
            return false;
        watching->line.length = 0;
    }
    return true;
}

bool remote_metrics_watch(const struct grant *grant, unsigned interval_s,
                          bool (*visit)(void *cookie, const json_t *metrics), void *cookie, size_t *seen,
                          struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s/metrics/watch?interval=%u", grant->http, interval_s);
    struct watching watching = {.visit = visit, .cookie = cookie};
    struct remote_http http = {
        .method = "GET", .url = url, .credential = grant->token, .write = on_bytes, .cookie = &watching};
    CURL *curl = curl_easy_init();
    struct error failure = {0};
    bool ended = curl ? remote_http_perform(curl, &http, &failure)
                      : error_set(&failure, ERROR_INTERNAL, "libcurl does not start");
    curl_easy_cleanup(curl);
    text_done(&http.reply);
    text_done(&watching.line);
    text_done(&watching.data);
    if (seen)
        *seen = watching.seen;
    if (ended || watching.is_left)
        return true;
    if (err)
        *err = failure;
    return false;
}
