/* tunnel.c - see tunnel.h. Neither side is read while the other does not take: what waits is bounded by what one read
 * or one message holds. */
#include "sandboxd/dialects/native/ports/tunnel.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/ports/ports_admit.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/websocket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    CLOSE_NORMAL = 1000,
    CLOSE_MISTAKE = 4400,
    CLOSE_TOKEN = 4401,
    CLOSE_SCOPES = 4403,
    CLOSE_RESET = 4420, /* the app broke the connection off */
    READ_BYTES = 65536,
    WARNING_MS = 30000 /* before the token's end */
};

struct tunnel {
    struct http_request *request;
    struct http_websocket *socket;
    struct sandboxes *sandboxes;
    char sandbox_id[CAPABILITY_ID_BYTES];
    uint16_t port;
    struct loop_watch *app;
    struct text unsent; /* to the app, from `sent` on */
    size_t sent;
    bool app_ended;    /* it says no more */
    bool client_ended; /* it says no more; told to the app when `unsent` is */
    bool full;         /* the client does not take: the app is not read */
    bool is_warned;
    bool over;
    unsigned busy; /* calls that are inside it; the last one frees it when it is over */
    struct loop_timer *timer;
};

/* ---- life ---- */

static void end(struct tunnel *tunnel)
{
    if (tunnel->over)
        return;
    tunnel->over = true;
    loop_timer_cancel(TAKE(tunnel->timer));
    loop_watch_free(TAKE(tunnel->app));
    ports_hung_up(tunnel->sandboxes, tunnel->sandbox_id);
}

static void enter(struct tunnel *tunnel)
{
    tunnel->busy++;
}

static void leave(struct tunnel *tunnel)
{
    if (--tunnel->busy > 0 || !tunnel->over)
        return;
    text_done(&tunnel->unsent);
    free(tunnel);
}

static void close_tunnel(struct tunnel *tunnel, int code, const char *reason)
{
    if (tunnel->over)
        return;
    end(tunnel);
    http_websocket_close(tunnel->socket, code, reason);
}

static void send_frame(struct tunnel *tunnel, bool is_text, const void *data, size_t size)
{
    if (!tunnel->over)
        tunnel->full = http_websocket_send(tunnel->socket, is_text, data, size) >= HTTP_WEBSOCKET_FULL_BYTES;
}

static void send_text(struct tunnel *tunnel, const char *text)
{
    send_frame(tunnel, true, text, strlen(text));
}

static void fail(struct tunnel *tunnel, int code, const struct error *err)
{
    AUTO_TEXT text = {0};
    events_error(&text, HTTP_NDJSON, err);
    send_frame(tunnel, true, text.data, text.length - 1);
    close_tunnel(tunnel, code, error_code(err->kind));
}

/* ---- to the app ---- */

static void on_writable(void *cookie);

static void check_ends(struct tunnel *tunnel)
{
    if (tunnel->client_ended && tunnel->sent == tunnel->unsent.length)
        (void)shutdown(loop_watch_fd(tunnel->app), SHUT_WR);
    if (tunnel->client_ended && tunnel->app_ended && tunnel->sent == tunnel->unsent.length)
        close_tunnel(tunnel, CLOSE_NORMAL, "");
}

static void write_unsent(struct tunnel *tunnel)
{
    while (tunnel->sent < tunnel->unsent.length) {
        ssize_t size = send(loop_watch_fd(tunnel->app), tunnel->unsent.data + tunnel->sent,
                            tunnel->unsent.length - tunnel->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0 && errno == EAGAIN) {
            loop_watch_writable(tunnel->app, on_writable, tunnel);
            http_websocket_pause(tunnel->socket, true);
            return;
        }
        if (size < 0) {
            close_tunnel(tunnel, CLOSE_RESET, "the connection was broken off");
            return;
        }
        tunnel->sent += (size_t)size;
    }
    tunnel->unsent.length = tunnel->sent = 0;
    http_websocket_pause(tunnel->socket, false);
    check_ends(tunnel);
}

static void on_writable(void *cookie)
{
    struct tunnel *tunnel = cookie;
    enter(tunnel);
    if (!tunnel->over)
        write_unsent(tunnel);
    leave(tunnel);
}

/* ---- from the app ---- */

static void on_readable(void *cookie);

static void watch_app(struct tunnel *tunnel)
{
    bool is_read = !tunnel->app_ended && !tunnel->full;
    if (!tunnel->over)
        loop_watch_readable(tunnel->app, is_read ? on_readable : NULL, tunnel);
}

static void read_app(struct tunnel *tunnel)
{
    char data[READ_BYTES];
    ssize_t size = recv(loop_watch_fd(tunnel->app), data, sizeof data, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size < 0) {
        close_tunnel(tunnel, CLOSE_RESET, "the connection was broken off");
        return;
    }
    if (size == 0) {
        tunnel->app_ended = true;
        send_text(tunnel, "{\"type\":\"eof\"}");
        check_ends(tunnel);
    } else {
        send_frame(tunnel, false, data, (size_t)size);
    }
    watch_app(tunnel);
}

static void on_readable(void *cookie)
{
    struct tunnel *tunnel = cookie;
    enter(tunnel);
    if (!tunnel->over)
        read_app(tunnel);
    leave(tunnel);
}

/* ---- time, and who speaks ---- */

static void plan_timer(struct tunnel *tunnel);

static void tell_time(struct tunnel *tunnel)
{
    int64_t left_ms = caller_of(tunnel->request)->claims.expires_at * 1000 - clock_wall_ms();
    if (left_ms <= 0) {
        struct error err = {0};
        error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired");
        fail(tunnel, CLOSE_TOKEN, &err);
        return;
    }
    if (!tunnel->is_warned && left_ms <= WARNING_MS) {
        AUTO_TEXT text = {0};
        tunnel->is_warned = true;
        text_append_format(&text, "{\"type\":\"expiring\",\"in\":%lld}", (long long)((left_ms + 999) / 1000));
        send_text(tunnel, text.data);
    }
    if (!tunnel->over)
        plan_timer(tunnel);
}

static void on_timer(void *cookie)
{
    struct tunnel *tunnel = cookie;
    tunnel->timer = NULL;
    enter(tunnel);
    tell_time(tunnel);
    leave(tunnel);
}

/* By the wall clock, which may be set: it looks again when it fires. */
static void plan_timer(struct tunnel *tunnel)
{
    int64_t before_s = tunnel->is_warned ? 0 : WARNING_MS / 1000;
    uint64_t at = plane_deadline_ns(caller_of(tunnel->request)->claims.expires_at - before_s);
    loop_timer_cancel(tunnel->timer);
    tunnel->timer = loop_timer_start(http_request_loop(tunnel->request), at, on_timer, tunnel);
}

static void take_token(struct tunnel *tunnel, const char *token)
{
    struct error err = {0};
    if (!plane_of(tunnel->request)->judge(tunnel->request, token, &err)) {
        AUTO_TEXT text = {0};
        events_error(&text, HTTP_NDJSON, &err);
        send_frame(tunnel, true, text.data, text.length - 1); /* the one before holds */
        return;
    }
    if (!ports_covers(tunnel->request, tunnel->port)) {
        error_set(&err, ERROR_CAPABILITY_DENIED, "the fresh token does not grant port@%u", tunnel->port);
        fail(tunnel, CLOSE_SCOPES, &err);
        return;
    }
    plane_stay(tunnel->request); /* as the one before did, which went with its token */
    tunnel->is_warned = false;
    send_text(tunnel, "{\"type\":\"auth_ok\"}");
    if (!tunnel->over)
        plan_timer(tunnel);
}

/* ---- frames ---- */

static void take_text(struct tunnel *tunnel, const char *data, size_t size)
{
    json_t *frame = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(frame, "type"));
    const char *token = json_string_value(json_object_get(frame, "token"));
    if (type && strcmp(type, "eof") == 0) {
        tunnel->client_ended = true;
        check_ends(tunnel);
    } else if (type && strcmp(type, "auth") == 0 && token) {
        take_token(tunnel, token);
    } else if (type && strcmp(type, "ping") == 0) {
        send_text(tunnel, "{\"type\":\"pong\"}");
    } else {
        struct error err = {0};
        error_set(&err, ERROR_INVALID, "a text message is eof, auth or ping; bytes go in binary ones");
        fail(tunnel, CLOSE_MISTAKE, &err);
    }
    json_decref(frame);
}

static void take_bytes(struct tunnel *tunnel, const char *data, size_t size)
{
    if (tunnel->client_ended) {
        close_tunnel(tunnel, CLOSE_MISTAKE, "bytes after eof");
        return;
    }
    text_append(&tunnel->unsent, data, size);
    write_unsent(tunnel);
}

static void on_message(struct http_websocket *socket UNUSED, void *cookie, bool is_text, const char *data, size_t size)
{
    struct tunnel *tunnel = cookie;
    enter(tunnel);
    if (tunnel->over)
        ;
    else if (is_text)
        take_text(tunnel, data, size);
    else
        take_bytes(tunnel, data, size);
    leave(tunnel);
}

static void on_drained(struct http_websocket *socket UNUSED, void *cookie)
{
    struct tunnel *tunnel = cookie;
    tunnel->full = false;
    enter(tunnel);
    watch_app(tunnel);
    leave(tunnel);
}

static void on_cut(struct http_websocket *socket UNUSED, void *cookie, const struct error *err)
{
    struct tunnel *tunnel = cookie;
    enter(tunnel);
    fail(tunnel, CLOSE_TOKEN, err);
    leave(tunnel);
}

static void on_closed(void *cookie)
{
    struct tunnel *tunnel = cookie;
    enter(tunnel);
    end(tunnel);
    leave(tunnel);
}

static const struct http_websocket_events EVENTS = {
    .message = on_message, .drained = on_drained, .cut = on_cut, .closed = on_closed};

/* ---- the route ---- */

struct dialing {
    struct sandboxes *sandboxes;
    char sandbox_id[CAPABILITY_ID_BYTES];
    uint64_t number; /* the request's */
    uint16_t port;
};

static void open_tunnel(struct http_request *request, const struct dialing *dialing, int fd)
{
    struct tunnel *tunnel = memory_new(sizeof *tunnel);
    tunnel->request = request;
    tunnel->sandboxes = dialing->sandboxes;
    tunnel->port = dialing->port;
    memcpy(tunnel->sandbox_id, dialing->sandbox_id, sizeof tunnel->sandbox_id);
    tunnel->app = loop_watch_new(http_request_loop(request), fd);
    enter(tunnel);
    plane_stay(request);
    tunnel->socket = http_websocket_accept(request, "parley.v1", HTTP_WEBSOCKET_MESSAGE_MAX, &EVENTS, tunnel);
    if (!tunnel->socket) {
        end(tunnel); /* the client has left meanwhile */
    } else {
        plan_timer(tunnel);
        watch_app(tunnel);
    }
    leave(tunnel);
}

static void on_dialed(void *cookie, int fd, const struct error *err)
{
    AUTO_FREE struct dialing *dialing = cookie;
    struct http_request *request = http_request_find(loop_current(), dialing->number);
    if (request && fd >= 0) {
        open_tunnel(request, dialing, fd);
        return;
    }
    if (fd >= 0) {
        close(fd);
        ports_hung_up(dialing->sandboxes, dialing->sandbox_id);
    }
    if (request)
        http_reply_error(request, err);
}

void tunnel_start(struct http_request *request)
{
    static const char *const NONE[] = {NULL};
    struct error err = {0};
    uint16_t port;
    if (!http_request_query_only(request, NONE, &err) || !ports_admit(request, &port, &err) ||
        !http_websocket_check(request, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct dialing *dialing = memory_new(sizeof *dialing);
    *dialing = (struct dialing){
        .sandboxes = plane_of(request)->sandboxes, .number = http_request_number(request), .port = port};
    memcpy(dialing->sandbox_id, caller_of(request)->claims.sandbox_id, sizeof dialing->sandbox_id);
    ports_dial(dialing->sandboxes, dialing->sandbox_id, port, on_dialed, dialing);
}
