/** intake.h - the records that nodes ship (protocol.md, 7): each is stored in the chain exactly once, however often it
 *  comes. */
#pragma once

#include "negotiator/leasing/leasing.h"

#define INTAKE_SPOOL_BYTES RANDOM_ID_BYTES
#define INTAKE_RECORDS_MAX 512 /* of one message */

/** One shipment: the question above, the answer below. */
struct intake {
    struct leasing *leasing;
    char node[SANDBOX_NODE_BYTES];
    const json_t *message; /* borrowed: {"spool", "records"} */

    char spool[INTAKE_SPOOL_BYTES];
    uint64_t upto;    /* stored up to this n, now or before */
    uint64_t refused; /* records about sandboxes of other nodes, or of somebody they do not belong to */
};

/** The rule for it: row spool/<node>/<spool>, "<last n stored> <time>", moves in the change that stores the records. A
 *  hole inside a message ends it there; one before its first record is told by a record "audit.gap" and passed.
 * KV_FAILED with ERROR_INVALID when the message is not what it should be. Ledger thread. */
enum kv_outcome intake_rule(struct kv *kv, struct intake *intake, struct error *err);
