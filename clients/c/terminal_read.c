#include "clients/c/terminal_internal.h"

#include "clients/c/remote_events.h"
#include "clients/c/terminal_frames.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <jansson.h>

static bool deliver(struct terminal *terminal, int stream, const char *data, size_t size)
{
    uint64_t at = terminal->arrives[stream];
    uint64_t skip = terminal->had[stream] > at ? terminal->had[stream] - at : 0;
    terminal->arrives[stream] = at + size;
    if (skip >= size)
        return true;
    terminal->had[stream] = at + size;
    return terminal->wanted.output(terminal->wanted.cookie, stream == 1, data + skip, size - (size_t)skip);
}

static void read_data(struct terminal *terminal, const char *data, size_t size)
{
    unsigned char channel = size > 0 ? (unsigned char)data[0] : TERMINAL_STDIN;
    if (!terminal->attached || (channel != TERMINAL_STDOUT && channel != TERMINAL_STDERR))
        terminal_fail(terminal, ERROR_INTERNAL, "the sandbox sent data of no known stream");
    else if (!deliver(terminal, channel == TERMINAL_STDERR, data + 1, size - 1))
        terminal_fail(terminal, ERROR_GONE, "nobody reads the output");
}

static void read_gap(struct terminal *terminal, const json_t *frame)
{
    const char *name = json_string_value(json_object_get(frame, "stream"));
    int stream = text_equal(name, "stderr");
    uint64_t to = terminal_frame_number(frame, "to", INT64_MAX, 0);
    if (to <= terminal->arrives[stream])
        return;
    terminal->arrives[stream] = to;
    if (to <= terminal->had[stream])
        return;
    AUTO_FREE char *sentence = memory_printf(
        "%" PRIu64 " bytes of output were not kept by the sandbox and are missing here", to - terminal->had[stream]);
    terminal->had[stream] = to;
    terminal_note(terminal, sentence);
}

static void read_started(struct terminal *terminal, const json_t *frame)
{
    terminal->facts =
        (struct terminal_facts){.started = true,
                                .tty = json_is_true(json_object_get(frame, "tty")),
                                .drives = !text_equal(json_string_value(json_object_get(frame, "mode")), "watch"),
                                .columns = (unsigned)terminal_frame_number(frame, "cols", TERMINAL_CELLS_MAX, 0),
                                .rows = (unsigned)terminal_frame_number(frame, "rows", TERMINAL_CELLS_MAX, 0)};
    terminal->arrives[0] = terminal_frame_number(frame, "stdout_offset", INT64_MAX, 0);
    terminal->arrives[1] = terminal_frame_number(frame, "stderr_offset", INT64_MAX, 0);
    terminal_input_attach(&terminal->input, terminal_frame_number(frame, "stdin_offset", INT64_MAX, 0));
    terminal->eof_sent = false;
    terminal->attached = true;
    terminal->tries = terminal->refusals = 0;
    terminal->lost_ns = 0;
    if (terminal->told_lost)
        terminal_note(terminal, "connected again");
    terminal->told_lost = false;
    terminal_send_size(terminal);
    if (terminal->wanted.attached)
        terminal->wanted.attached(terminal->wanted.cookie);
}

static void read_exit(struct terminal *terminal, const json_t *frame)
{
    terminal->over = remote_end_read(&terminal->end, frame);
    terminal->end.started = true;
    if (!terminal->over)
        terminal_fail(terminal, ERROR_INTERNAL, "the sandbox told an exit without exit_code");
}

/* Before `started` it is the answer to our asking. Later it is about one frame: input that was refused would leave a
 * hole, so no more is sent then. */
static void read_error(struct terminal *terminal, const json_t *frame)
{
    struct error err = {0};
    terminal_frame_error(frame, &err);
    terminal->said = err;
    if (terminal_is_token_error(err.kind))
        return; /* the close follows, or the token before still holds */
    if (!terminal->attached) {
        if (!terminal_may_pass(err.kind))
            terminal_fail(terminal, err.kind, err.message);
        else
            websocket_close(terminal->socket, 1000, "");
        return;
    }
    if (err.kind == ERROR_CONFLICT || err.kind == ERROR_RANGE) {
        terminal->input_ended = terminal->eof_sent = true;
        terminal_input_done(&terminal->input);
        terminal->input = (struct terminal_input){0};
        if (!terminal->facts.tty)
            return; /* it wants no more */
    }
    terminal_note(terminal, err.message);
}

static void read_frame(struct terminal *terminal, const json_t *frame)
{
    const char *type = json_string_value(json_object_get(frame, "type"));
    if (text_equal(type, "started"))
        read_started(terminal, frame);
    else if (text_equal(type, "gap"))
        read_gap(terminal, frame);
    else if (text_equal(type, "exit"))
        read_exit(terminal, frame);
    else if (text_equal(type, "error"))
        read_error(terminal, frame);
    else if (text_equal(type, "expiring"))
        grant_keeper_hurry(terminal->keeper);
    else if (text_equal(type, "stdin_ack"))
        terminal_input_acknowledge(&terminal->input, terminal_frame_number(frame, "stdin_offset", INT64_MAX, 0));
    else if (text_equal(type, "resized")) {
        terminal->facts.columns = (unsigned)terminal_frame_number(frame, "cols", TERMINAL_CELLS_MAX, 0);
        terminal->facts.rows = (unsigned)terminal_frame_number(frame, "rows", TERMINAL_CELLS_MAX, 0);
    } /* auth_ok, pong, and what later servers may add */
}

void terminal_read(void *cookie, bool is_text, const char *data, size_t size)
{
    struct terminal *terminal = cookie;
    if (terminal->over || terminal->failure.kind != ERROR_NONE)
        return;
    if (!is_text) {
        read_data(terminal, data, size);
        return;
    }
    json_t *frame = json_loadb(data, size, JSON_ALLOW_NUL, NULL);
    if (json_is_object(frame))
        read_frame(terminal, frame);
    else
        terminal_fail(terminal, ERROR_INTERNAL, "the sandbox sent a frame that is no JSON object");
    json_decref(frame);
}
