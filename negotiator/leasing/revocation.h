/** revocation.h - revoking tokens (protocol.md, 4): a revocation is a mark, durable here first, then on every node that
 *  hosts what it matches; who asked hears which of them acknowledged. */
#pragma once

#include "negotiator/leasing/leasing.h"
#include "shared/capability/mark.h"

#define REVOCATION_REASON_BYTES 256
#define REVOCATION_WAIT_MS      5000
#define REVOCATION_LIST_MAX     200
#define REVOCATION_NODES_MAX    64 /* of the missing ones, named; `missing_count` has them all */

/** What is kept of one, row revocation/<id>, until its mark has gone and 24 h longer. */
struct revocation {
    char id[RANDOM_ID_BYTES]; /* "rev_..." */
    struct mark mark;
    char reason[REVOCATION_REASON_BYTES];
    char by[PRINCIPAL_BYTES]; /* who revoked; "" a holder without an API key */
    int64_t created_ms;
    int64_t usable_until; /* seconds: the latest exp of a token it matches, as far as is known; 0: no such token */
    bool in_force;        /* every node that hosts a match acknowledged, or no such token lives any more */
    char missing[REVOCATION_NODES_MAX][SANDBOX_NODE_BYTES];
    size_t missing_count;
};

enum revoking_verb { REVOKING_MAKE, REVOKING_FIND, REVOKING_LIST };

/** The question and its answer. */
struct revoking {
    enum revoking_verb verb;
    struct caller caller; /* principal.name "" when only `token` says who asks */
    char *token;          /* owned; selector "token": its last link, or its jti, by any holder */
    enum mark_kind kind;  /* the selector when token is NULL */
    char value[MARK_VALUE_BYTES];
    char share_thread[CAPABILITY_THREAD_BYTES]; /* "" or, of MARK_FAMILY: `value` must be a share of that thread of the
                                                 * caller's (or ?principal='s); it is one no more then */
    int64_t before_ms;                          /* 0: now */
    char reason[REVOCATION_REASON_BYTES];
    char id[RANDOM_ID_BYTES]; /* FIND; LIST: cursor, "" the newest */
    size_t limit;             /* LIST: 1..200 */
    bool all;                 /* LIST: everybody's; admins */
    void (*answered)(void *cookie,
                     struct revoking *revoking); /* once, on the ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal;
    struct revocation *list; /* owned; MAKE and FIND: one */
    size_t count;
    char next[RANDOM_ID_BYTES]; /* LIST: cursor of the next page; "" the end */

    struct leasing *leasing; /* private, as the next */
    bool charged;            /* an earlier run of the rule took it from what the caller may revoke */
    int64_t give_up_ms;
    struct mark *followers; /* owned: marks that go with it (sharing_follow) */
    size_t follower_count;
    json_t *nodes; /* owned: those that have to acknowledge it */
};

struct revoking *revoking_new(void);
void revoking_free(struct revoking *revoking);
DEFINE_AUTO(revoking)

/** Queues it; takes it. A MAKE is answered when it is in force, or after REVOCATION_WAIT_MS. Any thread. */
void leasing_revoke(struct leasing *leasing, struct revoking *revoking);
