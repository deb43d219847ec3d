/** starting.h - the sandboxes that are being made, and who waits for each. Ledger thread only. Private to this folder.
 */
#pragma once

#include "negotiator/leasing/leasing.h"

#define STARTING_WAITERS_MAX 256 /* for one sandbox */

struct starting_entry {
    char id[RANDOM_ID_BYTES];
    bool called;                 /* its node has been asked by this process */
    struct negotiation *creator; /* owned; NULL after a restart */
    struct negotiation *waiters; /* owned; a list by `next`, in the order they came */
    struct negotiation **last;
    size_t count; /* of the waiters */
};

/** Embedded; zero is empty. */
struct starting {
    void *root; /* tsearch(3) */
};

/** Answers all who still wait: the negotiator stops. */
void starting_done(struct starting *starting);

/** NULL when there is none. */
struct starting_entry *starting_find(const struct starting *starting, const char *id) MUST_USE;
/** The one that is there, or a new one. */
struct starting_entry *starting_entry(struct starting *starting, const char *id);
/** Takes the negotiation. Who stopped waiting is answered and dropped first; false when STARTING_WAITERS_MAX still
 * wait: it stays the caller's then. */
bool starting_wait(struct starting_entry *entry, struct negotiation *negotiation) MUST_USE;
/** Takes the entry out of the table; the caller frees it and what it holds. NULL when there is none. */
struct starting_entry *starting_take(struct starting *starting, const char *id) MUST_USE;
