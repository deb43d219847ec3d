/** port_pool.h - connections to servers inside sandboxes that may serve another request, kept for a moment by one loop.
 * A connection belongs to the sandbox and port it was dialled for, and to nobody who asked through it: who may ask is
 * judged before, for each request. */
#pragma once

#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/cleanup.h"
#include "shared/http/loop.h"

#include <stdint.h>

#define PORT_POOL_IDLE_NS  (UINT64_C(2) * 1000000000) /* shorter than what servers wait for a request, 5 s and more */
#define PORT_POOL_IDLE_MAX 32                         /* of one sandbox */
#define PORT_POOL_ALL_MAX  1024                       /* of this loop */

struct port_pool;

/** The loop's own; all calls on its thread. `sandboxes` (borrowed) hear of each connection that is closed here. */
struct port_pool *port_pool_new(struct loop *loop, struct sandboxes *sandboxes) MUST_USE;
/** Closes what is idle. Before the loop ends. NULL is allowed. */
void port_pool_free(struct port_pool *pool);
DEFINE_AUTO(port_pool)

/** The idle connection that was used last, the caller's; NULL. Its server may be about to close it. */
struct loop_watch *port_pool_take(struct port_pool *pool, const char *sandbox_id, uint16_t port) MUST_USE;
/** Takes it; closes it when its server does, or says anything, or after PORT_POOL_IDLE_NS. */
void port_pool_give(struct port_pool *pool, const char *sandbox_id, uint16_t port, struct loop_watch *connection);
