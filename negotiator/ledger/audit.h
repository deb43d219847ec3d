/** audit.h - the audit chain: every record's hash covers the one before it (protocol.md, 7). Kept in the store, written
 *  in the same change as what it tells. Key "audit/<seq, 20 digits>", value the JSON object {seq, time, ..., detail,
 *  prev, hash}; key "audit-head", value {seq, hash}. hash = BLAKE2b-256 keyed with `key` over the 32 bytes of prev and
 *  then each field's u32-BE length and UTF-8 text, seq and status in decimal. prev of record 1 is zeros. Old records go
 * a stretch at a time and leave a seal; specs/audit.md has it all. Everything here runs on the ledger thread. */
#pragma once

#include "negotiator/ledger/kv.h"

#include "shared/capability/keys.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define AUDIT_HASH_BYTES       32
#define AUDIT_DETAIL_MAX_BYTES (16 * 1024)
#define AUDIT_FIELD_MAX_BYTES  1024 /* every other text */

/** One record; NULL texts are "". A longer text than its bound is cut and ends in "..."; what is no UTF-8 becomes
 *  U+FFFD: a record is never lost because of what it tells. */
struct audit_record {
    uint64_t seq;      /* set by audit_append */
    int64_t time_ms;   /* wall clock, UTC */
    const char *plane; /* "negotiator" | "sandboxd" */
    const char *node;
    const char *action;  /* "negotiate", "release", "key.create" ... */
    const char *outcome; /* "ok" | "refused" | "failed" */
    int status;          /* HTTP status answered */
    const char *principal, *role, *actor, *thread_id, *sandbox_id, *lease, *jti, *links, *scope, *remote, *request_id,
        *detail;
};

/* --- writing --- */

/** Adds the record to `change` under the next number, with prev and hash, and moves the head (compared, so that two
 *  writers conflict). Several may be added to one change. `key` = KDF(master, audit). Ledger thread. ERROR_INTERNAL
 * when the head in the store is damaged. */
bool audit_append(struct kv *kv, struct kv_change *change, const struct key *key, struct audit_record *record,
                  struct error *err) MUST_USE;

/** The head: number and hash of the last record; 0 and zeros when there is none. */
bool audit_head(struct kv *kv, uint64_t *seq, uint8_t hash[static AUDIT_HASH_BYTES], struct error *err) MUST_USE;

/** Where a chain stands. */
struct audit_position {
    uint64_t seq; /* 0: before the first record */
    uint8_t hash[AUDIT_HASH_BYTES];
};

/** A stretch of records that were removed. Key "audit-seal/<first, 20 digits>". `mac` = BLAKE2b-256 keyed with
 *  KDF(key, "parley/audit-seal/1") over the mac of the seal before (zeros) and the others as in a record's hash,
 * numbers in decimal, hashes in hex, times as text: first, last, prev, hash, from, to, sealed. */
struct audit_seal {
    uint64_t first, last;           /* 0, 0: no seal */
    uint8_t prev[AUDIT_HASH_BYTES]; /* hash of record first - 1 */
    uint8_t hash[AUDIT_HASH_BYTES]; /* of record `last` */
    int64_t from_ms, to_ms;         /* earliest and latest time of its records */
    int64_t sealed_ms;
    uint8_t mac[AUDIT_HASH_BYTES];
};

/* --- proving --- */

#define AUDIT_STEP 500 /* records that one rule looks at: a few ms */

/** A proof in steps, between which records may come and stretches may be sealed. Embedded; {.key = ...} at first. */
struct audit_proof {
    const struct key *key;      /* of the chain; borrowed */
    struct audit_seal sealed;   /* the last seal that holds */
    struct audit_position last; /* the last record that holds, or that a seal that holds tells of */
    uint64_t records;           /* that hold and are still there */
    bool whole;                 /* it holds up to the head: the end */
    struct error flaw;          /* ERROR_INVALID: what does not hold; the end */
    uint64_t at;                /* of the flaw: the record's number */
};

/** One step: proves at most `limit` seals and records more (0: all). False when the store fails. Ledger thread. */
bool audit_prove(struct kv *kv, struct audit_proof *proof, size_t limit, struct error *err) MUST_USE;

/** All steps at once: proves the seals, then all records up to the head; ERROR_INVALID names the first number that does
 *  not fit. *count gets how many hold, those that seals tell of with them, also on failure. */
bool audit_verify(struct kv *kv, const struct key *key, uint64_t *count, struct error *err) MUST_USE;

/** Proves that a head kept elsewhere (seq 0: the empty chain) is still part of a chain that was found whole, so that
 *  nothing up to it was cut off; else ERROR_INVALID. ERROR_GONE: that record went with a sealed stretch and was not its
 *  last one, so nothing can be said. */
bool audit_verify_head(struct kv *kv, uint64_t seq, const uint8_t hash[static AUDIT_HASH_BYTES],
                       struct error *err) MUST_USE;

/* --- retention --- */

#define AUDIT_SEGMENT 10000 /* records of one seal at most */

/** What may go. */
struct audit_keep {
    int64_t keep_ms; /* records younger than this stay; 0: all stay */
    int64_t now_ms;  /* wall clock */
};

/** How far a round of retention has come. Embedded; zero begins a round. */
struct audit_retention {
    bool more;   /* this round is not over: step again */
    bool sealed; /* the last step sealed a stretch, `newest` */
    /* Private. */
    bool loaded, removed;
    struct audit_seal newest;   /* the last seal */
    struct audit_seal stretch;  /* what is being gathered: first, from_ms, to_ms */
    struct audit_position last; /* proven so far in it */
};

/** One bounded step: removes what is sealed, proves what is old, or seals it (then with a record "audit.seal"). Old
 *  records are sealed AUDIT_SEGMENT at a time, or once a day what there is. A record that does not hold is never
 *  removed: ERROR_INVALID. *state is changed on KV_APPLIED only; zero it when that did not become durable. A rule. */
enum kv_outcome audit_retain(struct kv *kv, const struct key *key, const struct audit_keep *keep,
                             struct audit_retention *state, struct error *err) MUST_USE;

/* --- reading --- */

#define AUDIT_PAGE_MAX   1000
#define AUDIT_PAGE_BYTES ((size_t)4 * 1024 * 1024)
#define AUDIT_SCAN_MAX   20000 /* records looked at for one page */

/** Which records; NULL: any. All must hold. The texts hold no quote, backslash or control character. */
struct audit_filter {
    const char *principal, *thread_id, *sandbox_id, *jti, *action;
    const char *or_plane;      /* with principal: or whoever it was, on that plane */
    const char *link;          /* one of `links` */
    const char *since, *until; /* as clock_format writes them; until is not included */
};

/** A search in steps. Embedded; the question is set at first, the rest is zero. */
struct audit_search {
    struct audit_filter filter; /* borrowed */
    uint64_t after;             /* those after this number; moves */
    size_t limit;               /* 1..AUDIT_PAGE_MAX */
    bool newest;                /* the last ones that match, not the first; `after` is not used */
    bool chained;               /* with prev and hash */

    json_t *records; /* owned: the answer, oldest first */
    uint64_t next;   /* `after` of the next page; 0: there is nothing after this one */
    bool done;
    /* Private. */
    uint64_t before; /* newest: those before this number are still to be looked at */
    size_t scanned, bytes;
};
void audit_search_done(struct audit_search *search);

/** Looks at up to AUDIT_STEP records more; search->done at the page's end: it is full, AUDIT_SCAN_MAX were looked at,
 * or there are no more. Ledger thread. */
bool audit_search_step(struct kv *kv, struct audit_search *search, struct error *err) MUST_USE;

/** The number of the first record after `after` that is still there; 0: none. Ledger thread. */
bool audit_first(struct kv *kv, uint64_t after, uint64_t *seq, struct error *err) MUST_USE;

/** Records after `after_seq`, at most `limit`, as a JSON array, in order. The caller owns it. */
json_t *audit_list(struct kv *kv, uint64_t after_seq, size_t limit, struct error *err) MUST_USE;
