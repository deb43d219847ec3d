#include "clients/c/websocket.h"

#include "clients/c/call.h"
#include "clients/c/websocket_handshake.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <wslay/wslay.h>

enum { READ_BYTES = 64 * 1024, TURN_BYTES = 1024 * 1024 };
static const uint64_t OPENS_WITHIN_NS = UINT64_C(10) * 1000000000;
/* A peer that is gone without a word is noticed by the kernel: by its probes when nothing is under way, else by what it
 * does not acknowledge. Pings would not do: a server that takes no more input answers none. */
enum { PROBE_AFTER_S = 15, PROBE_EVERY_S = 5, PROBES = 3, UNACKNOWLEDGED_MS = 30000 };
static const uint64_t SIGN_EVERY_NS = UINT64_C(10) * 1000000000; /* of life, while paused: pings are not read then */

enum step { STEP_CONNECTS, STEP_ASKS, STEP_LISTENS, STEP_OPEN, STEP_CLOSED };

struct websocket {
    CURLM *multi;
    CURL *curl;
    curl_socket_t fd; /* owned by curl */
    void (*message)(void *cookie, bool is_text, const char *data, size_t size);
    void *cookie;
    enum step step;
    uint64_t due_ns; /* boot time: it is open by then */
    char *url;
    char key[WEBSOCKET_KEY_BYTES];
    struct text request; /* of the handshake; it holds the credential */
    size_t requested;    /* bytes of it that were sent */
    struct text answer;  /* to the handshake */
    wslay_event_context_ptr frames;
    char *buffer; /* READ_BYTES: read and not yet taken by the frames */
    size_t from, to;
    size_t budget; /* bytes this turn may still read */
    bool in_turn;
    bool paused;
    uint64_t sign_ns; /* boot time of the last sign of life */
    bool ended;       /* nothing more will come */
    bool peer_closed;
    struct websocket_end end;
};

/* ---- bytes ---- */

/* Fills the empty buffer; false: nothing now (or ever: `ended`). */
static bool fill(struct websocket *socket)
{
    size_t got = 0;
    if (socket->ended || socket->budget == 0)
        return false;
    CURLcode code = curl_easy_recv(socket->curl, socket->buffer, READ_BYTES, &got);
    if (code == CURLE_AGAIN)
        return false;
    if (code != CURLE_OK || got == 0) {
        socket->ended = true;
        return false;
    }
    socket->budget -= got < socket->budget ? got : socket->budget;
    socket->from = 0;
    socket->to = got;
    return true;
}

static ssize_t on_receive(wslay_event_context_ptr frames, uint8_t *to, size_t size, int flags UNUSED, void *cookie)
{
    struct websocket *socket = cookie;
    if (socket->paused || (socket->from == socket->to && !fill(socket))) {
        wslay_event_set_error(frames, socket->ended ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    size_t part = socket->to - socket->from < size ? socket->to - socket->from : size;
    memcpy(to, socket->buffer + socket->from, part);
    socket->from += part;
    return (ssize_t)part;
}

static ssize_t on_send(wslay_event_context_ptr frames, const uint8_t *data, size_t size, int flags UNUSED, void *cookie)
{
    const struct websocket *socket = cookie;
    size_t sent = 0;
    CURLcode code = curl_easy_send(socket->curl, data, size, &sent);
    if (code == CURLE_OK && sent > 0)
        return (ssize_t)sent;
    wslay_event_set_error(frames, code == CURLE_AGAIN ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static int on_mask(wslay_event_context_ptr frames UNUSED, uint8_t *to, size_t size, void *cookie UNUSED)
{
    random_bytes(to, size);
    return 0;
}

/* ---- its end ---- */

/* The reason, if there is one, is in `end` already. */
static void close_down(struct websocket *socket, int code)
{
    socket->step = STEP_CLOSED;
    socket->end.code = code;
}

static void on_message(wslay_event_context_ptr frames, const struct wslay_event_on_msg_recv_arg *arrived, void *cookie)
{
    struct websocket *socket = cookie;
    const char *data = (const char *)arrived->msg;
    if (arrived->opcode == WSLAY_CONNECTION_CLOSE) {
        size_t reason = arrived->msg_length > 2 ? arrived->msg_length - 2 : 0;
        socket->peer_closed = true;
        socket->end.code = wslay_event_get_status_code_received(frames);
        snprintf(socket->end.reason, sizeof socket->end.reason, "%.*s", (int)reason, reason ? data + 2 : "");
        return;
    }
    if (arrived->opcode == WSLAY_TEXT_FRAME || arrived->opcode == WSLAY_BINARY_FRAME)
        socket->message(socket->cookie, arrived->opcode == WSLAY_TEXT_FRAME, data, arrived->msg_length);
}

static void fail_open(struct websocket *socket)
{
    close_down(socket, 0);
}

/* ---- steps ---- */

static bool open_frames(struct websocket *socket)
{
    static const struct wslay_event_callbacks CALLBACKS = {.recv_callback = on_receive,
                                                           .send_callback = on_send,
                                                           .genmask_callback = on_mask,
                                                           .on_msg_recv_callback = on_message};
    if (wslay_event_context_client_init(&socket->frames, &CALLBACKS, socket) != 0)
        return error_set(&socket->end.error, ERROR_INTERNAL, "no memory for a WebSocket");
    wslay_event_config_set_max_recv_msg_length(socket->frames, WEBSOCKET_MESSAGE_MAX_BYTES);
    socket->step = STEP_OPEN;
    return true;
}

static void ask(struct websocket *socket)
{
    while (socket->requested < socket->request.length) {
        size_t sent = 0;
        CURLcode code = curl_easy_send(socket->curl, socket->request.data + socket->requested,
                                       socket->request.length - socket->requested, &sent);
        if (code == CURLE_AGAIN)
            return;
        if (code != CURLE_OK || sent == 0) {
            call_failed(code == CURLE_OK ? CURLE_SEND_ERROR : code, socket->url, &socket->end.error);
            fail_open(socket);
            return;
        }
        socket->requested += sent;
    }
    sodium_memzero(socket->request.data, socket->request.length);
    text_done(&socket->request);
    socket->step = STEP_LISTENS;
}

/* What came behind the answer are frames already: they stay in the buffer. */
static void listen_for_answer(struct websocket *socket)
{
    enum websocket_answer answer = WEBSOCKET_ANSWER_PARTIAL;
    size_t used = 0;
    bool more = true;
    while (more && answer == WEBSOCKET_ANSWER_PARTIAL) {
        more = fill(socket);
        size_t before = socket->answer.length;
        if (more)
            text_append(&socket->answer, socket->buffer, socket->to);
        answer = websocket_answer(&socket->answer, socket->ended, socket->key, &used, &socket->end.error);
        socket->from = answer == WEBSOCKET_ANSWER_GOOD ? used - before : socket->to;
    }
    if (answer == WEBSOCKET_ANSWER_PARTIAL)
        return;
    text_done(&socket->answer);
    if (answer == WEBSOCKET_ANSWER_REFUSED || !open_frames(socket))
        fail_open(socket);
}

static void exchange(struct websocket *socket)
{
    int received = wslay_event_want_read(socket->frames) ? wslay_event_recv(socket->frames) : 0;
    int sent = wslay_event_want_write(socket->frames) ? wslay_event_send(socket->frames) : 0;
    bool open = wslay_event_want_read(socket->frames) || wslay_event_want_write(socket->frames);
    if (received == 0 && sent == 0 && open && !socket->ended)
        return;
    if (socket->peer_closed) {
        close_down(socket, socket->end.code ? socket->end.code : WSLAY_CODE_NO_STATUS_RCVD);
        return;
    }
    int code = wslay_event_get_close_sent(socket->frames) ? wslay_event_get_status_code_sent(socket->frames) : 0;
    bool is_ours = code == WSLAY_CODE_PROTOCOL_ERROR || code == WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA ||
                   code == WSLAY_CODE_MESSAGE_TOO_BIG;
    close_down(socket, is_ours ? code : WSLAY_CODE_ABNORMAL_CLOSURE);
}

static void show_life(struct websocket *socket)
{
    static const struct wslay_event_msg SIGN = {.opcode = WSLAY_PONG}; /* unasked, RFC 6455, 5.5.3 */
    if (!socket->paused || clock_boot_ns() - socket->sign_ns < SIGN_EVERY_NS)
        return;
    (void)wslay_event_queue_msg(socket->frames, &SIGN);
    socket->sign_ns = clock_boot_ns();
}

bool websocket_turn(struct websocket *socket)
{
    socket->budget = TURN_BYTES;
    socket->in_turn = true;
    bool opening = socket->step == STEP_CONNECTS || socket->step == STEP_ASKS || socket->step == STEP_LISTENS;
    if (opening && clock_boot_ns() > socket->due_ns) {
        call_failed(CURLE_OPERATION_TIMEDOUT, socket->url, &socket->end.error);
        fail_open(socket);
    }
    if (socket->step == STEP_ASKS)
        ask(socket);
    if (socket->step == STEP_LISTENS)
        listen_for_answer(socket);
    if (socket->step == STEP_OPEN) {
        show_life(socket);
        exchange(socket);
    }
    socket->in_turn = false;
    return socket->step == STEP_OPEN && socket->budget == 0;
}

bool websocket_done(struct websocket *socket, const CURL *curl, CURLcode code)
{
    if (!socket || curl != socket->curl)
        return false;
    if (socket->step != STEP_CONNECTS)
        return true;
    if (code == CURLE_OK)
        code = curl_easy_getinfo(socket->curl, CURLINFO_ACTIVESOCKET, &socket->fd);
    if (code == CURLE_OK && socket->fd != CURL_SOCKET_BAD) {
        socket->step = STEP_ASKS;
        return true;
    }
    call_failed(code == CURLE_OK ? CURLE_COULDNT_CONNECT : code, socket->url, &socket->end.error);
    fail_open(socket);
    return true;
}

/* ---- life ---- */

static int on_socket(void *cookie UNUSED, curl_socket_t fd, curlsocktype purpose UNUSED)
{
    const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, PROBES},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS},
                   {IPPROTO_TCP, TCP_NODELAY, 1}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
    return CURL_SOCKOPT_OK;
}

static bool start(struct websocket *socket)
{
    socket->curl = curl_easy_init();
    if (!socket->curl)
        return false;
    call_prepare(socket->curl);
    curl_easy_setopt(socket->curl, CURLOPT_URL, socket->url);
    curl_easy_setopt(socket->curl, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(socket->curl, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(socket->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(socket->curl, CURLOPT_SOCKOPTFUNCTION, on_socket);
    return curl_multi_add_handle(socket->multi, socket->curl) == CURLM_OK;
}

struct websocket *websocket_new(const struct websocket_wanted *wanted, CURLM *multi, struct error *err)
{
    AUTO(websocket) *socket = memory_new(sizeof *socket);
    *socket = (struct websocket){.multi = multi,
                                 .fd = CURL_SOCKET_BAD,
                                 .message = wanted->message,
                                 .cookie = wanted->cookie,
                                 .due_ns = clock_boot_ns() + OPENS_WITHIN_NS,
                                 .url = memory_string(wanted->url),
                                 .buffer = memory_new(READ_BYTES)};
    websocket_key(socket->key);
    if (!websocket_request(&socket->request, wanted->url, wanted->credential, socket->key, err))
        return NULL;
    if (!start(socket)) {
        error_set(err, ERROR_INTERNAL, "libcurl does not start");
        return NULL;
    }
    return TAKE(socket);
}

void websocket_free(struct websocket *socket)
{
    if (!socket)
        return;
    if (socket->step == STEP_OPEN) {
        websocket_close(socket, WSLAY_CODE_NORMAL_CLOSURE, "");
        (void)wslay_event_send(socket->frames);
    }
    if (socket->frames)
        wslay_event_context_free(socket->frames);
    if (socket->curl) {
        curl_multi_remove_handle(socket->multi, socket->curl);
        curl_easy_cleanup(socket->curl);
    }
    if (socket->request.data)
        sodium_memzero(socket->request.data, socket->request.length);
    text_done(&socket->request);
    text_done(&socket->answer);
    free(socket->buffer);
    free(socket->url);
    free(socket);
}

bool websocket_wait(const struct websocket *socket, struct curl_waitfd *wait)
{
    if (socket->step == STEP_CONNECTS || socket->step == STEP_CLOSED)
        return false;
    short events = 0;
    if (socket->step != STEP_OPEN || (!socket->paused && wslay_event_want_read(socket->frames)))
        events |= CURL_WAIT_POLLIN;
    if (socket->step == STEP_ASKS || (socket->step == STEP_OPEN && wslay_event_want_write(socket->frames)))
        events |= CURL_WAIT_POLLOUT;
    *wait = (struct curl_waitfd){.fd = socket->fd, .events = events};
    return events != 0; /* one that broke would be told all the time */
}

enum websocket_state websocket_state(const struct websocket *socket, struct websocket_end *end)
{
    if (socket->step == STEP_OPEN)
        return WEBSOCKET_OPEN;
    if (socket->step != STEP_CLOSED)
        return WEBSOCKET_CONNECTING;
    if (end)
        *end = socket->end;
    return WEBSOCKET_CLOSED;
}

void websocket_pause(struct websocket *socket, bool pause)
{
    if (pause && !socket->paused)
        socket->sign_ns = clock_boot_ns();
    socket->paused = pause;
}

void websocket_send(struct websocket *socket, bool is_text, const void *data, size_t size)
{
    const struct wslay_event_msg message = {
        .opcode = is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, .msg = data, .msg_length = size};
    if (socket->step != STEP_OPEN || wslay_event_queue_msg(socket->frames, &message) != 0)
        return;
    if (!socket->in_turn)
        (void)wslay_event_send(socket->frames); /* a failure shows in the next turn */
}

size_t websocket_waiting(const struct websocket *socket)
{
    return socket->frames ? wslay_event_get_queued_msg_length(socket->frames) : 0;
}

void websocket_close(struct websocket *socket, unsigned short code, const char *reason)
{
    if (socket->step == STEP_OPEN)
        (void)wslay_event_queue_close(socket->frames, code, (const uint8_t *)reason, strlen(reason));
}
