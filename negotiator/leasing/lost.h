/** lost.h - an admin gives a node up: what was on it has ended, so that its threads get new sandboxes at once. Each row
 *  stays as a tombstone: a node that comes back is told to destroy what it still has. */
#pragma once

#include "negotiator/leasing/leasing.h"

#define LOSING_AT_ONCE 64 /* sandboxes ended in one rule */

/** The question above, the answer below. */
struct losing {
    struct caller caller;
    char node[SANDBOX_NODE_BYTES];
    void (*answered)(void *cookie); /* once, on the ledger thread; the callee frees it from then on */
    void *cookie;

    struct error refusal; /* NOT_FOUND; CONFLICT while the node is alive, also when it came back meanwhile */
    size_t ended;         /* sandboxes */

    struct leasing *leasing; /* private, as the next */
    char after[RANDOM_ID_BYTES];
    char ids[LOSING_AT_ONCE][RANDOM_ID_BYTES]; /* of those ended by this rule */
    size_t count;
    bool more;
};

/** Ends all of its sandboxes as node_lost, a bounded number a rule; `losing` lives until it is answered. Any thread. */
void leasing_lose(struct leasing *leasing, struct losing *losing);
