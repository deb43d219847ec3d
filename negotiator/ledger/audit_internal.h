/** audit_internal.h - what the files of the audit chain share: a record as texts, its hash, the head, the seals.
 * Private to this folder and its tests. */
#pragma once

#include "negotiator/ledger/audit.h"

#define AUDIT_HEAD_KEY    "audit-head"
#define AUDIT_RECORDS     "audit/"
#define AUDIT_RECORDS_END "audit0" /* '0' follows '/' */
#define AUDIT_SEALS       "audit-seal/"
#define AUDIT_SEALS_END   "audit-seal0"
#define AUDIT_KEY_SIZE    (sizeof AUDIT_SEALS + 20)
#define AUDIT_HASH_TEXT   (2 * AUDIT_HASH_BYTES + 1)

/* The order is the protocol's (protocol.md, 7), and that of the JSON; prev and hash follow. */
enum audit_field {
    AUDIT_SEQ,
    AUDIT_TIME,
    AUDIT_PLANE,
    AUDIT_NODE,
    AUDIT_ACTION,
    AUDIT_OUTCOME,
    AUDIT_STATUS,
    AUDIT_PRINCIPAL,
    AUDIT_ROLE,
    AUDIT_ACTOR,
    AUDIT_THREAD_ID,
    AUDIT_SANDBOX_ID,
    AUDIT_LEASE,
    AUDIT_JTI,
    AUDIT_LINKS,
    AUDIT_SCOPE,
    AUDIT_REMOTE,
    AUDIT_REQUEST_ID,
    AUDIT_DETAIL,
    AUDIT_FIELDS
};
extern const char *const AUDIT_NAMES[AUDIT_FIELDS];

void audit_json_done(json_t **json);
#define AUTO_JSON __attribute__((cleanup(audit_json_done))) json_t

/** "audit/<seq>" or "audit-seal/<seq>". */
void audit_format_key(char to[static AUDIT_KEY_SIZE], const char *table, uint64_t seq);

/** JSON texts that are numbers and hashes. */
bool audit_set_hash(json_t *object, const char *name, const uint8_t hash[static AUDIT_HASH_BYTES]);
bool audit_get_hash(const json_t *object, const char *name, uint8_t hash[static AUDIT_HASH_BYTES]) MUST_USE;
/** A number from 1 on. */
bool audit_get_number(const json_t *object, const char *name, uint64_t *number) MUST_USE;

/** One more text of a hash: its u32-BE length and its bytes. `state` is a crypto_generichash_state. */
void audit_absorb(void *state, const char *text);

/** The record after `prev` as it is stored, and in *next where the chain stands then. The caller frees; NULL only for a
 *  lack of memory. */
char *audit_write_record(const struct audit_record *record, const struct key *key, const struct audit_position *prev,
                         struct audit_position *next) MUST_USE;

/** Proves that the text is the record after *last, and moves *last to it. What is wrong else. `when`: its time. */
const char *audit_read_record(const char *data, size_t size, const struct key *key, struct audit_position *last,
                              int64_t *when) MUST_USE;

/** Adds the seal that follows `before` (last 0: none) to the change; its prev and mac are set. */
bool audit_seal_put(struct kv_change *change, const struct key *key, const struct audit_seal *before,
                    struct audit_seal *seal, struct error *err) MUST_USE;
/** The seal of the stretch that `seq` was in; last 0: none. Its mac is not looked at. */
bool audit_seal_find(struct kv *kv, uint64_t seq, struct audit_seal *seal, struct error *err) MUST_USE;

/** Proves the seals that follow *newest (last 0: all), at most `limit` (0: all), and moves *newest to the last of them.
 *  *flaw (ERROR_NONE: none) says which does not hold; false only when the store fails. *more: there may be others. */
bool audit_seals_prove(struct kv *kv, const struct key *key, size_t limit, struct audit_seal *newest, bool *more,
                       struct error *flaw, struct error *err) MUST_USE;
