/** leasing_internal.h - what the files of this folder share. */
#pragma once

#include "negotiator/leasing/policy/policy.h"
#include "negotiator/leasing/policy/quotas.h"
#include "negotiator/leasing/presence.h"
#include "negotiator/leasing/retention.h"
#include "negotiator/leasing/starting.h"
#include "negotiator/leasing/store.h"
#include "shared/capability/mark.h"

#include <stdatomic.h>

/* When the first row that is due is looked at. */
struct reaper {
    int64_t at;
    bool is_armed; /* there is an alarm for `at` */
    bool runs;     /* what is due is being looked at; then it is armed anew */
};

/* Negotiations and refreshes that are asked again in a moment. Embedded; zero is empty. */
struct holding {
    struct negotiation *first; /* owned; a list by `next` */
    bool is_armed;
};

/* The sandboxes that are being changed, each with who waits for his turn (changing.c). Embedded; zero is empty. */
struct changes {
    void *root; /* tsearch(3) */
};

struct keeping;
struct changing;
struct freeze;
struct incident_run;
struct volumes_question;

struct leasing {
    struct leasing_options options;
    char deployment[CAPABILITY_ID_BYTES];
    struct policies *policies;              /* what is in force (policy/) */
    struct quota_reservation *reservations; /* borrowed; ledger thread (policy/quotas.h) */
    struct key master, audit_key, owner_key;
    atomic_bool stopping;
    int64_t started_ms;       /* wall clock */
    struct starting starting; /* ledger thread */
    struct strangers *strangers;
    struct holding holding;                   /* ledger thread */
    struct retention retention;               /* ledger thread */
    struct marks *marks;                      /* ledger thread */
    struct revocations *revocations;          /* ledger thread */
    struct allowance *allowance;              /* ledger thread */
    struct freeze *freeze;                    /* its own lock (incidents/) */
    struct incident_run *incident_runs;       /* incidents whose steps are under way; ledger thread (incidents/) */
    json_t *incident_ids;                     /* between leasing_start's rule and its end; owned */
    struct presence presence;                 /* ledger thread */
    struct reaper reaper;                     /* ledger thread */
    struct changes changes;                   /* ledger thread */
    struct keeping *taken;                    /* snapshots that are under way; ledger thread (keeping/) */
    struct volumes_question *dropped_volumes; /* volumes that are being deleted; ledger thread (keeping/) */
};

/** A working set for one run; its change is the caller's to free. */
struct work work_begin(struct leasing *leasing, struct kv *kv, struct kv_change *change, struct error *err) MUST_USE;

/** Whose things this caller asks for. */
const char *caller_owner(const struct caller *caller) MUST_USE;

/** False (refusal set) when the role or another's ownership forbids it. */
bool caller_may(const struct caller *caller, enum role needed, struct error *refusal) MUST_USE;
/** Makes `actor` ("" none was said) the one that the caller's key is pinned to, if it is; false (refusal set) when it
 * is another one. */
bool caller_pin(const struct caller *caller, char actor[static WANTED_ACTOR_BYTES], struct error *refusal) MUST_USE;

/* endings.c */

#define ENDING_DESTROY_AGAIN_MS 15000 /* a node that still has what it was told to destroy is told again */

/** Ends a sandbox that its node still has: leases, name and idempotency go, the state is terminating. */
bool ending_begin(struct work *work, struct sandbox *sandbox, const char *reason) MUST_USE;
/** Ends one that its node no longer has, or never had; `state` terminated or failed. */
bool ending_finish(struct work *work, struct sandbox *sandbox, enum sandbox_state state, const char *reason) MUST_USE;
/** Ends one lease; the last one begins the end of the sandbox, *last says so. Else a mark that refuses the lease's
 * tokens is in the change, and in *mark for marks_made (number 0: none). */
bool ending_release(struct work *work, struct sandbox *sandbox, const struct lease *lease, const char *reason,
                    bool *last, struct mark *mark) MUST_USE;
/** Marks as terminated in a change of its own, with a record. work's change is not used. */
enum kv_outcome ending_finish_alone(const struct work *work, struct sandbox *sandbox, const char *reason) MUST_USE;
/** ending_finish as terminated, with its record. */
bool ending_finish_recorded(struct work *work, struct sandbox *sandbox, const char *reason) MUST_USE;
/** The record that a lease (NULL: no thread held it any more) ended by itself. */
bool ending_record_lease(struct work *work, const struct sandbox *sandbox, const struct lease *lease,
                         const char *reason) MUST_USE;
/** A node's word for an end as one of those that are kept. */
void ending_reason(char to[static SANDBOX_REASON_BYTES], const char *told);
/** Copies a reason, cut at a whole character. */
void ending_set_reason(struct sandbox *sandbox, const char *reason);

/* preparing.c */

/** The call `prepare` of that sandbox; the caller owns it. */
json_t *preparing_message(const struct leasing *leasing, const struct sandbox *sandbox) MUST_USE;

/* leasing.c */

#define LEASING_OWNER_BYTES 33
/** What a node knows the principal as: 32 hex digits of a keyed hash of its name. */
void leasing_owner(const struct leasing *leasing, const char *principal, char to[static LEASING_OWNER_BYTES]);

/* settle.c */

/** Asks the node to make a sandbox that is durably provisioning. Ledger thread. */
void settle_prepare(struct leasing *leasing, const struct sandbox *sandbox, const struct caller *caller);
/** Sends {"call", "id", "reason"} or {"call", "id", "deadline"}, not waiting for the answer. */
void settle_destroy(struct leasing *leasing, const struct sandbox *sandbox, const struct caller *caller);
/** It was ended, maybe before its node was asked to make it: tells the node, and who waits for nothing now. */
void settle_ended(struct leasing *leasing, const struct sandbox *sandbox, const struct caller *caller);
void settle_deadline(struct leasing *leasing, const char *node, const char *id, int64_t deadline);

/** What a client may hear of a node's failure: a refusal of what it asked for as it is; all else is ours. */
/** Adds to a message to a node (NULL caller: nothing) for which request it is; the message. */
json_t *settle_message(json_t *message, const struct caller *caller);
enum error_kind settle_kind(enum error_kind of_node) MUST_USE;
/** Answers the creator and those who wait for that sandbox; outcome ERROR_NONE: it is active, waiters ask again. */
void settle_tell(struct leasing *leasing, const char *id, const struct error *outcome);

/* negotiate.c */

#define NEGOTIATE_LEASE_MIN_MS 1000 /* a lease that ends sooner is of no use: not made, and not found */

/** A negotiation is granted: fills its claims and adds the rows of their family, and the record, to the change. */
bool negotiate_grant(struct work *work, struct negotiation *negotiation) MUST_USE;
/** Whether no incident keeps the token from being issued, to who asks and for whom, and the key that asks was not
 *  deleted meanwhile; sets the refusal. */
bool negotiate_is_unfrozen(struct work *work, struct negotiation *negotiation) MUST_USE;
/** Sets iat and exp of the claims, whose other fields are set. */
void negotiate_times(struct work *work, struct negotiation *negotiation);
/** Whether a token of these times is of use; sets the refusal. */
bool negotiate_is_usable(const struct work *work, struct negotiation *negotiation) MUST_USE;
/** Whether the node of its sandbox can be used, and where it is; sets the refusal. */
bool negotiate_is_reachable(const struct work *work, struct negotiation *negotiation) MUST_USE;
/** A sign of life: it never shortens anything. idle_timeout_s 0: as it is. */
void negotiate_touch(struct lease *lease, int64_t idle_timeout_s, int64_t now);
/** A new lease of the thread on n->sandbox; `replaced` is the revision of the row it takes the place of, 0 none. */
struct lease negotiate_lease(const struct work *work, const struct negotiation *n, uint64_t replaced) MUST_USE;
/** Adds the row of its Idempotency-Key, if it has one that is not there yet. */
bool negotiate_remember(struct work *work, const struct negotiation *n, struct once once) MUST_USE;
/** For the answer alone, once its lease is in the change: while the sandbox sleeps no idle time runs. */
void negotiate_show_paused(struct negotiation *negotiation);
void negotiate_submit(struct negotiation *negotiation);
void negotiate_answer(struct negotiation *negotiation);
/** The record of an issue or refusal. */
bool negotiate_audit(struct work *work, const struct negotiation *negotiation) MUST_USE;

/* creating.c */

/** Decides on a new sandbox for n's thread; `stale` is the revision of a lease row that no longer holds, 0 for none. */
bool creating_decide(struct work *work, struct negotiation *n, uint64_t stale, struct once once) MUST_USE;

/* renewing.c: what `renew` is among the changes. */

/** Whether the sandbox may end then; sets the refusal. */
bool renewing_check(const struct work *work, struct changing *changing) MUST_USE;
/** Moves its leases' ends, and its own. */
bool renewing_apply(struct work *work, struct changing *changing) MUST_USE;

/* paging.c: QUESTION_PAGE. */

/** Runs the steps of a PAGE, then its answer. */
void paging_submit(struct question *question);

/* changing.c */

/** All its leases are idle: it is to be paused, unless it is being changed just now. Ledger thread. */
void changing_sleep(struct leasing *leasing, const char *sandbox_id);
/** Answers all who wait for their turn: the negotiator stops. */
void changes_done(struct changes *changes);

/* changing_rules.c: both take a struct changing. */

/** Whether it may be; sets `refusal`, which is recorded, or `skipped`, and `needs_node`. */
enum kv_outcome changing_check_rule(struct kv *kv, void *argument, struct error *err);
/** Writes down what its node, if it was asked, made of it; sets `refusal` and records. */
enum kv_outcome changing_apply_rule(struct kv *kv, void *argument, struct error *err);
/** Whether any limit is given. */
bool changing_has_resources(const struct resources *resources) MUST_USE;

/* reconcile.c: one look at one sandbox, whatever brings it about. */

enum look_act {
    LOOK_NOTHING,
    LOOK_PREPARE,
    LOOK_DESTROY,
    LOOK_PAUSE,
    LOOK_DEADLINE,
    LOOK_LOST,
    LOOK_MARK,
    LOOK_UNKNOWN
};

struct look {
    struct leasing *leasing;
    char node[SANDBOX_NODE_BYTES];
    char id[RANDOM_ID_BYTES];
    char due[STORE_DUE_BYTES]; /* the due row that brought it about; "" none */
    /* Private: set anew by each run of the rule. */
    enum look_act act;
    struct sandbox sandbox;
    struct mark mark;
    uint32_t version; /* of the node's word that it looked at */
};
/** Drops what it owns. */
void look_done(struct look *look);
/** Up to when its node is to keep it unaided: its deadline, or unattended_max from now. */
int64_t reconcile_unaided_until(const struct work *work, const struct sandbox *sandbox) MUST_USE;
/** Compares what the ledger has with what the node told, decides, and notes when to look again. Ledger thread. */
enum kv_outcome look_rule(struct kv *kv, struct look *look, struct error *err);
/** Once its change is durable: does what was decided. Ledger thread. */
void look_act(struct look *look);

/* reaper.c */

/** The first look at what is due: from now on sandboxes end, and rows are forgotten, when their time has come. From
 *  leasing_start, once, when the marks are loaded; does not block. */
void reaper_start(struct leasing *leasing);
/** Something is due at `at`. In a rule too: an alarm for what does not become durable finds nothing. Ledger thread. */
void reaper_arm(struct leasing *leasing, int64_t at);
/** Looks at what the node told that the ledger was not asked about, and at `all` that the ledger has on it. Ledger
 *  thread. */
void reaper_look(struct leasing *leasing, struct presence_node *node, bool all);

/* hourly.c */

/** From now on the head of the audit chain goes to the log every hour, out of reach of who may write the ledger. */
void hourly_start(struct leasing *leasing);

/* retention.c */

/** From now on audit records that are old enough go, a sealed segment a time (audit_keep_days). From leasing_start,
 * once; blocks for nothing. */
void retention_start(struct leasing *leasing);

/* refusals.c */

/** The sums of requests without a valid key. */
struct strangers *strangers_new(void);
void strangers_free(struct strangers *strangers);
/** Records the minute's sums when that minute is over, or `now`. Any thread. */
void strangers_flush(struct leasing *leasing, bool now);

/* refresh.c */

/** Runs the rule of a refresh (again). */
void refresh_submit(struct negotiation *negotiation);

/* holding.c: who revokes and negotiates many times in one second has to wait for the clock, as tokens are issued behind
 * the marks about them. Ledger thread. */

/** Whether this refusal is only one for now. */
bool holding_wants(const struct negotiation *negotiation) MUST_USE;
/** Asks again in a moment; takes the negotiation. */
void holding_add(struct leasing *leasing, struct negotiation *negotiation);
/** Answers all who are held: the negotiator stops. */
void holding_done(struct holding *holding);

/* marks.c: the marks in force and how far each node has them (protocol.md, 4). Ledger thread. */

#define MARKS_PAGE_MAX 2000

/** Gives `mark` (kind, value, principal, before, from_ms, until, epoch) the next number and adds it to the change, with
 *  when it is forgotten. In a rule; may be run again: numbers that came to nothing are left out. */
void marks_add(struct work *work, struct mark *mark);
/** The change is durable: it is in force here, and goes to the nodes with their next heartbeats, or `urgent`: at once.
 *  In the `done` of that rule, so that marks come in the order of their numbers. */
void marks_made(struct leasing *leasing, const struct mark *mark, bool urgent);
/** A node told, in a heartbeat or as the answer to a push, up to where it has the marks of which ledger (NULL: none).
 */
void marks_heard(struct leasing *leasing, const char *node, const char *ledger_id, uint64_t cursor);
/** Whether this caller's principal may add a mark that has to be kept until `until` (s); *charged: an earlier run of
 * the rule took it already. Else refusal says to come back. Admins may always. */
bool marks_may_add(struct work *work, const struct caller *caller, int64_t until, bool *charged,
                   struct error *refusal) MUST_USE;
/** Until when (s) a token may be valid that was issued at `now_ms` or before; under a lease (NULL: any), a shorter time
 *  where no long one was. */
int64_t marks_longest(const struct leasing *leasing, const struct lease *lease, int64_t now_ms) MUST_USE;
/** {"ledger_id", "after", "upto", "marks"}: what that node lacks, at most MARKS_PAGE_MAX marks; NULL: it has all. The
 *  caller owns it. */
json_t *marks_page(struct leasing *leasing, const char *node) MUST_USE;
