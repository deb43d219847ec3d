/** heartbeat.h - the thread that tells the negotiator that this node lives, what runs on it and what ended: every 2 s,
 * and at once when a sandbox ended. It blocks in network calls, so it is no loop. */
#pragma once

#include "sandboxd/sandbox/node_seal.h"
#include "sandboxd/sandbox/registry.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"

struct heartbeat_options {
    struct node_seal *seal; /* borrowed, as the others */
    struct registry *registry;
    const char *url; /* what clients are told to reach this node */
};

struct heartbeat;

/** Starts the thread; without a negotiator's url in the identity there is nothing to do: a heartbeat that never beats.
 */
struct heartbeat *heartbeat_start(const struct heartbeat_options *options, struct error *err) MUST_USE;

/** Beat now. Any thread; NULL is allowed. */
void heartbeat_wake(struct heartbeat *heartbeat);

/** Joins the thread (at most one call's timeout). NULL is allowed. */
void heartbeat_free(struct heartbeat *heartbeat);
DEFINE_AUTO(heartbeat)
