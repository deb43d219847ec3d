/** execd_stream.h - a request that is answered with a stream of events (specs/opensandbox.md): the head and "init" with
 *  the first event, "ping" at once and every 3 s, as fast as the client takes it, until its owner ends it, its client
 *  leaves or its token is over. What the events say, and where they come from, is its owner's. Belongs to the request's
 *  loop. */
#pragma once

#include "shared/base/text.h"
#include "shared/http/server.h"

#include <stdbool.h>
#include <stdint.h>

struct execd_stream;

/** On the request's loop; never after execd_stream_end, execd_stream_fail or execd_stream_close. */
struct execd_stream_owner {
    /* What was sent is out of this process, and more may be sent. Perhaps inside of execd_stream_flush. */
    void (*drained)(void *cookie);
    /* The stream is over by itself: the client has left, or its credential holds no more. The stream is still to be
     * closed. Perhaps inside of execd_stream_flush or execd_stream_begin. */
    void (*gone)(void *cookie);
    bool cut_stalled; /* a client that takes nothing of what was sent for a minute is gone */
};

/** Takes charge of the request's answer; the caller owns it and calls end, fail or close, each of which frees it.
 *  `expires_s` (UTC): it fails then. `owner` outlives it. */
struct execd_stream *execd_stream_new(struct http_request *request, int64_t expires_s,
                                      const struct execd_stream_owner *owner, void *cookie) MUST_USE;

/** Starts the reply, with "init" of `id` and the first ping. */
void execd_stream_begin(struct execd_stream *stream, const char *id);
/** Whether the reply was started: an error has no status of its own any more. */
bool execd_stream_has_begun(const struct execd_stream *stream) MUST_USE;

/** Where the next events go (execd_events.h), after execd_stream_begin. */
struct text *execd_stream_text(struct execd_stream *stream) MUST_USE;

/** Sends them. */
void execd_stream_flush(struct execd_stream *stream);
/** False: no more can be sent before `drained`, or ever. */
bool execd_stream_has_room(const struct execd_stream *stream) MUST_USE;

/** Sends what is left, and ends the reply. */
void execd_stream_end(struct execd_stream *stream);
/** Ends it with an error: before it has begun with its status, afterwards as an event. */
void execd_stream_fail(struct execd_stream *stream, const struct error *err);
/** Frees one that is gone; one that is not breaks off. NULL is allowed. */
void execd_stream_close(struct execd_stream *stream);
