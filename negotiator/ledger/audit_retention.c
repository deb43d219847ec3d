/* audit_retention.c - old records go, a stretch at a time: proven, sealed, then removed, each in small steps. */
#include "negotiator/ledger/audit_internal.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

static const int64_t DAY_MS = 24LL * 3600 * 1000;

/* --- removing what is sealed --- */

struct removal {
    struct kv_change *change;
    size_t count;
};

static bool remove_next(void *cookie, const char *name, const struct kv_value *value UNUSED)
{
    struct removal *removal = cookie;
    kv_change_delete(removal->change, name);
    removal->count++;
    return true;
}

static enum kv_outcome remove_sealed(struct kv *kv, struct audit_retention *state, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    struct removal removal = {.change = change};
    char end[AUDIT_KEY_SIZE];
    audit_format_key(end, AUDIT_RECORDS, state->newest.last + 1);
    if (!kv_range(kv, AUDIT_RECORDS, end, AUDIT_STEP, remove_next, &removal, err))
        return KV_FAILED;
    state->removed = removal.count < AUDIT_STEP;
    return removal.count > 0 ? kv_apply(kv, change, err) : KV_APPLIED;
}

/* --- gathering what is old --- */

struct gathering {
    const struct key *key;
    struct audit_retention *state;
    int64_t before; /* what is not older than this stays */
    size_t visited;
    bool ended; /* at a record that stays, or the stretch is long enough */
    struct error flaw;
};

static bool gather_next(void *cookie, const char *name, const struct kv_value *value)
{
    struct gathering *gathering = cookie;
    struct audit_retention *state = gathering->state;
    struct audit_seal *stretch = &state->stretch;
    struct audit_position next = state->last;
    char expected[AUDIT_KEY_SIZE];
    int64_t when;
    audit_format_key(expected, AUDIT_RECORDS, next.seq + 1);
    const char *wrong = strcmp(name, expected) != 0
                            ? "is missing"
                            : audit_read_record(value->data, value->size, gathering->key, &next, &when);
    if (wrong)
        return error_set(&gathering->flaw, ERROR_INVALID, "audit record %" PRIu64 " %s: nothing is sealed or removed",
                         state->last.seq + 1, wrong);
    gathering->visited++;
    if (when >= gathering->before) {
        gathering->ended = true;
        return false;
    }
    bool first = next.seq == stretch->first;
    stretch->from_ms = first || when < stretch->from_ms ? when : stretch->from_ms;
    stretch->to_ms = first || when > stretch->to_ms ? when : stretch->to_ms;
    state->last = next;
    gathering->ended = next.seq - stretch->first + 1 == AUDIT_SEGMENT;
    return !gathering->ended;
}

static void begin_stretch(struct audit_retention *state)
{
    state->stretch = (struct audit_seal){.first = state->newest.last + 1};
    state->last.seq = state->newest.last;
    memcpy(state->last.hash, state->newest.hash, AUDIT_HASH_BYTES);
}

/* --- sealing --- */

static enum kv_outcome seal_stretch(struct kv *kv, const struct key *key, int64_t now, struct audit_retention *state,
                                    struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    struct audit_seal seal = state->stretch;
    seal.last = state->last.seq;
    memcpy(seal.hash, state->last.hash, AUDIT_HASH_BYTES);
    seal.sealed_ms = now;
    char hash[AUDIT_HASH_TEXT];
    text_hex(hash, seal.hash, AUDIT_HASH_BYTES);
    AUTO_FREE char *detail = memory_printf("first=%" PRIu64 " last=%" PRIu64 " hash=%s", seal.first, seal.last, hash);
    struct audit_record record = {
        .time_ms = now, .plane = "negotiator", .action = "audit.seal", .outcome = "ok", .detail = detail};
    if (!audit_seal_put(change, key, &state->newest, &seal, err) || !audit_append(kv, change, key, &record, err))
        return KV_FAILED;
    state->newest = seal;
    state->sealed = true;
    state->removed = false;
    return kv_apply(kv, change, err);
}

static enum kv_outcome gather(struct kv *kv, const struct key *key, const struct audit_keep *keep,
                              struct audit_retention *state, struct error *err)
{
    struct gathering gathering = {.key = key, .state = state, .before = keep->now_ms - keep->keep_ms};
    char first[AUDIT_KEY_SIZE];
    audit_format_key(first, AUDIT_RECORDS, state->last.seq + 1);
    if (!kv_range(kv, first, AUDIT_RECORDS_END, AUDIT_STEP, gather_next, &gathering, err))
        return KV_FAILED;
    if (gathering.flaw.kind != ERROR_NONE) {
        *err = gathering.flaw;
        return KV_FAILED;
    }
    if (!gathering.ended && gathering.visited == AUDIT_STEP)
        return KV_APPLIED; /* go on */
    uint64_t count = state->last.seq - state->newest.last;
    if (count == AUDIT_SEGMENT || (count > 0 && state->stretch.from_ms < gathering.before - DAY_MS))
        return seal_stretch(kv, key, keep->now_ms, state, err);
    state->more = false;
    return KV_APPLIED;
}

static enum kv_outcome load(struct kv *kv, const struct key *key, struct audit_retention *state, struct error *err)
{
    struct error flaw = {0};
    bool more = false;
    if (!audit_seals_prove(kv, key, AUDIT_STEP, &state->newest, &more, &flaw, err))
        return KV_FAILED;
    if (flaw.kind != ERROR_NONE) {
        *err = flaw;
        return KV_FAILED;
    }
    state->loaded = !more;
    return KV_APPLIED;
}

enum kv_outcome audit_retain(struct kv *kv, const struct key *key, const struct audit_keep *keep,
                             struct audit_retention *state, struct error *err)
{
    struct audit_retention next = *state;
    enum kv_outcome outcome;
    next.more = keep->keep_ms > 0;
    next.sealed = false;
    if (!next.more)
        outcome = KV_APPLIED;
    else if (!next.loaded)
        outcome = load(kv, key, &next, err);
    else if (!next.removed)
        outcome = remove_sealed(kv, &next, err);
    else
        outcome = gather(kv, key, keep, &next, err);
    if (next.removed && !state->removed)
        begin_stretch(&next);
    if (outcome == KV_APPLIED)
        *state = next;
    return outcome;
}
