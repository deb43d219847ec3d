/** audit.h - the audit chain: every record's hash covers the one before it (protocol.md, 7). Kept in the store, written
 *  in the same change as what it tells. Key "audit/<seq, 20 digits>", value the JSON object {seq, time, ..., detail,
 *  prev, hash}; key "audit-head", value {seq, hash}. hash = BLAKE2b-256 keyed with `key` over the 32 bytes of prev and
 *  then each field's u32-BE length and UTF-8 text, seq and status in decimal. prev of record 1 is zeros. */
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

/** Adds the record to `change` under the next number, with prev and hash, and moves the head (compared, so that two
 *  writers conflict). Several may be added to one change. `key` = KDF(master, audit). Ledger thread. ERROR_INTERNAL
 * when the head in the store is damaged. */
bool audit_append(struct kv *kv, struct kv_change *change, const struct key *key, struct audit_record *record,
                  struct error *err) MUST_USE;

/** The head: number and hash of the last record; 0 and zeros when there is none. */
bool audit_head(struct kv *kv, uint64_t *seq, uint8_t hash[static AUDIT_HASH_BYTES], struct error *err) MUST_USE;

/** Walks all records and proves the chain up to the head; ERROR_INVALID names the first number that does not fit.
 *  *count gets how many hold, also on failure. */
bool audit_verify(struct kv *kv, const struct key *key, uint64_t *count, struct error *err) MUST_USE;

/** Proves that a head kept elsewhere (seq 0: the empty chain) is still part of a chain that audit_verify found whole,
 * so that nothing up to it was cut off; else ERROR_INVALID. */
bool audit_verify_head(struct kv *kv, uint64_t seq, const uint8_t hash[static AUDIT_HASH_BYTES],
                       struct error *err) MUST_USE;

/** Records after `after_seq`, at most `limit`, as a JSON array, in order. The caller owns it. */
json_t *audit_list(struct kv *kv, uint64_t after_seq, size_t limit, struct error *err) MUST_USE;
