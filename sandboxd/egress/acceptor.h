/** acceptor.h - accepts connections on a listening socket, not more often than it may; when it cannot (no descriptors),
 * it waits a while. One loop.
 */
#pragma once

#include "sandboxd/egress/rate.h"
#include "shared/http/loop.h"

struct acceptor;

/** The listener (non-blocking) belongs to the acceptor, a connection (non-blocking) to accepted(). Loop thread. */
struct acceptor *acceptor_new(struct loop *loop, int listener, struct rate rate, void (*accepted)(void *cookie, int fd),
                              void *cookie) MUST_USE;
/** NULL is allowed; also inside of accepted(). */
void acceptor_free(struct acceptor *acceptor);
