/* body_pour.c - moves the body of a request from its connection into a pipe while its handler waits. libh2o was given
 * the head alone, without the fields that announce a body, and reads nothing while the request runs. */
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

enum {
    FRAMING_READ_BYTES = 16384,
    TURN_STEPS = 64,
    PATIENCE_GRACES = 6 /* a minute's silence, of either side */
};

static const uint64_t SECOND_NS = 1000000000;

enum step {
    STEP_MOVED,
    STEP_WANTS_CLIENT, /* nothing has come */
    STEP_WANTS_READER, /* the pipe is full */
    STEP_END,
    STEP_FAILED,
    STEP_GONE /* the client is */
};

static void pump(struct http_request *request);

void http_pour_prepare(struct http_request *request, const char *data, size_t size)
{
    struct http_pour *pour = &request->pour;
    request->pours = true;
    pour->left = request->head.content_length;
    pour->is_whole = !request->head.is_chunked && pour->left == 0;
    pour->held = size > 0 ? memory_copy(data, size) : NULL;
    pour->held_size = pour->held_capacity = size;
}

uint64_t http_body_length(const struct http_request *request)
{
    return request->head.is_chunked ? UINT64_MAX : request->head.content_length;
}

static void stop_reading(struct http_request *request)
{
    if (request->pour.is_reading)
        h2o_socket_read_stop(request->connection->socket);
    request->pour.is_reading = false;
}

void http_pour_stop(struct http_request *request)
{
    struct http_pour *pour = &request->pour;
    stop_reading(request);
    loop_timer_cancel(TAKE(pour->timer));
    loop_watch_free(TAKE(pour->watch));
}

void http_pour_done(struct http_request *request)
{
    http_pour_stop(request);
    free(TAKE(request->pour.held));
}

bool http_pour_is_cut_short(const struct http_request *request)
{
    return request->pours && !request->pour.is_whole;
}

void http_pour_head_sent(struct http_request *request)
{
    if (!http_pour_is_cut_short(request) || request->h2o == NULL)
        return;
    request->pour.closes = !request->h2o->http1_is_persistent;
    request->h2o->http1_is_persistent = 1; /* so it goes on to the next request, and there we linger */
}

/* ---- one step ---- */

static bool count(struct http_request *request, size_t size, struct error *err)
{
    size_t max = request->match.route->body_max_bytes;
    return size <= max - request->pour.size || error_set(err, ERROR_TOO_LARGE, "the body is over %zu bytes", max);
}

static enum step fill_held(struct http_request *request)
{
    struct http_pour *pour = &request->pour;
    if (pour->held_capacity < FRAMING_READ_BYTES)
        pour->held = memory_resize(pour->held, pour->held_capacity = FRAMING_READ_BYTES);
    pour->held_at = pour->held_size = 0;
    ssize_t got = read(h2o_socket_get_fd(request->connection->socket), pour->held, FRAMING_READ_BYTES);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return STEP_WANTS_CLIENT;
    if (got <= 0)
        return STEP_GONE;
    pour->held_size = (size_t)got;
    return STEP_MOVED;
}

static enum step read_framing(struct http_request *request, struct error *err)
{
    struct http_pour *pour = &request->pour;
    if (pour->held_at == pour->held_size) {
        enum step filled = fill_held(request);
        if (filled != STEP_MOVED)
            return filled;
    }
    size_t used;
    if (!http_chunks_read(&pour->chunks, pour->held + pour->held_at, pour->held_size - pour->held_at, &used, err))
        return STEP_FAILED;
    pour->held_at += used;
    if (pour->chunks.state == HTTP_CHUNK_END)
        return STEP_END;
    bool is_data = pour->chunks.state == HTTP_CHUNK_DATA;
    return !is_data || count(request, pour->chunks.left, err) ? STEP_MOVED : STEP_FAILED;
}

static enum step nobody_reads(struct error *err)
{
    error_set(err, ERROR_CONFLICT, "what takes the body has stopped reading it");
    return STEP_FAILED;
}

static bool has_room(int pipe)
{
    struct pollfd room = {.fd = pipe, .events = POLLOUT};
    return poll(&room, 1, 0) != 0; /* one without readers too: writing tells */
}

static enum step not_moved(struct error *err)
{
    if (errno == EPIPE)
        return nobody_reads(err);
    error_set_errno(err, ERROR_INTERNAL, "pass the body on");
    return STEP_FAILED;
}

static enum step move_held(struct http_request *request, size_t size, ssize_t *moved, struct error *err)
{
    struct http_pour *pour = &request->pour;
    size_t held = pour->held_size - pour->held_at;
    *moved = write(loop_watch_fd(pour->watch), pour->held + pour->held_at, held < size ? held : size);
    if (*moved < 0 && (errno == EAGAIN || errno == EINTR))
        return STEP_WANTS_READER;
    if (*moved < 0)
        return not_moved(err);
    pour->held_at += (size_t)*moved;
    return STEP_MOVED;
}

static enum step move_from_socket(struct http_request *request, size_t size, ssize_t *moved, struct error *err)
{
    int pipe = loop_watch_fd(request->pour.watch);
    *moved = splice(h2o_socket_get_fd(request->connection->socket), NULL, pipe, NULL, size,
                    SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (*moved > 0)
        return STEP_MOVED;
    if (*moved == 0 || errno == ECONNRESET || errno == ETIMEDOUT)
        return STEP_GONE;
    if (errno == EAGAIN || errno == EINTR) /* of which of the two, splice does not say */
        return has_room(pipe) ? STEP_WANTS_CLIENT : STEP_WANTS_READER;
    return not_moved(err);
}

static enum step move_data(struct http_request *request, uint64_t *left, size_t *budget, struct error *err)
{
    struct http_pour *pour = &request->pour;
    size_t size = *left < *budget ? (size_t)*left : *budget;
    ssize_t moved = 0;
    enum step step = pour->held_at < pour->held_size ? move_held(request, size, &moved, err)
                                                     : move_from_socket(request, size, &moved, err);
    if (step != STEP_MOVED)
        return step;
    *left -= (size_t)moved;
    *budget -= (size_t)moved;
    pour->size += (size_t)moved;
    return STEP_MOVED;
}

static enum step take_step(struct http_request *request, size_t *budget, struct error *err)
{
    struct http_pour *pour = &request->pour;
    if (!request->head.is_chunked)
        return pour->left > 0 ? move_data(request, &pour->left, budget, err) : STEP_END;
    bool is_data = pour->chunks.state == HTTP_CHUNK_DATA && pour->chunks.left > 0;
    return is_data ? move_data(request, &pour->chunks.left, budget, err) : read_framing(request, err);
}

/* ---- the end ---- */

static void end(struct http_request *request)
{
    struct http_pour *pour = &request->pour;
    if (request->head.is_chunked)
        http_connection_set_surplus(request->connection, pour->held + pour->held_at, pour->held_size - pour->held_at);
    pour->is_whole = true;
    http_pour_stop(request);
    pour->poured(pour->cookie, pour->size, NULL);
}

/* The pipe is closed after its owner was told: whoever reads it must not take its end for the body's. */
static void fail(struct http_request *request, const struct error *err)
{
    struct http_pour *pour = &request->pour;
    AUTO(loop_watch) *watch = TAKE(pour->watch);
    loop_watch_readable(watch, NULL, NULL);
    http_pour_stop(request);
    pour->poured(pour->cookie, pour->size, err);
}

static void on_reader_gone(void *cookie)
{
    struct error err;
    nobody_reads(&err);
    fail(cookie, &err);
}

/* ---- waiting ---- */

static void on_timer(void *cookie);

static uint64_t waited_ns(const struct http_pour *pour, uint64_t now_ns)
{
    return pour->waited_ns + (pour->waiting_since_ns != 0 ? now_ns - pour->waiting_since_ns : 0);
}

static void set_timer(struct http_request *request, uint64_t now_ns)
{
    struct http_pour *pour = &request->pour;
    uint64_t grace_ns = (uint64_t)request->worker->server->options.body_grace_ms * 1000000;
    uint64_t had_ns = waited_ns(pour, now_ns);
    uint64_t more_ns = had_ns < grace_ns ? grace_ns - had_ns : SECOND_NS;
    pour->timer = loop_timer_start(request->worker->loop, now_ns + more_ns, on_timer, request);
}

static void on_readable(h2o_socket_t *socket, const char *broken UNUSED)
{
    const struct http_connection *connection = socket->on_close.data;
    pump(connection->request);
}

static void on_room(void *cookie)
{
    pump(cookie);
}

static void wait_for_client(struct http_request *request)
{
    struct http_pour *pour = &request->pour;
    if (!pour->is_reading)
        h2o_socket_read_start(request->connection->socket, on_readable);
    pour->is_reading = true;
    if (pour->waiting_since_ns == 0)
        pour->waiting_since_ns = clock_boot_ns();
    if (pour->timer == NULL)
        set_timer(request, pour->waiting_since_ns);
}

/* The client is not to blame for this time. */
static void wait_for_reader(struct http_request *request)
{
    struct http_pour *pour = &request->pour;
    stop_reading(request);
    pour->full_since_ns = clock_boot_ns();
    pour->waited_ns = waited_ns(pour, pour->full_since_ns);
    pour->waiting_since_ns = 0;
    if (pour->timer == NULL)
        set_timer(request, pour->full_since_ns);
    loop_watch_writable(pour->watch, on_room, request);
}

/* The last thing its caller does. */
static void pump(struct http_request *request)
{
    struct http_pour *pour = &request->pour;
    struct error err;
    size_t budget = request->worker->server->options.turn_bytes;
    enum step step = STEP_MOVED;
    for (int i = 0; i < TURN_STEPS && step == STEP_MOVED && budget > 0; i++)
        step = take_step(request, &budget, &err);
    if (step == STEP_MOVED && !request->head.is_chunked && pour->left == 0)
        step = STEP_END; /* the turn was used up by the last byte, and no other comes to wake us */
    if (step == STEP_END)
        end(request);
    else if (step == STEP_FAILED)
        fail(request, &err);
    else if (step == STEP_GONE)
        http_request_cut(request);
    else if (step == STEP_WANTS_READER || (step == STEP_MOVED && pour->held_at < pour->held_size))
        wait_for_reader(request); /* what is held makes no socket readable, but there is room for it at once */
    else
        wait_for_client(request);
}

static uint64_t patience_ms(const struct http_request *request)
{
    return PATIENCE_GRACES * (uint64_t)request->worker->server->options.body_grace_ms;
}

/* Whatever came fast counts for a while only: a body of gigabytes could pause for weeks otherwise. */
static bool is_slow(struct http_request *request, uint64_t now_ns)
{
    const struct http_server_options *options = &request->worker->server->options;
    struct http_pour *pour = &request->pour;
    uint64_t waited_ms = waited_ns(pour, now_ns) / 1000000;
    uint64_t due = waited_ms * options->body_min_rate / 1000;
    uint64_t ahead = patience_ms(request) * options->body_min_rate / 1000;
    pour->counted += pour->size - pour->looked_at;
    pour->looked_at = pour->size;
    if (pour->counted > due + ahead)
        pour->counted = due + ahead;
    return waited_ms >= options->body_grace_ms && pour->counted < due;
}

/* Its reader may have been stopped: by whoever it works for, or with it. */
static bool is_stuck(const struct http_request *request, uint64_t now_ns)
{
    return now_ns - request->pour.full_since_ns >= patience_ms(request) * 1000000;
}

static void time_out(struct http_request *request, bool is_full)
{
    struct error err;
    if (is_full)
        error_set(&err, ERROR_TIMEOUT, "what takes the body has not read for %llu s",
                  (unsigned long long)patience_ms(request) / 1000);
    else
        error_set(&err, ERROR_TIMEOUT, "the body came slower than %u bytes a second",
                  request->worker->server->options.body_min_rate);
    request->pour.is_slow = !is_full;
    fail(request, &err);
}

static void on_timer(void *cookie)
{
    struct http_request *request = cookie;
    struct http_pour *pour = &request->pour;
    pour->timer = NULL;
    if (!pour->has_begun) {
        pour->has_begun = true;
        pump(request);
        return;
    }
    uint64_t now_ns = clock_boot_ns();
    bool is_full = pour->waiting_since_ns == 0;
    if (is_full ? is_stuck(request, now_ns) : is_slow(request, now_ns))
        time_out(request, is_full);
    else
        set_timer(request, now_ns);
}

void http_body_pour(struct http_request *request, int pipe,
                    void (*poured)(void *cookie, uint64_t size, const struct error *err), void *cookie)
{
    struct http_pour *pour = &request->pour;
    if (!request->pours || pour->poured != NULL || request->phase != HTTP_OPEN) {
        close(pipe);
        return;
    }
    pour->poured = poured;
    pour->cookie = cookie;
    pour->watch = loop_watch_new(request->worker->loop, pipe);
    loop_watch_readable(pour->watch, on_reader_gone, request);
    bool is_asked = request->head.is_1_1 && request->head.expects_continue;
    if (is_asked && pour->held_size == 0 && !pour->is_whole)
        http_guard_send_continue(request->connection);
    /* Not at once: poured is never called inside of this. */
    pour->timer = loop_timer_start(request->worker->loop, clock_boot_ns(), on_timer, request);
}
