/** leasing.h - the rules: who may have which sandbox, and for how long. No HTTP, no files: a dialect asks, the rules
 * run on the ledger thread, and what they decided is durable before the answer is given.
 *
 *  Words: a *principal* owns *threads* and *sandboxes*; a *lease* is a thread's hold on one sandbox; a *grant* is what
 * one negotiation gives: lease, scopes, token. The last lease of a sandbox ends it. */
#pragma once

#include "negotiator/leasing/principal.h"
#include "negotiator/leasing/sandbox.h"
#include "negotiator/leasing/wanted.h"
#include "negotiator/ledger/ledger.h"
#include "shared/capability/capability.h"
#include "shared/capability/mark.h"

struct leasing;

enum node_life { NODE_UNKNOWN, NODE_ALIVE, NODE_SUSPECT, NODE_LOST };

/** What a new sandbox needs of its node. */
struct placement {
    const char *isolation;     /* "auto": any */
    const char *template_name; /* NULL: none, it begins with a snapshot */
    const char *node;          /* on that one and no other; NULL: any */
};

/** What the rules need of the nodes. All but `call` are quick and may be asked from any thread. */
struct leasing_nodes {
    void *context;
    /** Picks a node with room for it. ERROR_NO_CAPACITY, ERROR_NODE_UNREACHABLE, ERROR_INVALID. */
    bool (*place)(void *context, const struct placement *placement, char node[static SANDBOX_NODE_BYTES],
                  uint32_t *epoch, struct error *err);
    /** Its advertised URL, without a slash at the end ("" when it is not known). */
    enum node_life (*find)(void *context, const char *node, char url[static SANDBOX_URL_BYTES]);
    /** Sends a message of the node link (taken); done(cookie, reply, err) once, on any thread but never inside this
     *  call; reply is borrowed, NULL on failure. `done` may be NULL. */
    void (*call)(void *context, const char *node, json_t *message,
                 void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie);
    /** The highest incarnation it was heard of in; 0 when it is not known. */
    uint64_t (*incarnation)(void *context, const char *node);
    /** The epoch of the node's key that its tokens are minted under. */
    uint32_t (*key_epoch)(void *context, const char *node);
};

/** What roles may have where no document says otherwise (policy/document.h). Lists are words with commas between them,
 * blanks around them; read once. */
struct leasing_policy {
    const char *templates_user, *templates_admin; /* globs (fnmatch(3)) of the templates that role may begin with */
    const char *root_roles;                       /* whose sandboxes may run commands as root */
    const char *egress_user;                      /* the most that role user may have: "none", "allow", "public" */
    size_t snapshots_max, volumes_max;            /* of one principal */
};

struct leasing_options {
    struct ledger *ledger;
    const struct key *master; /* copied */
    const char *deployment;   /* iss of every token; copied */
    struct leasing_nodes nodes;
    struct wanted_limits limits;
    struct leasing_policy policy;
    int64_t audit_keep_days;            /* of audit records; 0: for ever */
    struct principal_table *principals; /* that the loops look keys up in: it follows what the rules make of them;
                                           borrowed; NULL: no rule about keys is asked */
    int64_t (*wall_ms)(void);
};

/** The rules over a running ledger; the caller's. */
struct leasing *leasing_new(const struct leasing_options *options);

/** Takes up what the ledger holds: the marks, under a new ledger id (a ledger that was put back from a copy must not
 *  be taken for the one whose marks the nodes have), and the first deadline. Blocks; once, before requests come. */
bool leasing_start(struct leasing *leasing, struct error *err) MUST_USE;
/** After the ledger and the nodes have stopped; answers all who still wait. */
void leasing_free(struct leasing *leasing);
DEFINE_AUTO(leasing)

/** From now on a failed node call decides nothing: what is provisioning stays so and the next start finishes it. The
 *  sums of strangers are recorded. Before the ledger stops. */
void leasing_stopping(struct leasing *leasing);

/** On whose behalf, from where: for the permission checks and the audit. */
struct caller {
    struct principal principal;
    char owner[PRINCIPAL_BYTES]; /* whose thread or sandbox; "" the principal's own. Others': admins only */
    char remote[64];
    char request_id[65];
    char traceparent[56]; /* under which calls made for it go on (W3C Trace Context); "" none */
};

/** How the hint fared. */
struct hint_answer {
    bool given, honored;
    const char *reason; /* static; NULL when honored */
};

/** What a share is to be: `principal` may renew it with an own API key; "" whoever holds its token, who cannot. */
struct share_wish {
    bool is_wanted;
    char principal[PRINCIPAL_BYTES];
    int64_t until_ms; /* 0: as long as the lease */
};

/** One negotiation, refresh or share: the question above, the answer below. */
struct negotiation {
    struct caller caller;
    struct wanted wanted;    /* of a refresh: ttl, scopes; of a share also actor, capability_url */
    char *current_token;     /* owned; a refresh: the token to be rotated. NULL: none */
    struct share_wish share; /* is_wanted: a share */
    char thread_id[CAPABILITY_THREAD_BYTES];
    char sandbox_id[RANDOM_ID_BYTES]; /* leasing_grant: for that one; thread_id is then part of the answer */
    char idempotency[65];             /* hex hash over principal, route and Idempotency-Key; "" none */
    char body_hash[65];               /* hex; with the former */
    /* Called on the ledger thread. */
    void (*starting)(void *cookie);     /* at most once: the sandbox is being made, the answer will take a while */
    bool (*is_abandoned)(void *cookie); /* nobody waits any more: no token need be made */
    void (*answered)(void *cookie, struct negotiation *negotiation); /* once; it is the callee's from then on */
    void *cookie;

    struct error refusal; /* ERROR_NONE: granted */
    bool created;         /* else attached */
    struct hint_answer hint;
    struct sandbox sandbox;
    struct lease lease;
    struct capability_claims claims; /* what leasing_mint makes a token of */
    char url[SANDBOX_URL_BYTES];     /* of the node */
    int64_t share_until; /* s; of a share and its refreshes: no token of it will live longer; 0: it is none */

    /* Private to leasing. */
    struct leasing *leasing;
    struct negotiation *next; /* in the list of those who wait for one sandbox */
    bool must_wait, told;
    bool is_ahead;                   /* the token would be issued too far ahead of the clock */
    unsigned retry_after_s;          /* of a refusal: waiting so long helps; 0: not said */
    unsigned holds;                  /* how often it was held back for that */
    char placed[SANDBOX_NODE_BYTES]; /* where an earlier run of the rule placed it; "" nowhere */
    uint32_t placed_epoch;
    char placed_isolation[SANDBOX_WORD_BYTES]; /* what "auto" became there; "" it is left to the node */
};

/** An empty question. */
struct negotiation *negotiation_new(void);
/** With all it owns; NULL is allowed. */
void negotiation_free(struct negotiation *negotiation);
DEFINE_AUTO(negotiation)

/** Checks the bounds of what is wanted and queues it; takes it. ERROR_INVALID at once, then it stays the caller's. Any
 *  thread. Refusals of the rules come as negotiation->refusal. */
bool leasing_negotiate(struct leasing *leasing, struct negotiation *negotiation, struct error *err) MUST_USE;

/** A token for n->sandbox_id, which its owner or an admin knows and whose thread is not asked for: as leasing_negotiate
 *  with attach_only on one of its threads, and takes it as that does. Of `wanted` ttl, is_long, expires_at, scopes,
 * actor, wait and capability_url count. Refusals: NOT_FOUND, GONE, STARTING, NODE_UNREACHABLE. */
bool leasing_grant(struct leasing *leasing, struct negotiation *negotiation, struct error *err) MUST_USE;

/** Rotates n->current_token (protocol.md, 2): takes it as leasing_negotiate does. The answer is a grant too. */
bool leasing_refresh(struct leasing *leasing, struct negotiation *negotiation, struct error *err) MUST_USE;

/** Shares the sandbox of n's thread (n->share): a grant of a family of its own, for somebody else. Takes it as
 *  leasing_negotiate does. */
bool leasing_share(struct leasing *leasing, struct negotiation *negotiation, struct error *err) MUST_USE;

/** The token of a granted negotiation: nothing but keys and claims, so it runs where the answer is printed, not on the
 *  ledger thread. */
bool leasing_mint(const struct leasing *leasing, const struct negotiation *negotiation,
                  char token[static CAPABILITY_TEXT_BYTES], struct error *err) MUST_USE;

/* The other questions. */
enum question_verb {
    QUESTION_THREAD,  /* the thread's lease and sandbox */
    QUESTION_RELEASE, /* ends the thread's lease */
    QUESTION_SIGN,    /* a sign of life for the thread's lease */
    QUESTION_SANDBOX, /* one sandbox, also an ended one while it is remembered */
    QUESTION_DELETE,  /* ends a sandbox */
    QUESTION_LIST,
    QUESTION_PAGE,  /* the owner's, newest first, by offset; with a total */
    QUESTION_SHOWN, /* a token, judged as the node of sandbox_id would judge it, but for what it is used for */
    QUESTION_SHARES /* of the thread: those that hold */
};

#define QUESTION_LIST_MAX 200
#define LEASING_PAGE_MAX  10000 /* rows that a page by offset sorts; of more, any so many, and is_cut */
#define SHARES_MAX        64    /* of one principal, at a time */

/** One share, as its owner sees it. */
struct share {
    char id[CAPABILITY_ID_BYTES];    /* the family of its tokens */
    char principal[PRINCIPAL_BYTES]; /* their sub: a name, or "share:<id>" */
    char actor[WANTED_ACTOR_BYTES];
    char jti[CAPABILITY_ID_BYTES]; /* of the current token */
    char scope[SCOPE_TEXT_BYTES];  /* of that, as the next */
    int64_t expires_at;            /* s since 1970 UTC, as the next */
    int64_t until;
    int64_t created_ms;
};

struct question {
    enum question_verb verb;
    struct caller caller;
    char *token; /* owned; SIGN: the capability that asks, when there is no API key; SHOWN. NULL none */
    char thread_id[CAPABILITY_THREAD_BYTES];
    char sandbox_id[RANDOM_ID_BYTES];
    bool is_strict; /* DELETE: GONE where it is ending already */
    /* LIST: states as bits (0: the live ones), a name or "", where to go on or "", 1..200. */
    unsigned states;
    char name[SANDBOX_NAME_BYTES];
    char cursor[RANDOM_ID_BYTES];
    size_t limit;
    size_t offset;    /* PAGE: how many of the newest are left out; and states, limit, and the next */
    json_t *metadata; /* PAGE: owned; pairs that all have to be there, an object of texts. NULL any */
    void (*answered)(void *cookie, struct question *question); /* on the ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal;
    struct sandbox sandbox;
    struct capability_claims *claims; /* SHOWN: owned */
    struct lease lease;
    struct sandbox *list; /* LIST, PAGE: owned */
    size_t count;
    size_t total;               /* PAGE: how many there are */
    bool is_cut;                /* PAGE: more than LEASING_PAGE_MAX */
    char next[RANDOM_ID_BYTES]; /* cursor of the next page; "" the end */
    struct share *shares;       /* SHARES: owned */
    size_t share_count;

    struct leasing *leasing; /* private, as the next */
    struct page_walk *walk;  /* PAGE: owned */
    bool destroy;
    bool charged;     /* for the next */
    struct mark mark; /* of a lease that ended on a sandbox that goes on; number 0: none */
};

/** An empty question. */
struct question *question_new(void);
/** With all it owns; NULL is allowed. */
void question_free(struct question *question);
DEFINE_AUTO(question)

/** Queues it; takes it. Any thread. */
void leasing_ask(struct leasing *leasing, struct question *question);

/** What a node's heartbeat said, authenticated and checked; and what it is answered. */
struct leasing_report {
    struct leasing *leasing;
    char node[SANDBOX_NODE_BYTES];
    const json_t *message; /* borrowed: full, sandboxes, ended, marks */
    uint64_t incarnation;  /* of the node */

    json_t *ended_known; /* owned; ids for the reply */
    json_t *marks;       /* owned; the page of marks that the node lacks, NULL: none */
    bool full_wanted;    /* its next heartbeat is to name all it has */
};
/** Drops what it owns. */
void leasing_report_done(struct leasing_report *report);

/** The rule for it: what ended, ended. Ledger thread. */
enum kv_outcome leasing_report_rule(struct kv *kv, struct leasing_report *report, struct error *err);

/** After its change is durable: takes in what the node has, and looks at what changed or differs. Its work is that of
 *  what the heartbeat names; of one that names all, in rounds of rules of their own. Ledger thread. */
void leasing_report_act(struct leasing_report *report);

/** Whether a sandbox, living or remembered, is that principal's. False: the store failed. Ledger thread. */
bool leasing_is_owner(struct kv *kv, const char *sandbox_id, const char *principal, bool *is_owner,
                      struct error *err) MUST_USE;

/** A refusal that a dialect gave before any rule ran, of a known principal. All but the caller may be NULL; copied. */
struct leasing_refusal {
    const struct caller *caller;
    const char *action, *thread_id, *sandbox_id;
    const struct error *err;
};
/** Records it. Any thread. */
void leasing_refused(struct leasing *leasing, const struct leasing_refusal *refusal);

/** Whether policy lets that principal, in that role, begin with the template. Any thread. */
bool leasing_allows_template(const struct leasing *leasing, enum role role, const char *principal,
                             const char *name) MUST_USE;

/** Whether something may be issued to that principal, as far as incidents go: ERROR_FROZEN names one that is open. For
 *  who issues without a rule. Any thread. */
bool leasing_allows_issuing(struct leasing *leasing, const char *principal, struct error *refusal) MUST_USE;

/** The key of the audit chain (ledger/audit.h), for proving it; lives as long as `leasing`. Any thread. */
const struct key *leasing_audit_key(const struct leasing *leasing) MUST_USE;

/** A request without a valid API key came from that address. They are summed: one record an address and minute, and one
 *  for all addresses beyond LEASING_STRANGERS_MAX, so that no stranger can fill the ledger. Any thread. */
#define LEASING_STRANGERS_MAX 64
void leasing_stranger(struct leasing *leasing, const char *remote);
