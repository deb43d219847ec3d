/** keeping.h - what outlives a sandbox: taking, finding, listing and deleting snapshots. A dialect asks, the rules run
 * on the ledger thread. */
#pragma once

#include "negotiator/leasing/keeping/snapshot.h"
#include "negotiator/leasing/leasing.h"

#define KEEPING_LIST_MAX       200
#define KEEPING_AT_ONCE        2  /* that one node makes at a time: a copy takes its disk, and a worker here */
#define KEEPING_WAITERS_MAX    64 /* for their turn at one node */
#define KEEPING_WAITERS_OF_ONE 16 /* likewise, of one principal's sandboxes */

enum keeping_verb {
    KEEPING_TAKE, /* of a living sandbox */
    KEEPING_FIND,
    KEEPING_LIST,
    KEEPING_PAGE, /* the owner's, newest first, by offset; with a total */
    KEEPING_DROP  /* durable: a node that is away is told when it is back */
};

/** The question above, the answer below. */
struct keeping {
    enum keeping_verb verb;
    struct caller caller;
    char *token;                      /* owned. TAKE: the capability that asks, in place of an API key; NULL none */
    char sandbox_id[RANDOM_ID_BYTES]; /* TAKE; LIST, PAGE: only those of it, or "" */
    char snapshot_id[RANDOM_ID_BYTES];
    char name[SANDBOX_NAME_BYTES]; /* TAKE: "" one is picked; LIST, PAGE: only that one, or "" */
    char cursor[RANDOM_ID_BYTES];  /* LIST: where to go on, or "" */
    size_t limit;                  /* LIST, PAGE: 1..KEEPING_LIST_MAX; 0: that */
    unsigned states;               /* PAGE: as bits; 0: any */
    size_t offset;                 /* PAGE: how many of the newest are left out */
    void (*answered)(void *cookie, struct keeping *keeping); /* on the ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal; /* ERROR_NONE: done */
    struct snapshot snapshot;
    int64_t running;       /* TAKE: commands that ran and are not part of it */
    struct snapshot *list; /* LIST, PAGE: owned */
    size_t count;
    size_t total;               /* PAGE: how many there are */
    bool is_cut;                /* PAGE: more than LEASING_PAGE_MAX */
    char next[RANDOM_ID_BYTES]; /* cursor of the next page; "" the end */

    struct leasing *leasing; /* private, as all below */
    struct page_walk *walk;  /* owned; PAGE */
    struct keeping *later;   /* in the list of those that are under way */
    bool is_called;
    struct error failure;                                                /* of the node */
    char template_name[SANDBOX_WORD_BYTES], storage[SANDBOX_WORD_BYTES]; /* as it said */
    int64_t size_bytes;
    /* Of the capability: for the record. */
    char actor[WANTED_ACTOR_BYTES], jti[CAPABILITY_ID_BYTES], lease[CAPABILITY_ID_BYTES],
        thread_id[CAPABILITY_THREAD_BYTES], links[CAPABILITY_LINKS_TEXT_BYTES];
};

/** An empty question. */
struct keeping *keeping_new(void);
/** With all it owns; NULL is allowed. */
void keeping_free(struct keeping *keeping);
DEFINE_AUTO(keeping)

/** Queues it; takes it. Any thread. Another principal's snapshot is ERROR_NOT_FOUND. TAKE: by the sandbox's owner, an
 *  admin, or a capability of that sandbox with scope `snapshot`; FORBIDDEN, GONE, STARTING, CONFLICT (a name), QUOTA,
 *  RATE_LIMITED, NODE_UNREACHABLE and what the node refuses come as refusal, and leave no snapshot. */
void leasing_keep(struct leasing *leasing, struct keeping *keeping);

/* ---- for leasing alone; ledger thread ---- */

/** Answers all who wait for a node's turn: the negotiator stops. */
void keeping_done(struct leasing *leasing);

/** One snapshot that is not ready is due. */
struct keeping_look {
    struct leasing *leasing;
    const char *due; /* the due row */
    bool drop;       /* private: set anew by each run; its node is to be told */
    char id[RANDOM_ID_BYTES], node[SANDBOX_NODE_BYTES];
};
/** Whether the due row is one of these. */
bool keeping_is_due(const char *due) MUST_USE;
/** Decides: one that was left half-made is deleted, one that is being deleted has its node told again. */
enum kv_outcome keeping_look_rule(struct kv *kv, struct keeping_look *look, struct error *err);
/** Once its change is durable. */
void keeping_look_act(const struct keeping_look *look);
