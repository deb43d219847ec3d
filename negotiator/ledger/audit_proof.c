/* audit_proof.c - proves the chain: seals, records, head. */
#include "negotiator/ledger/audit_internal.h"

#include <inttypes.h>
#include <sodium.h>
#include <string.h>

struct record_walk {
    struct audit_proof *proof;
    size_t visited;
};

static bool set_flaw(struct audit_proof *proof, uint64_t at, const char *wrong)
{
    proof->at = at;
    return error_set(&proof->flaw, ERROR_INVALID, "audit record %" PRIu64 " %s", at, wrong);
}

static bool prove_next(void *cookie, const char *name, const struct kv_value *value)
{
    struct record_walk *walk = cookie;
    struct audit_proof *proof = walk->proof;
    char expected[AUDIT_KEY_SIZE];
    int64_t when;
    walk->visited++;
    audit_format_key(expected, AUDIT_RECORDS, proof->last.seq + 1);
    const char *wrong = strcmp(name, expected) != 0
                            ? "is missing"
                            : audit_read_record(value->data, value->size, proof->key, &proof->last, &when);
    if (wrong)
        return set_flaw(proof, proof->last.seq + 1, wrong);
    proof->records++;
    return true;
}

/* Compares the head with the last record that was found; what does not hold is the first that is wrong. */
static void prove_head(struct audit_proof *proof, const struct audit_position *head)
{
    const struct audit_position *last = &proof->last;
    if (head->seq > last->seq)
        set_flaw(proof, last->seq + 1, "is missing, the head tells of it");
    else if (head->seq < last->seq)
        set_flaw(proof, head->seq + 1, "is beyond the head");
    else if (memcmp(head->hash, last->hash, sizeof head->hash) != 0)
        set_flaw(proof, last->seq, "is not the one the head tells of"); /* not 0: both empty are both zeros */
    else
        proof->whole = true;
}

bool audit_prove(struct kv *kv, struct audit_proof *proof, size_t limit, struct error *err)
{
    bool more = false;
    if (!audit_seals_prove(kv, proof->key, limit, &proof->sealed, &more, &proof->flaw, err))
        return false;
    if (proof->sealed.last > proof->last.seq) { /* sealed before this proof, or since its last step */
        proof->last.seq = proof->sealed.last;
        memcpy(proof->last.hash, proof->sealed.hash, AUDIT_HASH_BYTES);
    }
    if (proof->flaw.kind != ERROR_NONE)
        proof->at = proof->sealed.last + 1;
    if (more || proof->flaw.kind != ERROR_NONE)
        return true;
    char first[AUDIT_KEY_SIZE];
    struct record_walk walk = {.proof = proof};
    audit_format_key(first, AUDIT_RECORDS, proof->last.seq + 1);
    if (!kv_range(kv, first, AUDIT_RECORDS_END, limit, prove_next, &walk, err))
        return false;
    if (proof->flaw.kind != ERROR_NONE || (limit > 0 && walk.visited == limit))
        return true;
    struct audit_position head;
    if (!audit_head(kv, &head.seq, head.hash, err))
        return false;
    prove_head(proof, &head);
    return true;
}

bool audit_verify(struct kv *kv, const struct key *key, uint64_t *count, struct error *err)
{
    struct audit_proof proof = {.key = key};
    bool read = audit_prove(kv, &proof, 0, err);
    *count = proof.flaw.kind != ERROR_NONE ? proof.at - 1 : proof.last.seq;
    if (!read)
        return false;
    return proof.whole || error_set(err, proof.flaw.kind, "%s", proof.flaw.message);
}

/* Whether the head that was kept is that of a sealed stretch. */
static bool verify_sealed_head(struct kv *kv, uint64_t seq, const uint8_t hash[static AUDIT_HASH_BYTES],
                               struct error *err)
{
    struct audit_seal seal;
    if (!audit_seal_find(kv, seq, &seal, err))
        return false;
    if (seal.last == 0)
        return error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is missing: the end was cut off", seq);
    if (seal.last != seq)
        return error_set(err, ERROR_GONE,
                         "audit record %" PRIu64 " went with the sealed records %" PRIu64 " to %" PRIu64
                         "; compare a head of %" PRIu64 " or later",
                         seq, seal.first, seal.last, seal.last);
    return memcmp(seal.hash, hash, AUDIT_HASH_BYTES) == 0 ||
           error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is not the one that was kept", seq);
}

bool audit_verify_head(struct kv *kv, uint64_t seq, const uint8_t hash[static AUDIT_HASH_BYTES], struct error *err)
{
    if (seq == 0)
        return sodium_is_zero(hash, AUDIT_HASH_BYTES) ||
               error_set(err, ERROR_INVALID, "the hash of an empty audit chain is zeros");
    char name[AUDIT_KEY_SIZE];
    audit_format_key(name, AUDIT_RECORDS, seq);
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, name, &value, err))
        return false;
    if (value.data == NULL)
        return verify_sealed_head(kv, seq, hash, err);
    AUTO_JSON *object = json_loadb(value.data, value.size, JSON_REJECT_DUPLICATES, NULL);
    uint8_t found[AUDIT_HASH_BYTES];
    if (!audit_get_hash(object, "hash", found) || memcmp(found, hash, sizeof found) != 0)
        return error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is not the one that was kept", seq);
    return true;
}
