#include "clients/c/remote_events.h"

#include "clients/c/remote_http.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct reading {
    const struct remote_events *wanted;
    struct text line, data; /* of the event that comes */
    uint64_t id, last;      /* said by the stream; of the last event that was passed on */
    bool has_last, is_ready, is_failure, is_left;
};

static bool starts_with(const char *line, size_t length, const char *start)
{
    return length >= strlen(start) && memcmp(line, start, strlen(start)) == 0;
}

static bool fail(const json_t *error, struct error *err)
{
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    return error_set(err, error_kind_of_code(code ? code : ""), "%s", message ? message : "the stream of events ended");
}

/* An event is over; false when nothing more is wanted of this stream, with err. */
static bool take_event(struct reading *reading, struct error *err)
{
    json_t *event = reading->data.length ? json_loadb(reading->data.data, reading->data.length, 0, NULL) : NULL;
    const json_t *error = json_object_get(event, "error");
    bool goes_on = true;
    if (reading->is_failure)
        goes_on = fail(error ? error : event, err);
    else if (json_is_object(event) && !reading->is_ready)
        reading->is_left = !reading->wanted->visit(reading->wanted->cookie, event);
    reading->last = reading->id;
    reading->data.length = 0;
    reading->is_failure = reading->is_ready = false;
    json_decref(event);
    return goes_on && (!reading->is_left || error_set(err, ERROR_GONE, "enough was seen"));
}

static bool take_line(struct reading *reading, struct error *err)
{
    const char *line = reading->line.data ? reading->line.data : "";
    size_t length = reading->line.length;
    if (length == 0)
        return take_event(reading, err);
    if (starts_with(line, length, "id: ") && text_parse_u64(line + 4, length - 4, INT64_MAX, &reading->id))
        reading->has_last = true;
    else if (starts_with(line, length, "data: "))
        text_append(&reading->data, line + 6, length - 6);
    else if (starts_with(line, length, "event: ready"))
        reading->is_ready = true;
    else if (starts_with(line, length, "event: error"))
        reading->is_failure = true;
    return true;
}

static bool on_bytes(void *cookie, const void *data, size_t size, struct error *err)
{
    struct reading *reading = cookie;
    const char *at = data, *end = at + size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        if (reading->line.length + reading->data.length + length > REMOTE_EVENT_MAX_BYTES)
            return error_set(err, ERROR_INTERNAL, "the negotiator's event is over %d bytes", REMOTE_EVENT_MAX_BYTES);
        text_append(&reading->line, at, length);
        at += length + (stop != NULL);
        if (!stop)
            break;
        if (!take_line(reading, err))
            return false;
        reading->line.length = 0;
    }
    return true;
}

/* One stream. What it had begun of an event comes again with the next one. */
static bool stream(CURL *curl, const struct place *place, struct reading *reading, struct error *err)
{
    char header[64];
    AUTO_FREE char *url = memory_printf("%s%s", place->url, reading->wanted->path);
    struct remote_http http = {
        .method = "GET", .url = url, .credential = place->api_key, .write = on_bytes, .cookie = reading};
    snprintf(header, sizeof header, "Last-Event-ID: %" PRIu64, reading->last);
    if (reading->has_last)
        http.headers = curl_slist_append(NULL, header);
    reading->line.length = reading->data.length = 0;
    reading->is_failure = reading->is_ready = false;
    bool ended = remote_http_perform(curl, &http, err);
    text_done(&http.reply);
    return ended;
}

static bool is_worth_another(const struct reading *reading, const struct error *err)
{
    return reading->wanted->follow && reading->has_last &&
           (err->kind == ERROR_NONE || err->kind == ERROR_NODE_UNREACHABLE || err->kind == ERROR_TIMEOUT ||
            err->kind == ERROR_TOKEN_EXPIRED || err->kind == ERROR_RATE_LIMITED || err->kind == ERROR_NO_CAPACITY);
}

bool remote_events(const struct place *place, const struct remote_events *wanted, struct error *err)
{
    struct reading reading = {.wanted = wanted};
    struct error failure = {0};
    CURL *curl = curl_easy_init();
    bool ended = curl || error_set(&failure, ERROR_INTERNAL, "libcurl does not start");
    while (curl) {
        failure = (struct error){0};
        ended = stream(curl, place, &reading, &failure);
        if (reading.is_left || !is_worth_another(&reading, &failure) ||
            (wanted->lost && !wanted->lost(wanted->cookie, &failure)))
            break;
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    }
    curl_easy_cleanup(curl);
    text_done(&reading.line);
    text_done(&reading.data);
    if (ended || reading.is_left)
        return true;
    if (err)
        *err = failure;
    return false;
}
