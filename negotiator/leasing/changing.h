/** changing.h - what is done to one living sandbox and needs its node: pause, resume, other limits; and what hangs on
 *  that: its name, metadata, what it does when idle, when it ends. The row says what the node said yes to, never more.
 *
 *  One change of a sandbox at a time, in the order they came: so the row and the node cannot part. */
#pragma once

#include "negotiator/leasing/policy/quotas.h"

#define CHANGING_WAITERS_MAX 32 /* for their turn at one sandbox */

enum changing_verb {
    CHANGING_PAUSE,  /* nothing in it runs until somebody uses it; again: as well */
    CHANGING_RESUME, /* likewise */
    CHANGING_RENEW,  /* all its leases end at expires_at, sooner or later than before */
    CHANGING_UPDATE  /* `wanted` says what: resources or network, on_idle, metadata, name; what it does not say stays */
};

/** The question above, the answer below. */
struct changing {
    enum changing_verb verb;
    struct caller caller;
    char sandbox_id[RANDOM_ID_BYTES];
    struct wanted wanted;
    json_t *metadata_patch; /* owned; UPDATE: texts that are set, nulls that are taken out (RFC 7396), NULL: none */
    int64_t expires_at;     /* RENEW: ms since 1970 UTC */
    bool is_strict;         /* PAUSE, RESUME: CONFLICT where that is so already */
    char *token; /* owned; UPDATE of the network alone: who asks is whoever shows this capability of the sandbox,
                    with scope `network`, and not `caller`. NULL: none */
    /* UPDATE: `network` as it is to be, of the one it has (NULL: none), in place of wanted.network; NULL:
     * ERROR_INVALID. On the ledger thread, and again when its turn has come: no other change comes between. NULL: not
     * so. */
    json_t *(*edit_network)(void *cookie, const json_t *network, struct error *err);
    void *edit_cookie;
    void (*edit_free)(void *cookie); /* of edit_cookie; NULL: nothing */
    bool is_incidents;               /* RESUME: by who closes an incident, which keeps all others from it */
    void (*answered)(void *cookie, struct changing *changing); /* on the ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal; /* ERROR_NONE: done */
    struct sandbox sandbox;

    struct leasing *leasing; /* private, as all below */
    struct changing *next;
    bool is_stranger;                     /* its token says nothing of who asks */
    bool by_itself;                       /* nobody asked: it is idle */
    bool has_turn;                        /* it is its sandbox's one */
    struct quota_reservation reservation; /* of the limits that are asked for */
    bool needs_node;                      /* set by the first rule */
    bool skipped;                         /* by_itself: there is nothing to do any more */
    struct error failure;                 /* of the node */
    struct resources in_force;            /* as the node said; 0: it said nothing of it */
    json_t *merged;                       /* owned; metadata with the patch applied */
};

/** An empty question. */
struct changing *changing_new(void);
/** With all it owns; NULL is allowed. */
void changing_free(struct changing *changing);
DEFINE_AUTO(changing)

/** Checks the bounds of what is wanted and queues it; takes it. ERROR_INVALID at once, then it stays the caller's. Any
 *  thread. Who may: the owner and admins; NOT_FOUND, GONE, STARTING, CONFLICT (a name; is_strict; RENEW of what has no
 *  end), INVALID (RENEW into the past, or a patch that makes too many pairs), FORBIDDEN (policy), RATE_LIMITED; of a
 *  token UNAUTHENTICATED, TOKEN_EXPIRED, TOKEN_REVOKED, CAPABILITY_DENIED (without the scope);
 *  NODE_UNREACHABLE and what the node refuses come as changing->refusal. */
bool leasing_change(struct leasing *leasing, struct changing *changing, struct error *err) MUST_USE;
