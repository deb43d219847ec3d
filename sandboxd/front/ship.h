/** ship.h - the thread that brings the audit spool's records to the negotiator (protocol.md, 7): the node call `audit`,
 *  at least once; the ledger knows (node, spool id, n) and stores each exactly once. It blocks in network calls, so it
 * is no loop. */
#pragma once

#include "sandboxd/journal/spool.h"
#include "sandboxd/sandbox/node_seal.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"

struct ship_options {
    struct spool *spool; /* borrowed, as the other */
    struct node_seal *seal;
};

struct ship;

/** Starts the thread; without a negotiator's url in the identity it never ships and the spool fills up. */
struct ship *ship_start(const struct ship_options *options, struct error *err) MUST_USE;

/** There is something to ship (spool_options.grown). Any thread, does not block; NULL is allowed. */
void ship_wake(struct ship *ship);

/** No further call is begun; returns at once. What is not shipped stays in the spool. NULL is allowed. */
void ship_stopping(struct ship *ship);
/** Joins the thread (at most one call's timeout), before spool_free; the spool's thread may still call ship_wake, so
 *  ship_free comes after spool_free. NULL is allowed. */
void ship_stop(struct ship *ship);
/** Stops, if that was not done. NULL is allowed. */
void ship_free(struct ship *ship);
DEFINE_AUTO(ship)
