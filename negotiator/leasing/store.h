/** store.h - the rows of the ledger that the rules read and write, and one rule's working set. Private to this folder.
 *
 *    sandbox/<id>                      struct sandbox
 *    thread/<principal>/<thread id>    struct lease
 *    name/<principal>/<name>           the id of the live sandbox of that name
 *    owned/<principal>/<id>            "": every sandbox of a principal, while it is remembered
 *    watch/<node>/<id>                 "<wake>": every sandbox that has not ended, and when it is looked at next
 *    once/<hash>                       an Idempotency-Key: body hash and sandbox
 *    due/<16 hex digits of ms>/<key>   what is to be done then, in order of time: a look at the sandbox of a watch row,
 *                                      the row `key` forgotten when it is another one */
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

/** "table/first" or "table/first/second" (second not NULL). Every part was checked for '/' and length before: it always
 *  fits; one that did not would be "", which the store refuses. */
struct store_row {
    char text[KV_KEY_MAX_BYTES + 1];
};
struct store_row store_key(const char *table, const char *first, const char *second) MUST_USE;

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
/** It is looked at at `wake` (the time itself, or one that is over: at once), and not when it was to be before. */
void store_watch(struct work *work, const struct sandbox *sandbox, int64_t wake);
void store_unwatch(struct work *work, const struct sandbox *sandbox);
/** The row `key` is deleted at that time. */
void store_forget_at(struct work *work, int64_t at, const char *key);

struct once {
    char body_hash[65];
    char sandbox_id[RANDOM_ID_BYTES];
    uint64_t revision;
};
bool store_get_once(struct work *work, const char *hash, struct once *once) MUST_USE;
void store_put_once(struct work *work, const char *hash, const struct once *once);
/** As if it had not been put, at `put_at`. */
void store_delete_once(struct work *work, const char *hash, int64_t put_at);

#define STORE_DUE_BYTES (KV_KEY_MAX_BYTES + 1)

/** The row that is due, of a due row's key, and since when; NULL when the key is none. */
const char *store_due_row(const char *due, int64_t *at) MUST_USE;
/** The keys of the first rows that are due by now, at most `limit` (the caller frees each); *next gets when the first
 *  later one is, INT64_MAX when there is none, or now when there may be more. */
bool store_list_due(struct work *work, char *keys[], size_t limit, size_t *count, int64_t *next) MUST_USE;
/** Adds to the change what a due row brings about that is no look at a sandbox: the row it names goes, with what hangs
 * on it; or comes later when it lives longer by now. */
bool store_forget(struct work *work, const char *due) MUST_USE;
/** Adds to the change that what is due then comes at `at` instead. */
void store_postpone(struct work *work, const char *due, int64_t at);

/** When that sandbox is looked at next; INT64_MAX when it is not under watch. */
bool store_get_wake(struct work *work, const char *node, const char *id, int64_t *wake) MUST_USE;
/** Adds to the change that every sandbox under watch that has no due row is looked at at once: those of a ledger of
 *  before there were any. It reads them all: once a start. */
bool store_mend_watches(struct work *work) MUST_USE;
/** The ids of the sandboxes under watch on a node, in order, from the one after `after` ("" the first) on. */
bool store_list_watched(struct work *work, const char *node, const char *after, char (*ids)[RANDOM_ID_BYTES],
                        size_t limit, size_t *count) MUST_USE;

/** Adds a record about `caller` to the change; the fields of `record` that are set stay. */
bool store_audit(struct work *work, const struct caller *caller, struct audit_record *record) MUST_USE;

/** The rule has an answer: applies what was gathered. */
enum kv_outcome store_apply(struct work *work) MUST_USE;
