/* execd_cell.c - a run's events in, this dialect's events out. */
#include "sandboxd/dialects/execd/execd_cell.h"

#include "sandboxd/dialects/execd/execd_events.h"
#include "sandboxd/dialects/execd/execd_lines.h"
#include "sandboxd/dialects/execd/execd_results.h"
#include "sandboxd/dialects/execd/execd_stream.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/kernels/kernels.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum {
    BATCH_BYTES = 64 * 1024,  /* of events formed before the client takes them */
    PIECE_BYTES = 128 * 1024, /* of an event's text */
    VALUE_BYTES = 64 * 1024,  /* of an error's */
    LINES_MAX = 200,          /* of its traceback */
    TRACEBACK_BYTES = 512 * 1024
};
static const uint64_t NS_A_MS = 1000000;

struct execd_cell {
    enum execd_cell_kind kind;
    char id[KERNEL_ID_BYTES];
    struct http_request *request; /* until the stream begins */
    struct execd_stream *stream;
    struct kernel_run *run;
    struct execd_lines lines[OUTPUT_STREAMS]; /* of a shell's output; a session has the first alone */
    json_t *telling;                          /* a text of such output, told up to `told`; NULL: none */
    size_t told;
    enum output_stream telling_stream;
    json_t *error; /* of the code; told at its end */
    uint64_t began_ns;
    bool pulling, over; /* over inside pull: freed at its end */
};

static void pull(void *cookie);

static void cell_over(struct execd_cell *cell)
{
    kernel_run_close(TAKE(cell->run));
    cell->over = true;
}

static void cell_free(struct execd_cell *cell)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        execd_lines_done(&cell->lines[i]);
    json_decref(cell->telling);
    json_decref(cell->error);
    free(cell);
}

static void on_gone(void *cookie)
{
    struct execd_cell *cell = cookie;
    execd_stream_close(TAKE(cell->stream));
    cell_over(cell);
    if (!cell->pulling)
        cell_free(cell);
}

static void on_drained(void *cookie)
{
    struct execd_cell *cell = cookie;
    if (!cell->pulling)
        pull(cell);
}

static const struct execd_stream_owner OWNER = {.drained = on_drained, .gone = on_gone, .cut_stalled = true};

static struct text *text_of(struct execd_cell *cell)
{
    return execd_stream_text(cell->stream);
}

/* ---- output ---- */

/* Of a session those with nothing in them are left out. */
static void tell_line(struct execd_cell *cell, enum output_stream stream, const struct text *line)
{
    if (line->length > 0 || cell->kind != EXECD_CELL_SESSION)
        execd_event_line(text_of(cell), stream, line->data, line->length);
}

/* As many lines as there is room for: a frame of blank ones, which a hostile driver writes, is thirty times as much in
 * events. */
static void go_on_telling(struct execd_cell *cell)
{
    const char *data = json_string_value(cell->telling);
    size_t size = json_string_length(cell->telling), used;
    const struct text *line;
    while (cell->told < size && text_of(cell)->length < BATCH_BYTES) {
        bool is_line =
            execd_lines_take(&cell->lines[cell->telling_stream], data + cell->told, size - cell->told, &used, &line);
        cell->told += used;
        if (is_line)
            tell_line(cell, cell->telling_stream, line);
    }
    if (cell->told == size)
        json_decref(TAKE(cell->telling));
    execd_stream_flush(cell->stream);
}

static void begin_telling(struct execd_cell *cell, enum output_stream stream, json_t *text)
{
    cell->telling = json_incref(text);
    cell->telling_stream = stream;
    cell->told = 0;
}

static void tell_rest(struct execd_cell *cell)
{
    const struct text *line;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        if (execd_lines_rest(&cell->lines[i], &line))
            tell_line(cell, (enum output_stream)i, line);
}

/* Of a cell: as it comes, cut where it is long. */
static void tell_pieces(struct execd_cell *cell, const char *type, const char *data, size_t size)
{
    while (size > 0) {
        size_t piece = size > PIECE_BYTES ? text_utf8_prefix(data, PIECE_BYTES) : size;
        execd_event_text(text_of(cell), type, data, piece);
        data += piece;
        size -= piece;
    }
}

static void tell_output(struct execd_cell *cell, const struct kernel_event *event)
{
    json_t *text = json_object_get(event->body, "text");
    const char *data = json_string_value(text);
    bool is_error = strcmp(event->type, "stderr") == 0 && cell->kind == EXECD_CELL_SHELL;
    if (data && cell->kind != EXECD_CELL_CODE)
        begin_telling(cell, is_error ? OUTPUT_STDERR : OUTPUT_STDOUT, text);
    else if (data)
        tell_pieces(cell, event->type, data, json_string_length(text));
}

/* ---- the rest of what it shows ---- */

static void tell_results(struct execd_cell *cell, const struct kernel_event *event)
{
    json_t *results = execd_results(json_object_get(event->body, "data"));
    if (json_object_size(results) > 0 && cell->kind != EXECD_CELL_SESSION)
        execd_event_result(text_of(cell), results);
    else
        json_decref(results);
}

static void on_told(struct execd_cell *cell, const struct kernel_event *event)
{
    if (strcmp(event->type, "stdout") == 0 || strcmp(event->type, "stderr") == 0) {
        tell_output(cell, event);
    } else if (strcmp(event->type, "result") == 0 || strcmp(event->type, "display") == 0) {
        tell_results(cell, event);
    } else if (strcmp(event->type, "error") == 0) {
        json_decref(cell->error);
        cell->error = json_incref(event->body);
    } else if (strcmp(event->type, "started") == 0) {
        cell->began_ns = clock_boot_ns();
    }
}

/* ---- the end ---- */

static void tell_failure(struct execd_cell *cell, const char *name, const char *value, const char *why)
{
    const char *const traceback[] = {why};
    execd_event_error(text_of(cell), name, value, traceback, 1);
}

/* A shell's end is a command's. */
static void tell_exit(struct execd_cell *cell, int exit_code)
{
    char value[16], text[EXECD_END_BYTES];
    (void)snprintf(value, sizeof value, "%d", exit_code);
    (void)snprintf(text, sizeof text, "exit status %d", exit_code);
    tell_failure(cell, "CommandExecError", value, text);
}

/* Texts of the code's own making: within bounds. */
static void tell_error(struct execd_cell *cell)
{
    const char *name = json_string_value(json_object_get(cell->error, "name"));
    const char *value = json_string_value(json_object_get(cell->error, "value"));
    const char *lines[LINES_MAX];
    size_t count, size = 0, from;
    execd_results_traceback(cell->error, lines, LINES_MAX, &count);
    for (from = count; from > 0 && size + strlen(lines[from - 1]) <= TRACEBACK_BYTES; from--)
        size += strlen(lines[from - 1]);
    size_t length = value ? strlen(value) : 0;
    AUTO_FREE char *cut =
        memory_copy(value ? value : "", length <= VALUE_BYTES ? length : text_utf8_prefix(value, VALUE_BYTES));
    execd_event_error(text_of(cell), name && *name ? name : "Error", cut, lines + from, count - from);
}

/* Why there was no end that the code knew of. */
static void tell_status(struct execd_cell *cell, const char *status, const json_t *done)
{
    const char *reason = json_string_value(json_object_get(done, "reason"));
    bool is_session = cell->kind == EXECD_CELL_SESSION;
    const char *name = is_session                    ? "CommandExecError"
                       : strcmp(status, "lost") == 0 ? "ContextLost"
                                                     : "KeyboardInterrupt";
    const char *why = reason                               ? reason
                      : strcmp(status, "timeout") == 0     ? "it was over its timeout"
                      : strcmp(status, "interrupted") == 0 ? "signal: interrupt"
                                                           : "it failed";
    tell_failure(cell, name, is_session ? "-1" : why, why);
}

/* Whether there was an error, which is told then. */
static bool tell_outcome(struct execd_cell *cell, const json_t *done)
{
    const char *status = json_string_value(json_object_get(done, "status"));
    const json_t *exit_code = json_object_get(done, "exit_code");
    if (!status || strcmp(status, "ok") == 0)
        return false;
    bool is_own = strcmp(status, "error") == 0;
    if (is_own && exit_code)
        tell_exit(cell, (int)json_integer_value(exit_code));
    else if (cell->error && cell->kind != EXECD_CELL_SESSION)
        tell_error(cell);
    else
        tell_status(cell, status, done);
    return true;
}

static void tell_end(struct execd_cell *cell, const json_t *done)
{
    uint64_t took_ms = cell->began_ns ? (clock_boot_ns() - cell->began_ns) / NS_A_MS : 0;
    tell_rest(cell);
    json_int_t count = json_integer_value(json_object_get(done, "execution_count"));
    if (cell->kind != EXECD_CELL_SESSION && count > 0)
        execd_event_count(text_of(cell), count);
    if (!tell_outcome(cell, done) || cell->kind != EXECD_CELL_SESSION)
        execd_event_complete(text_of(cell), took_ms ? took_ms : 1);
}

/* What this dialect's clients are told of a context that is not there, or not idle, is the server's failure. */
static void fail(struct execd_cell *cell, const struct error *why)
{
    struct error err = *why;
    if (why->kind == ERROR_NOT_FOUND || why->kind == ERROR_CONFLICT)
        error_set(&err, ERROR_INTERNAL, "%s", why->kind == ERROR_CONFLICT ? "session is busy" : why->message);
    if (!execd_stream_has_begun(cell->stream))
        plane_record_failure(cell->request, "code.run", cell->id, error_http_status(err.kind), err.message);
    execd_stream_fail(TAKE(cell->stream), &err);
    cell_over(cell);
}

/* ---- one event each ---- */

static void take_event(struct execd_cell *cell, struct kernel_event *event)
{
    switch (event->kind) {
    case KERNEL_EVENT_ACCEPTED:
        execd_stream_begin(cell->stream, cell->id);
        return;
    case KERNEL_EVENT_TOLD:
        on_told(cell, event);
        json_decref(event->body);
        if (!cell->over)
            execd_stream_flush(cell->stream);
        return;
    case KERNEL_EVENT_DONE:
        tell_end(cell, event->body);
        json_decref(event->body);
        execd_stream_end(TAKE(cell->stream));
        cell_over(cell);
        return;
    case KERNEL_EVENT_FAILED:
        fail(cell, &event->error);
        return;
    }
}

/* False: there is nothing more to do now. */
static bool step(struct execd_cell *cell)
{
    struct kernel_event event;
    if (cell->over || !execd_stream_has_room(cell->stream))
        return false;
    if (cell->telling) {
        go_on_telling(cell);
        return true;
    }
    if (!kernel_run_next(cell->run, &event))
        return false;
    take_event(cell, &event);
    return true;
}

static void pull(void *cookie)
{
    struct execd_cell *cell = cookie;
    cell->pulling = true; /* the request may end inside any of these */
    while (step(cell)) {
    }
    cell->pulling = false;
    if (cell->over)
        cell_free(cell);
}

struct kernel_run *execd_cell_new(struct http_request *request, enum execd_cell_kind kind, const char *id)
{
    struct execd_cell *cell = memory_new(sizeof *cell);
    cell->kind = kind;
    cell->request = request;
    if (!text_copy(cell->id, sizeof cell->id, id))
        strcpy(cell->id, "?"); /* no context has that id */
    cell->stream =
        execd_stream_new(request, caller_of(request)->claims.expires_at + PLANE_AFTER_EXPIRY_S, &OWNER, cell);
    cell->run = kernel_run_new(pull, cell);
    return cell->run;
}
