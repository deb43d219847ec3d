/** retention.h - old audit records go (ledger/audit.h): from time to time, in steps that let other rules in between.
 *  Embedded in struct leasing; private to this folder and its tests. */
#pragma once

#include "negotiator/ledger/audit.h"

#define RETENTION_EVERY_MS (60LL * 60 * 1000)

struct leasing;

/* Ledger thread, but for its start. */
struct retention {
    struct audit_retention state;
    struct audit_keep keep;       /* of the step that runs */
    struct audit_retention after; /* its result, the state's once durable */
    bool running;                 /* a round is */
    uint64_t sealed;              /* since the start */
};

/** A round, unless one runs: begins with the next rule of the ledger thread. Ledger thread, or before it has work. */
void retention_round(struct leasing *leasing);
