/* stream.c - replies of unknown length, with back-pressure. The chunks are framed here and not by libh2o, which would
 * hold the head back until the first byte and frames nothing but 200. */
#include "shared/base/clock.h"
#include "shared/http/http_internal.h"
#include "shared/http/tls_relay.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    STREAM_KEEP_BYTES = 65536,   /* a larger buffer goes when it is empty */
    STREAM_CUT_BYTES = 64 << 20, /* a sender that never looks at what waits */
    PROBES_MAX = 4
};

static const uint64_t BREAK_NS = 1000000000; /* for a client to take what flies and the last word */

static void fly(struct http_request *request);

static void empty(struct text *text)
{
    if (text->capacity > STREAM_KEEP_BYTES)
        text_done(text);
    text->length = 0;
}

void http_stream_linger_never(struct http_request *request)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (request->connection->tls != NULL)
        http_tls_relay_break(request->connection->tls);
    setsockopt(h2o_socket_get_fd(request->connection->socket), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void http_stream_reset(struct http_request *request)
{
    http_stream_linger_never(request); /* without chunks an orderly end would look like the reply's */
    http_request_drop(request);
}

/* The last word is in the kernel. The end of chunks is missing, so a close says enough, and loses nothing as a reset
 * might; without chunks the last word is what tells. */
static void break_off(struct http_request *request)
{
    const struct http_stream *stream = &request->stream;
    if (stream->is_chunked || stream->events->cut != NULL)
        http_request_drop(request);
    else
        http_stream_reset(request);
}

/* Everything given to h2o_send is in the kernel; or, the first time, the head is. */
static void on_proceed(h2o_generator_t *generator, h2o_req_t *h2o UNUSED)
{
    struct http_request *request = HTTP_OWNER(struct http_request, generator, generator);
    struct http_stream *stream = &request->stream;
    if (request->file.step == HTTP_FILE_HEAD) {
        http_file_move(request);
        return;
    }
    bool had_data = stream->flying.length > 0 || request->file.step == HTTP_FILE_TAIL;
    if (request->file.step == HTTP_FILE_TAIL)
        http_file_done(request);
    stream->is_flying = false;
    empty(&stream->flying);
    if (stream->waiting.length > 0 || stream->is_ending || request->file.step == HTTP_FILE_WAITS)
        fly(request);
    else if (stream->is_breaking)
        break_off(request);
    else if (had_data && request->phase == HTTP_STREAMING && stream->events->drained != NULL)
        stream->events->drained(request, stream->cookie);
}

/* All of the file is in the kernel. */
static void on_file_moved(struct http_request *request)
{
    h2o_iovec_t tail = h2o_iovec_init(H2O_STRLIT("\r\n"));
    request->file.step = HTTP_FILE_TAIL;
    if (request->stream.is_chunked)
        h2o_send(request->h2o, &tail, 1, H2O_SEND_STATE_IN_PROGRESS);
    else
        on_proceed(&request->generator, request->h2o);
}

/* A file is a chunk of its own. */
static void fly_file(struct http_request *request)
{
    struct http_stream *stream = &request->stream;
    stream->is_flying = true;
    stream->zeros = 0;
    if (!stream->is_chunked) {
        http_file_move_soon(request); /* never inside of http_stream_send_file */
        return;
    }
    int length = snprintf(stream->frame, sizeof stream->frame, "%llx\r\n", (unsigned long long)request->file.left);
    h2o_iovec_t head = h2o_iovec_init(stream->frame, (size_t)length);
    request->file.step = HTTP_FILE_HEAD;
    h2o_send(request->h2o, &head, 1, H2O_SEND_STATE_IN_PROGRESS);
}

/* Makes what waits fly, as far as it stands before a file. */
static void load(struct http_request *request)
{
    struct http_stream *stream = &request->stream;
    struct text swap = stream->flying;
    stream->flying = stream->waiting;
    stream->waiting = swap;
    if (request->file.step != HTTP_FILE_WAITS)
        return;
    size_t before = request->file.before;
    text_append(&stream->waiting, stream->flying.data + before, stream->flying.length - before);
    stream->flying.length = before;
    request->file.before = 0;
}

/* Sends what waits. When it ends a reply without framing, libh2o may free the request before h2o_send returns. */
static void fly(struct http_request *request)
{
    struct http_stream *stream = &request->stream;
    bool has_file = request->file.step == HTTP_FILE_WAITS;
    if (stream->is_flying || (stream->waiting.length == 0 && !stream->is_ending && !has_file))
        return;
    if (has_file && request->file.before == 0) {
        fly_file(request);
        return;
    }
    load(request);
    bool is_last = stream->is_ending && stream->waiting.length == 0 && !has_file;
    h2o_iovec_t bufs[3];
    size_t count = 0;
    size_t size = stream->flying.length;
    if (size > 0 && stream->is_chunked) {
        int length = snprintf(stream->frame, sizeof stream->frame, "%zx\r\n", size);
        bufs[count++] = h2o_iovec_init(stream->frame, (size_t)length);
    }
    if (size > 0)
        bufs[count++] = h2o_iovec_init(stream->flying.data, size);
    const char *tail = size == 0 ? "0\r\n\r\n" : is_last ? "\r\n0\r\n\r\n" : "\r\n";
    if (stream->is_chunked)
        bufs[count++] = h2o_iovec_init(tail, strlen(tail));
    stream->is_flying = true;
    stream->zeros = 0;
    request->sent_bytes += size;
    h2o_send(request->h2o, bufs, count, is_last ? H2O_SEND_STATE_FINAL : H2O_SEND_STATE_IN_PROGRESS);
}

static void frame(struct http_request *request, uint64_t length)
{
    struct http_stream *stream = &request->stream;
    h2o_req_t *h2o = request->h2o;
    stream->is_muted = strcmp(request->head.method, "HEAD") == 0;
    stream->is_sized = length != UINT64_MAX;
    stream->is_chunked = request->head.is_1_1 && !stream->is_muted && !stream->is_sized;
    if (stream->is_sized)
        h2o->res.content_length = length;
    else if (stream->is_chunked)
        h2o_add_header(&h2o->pool, &h2o->res.headers, H2O_TOKEN_TRANSFER_ENCODING, NULL, H2O_STRLIT("chunked"));
    else if (!stream->is_muted)
        h2o->http1_is_persistent = 0; /* the end of the connection is the end of the reply */
}

static void start(struct http_request *request, uint64_t length, const struct http_stream_events *events, void *cookie)
{
    request->stream.events = events;
    request->stream.cookie = cookie;
    request->phase = HTTP_STREAMING;
    request->gone = NULL;
    frame(request, length);
    request->generator = (h2o_generator_t){.proceed = on_proceed};
    request->stream.is_flying = true;
    if (events->cut_stalled)
        http_connection_expect_taking(request->connection);
    h2o_start_response(request->h2o, &request->generator);
    h2o_send(request->h2o, NULL, 0, H2O_SEND_STATE_IN_PROGRESS); /* the head goes out now */
    http_pour_head_sent(request);
}

void http_stream_start(struct http_request *request, int status, const char *type,
                       const struct http_stream_events *events, void *cookie)
{
    if (request->phase != HTTP_OPEN || request->h2o == NULL)
        return;
    http_reply_prepare(request, status, type);
    start(request, UINT64_MAX, events, cookie);
}

void http_stream_start_json(struct http_request *request, int status, enum http_framing framing,
                            const struct http_stream_events *events, void *cookie)
{
    bool is_line = framing == HTTP_NDJSON;
    if (!is_line)
        http_reply_header(request, "Cache-Control", "no-cache");
    if (!is_line)
        http_reply_header(request, "X-Accel-Buffering", "no");
    http_stream_start(request, status, is_line ? "application/x-ndjson" : "text/event-stream", events, cookie);
}

void http_stream_start_of(struct http_request *request, int status, uint64_t length,
                          const struct http_stream_events *events, void *cookie)
{
    http_reply_prepare(request, status, NULL);
    start(request, length, events, cookie);
}

size_t http_stream_send(struct http_request *request, const void *data, size_t size)
{
    struct http_stream *stream = &request->stream;
    if (request->phase != HTTP_STREAMING || stream->is_muted)
        return 0;
    text_append(&stream->waiting, data, size);
    if (stream->waiting.length > STREAM_CUT_BYTES)
        shutdown(h2o_socket_get_fd(request->connection->socket), SHUT_RDWR); /* what flies fails, and that ends it */
    fly(request);
    return stream->waiting.length + stream->flying.length;
}

/* Whole, as other bytes of the stream. False: it is shorter than that. */
static bool send_small(struct http_request *request, int file, uint64_t offset, size_t size)
{
    char data[HTTP_FILE_SMALL_BYTES];
    if (!http_file_read(file, offset, data, size))
        return false;
    http_stream_send(request, data, size);
    return true;
}

static bool send_large(struct http_request *request, int file, uint64_t offset, uint64_t size)
{
    /* A number of our own: what the caller closes and opens behind our back is never sent. */
    int own = http_file_is_long_enough(file, offset, size) ? fcntl(file, F_DUPFD_CLOEXEC, 0) : -1;
    if (own < 0)
        return false;
    request->file = (struct http_file){.step = HTTP_FILE_WAITS,
                                       .fd = own,
                                       .offset = (off_t)offset,
                                       .left = size,
                                       .before = request->stream.waiting.length,
                                       .moved = on_file_moved};
    fly(request);
    return true;
}

bool http_stream_send_file(struct http_request *request, int file, uint64_t offset, uint64_t size)
{
    if (request->phase != HTTP_STREAMING)
        return false;
    if (request->stream.is_muted || size == 0)
        return true;
    bool is_free = request->file.step == HTTP_FILE_NONE;
    bool is_small = size <= HTTP_FILE_SMALL_BYTES;
    bool is_sent = is_free && (is_small ? send_small(request, file, offset, (size_t)size)
                                        : send_large(request, file, offset, size));
    if (!is_sent)
        http_stream_abort(request);
    return is_sent;
}

void http_stream_end(struct http_request *request)
{
    if (request->phase != HTTP_STREAMING)
        return;
    request->stream.is_ending = true;
    http_request_end(request);
    fly(request); /* the request may be freed here */
}

void http_stream_abort(struct http_request *request)
{
    if (request->phase == HTTP_STREAMING)
        http_stream_reset(request);
}

static void on_break_timer(void *cookie)
{
    struct http_request *request = cookie;
    request->probe = NULL;
    http_stream_reset(request);
}

void http_stream_break(struct http_request *request, const struct error *err)
{
    struct http_stream *stream = &request->stream;
    stream->waiting.length = 0; /* whole sends: what flies ends where one did */
    stream->is_breaking = true;
    bool is_in_file = request->file.step != HTTP_FILE_NONE && request->file.step != HTTP_FILE_WAITS;
    http_file_forget(request);
    if (stream->events->cut != NULL)
        stream->events->cut(request, stream->cookie, err);
    else if (stream->events->gone != NULL)
        stream->events->gone(stream->cookie);
    request->phase = HTTP_GONE;
    http_request_forget(request);
    loop_timer_cancel(TAKE(request->probe));
    if (is_in_file)
        http_stream_reset(request);
    else if (stream->is_flying)
        request->probe = loop_timer_start(request->worker->loop, clock_boot_ns() + BREAK_NS, on_break_timer, request);
    else
        break_off(request);
}

size_t http_stream_send_json(struct http_request *request, enum http_framing framing, const char *name, json_t *object)
{
    AUTO_FREE char *text = json_dumps(object, JSON_COMPACT | HTTP_JSON_REALS);
    json_decref(object);
    AUTO_TEXT line = {0};
    if (text != NULL && framing == HTTP_SSE)
        text_append_format(&line, "event: %s\ndata: %s\n\n", name, text);
    else if (text != NULL)
        text_append_format(&line, "%s%s", text, framing == HTTP_BLANK_LINE ? "\n\n" : "\n");
    return http_stream_send(request, line.data, line.length);
}

bool http_stream_probe(struct http_request *request)
{
    struct http_stream *stream = &request->stream;
    if (!stream->is_chunked || stream->is_flying || stream->zeros >= PROBES_MAX)
        return true; /* what flies is a probe itself */
    stream->zeros++;
    return send(h2o_socket_get_fd(request->connection->socket), "0", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

void http_stream_done(struct http_request *request)
{
    text_done(&request->stream.waiting);
    text_done(&request->stream.flying);
}
