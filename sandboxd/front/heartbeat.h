/** heartbeat.h - the thread that tells the negotiator that this node lives, what changed on it and what ended, and
 * takes the marks it has not yet: every 2 s, and at once when a sandbox ended or marks were taken. It blocks in network
 *  calls, so it is no loop. */
#pragma once

#include "sandboxd/journal/marks.h"
#include "sandboxd/sandbox/node_seal.h"
#include "sandboxd/sandbox/registry.h"
#include "sandboxd/sandbox/template_list.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"

struct heartbeat_options {
    struct node_seal *seal; /* borrowed, as the others */
    struct registry *registry;
    struct template_list *templates;
    struct marks *marks;
    const char *url; /* what clients are told to reach this node */
};

struct heartbeat;

/** Starts the thread; without a negotiator's url in the identity there is nothing to do: a heartbeat that never beats.
 */
struct heartbeat *heartbeat_start(const struct heartbeat_options *options, struct error *err) MUST_USE;

/** Beat now. Any thread; NULL is allowed. */
void heartbeat_wake(struct heartbeat *heartbeat);

/** Joins the thread (at most one call's timeout). The marks may still owe it the end of a page: they are freed next,
 * and then this. NULL is allowed, as below. */
void heartbeat_stop(struct heartbeat *heartbeat);

/** Stops it when that was not done. */
void heartbeat_free(struct heartbeat *heartbeat);
DEFINE_AUTO(heartbeat)
