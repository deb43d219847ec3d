/* execd_events.c - see execd_events.h. */
#include "sandboxd/dialects/execd/execd_events.h"

#include "shared/base/clock.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */

/* ---- JSON text ---- */

static void append_escaped(struct text *to, unsigned char byte)
{
    static const char DIGITS[] = "0123456789abcdef", SHORT[] = "\b\f\n\r\t\"\\", LETTERS[] = "bfnrt\"\\";
    const char *found = byte ? strchr(SHORT, byte) : NULL;
    char escaped[6] = {'\\', 'u', '0', '0', DIGITS[byte >> 4], DIGITS[byte & 15]};
    if (found)
        escaped[1] = LETTERS[found - SHORT];
    text_append(to, escaped, found ? 2 : sizeof escaped);
}

/* Valid UTF-8; runs of plain bytes are copied whole. */
static void append_valid(struct text *to, const char *data, size_t size)
{
    size_t plain = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)data[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        text_append(to, data + plain, i - plain);
        append_escaped(to, byte);
        plain = i + 1;
    }
    text_append(to, data + plain, size - plain);
}

static void append_string(struct text *to, const void *from, size_t size)
{
    const char *data = from;
    text_append(to, "\"", 1);
    while (size > 0) {
        size_t valid = text_utf8_prefix(data, size);
        append_valid(to, data, valid);
        if (valid < size) {
            text_append_string(to, REPLACEMENT);
            valid++;
        }
        data += valid;
        size -= valid;
    }
    text_append(to, "\"", 1);
}

/* ---- events ---- */

static void begin(struct text *to, const char *type)
{
    text_append_format(to, "{\"type\":\"%s\"", type);
}

static void finish(struct text *to)
{
    text_append_format(to, ",\"timestamp\":%lld}\n\n", (long long)clock_wall_ms());
}

void execd_event_text(struct text *to, const char *type, const void *text, size_t size)
{
    begin(to, type);
    if (size > 0) {
        text_append_string(to, ",\"text\":");
        append_string(to, text, size);
    }
    finish(to);
}

void execd_event_ping(struct text *to)
{
    execd_event_text(to, "ping", "pong", 4);
}

void execd_event_line(struct text *to, enum output_stream stream, const void *line, size_t size)
{
    execd_event_text(to, output_stream_name(stream), size ? line : "\n", size ? size : 1);
}

void execd_event_error(struct text *to, const char *name, const char *value, const char *const *traceback, size_t count)
{
    begin(to, "error");
    text_append_string(to, ",\"error\":{\"ename\":");
    append_string(to, name, strlen(name));
    text_append_string(to, ",\"evalue\":");
    append_string(to, value, strlen(value));
    text_append_string(to, ",\"traceback\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            text_append(to, ",", 1);
        append_string(to, traceback[i], strlen(traceback[i]));
    }
    text_append_string(to, "]}");
    finish(to);
}

void execd_event_complete(struct text *to, uint64_t execution_ms)
{
    begin(to, "execution_complete");
    if (execution_ms > 0)
        text_append_format(to, ",\"execution_time\":%llu", (unsigned long long)execution_ms);
    finish(to);
}

void execd_event_result(struct text *to, json_t *results)
{
    AUTO_FREE char *dumped = json_dumps(results, JSON_COMPACT | JSON_PRESERVE_ORDER);
    begin(to, "result");
    if (dumped && json_object_size(results) > 0)
        text_append_format(to, ",\"results\":%s", dumped);
    finish(to);
    json_decref(results);
}

void execd_event_count(struct text *to, int64_t execution_count)
{
    begin(to, "execution_count");
    if (execution_count != 0)
        text_append_format(to, ",\"execution_count\":%lld", (long long)execution_count);
    finish(to);
}

/* ---- the end of a command ---- */

int execd_end_code(const struct process_end *end)
{
    return end->signal || end->timed_out ? -1 : end->exit_code;
}

void execd_end_text(const struct process_end *end, char to[static EXECD_END_BYTES])
{
    int number = end->timed_out ? SIGKILL : end->signal;
    const char *name = number ? sigdescr_np(number) : NULL;
    if (name) {
        (void)snprintf(to, EXECD_END_BYTES, "signal: %s", name);
        char *first = to + strlen("signal: ");
        *first = (char)tolower((unsigned char)*first);
    } else if (number) {
        (void)snprintf(to, EXECD_END_BYTES, "signal: signal %d", number);
    } else {
        (void)snprintf(to, EXECD_END_BYTES, "exit status %d", end->exit_code);
    }
}

void execd_event_end(struct text *to, const struct process_end *end)
{
    char value[16], told[EXECD_END_BYTES];
    const char *const traceback[] = {told};
    if (execd_end_code(end) == 0) {
        execd_event_complete(to, end->wall_ms);
        return;
    }
    execd_end_text(end, told);
    (void)snprintf(value, sizeof value, "%d", execd_end_code(end));
    execd_event_error(to, "CommandExecError", value, traceback, 1);
}
