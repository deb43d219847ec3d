/** leasing_internal.h - what the files of this folder share. */
#pragma once

#include "negotiator/leasing/starting.h"
#include "negotiator/leasing/store.h"

#include <stdatomic.h>

struct leasing {
    struct leasing_options options;
    char deployment[CAPABILITY_ID_BYTES];
    struct key master, audit_key;
    atomic_bool stopping;
    struct starting starting; /* ledger thread */
    struct strangers *strangers;
    char sweep_from[LEASING_SWEEP_BYTES]; /* ledger thread: the watch row after which the next sweep begins */
};

/** A working set for one run; its change is the caller's to free. */
struct work work_begin(struct leasing *leasing, struct kv *kv, struct kv_change *change, struct error *err) MUST_USE;

/** Whose things this caller asks for. */
const char *caller_owner(const struct caller *caller) MUST_USE;

/** False (refusal set) when the role or another's ownership forbids it. */
bool caller_may(const struct caller *caller, enum role needed, struct error *refusal) MUST_USE;

/* endings.c */

#define ENDING_DESTROY_AGAIN_MS 15000 /* a node that still has what it was told to destroy is told again */

/** Ends a sandbox that its node still has: leases, name and idempotency go, the state is terminating. */
bool ending_begin(struct work *work, struct sandbox *sandbox, const char *reason) MUST_USE;
/** Ends one that its node no longer has, or never had; `state` terminated or failed. */
bool ending_finish(struct work *work, struct sandbox *sandbox, enum sandbox_state state, const char *reason) MUST_USE;
/** Ends one lease; the last one begins the end of the sandbox. *last says so. */
bool ending_release(struct work *work, struct sandbox *sandbox, const struct lease *lease, const char *reason,
                    bool *last) MUST_USE;
/** Marks as terminated in a change of its own, with a record. work's change is not used. */
enum kv_outcome ending_finish_alone(const struct work *work, struct sandbox *sandbox, const char *reason) MUST_USE;
/** Copies a reason, cut at a whole character. */
void ending_set_reason(struct sandbox *sandbox, const char *reason);

/* settle.c */

/** Asks the node to make a sandbox that is durably provisioning. Ledger thread. */
void settle_prepare(struct leasing *leasing, const struct sandbox *sandbox);
/** Sends {"call", "id", "reason"} or {"call", "id", "deadline"}, not waiting for the answer. */
void settle_destroy(struct leasing *leasing, const struct sandbox *sandbox);
void settle_deadline(struct leasing *leasing, const char *node, const char *id, int64_t deadline);

/** Answers the creator and those who wait for that sandbox; outcome ERROR_NONE: it is active, waiters ask again. */
void settle_tell(struct leasing *leasing, const char *id, const struct error *outcome);

/* negotiate.c */

/** Fills a granted negotiation's claims. */
void negotiate_claim(struct negotiation *negotiation, int64_t now);
void negotiate_submit(struct negotiation *negotiation);
void negotiate_answer(struct negotiation *negotiation);
/** The record of an issue or refusal. */
bool negotiate_audit(struct work *work, const struct negotiation *negotiation) MUST_USE;

/* refusals.c */

/** The sums of requests without a valid key. */
struct strangers *strangers_new(void);
void strangers_free(struct strangers *strangers);
/** Records the minute's sums when that minute is over, or `now`. Any thread. */
void strangers_flush(struct leasing *leasing, bool now);
