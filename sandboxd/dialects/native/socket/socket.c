/* socket.c - a WebSocket's life: who speaks, until when, and which frame means what. */
#include "sandboxd/dialects/native/socket/socket.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/socket/socket_session.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

enum {
    AUTH_BYTES = 8192,  /* a first frame at most */
    UNJUDGED_MAX = 256, /* sockets without a token, whole process */
    MISTAKES_MAX = 10,  /* frames that are none */
    WARNING_MS = 30000  /* before the token's end */
};
static const uint64_t AUTH_NS = UINT64_C(5) * 1000000000;

struct socket_session *socket_session_find(uint64_t number)
{
    return http_websocket_find(loop_current(), number);
}

/* ---- life ---- */

static void uncount(struct socket_session *session)
{
    if (session->is_counted)
        atomic_fetch_sub(&session->plane->unjudged, 1);
    session->is_counted = false;
}

static void end(struct socket_session *session)
{
    session->over = true;
    uncount(session);
    loop_timer_cancel(TAKE(session->timer));
    socket_command_leave(session);
    if (session->is_judged)
        registry_detach(sandboxes_registry(session->plane->sandboxes), session->sandbox_id, clock_wall_ms());
}

void socket_session_enter(struct socket_session *session)
{
    session->busy++;
}

void socket_session_leave(struct socket_session *session)
{
    if (--session->busy > 0 || !session->over)
        return;
    free(session->origin);
    free(session);
}

void socket_session_close(struct socket_session *session, int code, const char *reason)
{
    if (session->over)
        return;
    end(session);
    http_websocket_close(session->socket, code, reason);
}

void socket_session_send(struct socket_session *session, const struct text *text)
{
    if (session->over)
        return;
    size_t size = text->length - (text->data[text->length - 1] == '\n');
    /* Only `drained` takes it back: it is drained that goes on with the output, and only when it was full. */
    if (http_websocket_send(session->socket, true, text->data, size) >= HTTP_WEBSOCKET_FULL_BYTES)
        session->full = true;
}

void socket_session_tell(struct socket_session *session, const struct error *err)
{
    AUTO_TEXT text = {0};
    events_error(&text, HTTP_NDJSON, err);
    socket_session_send(session, &text);
}

const struct scope_set *socket_session_scopes(const struct socket_session *session)
{
    return &caller_of(session->request)->claims.scopes;
}

/* The error in a frame, then the end. */
static void close_for(struct socket_session *session, const struct error *err)
{
    socket_session_tell(session, err);
    if (err->kind == ERROR_GONE)
        socket_session_close(session, SOCKET_CLOSE_SANDBOX_GONE, err->message);
    else if (err->kind == ERROR_CAPABILITY_DENIED)
        socket_session_close(session, SOCKET_CLOSE_SCOPES, error_code(err->kind));
    else
        socket_session_close(session, SOCKET_CLOSE_TOKEN, error_code(err->kind));
}

/* ---- time ---- */

static void plan_timer(struct socket_session *session);

static void tell_time(struct socket_session *session)
{
    struct error err = {0};
    if (!session->is_judged) {
        error_set(&err, ERROR_UNAUTHENTICATED, "no token came within 5 s");
        close_for(session, &err);
        return;
    }
    int64_t left_ms = caller_of(session->request)->claims.expires_at * 1000 - clock_wall_ms();
    if (left_ms <= 0) {
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; the command goes on, attach with a fresh one");
        close_for(session, &err);
        return;
    }
    if (!session->is_warned && left_ms <= WARNING_MS) {
        session->is_warned = true;
        AUTO_TEXT text = {0};
        socket_print_expiring(&text, (unsigned)((left_ms + 999) / 1000));
        socket_session_send(session, &text);
    }
    plan_timer(session);
}

static void on_timer(void *cookie)
{
    struct socket_session *session = cookie;
    session->timer = NULL;
    socket_session_enter(session);
    tell_time(session);
    socket_session_leave(session);
}

/* By the wall clock, which may be set: it looks again when it fires. */
static void plan_timer(struct socket_session *session)
{
    uint64_t at = clock_boot_ns() + AUTH_NS;
    if (session->is_judged)
        at = plane_deadline_ns(caller_of(session->request)->claims.expires_at -
                               (session->is_warned ? 0 : WARNING_MS / 1000));
    loop_timer_cancel(session->timer);
    session->timer = loop_timer_start(http_request_loop(session->request), at, on_timer, session);
}

/* ---- who speaks ---- */

/* The request has the identity of a good token. True when another one was in force before. */
static bool welcome(struct socket_session *session)
{
    const struct caller *caller = caller_of(session->request);
    bool is_first = !session->is_judged;
    AUTO_FREE char *before = TAKE(session->origin);
    session->is_judged = true;
    session->is_warned = false;
    uncount(session);
    session->origin = plane_origin(session->request);
    if (is_first) {
        memcpy(session->sandbox_id, caller->claims.sandbox_id, sizeof session->sandbox_id);
        registry_attach(sandboxes_registry(session->plane->sandboxes), session->sandbox_id);
        http_websocket_set_message_max(session->socket, HTTP_WEBSOCKET_MESSAGE_MAX);
    }
    AUTO_TEXT text = {0};
    socket_print_auth_ok(&text, http_request_id(session->request), &caller->claims);
    socket_session_send(session, &text);
    plan_timer(session);
    return !is_first && !text_equal(before, session->origin);
}

static void mistake(struct socket_session *session, const struct error *err)
{
    socket_session_tell(session, err);
    if (++session->mistakes >= MISTAKES_MAX)
        socket_session_close(session, SOCKET_CLOSE_MISTAKES, error_code(ERROR_INVALID));
}

static void take_token(struct socket_session *session, const char *token)
{
    struct error err = {0};
    bool is_first = !session->is_judged;
    if (session->plane->judge(session->request, token, &err)) {
        if (welcome(session))
            socket_command_judge_again(session);
    } else if (is_first || err.kind == ERROR_CAPABILITY_DENIED) {
        close_for(session, &err); /* a fresh token without any scope for this route leaves nothing to do either */
    } else {
        mistake(session, &err); /* the one before holds */
    }
}

/* ---- frames ---- */

static void take_frame(struct socket_session *session, struct socket_frame *frame)
{
    switch (frame->type) {
    case SOCKET_AUTH:
        take_token(session, frame->token);
        return;
    case SOCKET_START:
        socket_command_start(session, &frame->start);
        return;
    case SOCKET_ATTACH:
        socket_command_attach(session, frame);
        return;
    case SOCKET_INPUT:
        if (socket_command_may_drive(session))
            socket_input_add(session, TAKE(frame->data), frame->size, frame->offset, false);
        return;
    case SOCKET_EOF:
        if (socket_command_may_drive(session))
            socket_input_add(session, NULL, 0, SOCKET_OFFSET_NONE, true);
        return;
    case SOCKET_RESIZE:
        if (socket_command_may_drive(session))
            socket_command_resize(session, frame->columns, frame->rows);
        return;
    case SOCKET_SIGNAL:
        if (socket_command_may_drive(session))
            socket_command_signal(session, frame->signal);
        return;
    case SOCKET_PING: {
        AUTO_TEXT text = {0};
        socket_print_pong(&text);
        socket_session_send(session, &text);
    }
    }
}

static void take_binary(struct socket_session *session, const char *data, size_t size)
{
    struct error err = {0};
    if (!session->is_judged || !session->binary || size == 0 || data[0] != SOCKET_STDIN)
        error_set(&err, ERROR_INVALID,
                  "a binary frame is a byte 0 and stdin's bytes, after a start or attach with bin");
    if (err.kind != ERROR_NONE)
        mistake(session, &err);
    else if (socket_command_may_drive(session))
        socket_input_add(session, memory_copy(data + 1, size - 1), size - 1, SOCKET_OFFSET_NONE, false);
}

/* The first frame of a socket whose head held no token. */
static void take_first(struct socket_session *session, bool is_text, const char *data, size_t size)
{
    AUTO_SOCKET_FRAME frame = {0};
    struct error err = {0};
    if (is_text && socket_frame_parse(&frame, data, size, &err) && frame.type == SOCKET_AUTH) {
        take_token(session, frame.token);
        return;
    }
    if (err.kind == ERROR_NONE || !is_text)
        error_set(&err, ERROR_UNAUTHENTICATED, "the first frame is {\"type\":\"auth\",\"token\":...}");
    err.kind = ERROR_UNAUTHENTICATED;
    close_for(session, &err);
}

static void take_message(struct socket_session *session, bool is_text, const char *data, size_t size)
{
    AUTO_SOCKET_FRAME frame = {0};
    struct error err = {0};
    if (!session->is_judged)
        take_first(session, is_text, data, size);
    else if (!is_text)
        take_binary(session, data, size);
    else if (socket_frame_parse(&frame, data, size, &err))
        take_frame(session, &frame);
    else
        mistake(session, &err);
}

/* ---- what the socket tells ---- */

static void on_message(struct http_websocket *socket UNUSED, void *cookie, bool is_text, const char *data, size_t size)
{
    struct socket_session *session = cookie;
    socket_session_enter(session);
    if (!session->over)
        take_message(session, is_text, data, size);
    socket_session_leave(session);
}

static void on_drained(struct http_websocket *socket UNUSED, void *cookie)
{
    struct socket_session *session = cookie;
    follower_delivered(session->follower);
    if (!session->full)
        return;
    session->full = false;
    socket_session_enter(session);
    socket_input_go_on(session);
    socket_command_pull(session);
    socket_session_leave(session);
}

static void on_cut(struct http_websocket *socket UNUSED, void *cookie, const struct error *err)
{
    struct socket_session *session = cookie;
    socket_session_enter(session);
    close_for(session, err);
    socket_session_leave(session);
}

static void on_closed(void *cookie)
{
    struct socket_session *session = cookie;
    socket_session_enter(session);
    if (!session->over)
        end(session);
    socket_session_leave(session);
}

static const struct http_websocket_events EVENTS = {
    .message = on_message, .drained = on_drained, .cut = on_cut, .closed = on_closed};

/* ---- the route ---- */

static struct socket_session *session_new(struct http_request *request, struct http_websocket *socket)
{
    struct socket_session *session = memory_new(sizeof *session);
    session->request = request;
    session->plane = plane_of(request);
    session->number = http_request_number(request);
    session->socket = socket;
    return session;
}

static void begin(struct socket_session *session)
{
    if (caller_of(session->request)) {
        (void)welcome(session);
        return;
    }
    session->is_counted = true;
    if (atomic_fetch_add(&session->plane->unjudged, 1) < UNJUDGED_MAX)
        plan_timer(session);
    else
        socket_session_close(session, SOCKET_CLOSE_CROWDED, "too many sockets without a token");
}

static void handle_socket(struct http_request *request)
{
    static const char *const NONE[] = {NULL};
    struct error err = {0};
    if (!http_request_query_only(request, NONE, &err) || !http_websocket_check(request, &err)) {
        http_reply_error(request, &err);
        return;
    }
    size_t message_max = caller_of(request) ? HTTP_WEBSOCKET_MESSAGE_MAX : AUTH_BYTES;
    struct socket_session *session = session_new(request, NULL);
    socket_session_enter(session);
    session->socket = http_websocket_accept(request, "parley.v1", message_max, &EVENTS, session);
    if (session->socket)
        begin(session);
    else
        session->over = true; /* the client has left meanwhile */
    socket_session_leave(session);
}

#define CARRIERS (HTTP_BEARER | HTTP_PATH | HTTP_QUERY | HTTP_PROTOCOL | HTTP_LATER)

static const struct http_route ROUTES[] = {
    {"GET", "/s/{sandbox}/ws", CARRIERS, "shell:ro|process", 0, handle_socket},
};

const struct http_route *socket_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
