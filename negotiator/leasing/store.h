/** store.h - the rows of the ledger that the rules read and write, and one rule's working set. Private to this folder.
 *
 *    sandbox/<id>                      struct sandbox
 *    thread/<principal>/<thread id>    struct lease
 *    name/<principal>/<name>           the id of the live sandbox of that name
 *    owned/<principal>/<id>            "": every sandbox of a principal, while it is remembered
 *    watch/<node>/<id>                 "<deadline> <wake>": every sandbox that has not ended; looked at when its node's
 *                                      heartbeat does not name it, or from `wake` on
 *    once/<hash>                       an Idempotency-Key: body hash and sandbox
 *    due/<16 hex digits of ms>/<key>   the row `key` is forgotten at that time */
#pragma once

#include "negotiator/leasing/leasing.h"
#include "negotiator/ledger/audit.h"

/** One run of a rule. */
struct work {
    struct leasing *leasing;
    struct kv *kv;
    struct kv_change *change; /* owned by the rule that made the work */
    int64_t now;              /* wall clock, ms */
    struct error *err;
};

/* All of these: false (err set) only when the store fails; a missing row is revision 0. */
bool store_get_sandbox(struct work *work, const char *id, struct sandbox *sandbox) MUST_USE;
bool store_get_lease(struct work *work, const char *principal, const char *thread_id, struct lease *lease) MUST_USE;
/** The id of the live sandbox that has the name; "" none. */
bool store_get_name(struct work *work, const char *principal, const char *name,
                    char id[static RANDOM_ID_BYTES]) MUST_USE;

/* These add to the change, each with its expectation of the row's revision. */
void store_put_sandbox(struct work *work, const struct sandbox *sandbox);
void store_put_lease(struct work *work, const char *principal, const struct lease *lease);
void store_delete_lease(struct work *work, const char *principal, const struct lease *lease);
void store_take_name(struct work *work, const struct sandbox *sandbox);
void store_free_name(struct work *work, const struct sandbox *sandbox);
void store_own(struct work *work, const struct sandbox *sandbox);
void store_watch(struct work *work, const struct sandbox *sandbox, int64_t wake);
void store_unwatch(struct work *work, const struct sandbox *sandbox);
/** The row `key` is deleted when a heartbeat comes after `at`. */
void store_forget_at(struct work *work, int64_t at, const char *key);

struct once {
    char body_hash[65];
    char sandbox_id[RANDOM_ID_BYTES];
    uint64_t revision;
};
bool store_get_once(struct work *work, const char *hash, struct once *once) MUST_USE;
void store_put_once(struct work *work, const char *hash, const struct once *once);
void store_delete_once(struct work *work, const char *hash);

/** Deletes up to a bounded number of rows that are due; with what hangs on them. */
enum kv_outcome store_forget_due(struct work *work) MUST_USE;

/** One sandbox under watch on a node. */
struct watched {
    char id[RANDOM_ID_BYTES];
    int64_t deadline, wake;
};
/** All of a node; the caller frees *list. */
bool store_list_watched(struct work *work, const char *node, struct watched **list, size_t *count) MUST_USE;

/** Of all nodes, from the row after `after` ("" the first) on: at most `limit` rows are looked at, and *list has those
 *  whose deadline is before `deadline`; `next` is where to go on, "" at the end. The caller frees *list. */
bool store_list_overdue(struct work *work, const char *after, size_t limit, int64_t deadline, struct watched **list,
                        size_t *count, char *next, size_t size) MUST_USE;

/** Adds a record about `caller` to the change; the fields of `record` that are set stay. */
bool store_audit(struct work *work, const struct caller *caller, struct audit_record *record) MUST_USE;

/** The rule has an answer: applies what was gathered. */
enum kv_outcome store_apply(struct work *work) MUST_USE;
