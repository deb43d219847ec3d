/* socket_command.c - follower in, frames out; and who may do what to the command. */
#include "sandboxd/dialects/native/socket/socket_session.h"

#include "sandboxd/dialects/native/events.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 32 * 1024 };

static void pull(void *cookie);

/* ---- rights ---- */

/* A terminal is driven with shell; with process one may start and feed any command, a terminal too. */
static bool may_drive(const struct scope_set *scopes, bool terminal)
{
    return scope_allows(scopes, "process") || (terminal && scope_allows(scopes, "shell"));
}

static bool may_watch(const struct scope_set *scopes, bool terminal)
{
    return scope_allows(scopes, "process") || (terminal && scope_allows(scopes, "shell:ro"));
}

static bool may(const struct socket_session *session, enum socket_mode mode, bool terminal, struct error *err)
{
    const struct scope_set *scopes = socket_session_scopes(session);
    if (mode == SOCKET_DRIVE ? may_drive(scopes, terminal) : may_watch(scopes, terminal))
        return true;
    char granted[SCOPE_TEXT_BYTES];
    const char *needed = !terminal ? "process" : mode == SOCKET_DRIVE ? "shell or process" : "shell:ro or process";
    scope_format(scopes, granted);
    return error_set(err, ERROR_CAPABILITY_DENIED, "to %s this %s needs scope %s; the token grants %.100s",
                     socket_mode_name(mode), terminal ? "terminal" : "command", needed,
                     granted[0] ? granted : "nothing");
}

/* What a route's scope would have refused as a request of its own. */
static void record_denial(const struct socket_session *session, const char *what, const struct error *err)
{
    struct plane_refusal refusal = {
        .action = "refuse", .reason = capability_refusal_name(CAPABILITY_SCOPE_MISSING), .what = what};
    plane_record_refusal(session->request, &caller_of(session->request)->claims, &refusal, err);
}

bool socket_command_may_drive(struct socket_session *session)
{
    struct error err = {0};
    if (session->attached == SOCKET_IDLE)
        error_set(&err, ERROR_CONFLICT, "no command is attached: start or attach comes first");
    else if (session->mode != SOCKET_DRIVE)
        error_set(&err, ERROR_CAPABILITY_DENIED, "this socket watches: only who drives may do that");
    else
        return true;
    socket_session_tell(session, &err);
    return false;
}

/* ---- beginning and end ---- */

void socket_command_leave(struct socket_session *session)
{
    follower_close(TAKE(session->follower));
    session->attached = SOCKET_IDLE;
    session->columns = session->rows = 0;
    socket_input_drop(session);
}

static void refuse(struct socket_session *session, const struct error *err)
{
    socket_command_leave(session);
    socket_session_tell(session, err);
}

/* Who is at a terminal, and by which token. */
static bool record_attach(const struct socket_session *session, struct error *err)
{
    return !session->terminal || plane_audit(session->request, err, "terminal.attach", "id=%s mode=%s",
                                             session->process_id, socket_mode_name(session->mode));
}

static void record_attach_denial(const struct socket_session *session, const struct error *err)
{
    char what[FRONT_INIT_ID_BYTES + 64];
    (void)snprintf(what, sizeof what, "frame=attach id=%s mode=%s", session->process_id,
                   socket_mode_name(session->mode));
    record_denial(session, what, err);
}

static bool is_free(struct socket_session *session)
{
    if (session->attached == SOCKET_IDLE)
        return true;
    struct error err = {0};
    error_set(&err, ERROR_CONFLICT, "a command is attached already: its exit comes first, or another socket");
    socket_session_tell(session, &err);
    return false;
}

static void ask(struct socket_session *session, enum socket_mode mode, const uint64_t offsets[OUTPUT_STREAMS])
{
    session->attached = SOCKET_WAITING;
    session->mode = mode;
    session->skipped = false;
    memmove(session->position, offsets, sizeof session->position);
    session->follower =
        follower_new(mode == SOCKET_DRIVE ? FOLLOWER_DRIVER : FOLLOWER_WATCHER, session->position, pull, session);
}

void socket_command_start(struct socket_session *session, struct exec_frame *start)
{
    struct error err = {0};
    const char *needed = start->command->terminal ? "shell" : "process";
    if (!is_free(session))
        return;
    if (!scope_allows(socket_session_scopes(session), needed)) {
        error_set(&err, ERROR_CAPABILITY_DENIED, "to start a %s needs scope %s",
                  start->command->terminal ? "terminal" : "command without a terminal", needed);
        record_denial(session, "frame=start", &err);
        socket_session_tell(session, &err);
        return;
    }
    struct command *command = TAKE(start->command);
    command->origin = memory_string(session->origin);
    session->binary = start->binary;
    session->acks = start->acks;
    const uint64_t offsets[OUTPUT_STREAMS] = {0};
    ask(session, SOCKET_DRIVE, offsets);
    process_exec(session->plane->sandboxes, session->sandbox_id, command, session->follower);
}

void socket_command_attach(struct socket_session *session, const struct socket_frame *frame)
{
    if (!is_free(session))
        return;
    session->binary = frame->binary;
    session->acks = frame->acks;
    ask(session, frame->mode, frame->offsets);
    process_follow(session->plane->sandboxes, session->sandbox_id, frame->id, session->follower);
}

void socket_command_judge_again(struct socket_session *session)
{
    struct error err = {0};
    if (session->attached != SOCKET_ATTACHED)
        return;
    if (may(session, session->mode, session->terminal, &err)) {
        if (!record_attach(session, &err))
            refuse(session, &err);
        return;
    }
    socket_session_tell(session, &err);
    struct error none = {0};
    if (session->mode == SOCKET_WATCH || !may(session, SOCKET_WATCH, session->terminal, &none)) {
        socket_session_close(session, SOCKET_CLOSE_SCOPES, error_code(err.kind));
        return;
    }
    char id[FRONT_INIT_ID_BYTES];
    memcpy(id, session->process_id, sizeof id);
    socket_command_leave(session);
    ask(session, SOCKET_WATCH, session->position);
    process_follow(session->plane->sandboxes, session->sandbox_id, id, session->follower);
}

/* ---- deeds ---- */

static void on_done(void *cookie, const struct verb_answer *answer)
{
    struct socket_session *session = socket_session_find((uint64_t)(uintptr_t)cookie);
    if (!session || answer->error.kind == ERROR_NONE)
        return;
    socket_session_enter(session);
    socket_session_tell(session, &answer->error);
    socket_session_leave(session);
}

static struct process_call call_of(const struct socket_session *session)
{
    return (struct process_call){.sandbox_id = session->sandbox_id,
                                 .process_id = session->process_id,
                                 .done = on_done,
                                 .cookie = socket_session_cookie(session)};
}

void socket_command_resize(struct socket_session *session, unsigned columns, unsigned rows)
{
    if (session->attached != SOCKET_ATTACHED) {
        session->columns = columns;
        session->rows = rows;
        return;
    }
    struct process_call call = call_of(session);
    process_resize(session->plane->sandboxes, &call, columns, rows);
}

void socket_command_signal(struct socket_session *session, int number)
{
    struct error err = {0};
    struct process_call call = call_of(session);
    if (session->attached != SOCKET_ATTACHED)
        error_set(&err, ERROR_STARTING, "the command has not started yet");
    else if (plane_audit(session->request, &err, "signal", "id=%s signal=%d", session->process_id, number)) {
        process_signal(session->plane->sandboxes, &call, number);
        return;
    }
    socket_session_tell(session, &err);
}

/* ---- one step each ---- */

static void on_started(struct socket_session *session, const struct process_view *view)
{
    struct error err = {0};
    session->terminal = view->terminal;
    memcpy(session->process_id, view->id, sizeof session->process_id);
    if (!may(session, session->mode, view->terminal, &err))
        record_attach_denial(session, &err);
    else if (!follower_has_begun(session->follower)) /* else it is recorded as a start */
        (void)record_attach(session, &err);
    if (err.kind != ERROR_NONE) {
        refuse(session, &err);
        return;
    }
    session->attached = SOCKET_ATTACHED;
    session->input.acked = view->stdin_offset;
    AUTO_TEXT text = {0};
    socket_print_started(&text, view, session->mode, session->position);
    socket_session_send(session, &text);
    if (session->columns && view->terminal)
        socket_command_resize(session, session->columns, session->rows);
    session->columns = session->rows = 0;
    socket_input_go_on(session);
}

static void send_binary(struct socket_session *session, const struct follower_item *item, uint8_t *buffer)
{
    buffer[0] = item->stream == OUTPUT_STDOUT ? SOCKET_STDOUT : SOCKET_STDERR;
    follower_consumed(session->follower, item->stream, item->size);
    session->position[item->stream] = item->offset + item->size;
    session->full = http_websocket_send(session->socket, false, buffer, item->size + 1) >= HTTP_WEBSOCKET_FULL_BYTES;
}

/* The beginning of a character waits for its rest, unless the other stream has something meanwhile. */
static bool skip(struct socket_session *session, enum output_stream stream)
{
    bool other_has_data = follower_skip(session->follower, stream), again = other_has_data && !session->skipped;
    session->skipped = true;
    return again;
}

/* False when nothing more can be sent now. */
static bool on_data(struct socket_session *session, const struct follower_item *item, uint8_t *buffer)
{
    if (session->binary) {
        send_binary(session, item, buffer);
        return true;
    }
    bool is_text;
    size_t size = events_split(buffer + 1, item->size, item->stage == FOLLOWER_LAST, &is_text);
    if (size == 0)
        return skip(session, item->stream);
    session->skipped = false;
    AUTO_TEXT text = {0};
    events_data(&text, HTTP_NDJSON, item->stream, item->offset, buffer + 1, size, is_text);
    follower_consumed(session->follower, item->stream, size);
    session->position[item->stream] = item->offset + size;
    socket_session_send(session, &text);
    return true;
}

static void on_gap(struct socket_session *session, const struct follower_item *item)
{
    AUTO_TEXT text = {0};
    session->position[item->stream] = item->gap_to;
    events_gap(&text, HTTP_NDJSON, item->stream, item->offset, item->gap_to);
    socket_session_send(session, &text);
}

static void on_ended(struct socket_session *session, const struct process_view *view)
{
    AUTO_TEXT text = {0};
    events_exit(&text, HTTP_NDJSON, view);
    socket_command_leave(session);
    socket_session_send(session, &text);
}

static void on_failed(struct socket_session *session, const struct error *told)
{
    struct error err = *told; /* it goes with the follower */
    refuse(session, &err);
    if (err.kind == ERROR_GONE)
        socket_session_close(session, SOCKET_CLOSE_SANDBOX_GONE, err.message);
    else if (err.kind == ERROR_NODE_UNREACHABLE)
        socket_session_close(session, SOCKET_CLOSE_STOPPING, err.message);
}

/* False when there is nothing more to do now. `buffer` has a byte before the chunk, for binary frames. */
static bool step(struct socket_session *session, uint8_t *buffer)
{
    struct follower_item item;
    switch (follower_next(session->follower, &item, buffer + 1, CHUNK_BYTES)) {
    case FOLLOWER_STARTED:
        on_started(session, item.view);
        return true;
    case FOLLOWER_DATA:
        return on_data(session, &item, buffer);
    case FOLLOWER_GAP:
        on_gap(session, &item);
        return true;
    case FOLLOWER_ENDED:
        on_ended(session, item.view);
        return false;
    case FOLLOWER_FAILED:
        on_failed(session, item.error);
        return false;
    case FOLLOWER_NOTHING:
        return false;
    }
    return false;
}

static void pull(void *cookie)
{
    struct socket_session *session = cookie;
    uint8_t buffer[1 + CHUNK_BYTES];
    socket_session_enter(session);
    session->skipped = false;
    while (!session->over && !session->full && session->follower && step(session, buffer)) {
    }
    socket_session_leave(session);
}

void socket_command_pull(struct socket_session *session)
{
    pull(session);
}
