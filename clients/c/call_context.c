#include "clients/c/call_context.h"

#include "shared/base/random.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_MAX = 512, HEADERS = 3 };

/* Written before threads start, but for `has_failed`. */
static struct {
    char request_id[RANDOM_ID_BYTES];
    char traceparent[VALUE_MAX + 1], tracestate[VALUE_MAX + 1];
    atomic_bool has_failed;
} context;

/* Else it is "". */
static void take_value(char *to, const char *value)
{
    bool is_sound = value != NULL && strlen(value) <= VALUE_MAX;
    for (const char *c = value; is_sound && *c != '\0'; c++)
        is_sound = *c >= 0x20 && *c < 0x7F;
    snprintf(to, VALUE_MAX + 1, "%s", is_sound ? value : "");
}

void call_context_start(const char *traceparent, const char *tracestate)
{
    random_id(context.request_id, "req");
    take_value(context.traceparent, traceparent);
    take_value(context.tracestate, traceparent != NULL ? tracestate : NULL);
}

const char *call_context_request_id(void)
{
    return context.request_id;
}

void call_context_note_failure(void)
{
    context.has_failed = true;
}

const char *call_context_failed_id(void)
{
    return context.has_failed && context.request_id[0] != '\0' ? context.request_id : NULL;
}

static void each(void (*take)(void *to, const char *line), void *to)
{
    const char *const headers[HEADERS][2] = {
        {"X-Request-ID", context.request_id}, {"traceparent", context.traceparent}, {"tracestate", context.tracestate}};
    for (size_t i = 0; i < HEADERS; i++) {
        char line[VALUE_MAX + 32];
        if (headers[i][1][0] == '\0')
            continue;
        snprintf(line, sizeof line, "%s: %s", headers[i][0], headers[i][1]);
        take(to, line);
    }
}

static void take_header(void *to, const char *line)
{
    struct curl_slist **headers = to;
    *headers = curl_slist_append(*headers, line);
}

struct curl_slist *call_context_add(struct curl_slist *headers)
{
    each(take_header, &headers);
    return headers;
}

static void take_line(void *to, const char *line)
{
    text_append_format(to, "%s\r\n", line);
}

void call_context_write(struct text *to)
{
    each(take_line, to);
}
