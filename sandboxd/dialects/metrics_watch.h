/** metrics_watch.h - looks at how much a sandbox uses, again and again, as a stream; or once more after a first look,
 *  for what can only be told between two. For every dialect that shows figures; it says how they read. */
#pragma once

#include "sandboxd/dialects/plane.h"

#include <stdbool.h>
#include <stdint.h>

/** The look before. */
struct metrics_look {
    uint64_t at_ns; /* boot time */
    uint64_t cpu_used_ms;
};

/** A dialect's words; static. */
struct metrics_words {
    const char *cache_control;
    const char *expired; /* the sentence of TOKEN_EXPIRED */
    /** The figures; `before` is NULL at the first look. NULL: nothing can be told yet. The callee's. */
    json_t *(*figures)(const struct sandbox_metrics *now, uint64_t now_ns, const struct metrics_look *before);
    /** Sends them, which it takes, on the stream: as http_stream_send. */
    size_t (*send)(struct http_request *request, json_t *figures);
    /** An error within the stream. */
    void (*append_error)(struct text *to, const struct http_request *request, const struct error *err);
};

/** Answers an authorised request (caller_of) with figures: as a stream, one each `interval_ns` until its token expires,
 *  left out while the client reads no further; or, where `once`, as the first JSON that can be told. On the request's
 *  loop. */
void metrics_watch(struct http_request *request, const struct metrics_words *words, uint64_t interval_ns, bool once);
