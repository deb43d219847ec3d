/* proxy_upload.c - a request on its way to another server: its head, then a body that is held, or comes through a pipe
 * as the client sends it and the server takes it. */
#include "shared/http/proxy_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PIECE_BYTES = 65536, TURN_PIECES = 16 };

static bool is_whole_with_head(const struct http_request *request)
{
    const struct http_pour *pour = &request->pour;
    return !request->head.is_chunked && pour->held_size - pour->held_at == pour->left;
}

static void hold(struct http_relay *relay, const void *data, size_t size)
{
    relay->body = RELAY_BODY_HELD;
    relay->rest = data;
    relay->rest_size = size;
}

void http_relay_choose_body(struct http_relay *relay)
{
    struct http_request *request = relay->request;
    if (relay->order.body_replaced) {
        hold(relay, relay->order.body, relay->order.body_size);
        return;
    }
    if (!request->pours) {
        size_t size;
        const char *body = http_request_body(request, &size);
        if (size > 0 || request->head.is_chunked)
            hold(relay, body, size);
        return;
    }
    struct http_pour *pour = &request->pour;
    if (pour->is_whole)
        return;
    if (is_whole_with_head(request)) {
        hold(relay, pour->held + pour->held_at, pour->held_size - pour->held_at);
        pour->is_whole = true;
        return;
    }
    relay->body = RELAY_BODY_POURED;
    relay->is_chunked = request->head.is_chunked;
}

/* ---- poured ---- */

static void on_piece(void *cookie)
{
    http_relay_send(cookie);
}

static void on_poured(void *cookie, uint64_t size UNUSED, const struct error *err)
{
    struct http_relay *relay = cookie;
    if (err != NULL)
        http_relay_fail(relay, err);
    else
        relay->is_poured = true; /* the pipe tells its end */
}

bool http_relay_start_body(struct http_relay *relay, struct error *err)
{
    int ends[2];
    if (relay->body != RELAY_BODY_POURED)
        return true;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "a pipe for the body");
    relay->pipe = loop_watch_new(relay->request->worker->loop, ends[0]);
    relay->request->pour.goes_on = true;
    http_body_pour(relay->request, ends[1], on_poured, relay);
    return true;
}

/* The next piece of the body into `out`. False: there is none now, or no more. */
static bool take_piece(struct http_relay *relay)
{
    char piece[PIECE_BYTES];
    ssize_t got = read(loop_watch_fd(relay->pipe), piece, sizeof piece);
    if (got < 0)
        return false;
    relay->out.length = relay->out_at = 0;
    if (got == 0) {
        loop_watch_free(TAKE(relay->pipe));
        if (relay->is_chunked && relay->is_poured)
            text_append_string(&relay->out, "0\r\n\r\n");
        return relay->out.length > 0;
    }
    if (relay->is_chunked)
        text_append_format(&relay->out, "%zx\r\n", (size_t)got);
    text_append(&relay->out, piece, (size_t)got);
    if (relay->is_chunked)
        text_append_string(&relay->out, "\r\n");
    return true;
}

/* ---- out ---- */

enum sent { SENT_ALL, SENT_SOME, SENT_NEVER };

static enum sent send_ready(struct http_relay *relay)
{
    while (relay->out_at < relay->out.length || relay->rest_at < relay->rest_size) {
        size_t head = relay->out.length - relay->out_at;
        /* sendmsg does not write to what it is given. */
        struct iovec parts[2] = {
            {relay->out.data + relay->out_at, head},
            {(void *)(uintptr_t)(relay->rest + relay->rest_at), relay->rest_size - relay->rest_at}};
        size_t first = head > 0 ? 0 : 1;
        struct msghdr message = {.msg_iov = parts + first, .msg_iovlen = relay->rest_size > 0 ? 2 - first : 1};
        ssize_t sent = sendmsg(loop_watch_fd(relay->upstream), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN ? SENT_SOME : SENT_NEVER;
        size_t of_head = (size_t)sent < head ? (size_t)sent : head;
        relay->out_at += of_head;
        relay->rest_at += (size_t)sent - of_head;
    }
    return SENT_ALL;
}

/* It closed, or never was there: what it said before, or why, reading tells. */
static void stop_sending(struct http_relay *relay)
{
    relay->is_deaf = true;
    if (relay->pipe != NULL)
        loop_watch_readable(relay->pipe, NULL, NULL);
}

static void wait_for_room(struct http_relay *relay)
{
    if (relay->pipe != NULL)
        loop_watch_readable(relay->pipe, NULL, NULL);
    loop_watch_writable(relay->upstream, on_piece, relay);
}

void http_relay_send(struct http_relay *relay)
{
    enum sent sent = SENT_ALL;
    bool has_more = true;
    for (int i = 0; i < TURN_PIECES && has_more && !relay->is_deaf; i++) {
        sent = send_ready(relay);
        has_more = sent == SENT_ALL && relay->pipe != NULL && take_piece(relay);
    }
    bool has_unsent = relay->out_at < relay->out.length || relay->rest_at < relay->rest_size;
    if (sent == SENT_NEVER)
        stop_sending(relay);
    else if (has_unsent)
        wait_for_room(relay);
    else if (relay->pipe != NULL)
        loop_watch_readable(relay->pipe, on_piece, relay);
    else
        relay->is_sent = true;
}
