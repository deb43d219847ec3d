/* execd_pty_input.c - frames in, the command's stdin: one write at a time, whose answer is the pace. */
#include "sandboxd/dialects/execd/execd_pty_internal.h"

#include "shared/base/clock.h"

#include <signal.h>
#include <string.h>
#include <strings.h>

enum {
    WRITE_BYTES = 64 * 1024,  /* of stdin at once */
    PAUSE_BYTES = 256 * 1024, /* of stdin held: then the socket is not read */
    SIGNAL_LAST = 64
};
static const uint64_t RETRY_NS = UINT64_C(100) * 1000000;

static void pump(struct pty *pty);

static void on_retry(void *cookie)
{
    struct pty *pty = cookie;
    pty->retry = NULL;
    pump(pty);
}

static void pace(struct pty *pty)
{
    http_websocket_pause(pty->socket, pty->input.length > PAUSE_BYTES);
}

static void drop_written(struct pty *pty)
{
    pty->input.length -= pty->writing;
    memmove(pty->input.data, pty->input.data + pty->writing, pty->input.length);
    pty->writing = 0;
}

static void take_answer(struct pty *pty, const struct error *err)
{
    if (err->kind == ERROR_RATE_LIMITED || err->kind == ERROR_STARTING) {
        pty->writing = 0;
        pty->retry = loop_timer_start(http_request_loop(pty->request), clock_boot_ns() + RETRY_NS, on_retry, pty);
        return;
    }
    drop_written(pty);
    if (err->kind != ERROR_NONE) {
        pty->input.length = 0;
        pty_send_error(pty, "STDIN_WRITE_FAILED", err->message);
    }
    pump(pty);
    if (!pty->over)
        pace(pty);
}

static void on_written(void *cookie, const struct verb_answer *answer)
{
    struct pty *pty = pty_find(cookie);
    if (!pty)
        return;
    pty_enter(pty);
    take_answer(pty, &answer->error);
    pty_leave(pty);
}

static void pump(struct pty *pty)
{
    if (pty->over || !pty->is_started || pty->writing > 0 || pty->retry || pty->input.length == 0)
        return;
    struct process_call call = pty_call_of(pty, on_written);
    pty->writing = pty->input.length < WRITE_BYTES ? pty->input.length : WRITE_BYTES;
    process_write(pty->plane->sandboxes, &call, pty->input.data, pty->writing, PROCESS_OFFSET_NONE, false);
}

static void on_done(void *cookie UNUSED, const struct verb_answer *answer UNUSED)
{
}

static void add_input(struct pty *pty, const char *data, size_t size)
{
    text_append(&pty->input, data, size);
    pump(pty);
    pace(pty);
}

/* ---- other frames ---- */

static void resize(struct pty *pty, const json_t *frame)
{
    json_int_t columns = json_integer_value(json_object_get(frame, "cols"));
    json_int_t rows = json_integer_value(json_object_get(frame, "rows"));
    if (columns < 1 || rows < 1 || columns > FRONT_INIT_CELLS_MAX || rows > FRONT_INIT_CELLS_MAX || pty->pipes)
        return;
    pty->columns = (unsigned)columns;
    pty->rows = (unsigned)rows;
    pty_resize(pty);
}

static int signal_number(const char *name)
{
    if (name && strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (int i = 1; name && i <= SIGNAL_LAST; i++) {
        const char *known = sigabbrev_np(i);
        if (known && strcasecmp(known, name) == 0)
            return i;
    }
    return 0;
}

static void signal_it(struct pty *pty, const json_t *frame)
{
    struct error err = {0};
    int number = signal_number(json_string_value(json_object_get(frame, "signal")));
    if (number == 0)
        error_set(&err, ERROR_INVALID, "signal: a name like \"SIGINT\"");
    else if (!pty->is_started)
        error_set(&err, ERROR_STARTING, "it has not started yet");
    else if (plane_audit(pty->request, &err, "signal", "id=%s signal=%d", pty->id, number)) {
        struct process_call call = pty_call_of(pty, on_done);
        process_signal(pty->plane->sandboxes, &call, number);
        return;
    }
    pty_send_error(pty, "INVALID_FRAME", err.message);
}

static void take_text(struct pty *pty, const char *data, size_t size)
{
    json_t *frame = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(frame, "type"));
    const json_t *typed = json_object_get(frame, "data");
    if (!type)
        pty_send_error(pty, "INVALID_FRAME", "a frame of text is an object with a type");
    else if (strcmp(type, "stdin") == 0 && json_is_string(typed))
        add_input(pty, json_string_value(typed), json_string_length(typed));
    else if (strcmp(type, "resize") == 0)
        resize(pty, frame);
    else if (strcmp(type, "signal") == 0)
        signal_it(pty, frame);
    else if (strcmp(type, "ping") == 0)
        pty_send_json(pty, json_pack("{s:s}", "type", "pong"));
    else
        pty_send_error(pty, "INVALID_FRAME", "type: stdin, resize, signal or ping");
    json_decref(frame);
}

void pty_take(struct pty *pty, bool is_text, const char *data, size_t size)
{
    if (is_text)
        take_text(pty, data, size);
    else if (size > 0 && data[0] == PTY_FRAME_STDIN)
        add_input(pty, data + 1, size - 1);
}

void pty_input_go_on(struct pty *pty)
{
    pump(pty);
}
