/* events.c - framing, JSON text, and the care for UTF-8 cut in two. */
#include "sandboxd/dialects/native/events.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>
#include <strings.h>

/* ---- text or base64 ---- */

/* How many bytes a sequence with this first byte has; 0 for none. */
static size_t sequence_length(uint8_t first)
{
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* Whether `rest` can be the beginning of a sequence: its first byte says more will come, the others continue it. */
static bool is_cut_sequence(const uint8_t *rest, size_t size)
{
    if (size == 0 || size >= sequence_length(rest[0]))
        return false;
    for (size_t i = 1; i < size; i++)
        if ((rest[i] & 0xc0) != 0x80)
            return false;
    return true;
}

size_t events_split(const uint8_t *data, size_t size, bool last, bool *is_text)
{
    size_t valid = text_utf8_prefix((const char *)data, size);
    *is_text = valid > 0;
    if (valid > 0)
        return valid;
    return !last && is_cut_sequence(data, size) ? 0 : size;
}

/* ---- JSON text ---- */

static void append_escaped(struct text *to, uint8_t byte)
{
    switch (byte) {
    case '"':
        text_append(to, "\\\"", 2);
        return;
    case '\\':
        text_append(to, "\\\\", 2);
        return;
    case '\n':
        text_append(to, "\\n", 2);
        return;
    case '\r':
        text_append(to, "\\r", 2);
        return;
    case '\t':
        text_append(to, "\\t", 2);
        return;
    default: {
        static const char DIGITS[] = "0123456789abcdef";
        char escaped[6] = {'\\', 'u', '0', '0', DIGITS[byte >> 4], DIGITS[byte & 15]};
        text_append(to, escaped, sizeof escaped);
    }
    }
}

/* Runs of plain bytes are copied whole. */
void events_append_escaped(struct text *to, const void *from, size_t size)
{
    const uint8_t *data = from;
    size_t plain = 0;
    for (size_t i = 0; i < size; i++) {
        if (data[i] >= 0x20 && data[i] != '"' && data[i] != '\\')
            continue;
        text_append(to, data + plain, i - plain);
        append_escaped(to, data[i]);
        plain = i + 1;
    }
    text_append(to, data + plain, size - plain);
}

static void append_base64(struct text *to, const uint8_t *data, size_t size)
{
    AUTO_FREE char *encoded = memory_new((size + 2) / 3 * 4 + 1);
    size_t length = text_base64_encode(encoded, data, size);
    text_append(to, encoded, length);
}

static void begin(struct text *to, enum http_framing framing, const char *type)
{
    if (framing == HTTP_SSE)
        text_append_format(to, "event: %s\ndata: ", type);
    text_append_format(to, "{\"type\":\"%s\"", type);
}

static void finish(struct text *to, enum http_framing framing)
{
    text_append_string(to, framing == HTTP_SSE ? "}\n\n" : "}\n");
}

void events_data(struct text *to, enum http_framing framing, enum output_stream stream, uint64_t offset,
                 const uint8_t *data, size_t size, bool is_text)
{
    begin(to, framing, output_stream_name(stream));
    text_append_format(to, ",\"offset\":%llu,\"%s\":\"", (unsigned long long)offset, is_text ? "data" : "data_b64");
    if (is_text)
        events_append_escaped(to, data, size);
    else
        append_base64(to, data, size);
    text_append(to, "\"", 1);
    finish(to, framing);
}

void events_gap(struct text *to, enum http_framing framing, enum output_stream stream, uint64_t from, uint64_t gap_to)
{
    begin(to, framing, "gap");
    text_append_format(to, ",\"stream\":\"%s\",\"from\":%llu,\"to\":%llu", output_stream_name(stream),
                       (unsigned long long)from, (unsigned long long)gap_to);
    finish(to, framing);
}

void events_keepalive(struct text *to, enum http_framing framing)
{
    begin(to, framing, "keepalive");
    finish(to, framing);
}

/* Small events go through jansson; takes the reference. `object` gets its type first. */
static void append_object(struct text *to, enum http_framing framing, const char *type, json_t *object)
{
    begin(to, framing, type);
    AUTO_FREE char *dumped = json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (dumped && strlen(dumped) > 2) {
        dumped[strlen(dumped) - 1] = 0;
        text_append_format(to, ",%s", dumped + 1);
    }
    finish(to, framing);
    json_decref(object);
}

static json_t *valid_text(const char *text)
{
    return json_stringn(text, text_utf8_prefix(text, strlen(text)));
}

void events_put_terminal(json_t *object, const struct process_view *view)
{
    json_object_set_new(object, "tty", json_boolean(view->terminal));
    if (view->terminal) {
        json_object_set_new(object, "cols", json_integer(view->columns));
        json_object_set_new(object, "rows", json_integer(view->rows));
    }
    json_object_set_new(object, "stdin_offset", json_integer((json_int_t)view->stdin_offset));
}

void events_started(struct text *to, enum http_framing framing, const struct process_view *view)
{
    json_t *object = json_object();
    json_object_set_new(object, "id", valid_text(view->id));
    json_object_set_new(object, "pid", json_integer(view->pid));
    events_put_terminal(object, view);
    append_object(to, framing, "started", object);
}

void events_put_end(json_t *object, const struct process_end *end)
{
    json_object_set_new(object, "exit_code", json_integer(end->exit_code));
    if (end->signal) {
        char name[EVENTS_SIGNAL_BYTES];
        events_signal_name(name, end->signal);
        json_object_set_new(object, "signal", json_string(name));
    }
    if (end->oom)
        json_object_set_new(object, "oom", json_true());
    if (end->timed_out)
        json_object_set_new(object, "timed_out", json_true());
    json_object_set_new(object, "usage",
                        json_pack("{s:I,s:I,s:I}", "wall_ms", (json_int_t)end->wall_ms, "cpu_ms",
                                  (json_int_t)end->cpu_ms, "max_rss", (json_int_t)end->max_rss_bytes));
}

void events_exit(struct text *to, enum http_framing framing, const struct process_view *view)
{
    json_t *object = json_object();
    events_put_end(object, &view->end);
    append_object(to, framing, "exit", object);
}

void events_error(struct text *to, enum http_framing framing, const struct error *err)
{
    json_t *object = json_object();
    json_object_set_new(object, "code", json_string(error_code(err->kind)));
    json_object_set_new(object, "message", valid_text(err->message));
    json_object_set_new(object, "retryable", json_boolean(error_retryable(err->kind)));
    append_object(to, framing, "error", object);
}

static json_t *time_text(int64_t wall_ms)
{
    char text[CLOCK_TEXT_BYTES];
    clock_format(text, wall_ms);
    return json_string(text);
}

static json_t *stream_facts(const struct process_view *view, enum output_stream stream)
{
    return json_pack("{s:I,s:I}", "bytes", (json_int_t)view->length[stream], "kept_from",
                     (json_int_t)view->kept_from[stream]);
}

json_t *events_process(const struct process_view *view)
{
    json_t *object = json_object();
    json_object_set_new(object, "id", valid_text(view->id));
    json_object_set_new(object, "pid", json_integer(view->pid));
    json_object_set_new(object, "command", valid_text(view->title));
    json_object_set_new(object, "state", json_string(view->ended ? "ended" : "running"));
    json_object_set_new(object, "stdin", json_string(view->stdin_open ? "open" : "closed"));
    events_put_terminal(object, view);
    json_object_set_new(object, "started_at", time_text(view->started_ms));
    if (view->timeout_ms)
        json_object_set_new(object, "timeout", json_real((double)view->timeout_ms / 1000.0));
    json_object_set_new(object, "stdout", stream_facts(view, OUTPUT_STDOUT));
    json_object_set_new(object, "stderr", stream_facts(view, OUTPUT_STDERR));
    if (view->output_gone)
        json_object_set_new(object, "output_gone", json_true());
    if (!view->ended)
        return object;
    json_object_set_new(object, "ended_at", time_text(view->end.ended_ms));
    events_put_end(object, &view->end);
    return object;
}

/* ---- signals ---- */

enum { SIGNAL_LAST = 64 };

void events_signal_name(char to[static EVENTS_SIGNAL_BYTES], int number)
{
    const char *name = number > 0 && number <= SIGNAL_LAST ? sigabbrev_np(number) : NULL;
    if (!name || !text_format(to, EVENTS_SIGNAL_BYTES, "SIG%s", name))
        snprintf(to, EVENTS_SIGNAL_BYTES, "SIG%d", number);
}

static bool signal_by_name(const char *text, int *number)
{
    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    for (int i = 1; i <= SIGNAL_LAST; i++) {
        const char *known = sigabbrev_np(i);
        if (known && strcasecmp(known, name) == 0) {
            *number = i;
            return true;
        }
    }
    return false;
}

bool events_signal_parse(const json_t *value, int *number)
{
    if (json_is_string(value)) {
        uint64_t parsed;
        if (!text_parse_u64(json_string_value(value), json_string_length(value), SIGNAL_LAST, &parsed))
            return signal_by_name(json_string_value(value), number);
        *number = (int)parsed;
        return parsed >= 1;
    }
    json_int_t given = json_is_integer(value) ? json_integer_value(value) : 0;
    if (given < 1 || given > SIGNAL_LAST)
        return false;
    *number = (int)given;
    return true;
}
