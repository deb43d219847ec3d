/* raw_reply.c - follower in, bytes out. */
#include "sandboxd/dialects/native/raw_reply.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <string.h>

enum {
    CHUNK_BYTES = 64 * 1024,  /* copied at once for who does not drive */
    PIECE_BYTES = 1024 * 1024 /* sent at once for a driver: what is under way is not consumed, so the command waits */
};

struct raw_reply {
    struct http_request *request;
    struct raw_reply_plan plan;
    struct follower *follower;
    struct loop_timer *timer;
    uint64_t until;     /* of a snapshot: the stream's length when it began */
    size_t under_way;   /* of a driver: bytes given to http_stream_send_file */
    bool streaming;     /* the reply has started */
    bool full;          /* waits for drained */
    bool pulling, over; /* over inside pull: freed at its end */
};

static void pull(void *cookie);

/* Nothing reaches it any more; whoever runs its steps frees it. */
static void reply_over(struct raw_reply *reply)
{
    if (reply->over)
        return;
    follower_close(TAKE(reply->follower));
    loop_timer_cancel(TAKE(reply->timer));
    reply->over = true;
}

static void on_gone(void *cookie)
{
    struct raw_reply *reply = cookie;
    reply_over(reply);
    if (!reply->pulling)
        free(reply);
}

static void on_drained(struct http_request *request UNUSED, void *cookie)
{
    struct raw_reply *reply = cookie;
    if (reply->under_way > 0)
        follower_consumed(reply->follower, reply->plan.stream, reply->under_way);
    reply->under_way = 0;
    follower_delivered(reply->follower);
    if (!reply->full)
        return;
    reply->full = false;
    pull(reply);
}

static const struct http_stream_events STREAM_EVENTS = {.drained = on_drained, .gone = on_gone};

/* ---- the end of the reply; each leaves it over ---- */

static void end_stream(struct raw_reply *reply)
{
    struct http_request *request = reply->request;
    reply_over(reply);
    http_stream_end(request);
}

/* There is no room for words between the bytes of a command: a reply that cannot go on is broken off. */
static void fail(struct raw_reply *reply, const struct error *err)
{
    struct http_request *request = reply->request;
    bool streaming = reply->streaming;
    reply_over(reply);
    if (streaming)
        http_stream_abort(request);
    else
        http_reply_error(request, err);
}

static void on_expired(void *cookie)
{
    struct raw_reply *reply = cookie;
    struct error err = {0};
    error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; the command goes on, follow it with a fresh one");
    reply->timer = NULL;
    fail(reply, &err);
    free(reply);
}

/* ---- one step each ---- */

static void on_started(struct raw_reply *reply, const struct process_view *view)
{
    enum output_stream stream = reply->plan.stream;
    uint64_t kept_from = view->output_gone ? view->length[stream] : view->kept_from[stream];
    if (reply->plan.offset < kept_from) {
        struct error err = {0};
        error_set(&err, ERROR_RANGE, "%s of command %s is kept from byte %llu on", output_stream_name(stream), view->id,
                  (unsigned long long)kept_from);
        fail(reply, &err);
        return;
    }
    follower_ignore(reply->follower, stream == OUTPUT_STDOUT ? OUTPUT_STDERR : OUTPUT_STDOUT);
    reply->until = view->length[stream];
    reply->streaming = true;
    http_reply_header(reply->request, "Cache-Control", "no-store");
    http_reply_header(reply->request, "X-Content-Type-Options", "nosniff");
    http_stream_start(reply->request, 200, "application/octet-stream", &STREAM_EVENTS, reply);
    if (!reply->over && strcmp(http_request_method(reply->request), "HEAD") == 0)
        end_stream(reply);
}

/* At most what a snapshot still lacks. */
static size_t wanted(const struct raw_reply *reply, size_t most)
{
    if (reply->plan.follows)
        return most;
    uint64_t left = reply->until > reply->plan.offset ? reply->until - reply->plan.offset : 0;
    return left < most ? (size_t)left : most;
}

static void send_piece(struct raw_reply *reply, const struct follower_item *item)
{
    int memory = follower_memory(reply->follower, item->stream);
    reply->plan.offset = item->offset + item->size;
    reply->under_way = item->size;
    reply->full = true;
    if (!http_stream_send_file(reply->request, memory, item->offset, item->size))
        reply_over(reply); /* it was aborted there */
}

static void send_chunk(struct raw_reply *reply, const struct follower_item *item, const uint8_t *data)
{
    reply->plan.offset = item->offset + item->size;
    follower_consumed(reply->follower, item->stream, item->size);
    reply->full = http_stream_send(reply->request, data, item->size) >= HTTP_STREAM_FULL_BYTES;
}

static void on_gap(struct raw_reply *reply)
{
    struct error err = {0};
    error_set(&err, ERROR_RANGE, "bytes are gone that were not sent");
    fail(reply, &err);
}

/* False when there is nothing more to do now. */
static bool step(struct raw_reply *reply, uint8_t *buffer)
{
    struct follower_item item;
    size_t size = wanted(reply, reply->plan.drives ? PIECE_BYTES : CHUNK_BYTES);
    if (reply->streaming && size == 0) {
        end_stream(reply);
        return false;
    }
    switch (reply->plan.drives ? follower_peek(reply->follower, &item, size)
                               : follower_next(reply->follower, &item, buffer, size)) {
    case FOLLOWER_STARTED:
        on_started(reply, item.view);
        return true;
    case FOLLOWER_DATA:
        if (reply->plan.drives)
            send_piece(reply, &item);
        else
            send_chunk(reply, &item, buffer);
        return true;
    case FOLLOWER_GAP:
        on_gap(reply);
        return false;
    case FOLLOWER_ENDED:
        end_stream(reply);
        return false;
    case FOLLOWER_FAILED:
        fail(reply, item.error);
        return false;
    case FOLLOWER_NOTHING:
        return false;
    }
    return false;
}

static void pull(void *cookie)
{
    struct raw_reply *reply = cookie;
    if (reply->full)
        return;
    uint8_t buffer[CHUNK_BYTES];
    reply->pulling = true; /* the request may end inside any of these */
    while (!reply->over && !reply->full && step(reply, buffer)) {
    }
    reply->pulling = false;
    if (reply->over)
        free(reply);
}

struct raw_reply *raw_reply_new(struct http_request *request, const struct raw_reply_plan *plan)
{
    struct raw_reply *reply = memory_new(sizeof *reply);
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    offsets[plan->stream] = plan->offset;
    reply->request = request;
    reply->plan = *plan;
    reply->follower = follower_new(plan->drives ? FOLLOWER_DRIVER : FOLLOWER_WATCHER, offsets, pull, reply);
    plane_stay(request);
    if (plan->follows) {
        uint64_t at = plane_deadline_ns(plan->expires_s);
        reply->timer = loop_timer_start(http_request_loop(request), at, on_expired, reply);
    }
    http_request_when_gone(request, on_gone, reply);
    return reply;
}

struct follower *raw_reply_follower(struct raw_reply *reply)
{
    return reply->follower;
}
