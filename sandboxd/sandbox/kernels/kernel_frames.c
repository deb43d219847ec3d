/* kernel_frames.c - lines out of bytes, frames out of lines. */
#include "sandboxd/sandbox/kernels/kernel_frames.h"

#include "shared/base/memory.h"

#include <string.h>

static const double COUNT_MAX = 1e15;
enum { VALUE_BYTES = 64, TRACEBACK_MAX = 2000, MIMES_MAX = 64, KEEP_BYTES = 256 * 1024 };

/* ---- lines ---- */

void kernel_lines_done(struct kernel_lines *lines)
{
    text_done(&lines->text);
    *lines = (struct kernel_lines){0};
}

size_t kernel_lines_held(const struct kernel_lines *lines)
{
    return lines->text.length - lines->taken;
}

void kernel_lines_shrink(struct kernel_lines *lines)
{
    if (lines->text.capacity <= KEEP_BYTES || kernel_lines_held(lines) > KEEP_BYTES / 2)
        return;
    struct text rest = {0};
    text_append(&rest, lines->text.data + lines->taken, kernel_lines_held(lines));
    text_done(&lines->text);
    lines->text = rest;
    lines->taken = 0;
}

static void drop_taken(struct kernel_lines *lines)
{
    if (lines->taken == 0)
        return;
    size_t held = kernel_lines_held(lines);
    memmove(lines->text.data, lines->text.data + lines->taken, held + 1); /* its NUL too */
    lines->text.length = held;
    lines->taken = 0;
}

bool kernel_lines_add(struct kernel_lines *lines, const void *data, size_t size, struct error *err)
{
    drop_taken(lines);
    const char *newline = memchr(data, '\n', size);
    size_t of_line = newline ? (size_t)(newline - (const char *)data) : size;
    if (lines->scanned == lines->text.length && lines->scanned + of_line > KERNEL_FRAME_MAX)
        return error_set(err, ERROR_TOO_LARGE, "a line of over %d MiB", KERNEL_FRAME_MAX >> 20);
    text_append(&lines->text, data, size);
    return true;
}

bool kernel_lines_next(struct kernel_lines *lines, const char **line, size_t *size)
{
    size_t held = kernel_lines_held(lines);
    if (held == lines->scanned)
        return false;
    const char *start = lines->text.data + lines->taken;
    const char *newline = memchr(start + lines->scanned, '\n', held - lines->scanned);
    if (!newline) {
        lines->scanned = held;
        return false;
    }
    *line = start;
    *size = (size_t)(newline - start);
    lines->taken += *size + 1;
    lines->scanned = 0;
    return true;
}

/* ---- what is read of any ---- */

/* One line of UTF-8, cut to fit. */
static void copy_word(char *to, size_t size, const json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    size_t length = strlen(text);
    length = text_utf8_prefix(text, length < size ? length : size - 1);
    for (size_t i = 0; i < length; i++)
        to[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i];
    to[length] = 0;
}

static bool read_run(struct kernel_frame *frame, const json_t *content)
{
    const json_t *run = json_object_get(content, "run");
    return json_is_string(run) && strlen(json_string_value(run)) == json_string_length(run) &&
           text_copy(frame->run, sizeof frame->run, json_string_value(run));
}

static bool read_count(struct kernel_frame *frame, const json_t *content)
{
    const json_t *count = json_object_get(content, "count");
    double number = json_number_value(count); /* beside an integer past 64 bits it is a real */
    if (count && (!json_is_number(count) || !(number >= 0) || number > COUNT_MAX))
        return false;
    frame->count = count ? (uint64_t)number : 0;
    return true;
}

/* What a client is told of it: members of one type each. */
static bool put_string(struct kernel_frame *frame, const json_t *content, const char *name)
{
    json_t *value = json_object_get(content, name);
    return json_is_string(value) && json_object_set(frame->body, name, value) == 0;
}

static bool put_bundle(struct kernel_frame *frame, const json_t *content)
{
    json_t *data = json_object_get(content, "data"), *metadata = json_object_get(content, "metadata");
    if (!json_is_object(data) || json_object_size(data) > MIMES_MAX || (metadata && !json_is_object(metadata)))
        return false;
    json_object_set(frame->body, "data", data);
    if (metadata)
        json_object_set(frame->body, "metadata", metadata);
    else
        json_object_set_new(frame->body, "metadata", json_object());
    return true;
}

/* ---- the kinds ---- */

static bool read_ready(struct kernel_frame *frame, const json_t *content)
{
    copy_word(frame->version, sizeof frame->version, json_object_get(content, "version"));
    copy_word(frame->implementation, sizeof frame->implementation, json_object_get(content, "implementation"));
    return true;
}

static bool read_failed(struct kernel_frame *frame, const json_t *content)
{
    copy_word(frame->message, sizeof frame->message, json_object_get(content, "message"));
    return true;
}

static bool read_started(struct kernel_frame *frame, const json_t *content)
{
    return read_run(frame, content) && read_count(frame, content);
}

static bool read_text(struct kernel_frame *frame, const json_t *content)
{
    return read_run(frame, content) && put_string(frame, content, "text");
}

static bool read_display(struct kernel_frame *frame, const json_t *content)
{
    if (!read_run(frame, content) || !put_bundle(frame, content))
        return false;
    const json_t *update = json_object_get(content, "update");
    if (json_object_get(content, "display_id") && !put_string(frame, content, "display_id"))
        return false;
    if (json_is_true(update))
        json_object_set_new(frame->body, "update", json_true());
    return !update || json_is_boolean(update);
}

static bool read_result(struct kernel_frame *frame, const json_t *content)
{
    if (!read_run(frame, content) || !read_count(frame, content) || !put_bundle(frame, content))
        return false;
    json_object_set_new(frame->body, "execution_count", json_integer((json_int_t)frame->count));
    return true;
}

static bool read_clear(struct kernel_frame *frame, const json_t *content)
{
    const json_t *wait = json_object_get(content, "wait");
    json_object_set_new(frame->body, "wait", json_boolean(json_is_true(wait)));
    return read_run(frame, content) && (!wait || json_is_boolean(wait));
}

static bool read_error(struct kernel_frame *frame, const json_t *content)
{
    json_t *traceback = json_object_get(content, "traceback");
    if (!read_run(frame, content) || !put_string(frame, content, "name") || !put_string(frame, content, "value") ||
        !json_is_array(traceback) || json_array_size(traceback) > TRACEBACK_MAX)
        return false;
    size_t index;
    const json_t *line;
    json_array_foreach (traceback, index, line)
        if (!json_is_string(line))
            return false;
    return json_object_set(frame->body, "traceback", traceback) == 0;
}

static bool read_exit_code(struct kernel_frame *frame, const json_t *content)
{
    const json_t *code = json_object_get(content, "exit_code");
    if (code && (!json_is_integer(code) || json_integer_value(code) < 0 || json_integer_value(code) > 255))
        return false;
    frame->has_exit_code = code != NULL;
    frame->exit_code = (int)json_integer_value(code);
    return true;
}

static bool read_done(struct kernel_frame *frame, const json_t *content)
{
    static const char *const NAMES[] = {
        [KERNEL_FRAME_OK] = "ok", [KERNEL_FRAME_ERRED] = "error", [KERNEL_FRAME_INTERRUPTED] = "interrupted"};
    const char *status = json_string_value(json_object_get(content, "status"));
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (status && strcmp(status, NAMES[i]) == 0) {
            frame->status = (enum kernel_frame_status)i;
            return read_run(frame, content) && read_count(frame, content) && read_exit_code(frame, content);
        }
    return false;
}

static const struct {
    const char *name;
    enum kernel_frame_kind kind;
    bool (*read)(struct kernel_frame *frame, const json_t *content);
} KINDS[] = {{"ready", KERNEL_FRAME_READY, read_ready},       {"started", KERNEL_FRAME_STARTED, read_started},
             {"stdout", KERNEL_FRAME_STDOUT, read_text},      {"stderr", KERNEL_FRAME_STDERR, read_text},
             {"display", KERNEL_FRAME_DISPLAY, read_display}, {"result", KERNEL_FRAME_RESULT, read_result},
             {"clear", KERNEL_FRAME_CLEAR, read_clear},       {"error", KERNEL_FRAME_ERROR, read_error},
             {"done", KERNEL_FRAME_DONE, read_done},          {"failed", KERNEL_FRAME_FAILED, read_failed}};

static bool read_object(struct kernel_frame *frame, const json_t *object, struct error *err)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        const json_t *content = json_object_get(object, KINDS[i].name);
        if (!content)
            continue;
        frame->kind = KINDS[i].kind;
        return (json_is_object(content) && KINDS[i].read(frame, content)) ||
               error_set(err, ERROR_INVALID, "a frame \"%s\" of another shape", KINDS[i].name);
    }
    frame->kind = KERNEL_FRAME_OTHER;
    return true;
}

/* ---- JSON within bounds ---- */

/* About how many values a line makes, before anything is made of them: small ones cost a hundred times their text. */
static size_t count_values(const char *line, size_t size)
{
    size_t count = 0;
    bool in_text = false;
    for (size_t i = 0; i < size; i++) {
        if (in_text && line[i] == '\\') {
            i++; /* what it escapes */
        } else if (in_text) {
            in_text = line[i] != '"';
        } else if (line[i] == '"') {
            in_text = true;
        } else {
            count += line[i] == ',' || line[i] == '{' || line[i] == '[';
        }
    }
    return count;
}

/* Integers past 64 bits are told as reals. */
static json_t *load(const char *line, size_t size, struct error *err)
{
    json_error_t error;
    json_t *object = json_loadb(line, size, JSON_ALLOW_NUL, &error);
    if (!object && json_error_code(&error) == json_error_numeric_overflow)
        object = json_loadb(line, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if (object)
        return object;
    if (json_error_code(&error) == json_error_numeric_overflow ||
        json_error_code(&error) == json_error_null_byte_in_key)
        error_set(err, ERROR_TOO_LARGE, "a frame with what no JSON reader holds: %.80s", error.text);
    else
        error_set(err, ERROR_INVALID, "a line that is no JSON");
    return NULL;
}

void kernel_frame_done(struct kernel_frame *frame)
{
    json_decref(frame->body);
    free(frame->text);
    *frame = (struct kernel_frame){0};
}

void kernel_frame_make_text(struct kernel_frame *frame)
{
    if (json_object_size(frame->body) == 0)
        return;
    frame->text = json_dumps(frame->body, JSON_COMPACT | KERNEL_FRAME_REALS);
    if (frame->text)
        json_decref(TAKE(frame->body));
}

bool kernel_frame_parse(const char *line, size_t size, struct kernel_frame *frame, struct error *err)
{
    size_t values = count_values(line, size);
    if (values > KERNEL_FRAME_VALUES_MAX)
        return error_set(err, ERROR_TOO_LARGE, "a frame of over %d values", KERNEL_FRAME_VALUES_MAX);
    json_t *object = load(line, size, err);
    if (!object)
        return false;
    struct kernel_frame read = {.body = json_object(), .cost = size + values * VALUE_BYTES};
    bool is_read = json_is_object(object) ? read_object(&read, object, err)
                                          : error_set(err, ERROR_INVALID, "a line that is no JSON object");
    json_decref(object);
    if (is_read)
        *frame = read;
    else
        kernel_frame_done(&read);
    return is_read;
}
