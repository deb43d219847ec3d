/** relay.h - carries bytes between two TCP sockets, both ways, with back-pressure and half-close: by splice(2), or
 *  towards the server through a filter. One loop. */
#pragma once

#include "sandboxd/egress/pipe_stock.h"
#include "shared/base/error.h"
#include "shared/base/text.h"
#include "shared/http/loop.h"

struct relay;

#define RELAY_IDLE_S 3600 /* without a byte either way */

struct relay_options {
    struct loop *loop;
    struct pipe_stock *pipes;
    struct loop_watch *client; /* connected, non-blocking; the relay's now, and nothing is asked of it any more */
    int server;                /* connected or connecting, non-blocking; the relay's now */
    const void *first;         /* to the server before anything else; copied */
    size_t first_bytes;
    /** NULL: all that the client says goes to the server. Else it appends what may go; false ends the connection. */
    bool (*filter)(void *cookie, const void *data, size_t size, struct text *out, struct error *err);
    /** The connection is over: `err` is NULL when both sides closed it. Once. The owner frees the relay, but later. */
    void (*ended)(void *cookie, const struct error *err);
    void *cookie;
};

/** Begins with the loop's next turn: ended() is not called from inside. Loop thread. */
struct relay *relay_new(const struct relay_options *options) MUST_USE;

/** Closes both sockets. Not inside of ended() or filter(); NULL is allowed. */
void relay_free(struct relay *relay);
