#include "sandboxd/helpers/jupyter/frames.h"

#include "sandboxd/helpers/drivers/drivers.h"
#include "sandboxd/helpers/jupyter/plain.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    STREAM_PIECE = 1024 * 1024,
    NAME_KEPT = 1024,
    TEXT_KEPT = 1024 * 1024, /* of the text of something too large for a frame, and of an error's value */
    TRACEBACK_BYTES = 4 * 1024 * 1024,
    TRACEBACK_LINES = 10000
};

/* False: too large, nothing written. Takes `frame`. */
static bool put_in_limits(struct frames *frames, json_t *frame)
{
    AUTO_FREE char *text = frame ? json_dumps(frame, JSON_COMPACT) : NULL;
    json_decref(frame);
    if (text == NULL)
        return true; /* nothing that JSON can say, so nothing a kernel sent */
    size_t length = strlen(text);
    if (length + 1 > DRIVER_FRAME_MAX)
        return false;
    text[length] = '\n'; /* in the place of the NUL: its length is known */
    frames->broken = frames->broken || !fd_write_all(frames->fd, text, length + 1, NULL);
    return true;
}

static void put(struct frames *frames, json_t *frame)
{
    (void)!put_in_limits(frames, frame);
}

static json_t *cut_string(const char *text, size_t size, size_t max)
{
    return json_stringn_nocheck(text, size <= max ? size : text_utf8_prefix(text, max));
}

void frames_ready(struct frames *frames, const struct frames_ready *ready)
{
    put(frames, json_pack("{s:{s:s, s:s, s:s}}", "ready", "language", ready->language, "version", ready->version,
                          "implementation", ready->implementation));
}

void frames_failed(struct frames *frames, const char *message)
{
    AUTO_TEXT clean = {0};
    plain_append_utf8(&clean, message, strlen(message));
    put(frames, json_pack("{s:{s:o}}", "failed", "message", json_stringn(clean.data ? clean.data : "", clean.length)));
}

void frames_started(struct frames *frames, const char *run, json_int_t count)
{
    put(frames, json_pack("{s:{s:s, s:I}}", "started", "run", run, "count", count));
}

void frames_stream(struct frames *frames, const char *stream, const char *run, const char *text, size_t size)
{
    while (size > 0) {
        size_t piece = size <= STREAM_PIECE ? size : text_utf8_prefix(text, STREAM_PIECE);
        piece = piece > 0 ? piece : size; /* not UTF-8 after all: jansson refuses it below */
        put(frames, json_pack("{s:{s:s, s:o}}", stream, "run", run, "text", json_stringn(text, piece)));
        text += piece;
        size -= piece;
    }
}

json_int_t frames_count(const json_t *value)
{
    static const double MOST = 9007199254740992.0;
    double count = json_number_value(value);
    return count >= 0 && count <= MOST ? (json_int_t)count : 0;
}

/* ---- bundles ---- */

static json_t *object_or_empty(const json_t *content, const char *name)
{
    json_t *value = json_object_get(content, name);
    return json_is_object(value) ? json_incref(value) : json_object();
}

/* What is left of a bundle that no frame holds: its text, cut, and what is missing. */
static json_t *stand_in(json_t *data)
{
    AUTO_TEXT text = {0};
    const json_t *plain = json_object_get(data, "text/plain");
    const char *type;
    json_t *value;
    if (json_is_string(plain)) {
        size_t size = json_string_length(plain);
        text_append(&text, json_string_value(plain),
                    size <= TEXT_KEPT ? size : text_utf8_prefix(json_string_value(plain), TEXT_KEPT));
    }
    text_append_format(&text,
                       "%s[left out, as all of it is more than the %d MiB of one message:", text.length ? "\n" : "",
                       DRIVER_FRAME_MAX >> 20);
    int named = 0;
    json_object_foreach (data, type, value)
        if (named++ < 10)
            text_append_format(&text, " %.100s", type);
    text_append_string(&text, "]");
    json_t *made = json_object();
    (void)json_object_set_new(made, "text/plain", json_stringn(text.data, text.length));
    return made;
}

static json_t *bundle(const char *run, json_t *data, json_t *metadata)
{
    return json_pack("{s:s, s:o, s:o}", "run", run, "data", data, "metadata", metadata);
}

/* `more` has the other members. Takes neither. */
static void put_bundle(struct frames *frames, const char *kind, const char *run, const json_t *content, json_t *more)
{
    json_t *data = object_or_empty(content, "data");
    json_t *body = bundle(run, json_incref(data), object_or_empty(content, "metadata"));
    (void)json_object_update(body, more);
    if (!put_in_limits(frames, json_pack("{s:o}", kind, body))) {
        body = bundle(run, stand_in(data), json_object());
        (void)json_object_update(body, more);
        put(frames, json_pack("{s:o}", kind, body));
    }
    json_decref(data);
}

void frames_display(struct frames *frames, const char *run, const json_t *content, const json_t *transient, bool update)
{
    json_t *more = json_object();
    json_t *id = json_object_get(transient, "display_id");
    if (json_is_string(id) && json_string_length(id) <= 256)
        (void)json_object_set(more, "display_id", id);
    if (update)
        (void)json_object_set_new(more, "update", json_true());
    put_bundle(frames, "display", run, content, more);
    json_decref(more);
}

void frames_result(struct frames *frames, const char *run, const json_t *content)
{
    json_t *more = json_pack("{s:I}", "count", frames_count(json_object_get(content, "execution_count")));
    put_bundle(frames, "result", run, content, more);
    json_decref(more);
}

void frames_clear(struct frames *frames, const char *run, bool wait)
{
    put(frames, json_pack("{s:{s:s, s:b}}", "clear", "run", run, "wait", wait));
}

/* ---- errors ---- */

static json_t *uncoloured(const json_t *value, size_t max)
{
    AUTO_TEXT text = {0};
    if (json_is_string(value))
        plain_append_uncoloured(&text, json_string_value(value), json_string_length(value));
    return cut_string(text.data ? text.data : "", text.length, max);
}

static void add_lines(json_t *lines, const char *text, size_t size, size_t *left)
{
    const char *end = text + size;
    while (text < end && json_array_size(lines) < TRACEBACK_LINES) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((line_end ? line_end : end) - text);
        if (length > *left)
            return;
        *left -= length;
        (void)json_array_append_new(lines, json_stringn(text, length));
        text += length + 1;
    }
}

static json_t *traceback_lines(const json_t *traceback)
{
    json_t *lines = json_array();
    size_t left = TRACEBACK_BYTES, i;
    json_t *one;
    json_array_foreach (traceback, i, one) {
        AUTO_TEXT text = {0};
        if (json_is_string(one))
            plain_append_uncoloured(&text, json_string_value(one), json_string_length(one));
        if (text.length == 0)
            (void)json_array_append_new(lines, json_string(""));
        add_lines(lines, text.data, text.length, &left);
        if (json_array_size(lines) >= TRACEBACK_LINES)
            break;
    }
    return lines;
}

/* xeus-python says "<class 'ValueError'>" where others say "ValueError". */
static json_t *error_name(const json_t *ename)
{
    static const char BEFORE[] = "<class '", AFTER[] = "'>";
    const char *text = json_string_value(ename);
    size_t size = json_string_length(ename), around = sizeof BEFORE - 1 + sizeof AFTER - 1;
    if (!text || size <= around || !text_starts_with(text, BEFORE) ||
        strcmp(text + size - (sizeof AFTER - 1), AFTER) != 0)
        return uncoloured(ename, NAME_KEPT);
    return cut_string(text + sizeof BEFORE - 1, size - around, NAME_KEPT);
}

void frames_error(struct frames *frames, const char *run, const json_t *content)
{
    put(frames, json_pack("{s:{s:s, s:o, s:o, s:o}}", "error", "run", run, "name",
                          error_name(json_object_get(content, "ename")), "value",
                          uncoloured(json_object_get(content, "evalue"), TEXT_KEPT), "traceback",
                          traceback_lines(json_object_get(content, "traceback"))));
}

void frames_own_error(struct frames *frames, const char *run, const char *name, const char *value)
{
    put(frames, json_pack("{s:{s:s, s:s, s:s, s:[]}}", "error", "run", run, "name", name, "value", value, "traceback"));
}

void frames_done(struct frames *frames, const char *run, const char *status, json_int_t count)
{
    put(frames, json_pack("{s:{s:s, s:s, s:I}}", "done", "run", run, "status", status, "count", count));
}
