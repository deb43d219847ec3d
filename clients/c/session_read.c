#include "clients/c/session_internal.h"

#include "clients/c/session_frames.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

static bool deliver(struct session *session, int stream, const char *data, size_t size)
{
    uint64_t at = session->arrives[stream];
    uint64_t skip = session->had[stream] > at ? session->had[stream] - at : 0;
    session->arrives[stream] = at + size;
    if (skip >= size)
        return true;
    session->had[stream] = at + size;
    return session->wanted.output(session->wanted.cookie, stream == 1, data + skip, size - (size_t)skip);
}

static void read_data(struct session *session, const char *data, size_t size)
{
    unsigned char channel = size > 0 ? (unsigned char)data[0] : SESSION_STDIN;
    if (!session->attached || (channel != SESSION_STDOUT && channel != SESSION_STDERR))
        session_fail(session, ERROR_INTERNAL, "the sandbox sent data of no known stream");
    else if (!deliver(session, channel == SESSION_STDERR, data + 1, size - 1))
        session_fail(session, ERROR_GONE, "nobody reads the output");
}

static void read_gap(struct session *session, const json_t *frame)
{
    const char *name = json_string_value(json_object_get(frame, "stream"));
    int stream = text_equal(name, "stderr");
    uint64_t to = session_frame_number(frame, "to", INT64_MAX, 0);
    if (to <= session->arrives[stream])
        return;
    session->arrives[stream] = to;
    if (to <= session->had[stream])
        return;
    AUTO_FREE char *sentence = memory_printf(
        "%" PRIu64 " bytes of output were not kept by the sandbox and are missing here", to - session->had[stream]);
    session->had[stream] = to;
    session->wanted.warn(session->wanted.cookie, sentence);
}

static void read_started(struct session *session, const json_t *frame)
{
    session->facts =
        (struct session_facts){.started = true,
                               .tty = json_is_true(json_object_get(frame, "tty")),
                               .drives = !text_equal(json_string_value(json_object_get(frame, "mode")), "watch"),
                               .columns = (unsigned)session_frame_number(frame, "cols", SESSION_CELLS_MAX, 0),
                               .rows = (unsigned)session_frame_number(frame, "rows", SESSION_CELLS_MAX, 0)};
    session->arrives[0] = session_frame_number(frame, "stdout_offset", INT64_MAX, 0);
    session->arrives[1] = session_frame_number(frame, "stderr_offset", INT64_MAX, 0);
    session_input_attach(&session->input, session_frame_number(frame, "stdin_offset", INT64_MAX, 0));
    session->eof_sent = false;
    session->attached = true;
    session->tries = session->refusals = 0;
    session->lost_ns = 0;
    if (session->told_lost)
        session_note(session, "connected again");
    session->told_lost = false;
    session_send_size(session);
    session_send_signal(session);
    if (session->wanted.attached)
        session->wanted.attached(session->wanted.cookie);
}

static void read_exit(struct session *session, const json_t *frame)
{
    const json_t *code = json_object_get(frame, "exit_code");
    const char *signal = json_string_value(json_object_get(frame, "signal"));
    if (!json_is_integer(code)) {
        session_fail(session, ERROR_INTERNAL, "the sandbox told an exit without exit_code");
        return;
    }
    session->over = true;
    session->end = (struct session_end){.exit_code = (int)json_integer_value(code),
                                        .timed_out = json_is_true(json_object_get(frame, "timed_out")),
                                        .oom = json_is_true(json_object_get(frame, "oom"))};
    snprintf(session->end.signal, sizeof session->end.signal, "%s", signal ? signal : "");
}

/* Before `started` it is the answer to our asking. Later it is about one frame: input that was refused would leave a
 * hole, so no more is sent then. */
static void read_error(struct session *session, const json_t *frame)
{
    struct error err = {0};
    session_frame_error(frame, &err);
    session->said = err;
    if (session_is_token_error(err.kind))
        return; /* the close follows, or the token before still holds */
    if (!session->attached) {
        session->asked = false;
        if (!session_may_pass(err.kind))
            session_fail(session, err.kind, err.message);
        else
            websocket_close(session->socket, 1000, "");
        return;
    }
    if (err.kind == ERROR_CONFLICT || err.kind == ERROR_RANGE) {
        session->input_ended = session->eof_sent = true;
        session_input_done(&session->input);
        session->input = (struct session_input){0};
        if (!session->facts.tty)
            return; /* it wants no more */
    }
    session_note(session, err.message);
}

static void read_frame(struct session *session, const json_t *frame)
{
    const char *type = json_string_value(json_object_get(frame, "type"));
    if (text_equal(type, "started"))
        read_started(session, frame);
    else if (text_equal(type, "gap"))
        read_gap(session, frame);
    else if (text_equal(type, "exit"))
        read_exit(session, frame);
    else if (text_equal(type, "error"))
        read_error(session, frame);
    else if (text_equal(type, "expiring"))
        grant_keeper_hurry(session->keeper);
    else if (text_equal(type, "stdin_ack"))
        session_input_acknowledge(&session->input, session_frame_number(frame, "stdin_offset", INT64_MAX, 0));
    else if (text_equal(type, "resized")) {
        session->facts.columns = (unsigned)session_frame_number(frame, "cols", SESSION_CELLS_MAX, 0);
        session->facts.rows = (unsigned)session_frame_number(frame, "rows", SESSION_CELLS_MAX, 0);
    } /* auth_ok, pong, and what later servers may add */
}

void session_read(void *cookie, bool is_text, const char *data, size_t size)
{
    struct session *session = cookie;
    if (session->over || session->failure.kind != ERROR_NONE)
        return;
    if (!is_text) {
        read_data(session, data, size);
        return;
    }
    json_t *frame = json_loadb(data, size, JSON_ALLOW_NUL, NULL);
    if (json_is_object(frame))
        read_frame(session, frame);
    else
        session_fail(session, ERROR_INTERNAL, "the sandbox sent a frame that is no JSON object");
    json_decref(frame);
}
