/* execd_pty_socket.c - the life of a terminal's socket; follower in, frames out. */
#include "sandboxd/dialects/execd/execd_pty_socket.h"

#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_events.h"
#include "sandboxd/dialects/execd/execd_pty_internal.h"
#include "sandboxd/dialects/execd/execd_request.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

enum { CHUNK_BYTES = 32 * 1024, COLUMNS = 80, ROWS = 24, OFFSET_BYTES = 8 };
enum { CLOSE_NORMAL = 1000, CLOSE_TAKEN_OVER = 4001, CLOSE_FAILED = 4400, CLOSE_TOKEN = 4401, CLOSE_GONE = 4410 };

/* ---- life ---- */

void pty_enter(struct pty *pty)
{
    pty->inside++;
}

void pty_leave(struct pty *pty)
{
    if (--pty->inside > 0 || !pty->over)
        return;
    text_done(&pty->replay);
    text_done(&pty->input);
    free(pty->origin);
    free(pty);
}

static void end(struct pty *pty)
{
    pty->over = true;
    loop_timer_cancel(TAKE(pty->expiry));
    loop_timer_cancel(TAKE(pty->retry));
    follower_close(TAKE(pty->follower));
    terminal_holders_leave(pty->plane->terminals, pty->sandbox_id, pty->id, &pty->holder);
}

static void close_socket(struct pty *pty, int code, const char *reason)
{
    if (pty->over)
        return;
    end(pty);
    http_websocket_close(pty->socket, code, reason);
}

void pty_send_json(struct pty *pty, json_t *object)
{
    AUTO_FREE char *text = json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(object);
    if (text && !pty->over)
        (void)http_websocket_send(pty->socket, true, text, strlen(text));
}

void pty_send_error(struct pty *pty, const char *code, const char *message)
{
    json_t *object = json_object();
    json_object_set_new(object, "type", json_string("error"));
    json_object_set_new(object, "code", json_string(code));
    json_object_set_new(object, "error", json_stringn(message, text_utf8_prefix(message, strlen(message))));
    pty_send_json(pty, object);
}

/* `data` has a byte before it for the frame's kind. */
static void send_bytes(struct pty *pty, int kind, char *data, size_t size)
{
    data[0] = (char)kind;
    if (!pty->over && http_websocket_send(pty->socket, false, data, size + 1) >= HTTP_WEBSOCKET_FULL_BYTES)
        pty->full = true;
}

static void fail(struct pty *pty, const struct error *err)
{
    pty_send_error(pty, pty->is_started ? error_code(err->kind) : "START_FAILED", err->message);
    close_socket(pty, err->kind == ERROR_GONE ? CLOSE_GONE : CLOSE_FAILED, error_code(err->kind));
}

static void on_expired(void *cookie)
{
    struct pty *pty = cookie;
    pty->expiry = NULL;
    pty_enter(pty);
    pty_send_error(pty, error_code(ERROR_TOKEN_EXPIRED), "the token expired; the terminal lives on");
    close_socket(pty, CLOSE_TOKEN, error_code(ERROR_TOKEN_EXPIRED));
    pty_leave(pty);
}

struct pty *pty_find(void *cookie)
{
    return http_websocket_find(loop_current(), (uint64_t)(uintptr_t)cookie);
}

static void on_done(void *cookie UNUSED, const struct verb_answer *answer UNUSED)
{
}

struct process_call pty_call_of(const struct pty *pty, void (*done)(void *cookie, const struct verb_answer *answer))
{
    return (struct process_call){.sandbox_id = pty->sandbox_id,
                                 .process_id = pty->id,
                                 .done = done,
                                 .cookie = (void *)(uintptr_t)pty->number,
                                 .origin = pty->origin};
}

void pty_resize(struct pty *pty)
{
    struct process_call call = pty_call_of(pty, on_done);
    if (pty->is_started && pty->columns && !pty->over)
        process_resize(pty->plane->sandboxes, &call, pty->columns, pty->rows);
}

/* ---- output ---- */

static void connect_it(struct pty *pty)
{
    if (pty->is_connected)
        return;
    pty->is_connected = true;
    uint64_t offset = pty->replayed_from;
    for (size_t i = OFFSET_BYTES; pty->replay.length > 1 + OFFSET_BYTES && i > 0; i--, offset >>= 8)
        pty->replay.data[i] = (char)(offset & 0xff);
    if (pty->replay.length > 1 + OFFSET_BYTES)
        send_bytes(pty, PTY_FRAME_REPLAY, pty->replay.data, pty->replay.length - 1);
    text_done(&pty->replay);
    pty->replay = (struct text){0};
    pty_send_json(pty, json_pack("{s:s,s:s,s:s}", "type", "connected", "session_id", pty->id, "mode",
                                 pty->pipes ? "pipe" : "pty"));
}

static void begin_replay(struct pty *pty, uint64_t from)
{
    static const char HEAD[1 + OFFSET_BYTES] = {0};
    pty->replay.length = 0;
    text_append(&pty->replay, HEAD, sizeof HEAD);
    pty->replayed_from = from;
    if (from >= pty->replayed_until)
        connect_it(pty);
}

static void on_started(struct pty *pty, const struct process_view *view)
{
    pty->is_started = true;
    pty->pipes = !view->terminal;
    pty->replayed_until = pty->is_known ? view->length[OUTPUT_STDOUT] : 0;
    begin_replay(pty, pty->replayed_from);
    pty_resize(pty);
    pty_input_go_on(pty);
}

/* What was there before this socket goes into the replay, what is new behind it. */
static void on_data(struct pty *pty, const struct follower_item *item, char *buffer)
{
    size_t old = 0;
    follower_consumed(pty->follower, item->stream, item->size);
    if (!pty->is_connected && item->stream == OUTPUT_STDOUT) {
        uint64_t left = pty->replayed_until - item->offset;
        old = item->size < left ? item->size : (size_t)left;
        text_append(&pty->replay, buffer + 1, old);
        if (item->offset + old >= pty->replayed_until)
            connect_it(pty);
    }
    if (item->size > old)
        send_bytes(pty, item->stream == OUTPUT_STDOUT ? PTY_FRAME_STDOUT : PTY_FRAME_STDERR, buffer + old,
                   item->size - old);
}

static void on_ended(struct pty *pty, const struct process_view *view)
{
    connect_it(pty);
    pty_send_json(pty, json_pack("{s:s,s:i}", "type", "exit", "exit_code", execd_end_code(&view->end)));
    close_socket(pty, CLOSE_NORMAL, "process exited");
}

/* False when there is nothing more to do now. `buffer` has a byte before the chunk. */
static bool step(struct pty *pty, char *buffer)
{
    struct follower_item item;
    switch (follower_next(pty->follower, &item, buffer + 1, CHUNK_BYTES)) {
    case FOLLOWER_STARTED:
        on_started(pty, item.view);
        return true;
    case FOLLOWER_DATA:
        on_data(pty, &item, buffer);
        return true;
    case FOLLOWER_GAP:
        if (!pty->is_connected && item.stream == OUTPUT_STDOUT)
            begin_replay(pty, item.gap_to);
        return true;
    case FOLLOWER_ENDED:
        on_ended(pty, item.view);
        return false;
    case FOLLOWER_FAILED: {
        struct error err = *item.error; /* it goes with the follower */
        fail(pty, &err);
        return false;
    }
    case FOLLOWER_NOTHING:
        break;
    }
    return false;
}

static void pull(void *cookie)
{
    struct pty *pty = cookie;
    char buffer[1 + CHUNK_BYTES];
    pty_enter(pty);
    while (!pty->over && !pty->full && pty->follower && step(pty, buffer)) {
    }
    pty_leave(pty);
}

/* ---- what the socket tells ---- */

static void on_message(struct http_websocket *socket UNUSED, void *cookie, bool is_text, const char *data, size_t size)
{
    struct pty *pty = cookie;
    pty_enter(pty);
    if (!pty->over)
        pty_take(pty, is_text, data, size);
    pty_leave(pty);
}

static void on_drained(struct http_websocket *socket UNUSED, void *cookie)
{
    struct pty *pty = cookie;
    follower_delivered(pty->follower);
    if (!pty->full)
        return;
    pty->full = false;
    pull(pty);
}

/* The socket is closed behind it with 4401. */
static void on_cut(struct http_websocket *socket UNUSED, void *cookie, const struct error *err)
{
    struct pty *pty = cookie;
    pty_enter(pty);
    pty_send_error(pty, error_code(err->kind), err->message);
    if (!pty->over)
        end(pty);
    pty_leave(pty);
}

static void on_closed(void *cookie)
{
    struct pty *pty = cookie;
    pty_enter(pty);
    if (!pty->over)
        end(pty);
    pty_leave(pty);
}

static const struct http_websocket_events EVENTS = {
    .message = on_message, .drained = on_drained, .cut = on_cut, .closed = on_closed};

static void on_taken_over(void *cookie)
{
    struct pty *pty = pty_find(cookie);
    if (!pty)
        return;
    pty_enter(pty);
    close_socket(pty, CLOSE_TAKEN_OVER, "TAKEN_OVER");
    pty_leave(pty);
}

/* ---- opening ---- */

static struct command *make_command(const struct pty *pty, const struct terminal_plan *plan, struct error *err)
{
    AUTO(command) *command = command_new();
    bool is_made =
        plan->line ? execd_request_set_line(command, plan->line, err) : command_set_login_shell(command, err);
    if (!is_made)
        return NULL;
    command->cwd = plan->cwd ? memory_string(plan->cwd) : NULL;
    command->terminal = !pty->pipes;
    command->columns = pty->pipes ? 0 : COLUMNS;
    command->rows = pty->pipes ? 0 : ROWS;
    command->with_stdin = command->stdin_stays_open = true;
    command->origin = memory_string(pty->origin);
    memcpy(command->id, pty->id, sizeof command->id);
    return TAKE(command);
}

static void start(struct pty *pty, const struct terminal_plan *plan)
{
    static const uint64_t BEGINNING[OUTPUT_STREAMS] = {0};
    struct error err = {0};
    struct command *command = make_command(pty, plan, &err);
    if (!command) {
        fail(pty, &err);
        return;
    }
    pty->follower = follower_new(FOLLOWER_DRIVER, BEGINNING, pull, pty);
    process_exec(pty->plane->sandboxes, pty->sandbox_id, command, pty->follower);
}

static void follow(struct pty *pty, const struct process_view *view, uint64_t since)
{
    uint64_t length = view->length[OUTPUT_STDOUT];
    const uint64_t offsets[OUTPUT_STREAMS] = {
        [OUTPUT_STDOUT] = since < length ? since : length, [OUTPUT_STDERR] = view->length[OUTPUT_STDERR]};
    pty->is_known = true;
    pty->replayed_from = offsets[OUTPUT_STDOUT];
    pty->follower = follower_new(FOLLOWER_DRIVER, offsets, pull, pty);
    process_follow(pty->plane->sandboxes, pty->sandbox_id, pty->id, pty->follower);
}

static bool may_start(const struct http_request *request, const struct execd_pty_wish *wish, struct error *err)
{
    return !wish->pipes || scope_allows(&caller_of(request)->claims.scopes, "process") ||
           error_set(err, ERROR_CAPABILITY_DENIED, "a command without a terminal needs scope process");
}

static struct pty *pty_new(struct http_request *request, const struct execd_pty_wish *wish)
{
    struct pty *pty = memory_new(sizeof *pty);
    pty->request = request;
    pty->plane = plane_of(request);
    pty->number = http_request_number(request);
    pty->holder = (struct terminal_holder){.loop = http_request_loop(request), .number = pty->number};
    pty->pipes = wish->pipes;
    pty->origin = plane_origin(request);
    memcpy(pty->sandbox_id, caller_of(request)->claims.sandbox_id, sizeof pty->sandbox_id);
    (void)!text_copy(pty->id, sizeof pty->id, wish->id);
    return pty;
}

/* The terminal is held. */
static void accept_socket(struct pty *pty, const struct execd_pty_wish *wish, const struct process_view *view,
                          const struct terminal_plan *plan)
{
    uint64_t until = plane_deadline_ns(caller_of(pty->request)->claims.expires_at), since = wish->since;
    pty_enter(pty);
    plane_stay(pty->request);
    pty->socket = http_websocket_accept(pty->request, "parley.v1", HTTP_WEBSOCKET_MESSAGE_MAX, &EVENTS, pty);
    if (!pty->socket) {
        end(pty);
    } else {
        pty->expiry = loop_timer_start(http_request_loop(pty->request), until, on_expired, pty);
        if (view)
            follow(pty, view, since);
        else
            start(pty, plan);
    }
    pty_leave(pty);
}

/* What is held is left again, and the request answered. */
static void give_back(struct http_request *request, const struct execd_pty_wish *wish,
                      const struct terminal_holder *holder, const struct error *err)
{
    terminal_holders_leave(plane_of(request)->terminals, caller_of(request)->claims.sandbox_id, wish->id, holder);
    http_reply_error(request, err);
}

static void open_held(struct http_request *request, const struct execd_pty_wish *wish, const struct process_view *view,
                      const struct terminal_holder *holder, const struct terminal_plan *plan)
{
    struct error err = {0};
    if (!view && !plan)
        error_set(&err, ERROR_CONFLICT, "terminal %s was started at the same time; try again", wish->id);
    else if (!view || plane_audit(request, &err, "terminal.attach", "id=%s mode=drive", wish->id)) {
        accept_socket(pty_new(request, wish), wish, view, plan);
        return;
    }
    give_back(request, wish, holder, &err);
}

void execd_pty_socket_open(struct http_request *request, const struct execd_pty_wish *wish,
                           const struct process_view *view)
{
    struct error err = {0};
    struct terminal_plan plan = {0};
    struct terminal_holder before = {0},
                           holder = {.loop = http_request_loop(request), .number = http_request_number(request)};
    bool is_fresh = false;
    if (!view && !may_start(request, wish, &err)) {
        http_reply_error(request, &err);
        return;
    }
    if (!terminal_holders_hold(plane_of(request)->terminals, caller_of(request)->claims.sandbox_id, wish->id, &holder,
                               wish->takes_over, &before, &is_fresh, &plan, &err)) {
        execd_reply_error(request, 409, "ALREADY_CONNECTED", err.message);
        return;
    }
    if (before.loop)
        loop_post(before.loop, on_taken_over, (void *)(uintptr_t)before.number);
    open_held(request, wish, view, &holder, is_fresh ? &plan : NULL);
    terminal_plan_done(&plan);
}
