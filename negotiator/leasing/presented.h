/** presented.h - a capability that somebody shows to the negotiator, judged as its node would. Private to this folder.
 */
#pragma once

#include "negotiator/leasing/store.h"

struct presented {
    int64_t grace_s; /* in: how long past its exp it counts */
    bool any_epoch;  /* in: also under a key that is no longer in force */
    struct capability_claims claims;
    struct sandbox sandbox; /* of the token; owned */
};
/** Drops what it owns. */
void presented_done(struct presented *presented);
#define AUTO_PRESENTED __attribute__((cleanup(presented_done))) struct presented

/** False: *refusal says no (ERROR_UNAUTHENTICATED, ERROR_TOKEN_EXPIRED, ERROR_TOKEN_REVOKED for a key that is no longer
 * in force), or it is empty and the store failed. Marks are the caller's. Ledger thread. */
bool presented_judge(struct work *work, const char *token, struct presented *presented, struct error *refusal) MUST_USE;
