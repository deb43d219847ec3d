/** revocations.h - what the files about revocations share: rows, and those that not every node has acknowledged. Ledger
 *  thread. Private to this folder.
 *
 *    revocation/<id>          struct revocation; forgotten 24 h after its mark
 *    revoked/<16 hex digits>  "<id> <owner>": the number of the mark counted down, so that the newest come first
 *    unheard/<id>             {"n", "until", "nodes"}: those that have not acknowledged it; gone when all have */
#pragma once

#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/revocation.h"

#define REVOCATIONS_KEEP_S 86400 /* after the mark has gone */

struct revocations;

struct revocations *revocations_new(void);
/** Answers those who still wait; NULL is allowed. */
void revocations_free(struct revocations *revocations);

/** Takes up those that were not in force when the last negotiator ended. A rule's part; may be run again. */
bool revocations_load(struct work *work) MUST_USE;

/** A node has the marks `after` < n <= `upto`: those who waited for just that are answered. */
void revocations_acknowledged(struct leasing *leasing, const char *node, uint64_t after, uint64_t upto);

/** A revocation is durable: answers the question when the nodes (an array of names, borrowed) have acknowledged it, or
 *  after REVOCATION_WAIT_MS. */
void revocations_wait(struct leasing *leasing, struct revoking *revoking, json_t *nodes);

/* revocation_row.c */

/** Adds to the change: the row, its place in lists, and which nodes have to acknowledge it. */
void revocation_put(struct work *work, const struct revocation *revocation, const char *owner, const json_t *nodes);
/** The row `revocation/<id>`, and which nodes are missing now; *owner whose it is. False: the store failed;
 *  revocation->id "" there is none. */
bool revocation_get(struct work *work, const char *id, struct revocation *revocation,
                    char owner[static PRINCIPAL_BYTES]) MUST_USE;
/** Fills what FIND and LIST ask for. False: revoking->refusal says why, or the store failed. */
bool revocation_find(struct work *work, struct revoking *revoking) MUST_USE;
bool revocation_list(struct work *work, struct revoking *revoking) MUST_USE;
/** Names the nodes that lack the mark, and says whether it is in force. */
void revocation_judge(const struct leasing *leasing, struct revocation *revocation, const json_t *nodes, int64_t now);

/* revocation_target.c */

/** What a selector means: the mark, whose it is, and where its tokens can be used. */
struct revocation_target {
    struct mark mark;
    char owner[PRINCIPAL_BYTES]; /* whose revocation it is, when nobody with an API key asks */
    json_t *nodes;               /* owned: an array of names */
    int64_t usable_until;        /* s; 0 no such token lives */
};
void revocation_target_done(struct revocation_target *target);
/** Finds it, and adds to the change what goes with it (the sandbox's epoch, the lease's new id). False: the refusal
 * says why, or the store failed. */
bool revocation_find_target(struct work *work, struct revoking *revoking, struct revocation_target *target) MUST_USE;
