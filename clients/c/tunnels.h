/** tunnels.h - ports of a sandbox at ports of this machine: each connection here is one there, over a WebSocket
 *  (specs/websocket.md, "Tunnels"). The token is kept fresh, also of connections that last. One thread at a time. */
#pragma once

#include "clients/c/grant_keeper.h"

#include <stdbool.h>
#include <stdint.h>

#define TUNNELS_PORTS_MAX       32
#define TUNNELS_CONNECTIONS_MAX 256 /* at once; more wait to be accepted */

struct tunnels;

/** What is wanted; all is borrowed and outlives it. */
struct tunnels_wanted {
    const struct grant_keeping *keeping;
    /** Something about the connections to `port` that the user may want to know; a text from outside. */
    void (*note)(void *cookie, uint16_t port, const char *sentence);
    void *cookie;
};

/** Without ports yet. `wanted` is copied, what it points to is borrowed; the caller's. INTERNAL: no libcurl. */
struct tunnels *tunnels_new(const struct tunnels_wanted *wanted, struct error *err) MUST_USE;
/** Breaks all connections. NULL is allowed. */
void tunnels_free(struct tunnels *tunnels);
DEFINE_AUTO(tunnels)

/** Listens at 127.0.0.1, port `local` (0: any) for `port` of the sandbox; *bound is where. CONFLICT when it is taken,
 *  INVALID past TUNNELS_PORTS_MAX. */
bool tunnels_listen(struct tunnels *tunnels, uint16_t port, uint16_t local, uint16_t *bound,
                    struct error *err) MUST_USE;

/** One turn of its loop: waits at most 1 s. False: it failed, for good. */
bool tunnels_turn(struct tunnels *tunnels, struct error *err) MUST_USE;
