#include "clients/c/remote_events.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

void remote_events_done(struct remote_events *events)
{
    text_done(&events->line);
}

void remote_events_restart(struct remote_events *events)
{
    text_done(&events->line);
}

static void note(const struct remote_events *events, const char *sentence)
{
    if (events->command->note)
        events->command->note(events->command->cookie, sentence);
}

static bool wrong(struct remote_events *events, const char *what)
{
    return error_set(&events->error, ERROR_INTERNAL, "the event stream is broken: %s", what);
}

/* Bytes that were told before a reconnect are skipped; a hole is told. */
static bool deliver(struct remote_events *events, bool is_stderr, const char *data, size_t size, uint64_t offset)
{
    uint64_t expected = events->offsets[is_stderr];
    if (offset > expected)
        note(events, "some output was not kept by the sandbox and is missing here");
    uint64_t skip = offset < expected ? expected - offset : 0;
    if (skip >= size)
        return true;
    events->offsets[is_stderr] = offset + size;
    if (events->command->output(events->command->cookie, is_stderr, data + skip, size - (size_t)skip))
        return true;
    events->end->abandoned = true;
    return error_set(&events->error, ERROR_GONE, "nobody reads the output");
}

static bool read_output(struct remote_events *events, const json_t *event, bool is_stderr)
{
    const json_t *offset = json_object_get(event, "offset");
    const json_t *plain = json_object_get(event, "data");
    const json_t *coded = json_object_get(event, "data_b64");
    if (!json_is_integer(offset) || json_integer_value(offset) < 0)
        return wrong(events, "output without an offset");
    uint64_t at = (uint64_t)json_integer_value(offset);
    if (json_is_string(plain))
        return deliver(events, is_stderr, json_string_value(plain), json_string_length(plain), at);
    if (!json_is_string(coded))
        return wrong(events, "output without data");
    size_t size = json_string_length(coded);
    AUTO_FREE char *bytes = memory_new(size + 1);
    if (!text_base64_decode(bytes, size, &size, json_string_value(coded), json_string_length(coded)))
        return wrong(events, "data_b64 is not base64");
    return deliver(events, is_stderr, bytes, size, at);
}

bool remote_end_read(struct remote_end *end, const json_t *event)
{
    const json_t *code = json_object_get(event, "exit_code");
    const char *signal = json_string_value(json_object_get(event, "signal"));
    if (!json_is_integer(code))
        return false;
    end->exit_code = (int)json_integer_value(code);
    snprintf(end->signal, sizeof end->signal, "%s", signal ? signal : "");
    end->timed_out = json_is_true(json_object_get(event, "timed_out"));
    end->oom = json_is_true(json_object_get(event, "oom"));
    return true;
}

static bool read_exit(struct remote_events *events, const json_t *event)
{
    events->ended = remote_end_read(events->end, event);
    return events->ended || wrong(events, "an exit without exit_code");
}

static bool read_error(struct remote_events *events, const json_t *event)
{
    const json_t *inner = json_object_get(event, "error");
    inner = inner ? inner : event;
    const char *code = json_string_value(json_object_get(inner, "code"));
    const char *message = json_string_value(json_object_get(inner, "message"));
    return error_set(&events->error, code ? error_kind_of_code(code) : ERROR_INTERNAL, "%s",
                     message ? message : "the sandbox reported an error without a reason");
}

static bool read_event(struct remote_events *events, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    if (!type)
        return wrong(events, "an event without a type");
    if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0)
        return read_output(events, event, type[3] == 'e');
    if (strcmp(type, "exit") == 0)
        return read_exit(events, event);
    if (strcmp(type, "error") == 0)
        return read_error(events, event);
    if (strcmp(type, "started") == 0)
        events->end->started = true;
    return true; /* keepalive, gap (seen by the offsets), and what later servers may add */
}

static bool read_line(struct remote_events *events)
{
    if (events->line.length == 0)
        return true;
    json_t *event = json_loadb(events->line.data, events->line.length, JSON_ALLOW_NUL, NULL);
    bool good = event ? read_event(events, event) : wrong(events, "a line that is no JSON");
    json_decref(event);
    events->line.length = 0;
    return good;
}

bool remote_events_feed(struct remote_events *events, const char *data, size_t size)
{
    while (size > 0 && !events->ended) {
        const char *newline = memchr(data, '\n', size);
        size_t part = newline ? (size_t)(newline - data) : size;
        if (events->line.length + part > REMOTE_LINE_MAX_BYTES)
            return wrong(events, "a line over 4 MiB");
        text_append(&events->line, data, part);
        if (!newline)
            return true;
        if (!read_line(events))
            return false;
        data += part + 1;
        size -= part + 1;
    }
    return true;
}
