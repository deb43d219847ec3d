/* audit_retention_test.c - old records go and the chain is still proven: seals are made of what is proven only, a seal
 * that is changed, removed or forged is found, a proof in steps goes on while stretches are sealed, heads that were
 * kept are compared. On every engine, one that conflicts among them. */
#include "negotiator/ledger/audit_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/negotiator/ledger/stores.h"

#include <inttypes.h>
#include <sodium.h>

static const int64_t DAY_MS = 24LL * 3600 * 1000;
static const int64_t BEGIN_MS = 1795309323004;

static struct key audit_key;

static enum kv_outcome apply_now(struct kv *kv, const struct kv_change *change)
{
    enum kv_outcome outcome = KV_CONFLICT;
    CHECK(kv_batch_begin(kv, NULL));
    for (int i = 0; i < 200 && outcome == KV_CONFLICT; i++)
        outcome = kv_apply(kv, change, NULL);
    CHECK(kv_batch_end(kv, NULL));
    return outcome;
}

/* `count` records of that time, a hundred a change. */
static void fill(struct kv *kv, size_t count, int64_t when)
{
    for (size_t done = 0; done < count;) {
        AUTO(kv_change) *change = kv_change_new();
        for (size_t i = 0; i < 100 && done < count; i++, done++) {
            struct audit_record record = {.time_ms = when, .plane = "negotiator", .action = "negotiate"};
            CHECK(audit_append(kv, change, &audit_key, &record, NULL));
        }
        CHECK(apply_now(kv, change) == KV_APPLIED);
    }
}

static void write_raw(struct kv *kv, const char *key, const char *text)
{
    AUTO(kv_change) *change = kv_change_new();
    if (text)
        kv_change_put(change, key, text, strlen(text));
    else
        kv_change_delete(change, key);
    CHECK(apply_now(kv, change) == KV_APPLIED);
}

static char *read_raw(struct kv *kv, const char *key)
{
    struct kv_value value = {0};
    CHECK(kv_get(kv, key, &value, NULL));
    return value.data;
}

static const char *key_of(const char *table, uint64_t seq)
{
    static char key[AUDIT_KEY_SIZE];
    audit_format_key(key, table, seq);
    return key;
}

static bool count_row(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

static size_t count_rows(struct kv *kv, const char *table)
{
    size_t count = 0;
    CHECK(kv_range(kv, table, NULL, 0, count_row, &count, NULL));
    return count;
}

static enum kv_outcome step(struct kv *kv, const struct audit_keep *keep, struct audit_retention *state,
                            struct error *err)
{
    enum kv_outcome outcome = KV_CONFLICT;
    CHECK(kv_batch_begin(kv, NULL));
    for (int i = 0; i < 200 && outcome == KV_CONFLICT; i++)
        outcome = audit_retain(kv, &audit_key, keep, state, err);
    CHECK(kv_batch_end(kv, NULL));
    return outcome;
}

/* A whole round; how many stretches were sealed. */
static size_t retain(struct kv *kv, int64_t now, int64_t keep_days)
{
    struct audit_keep keep = {.keep_ms = keep_days * DAY_MS, .now_ms = now};
    struct audit_retention state = {.more = true};
    struct error err = {0};
    size_t sealed = 0;
    for (int i = 0; i < 1000 && state.more; i++) {
        CHECK(step(kv, &keep, &state, &err) == KV_APPLIED);
        CHECK_TEXT(err.message, "");
        if (err.kind != ERROR_NONE)
            break;
        sealed += state.sealed;
    }
    CHECK(!state.more);
    return sealed;
}

static void check_whole(struct kv *kv, uint64_t want)
{
    uint64_t count = 0;
    struct error err = {0};
    CHECK(audit_verify(kv, &audit_key, &count, &err));
    CHECK_TEXT(err.message, "");
    CHECK(count == want);
}

static void check_broken(struct kv *kv, const char *sentence)
{
    uint64_t count = 0;
    struct error err = {0};
    CHECK(!audit_verify(kv, &audit_key, &count, &err) && err.kind == ERROR_INVALID);
    if (strstr(err.message, sentence) == NULL)
        CHECK_TEXT(err.message, sentence);
}

/* --- */

static void test_keeps(struct kv *kv)
{
    fill(kv, 1200, BEGIN_MS);
    CHECK(retain(kv, BEGIN_MS + 5000 * DAY_MS, 0) == 0); /* for ever */
    CHECK(retain(kv, BEGIN_MS, 90) == 0);
    CHECK(retain(kv, BEGIN_MS + 90 * DAY_MS, 90) == 0);
    CHECK(retain(kv, BEGIN_MS + 91 * DAY_MS, 90) == 0); /* old, but neither many nor for a day */
    CHECK(count_rows(kv, AUDIT_RECORDS) == 1200 && count_rows(kv, AUDIT_SEALS) == 0);
    check_whole(kv, 1200);
}

static void test_seals(struct kv *kv)
{
    int64_t later = BEGIN_MS + 92 * DAY_MS;
    uint8_t early[AUDIT_HASH_BYTES], last[AUDIT_HASH_BYTES];
    uint64_t seq;
    struct error err = {0};
    fill(kv, 700, BEGIN_MS);
    CHECK(audit_head(kv, &seq, early, NULL));
    fill(kv, 550, BEGIN_MS + DAY_MS / 2);
    CHECK(audit_head(kv, &seq, last, NULL));
    fill(kv, 30, later - DAY_MS);
    CHECK(retain(kv, later, 90) == 1);
    CHECK(count_rows(kv, AUDIT_RECORDS) == 31 && count_rows(kv, AUDIT_SEALS) == 1); /* one tells of the seal */
    check_whole(kv, 1281);
    CHECK(retain(kv, later, 90) == 0);

    /* Heads that were kept: in the middle of what went, its last one, one that is there. */
    CHECK(!audit_verify_head(kv, 700, early, &err) && err.kind == ERROR_GONE);
    CHECK(audit_verify_head(kv, 1250, last, NULL));
    err = (struct error){0};
    CHECK(!audit_verify_head(kv, 1250, early, &err) && err.kind == ERROR_INVALID);
    CHECK(!audit_verify_head(kv, 2000, early, &err) && err.kind == ERROR_INVALID);
    CHECK(audit_head(kv, &seq, last, NULL) && seq == 1281 && audit_verify_head(kv, seq, last, NULL));

    AUTO_FREE char *text = read_raw(kv, key_of(AUDIT_SEALS, 1));
    json_t *seal = json_loads(text, 0, NULL);
    CHECK(json_integer_value(json_object_get(seal, "last")) == 1250);
    CHECK(json_integer_value(json_object_get(seal, "count")) == 1250);
    CHECK_TEXT(json_string_value(json_object_get(seal, "from")), "2026-11-22T01:02:03.004Z");
    CHECK_TEXT(json_string_value(json_object_get(seal, "to")), "2026-11-22T13:02:03.004Z");
    json_decref(seal);

    /* More of them, and then everything but the last seal's own record. */
    CHECK(retain(kv, later + 200 * DAY_MS, 90) == 1);
    CHECK(retain(kv, later + 400 * DAY_MS, 90) == 1);
    CHECK(count_rows(kv, AUDIT_RECORDS) == 1 && count_rows(kv, AUDIT_SEALS) == 3);
    check_whole(kv, 1283);
    fill(kv, 3, later);
    check_whole(kv, 1286);
}

static void test_empty(struct kv *kv)
{
    CHECK(retain(kv, BEGIN_MS, 1) == 0);
    check_whole(kv, 0);
}

/* A node's record may be older than the one before it: a stretch goes when all of it is old. */
static void test_times_mixed(struct kv *kv)
{
    int64_t later = BEGIN_MS + 100 * DAY_MS;
    fill(kv, 2, later - 50 * DAY_MS);
    fill(kv, 10, BEGIN_MS);
    CHECK(retain(kv, later, 90) == 0 && count_rows(kv, AUDIT_RECORDS) == 12);
    CHECK(retain(kv, later + 60 * DAY_MS, 90) == 1 && count_rows(kv, AUDIT_RECORDS) == 1);
    check_whole(kv, 13);
}

/* Two seals of 40 and 20 records (and 1), and 10 records. */
static void make_sealed(struct kv *kv)
{
    fill(kv, 40, BEGIN_MS);
    CHECK(retain(kv, BEGIN_MS + 100 * DAY_MS, 90) == 1);
    fill(kv, 20, BEGIN_MS + 100 * DAY_MS);
    CHECK(retain(kv, BEGIN_MS + 200 * DAY_MS, 90) == 1);
    fill(kv, 10, BEGIN_MS + 200 * DAY_MS);
    check_whole(kv, 72);
}

static void test_tampered(struct kv *kv)
{
    static const char *const NAMES[] = {"first", "last", "count", "prev", "hash", "from", "to", "sealed", "mac"};
    make_sealed(kv);
    AUTO_FREE char *text = read_raw(kv, key_of(AUDIT_SEALS, 41));
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        json_t *seal = json_loads(text, 0, NULL);
        json_t *value = json_object_get(seal, NAMES[i]);
        if (json_is_integer(value)) {
            json_object_set_new(seal, NAMES[i], json_integer(json_integer_value(value) + 1));
        } else {
            AUTO_FREE char *changed = memory_string(json_string_value(value));
            changed[3] = changed[3] == '1' ? '2' : '1';
            json_object_set_new(seal, NAMES[i], json_string(changed));
        }
        AUTO_FREE char *tampered = json_dumps(seal, JSON_COMPACT);
        CHECK(strcmp(tampered, text) != 0);
        write_raw(kv, key_of(AUDIT_SEALS, 41), tampered);
        check_broken(kv, "the audit seal from record 41 on");
        json_decref(seal);
    }
    write_raw(kv, key_of(AUDIT_SEALS, 41), "{}");
    check_broken(kv, "the audit seal from record 41 on is not a seal");
    write_raw(kv, key_of(AUDIT_SEALS, 41), text);
    check_whole(kv, 72);
}

static void test_removed(struct kv *kv)
{
    make_sealed(kv);
    AUTO_FREE char *first = read_raw(kv, key_of(AUDIT_SEALS, 1));
    AUTO_FREE char *second = read_raw(kv, key_of(AUDIT_SEALS, 41));
    write_raw(kv, key_of(AUDIT_SEALS, 41), NULL);
    check_broken(kv, "record 41 is missing");
    write_raw(kv, key_of(AUDIT_SEALS, 1), NULL);
    check_broken(kv, "record 1 is missing");
    write_raw(kv, key_of(AUDIT_SEALS, 41), second);
    check_broken(kv, "the audit seal from record 1 on is missing");
    write_raw(kv, key_of(AUDIT_SEALS, 1), first);
    check_whole(kv, 72);

    /* A record that is no longer under a seal: removed, changed; the tail cut off with its head. */
    AUTO_FREE char *record = read_raw(kv, key_of(AUDIT_RECORDS, 65));
    write_raw(kv, key_of(AUDIT_RECORDS, 65), NULL);
    check_broken(kv, "record 65 is missing");
    write_raw(kv, key_of(AUDIT_RECORDS, 65), "{}");
    check_broken(kv, "record 65 is not a record");
    write_raw(kv, key_of(AUDIT_RECORDS, 65), record);
    uint8_t kept[AUDIT_HASH_BYTES];
    uint64_t seq = 0;
    struct error err = {0};
    CHECK(audit_head(kv, &seq, kept, NULL) && seq == 72);
    json_t *object = json_loads(record, 0, NULL);
    AUTO_FREE char *head =
        memory_printf("{\"seq\":65,\"hash\":\"%s\"}", json_string_value(json_object_get(object, "hash")));
    json_decref(object);
    for (uint64_t i = 66; i <= 72; i++)
        write_raw(kv, key_of(AUDIT_RECORDS, i), NULL);
    check_broken(kv, "record 66 is missing");
    write_raw(kv, AUDIT_HEAD_KEY, head);
    check_whole(kv, 65); /* what is there is whole */
    CHECK(!audit_verify_head(kv, seq, kept, &err) && err.kind == ERROR_INVALID);
    CHECK(strstr(err.message, "the end was cut off") != NULL);
}

/* Who can write the store but has not the key cannot remove records and call it retention. */
static void test_forged(struct kv *kv)
{
    fill(kv, 30, BEGIN_MS);
    struct key other;
    key_random(&other);
    AUTO_FREE char *record = read_raw(kv, key_of(AUDIT_RECORDS, 20));
    json_t *object = json_loads(record, 0, NULL);
    struct audit_seal none = {.first = 0};
    struct audit_seal seal = {.first = 1, .last = 20, .from_ms = BEGIN_MS, .to_ms = BEGIN_MS, .sealed_ms = BEGIN_MS};
    CHECK(audit_get_hash(object, "hash", seal.hash));
    json_decref(object);
    AUTO(kv_change) *change = kv_change_new();
    CHECK(audit_seal_put(change, &other, &none, &seal, NULL));
    CHECK(apply_now(kv, change) == KV_APPLIED);
    for (uint64_t i = 1; i <= 20; i++)
        write_raw(kv, key_of(AUDIT_RECORDS, i), NULL);
    check_broken(kv, "the audit seal from record 1 on was changed");
    /* Retention stops too. */
    struct audit_keep keep = {.keep_ms = DAY_MS, .now_ms = BEGIN_MS + 100 * DAY_MS};
    struct audit_retention state = {.more = true};
    struct error err = {0};
    CHECK(step(kv, &keep, &state, &err) == KV_FAILED && err.kind == ERROR_INVALID);
    CHECK(count_rows(kv, AUDIT_RECORDS) == 10);
}

/* What does not hold is not swept under a seal. */
static void test_never_seals_what_is_wrong(struct kv *kv)
{
    struct audit_keep keep = {.keep_ms = DAY_MS, .now_ms = BEGIN_MS + 100 * DAY_MS};
    for (int way = 0; way < 2; way++) {
        fill(kv, 30, BEGIN_MS);
        write_raw(kv, key_of(AUDIT_RECORDS, 17), way == 0 ? NULL : "{\"seq\":17}");
        struct audit_retention state = {.more = true};
        enum kv_outcome outcome = KV_APPLIED;
        struct error err = {0};
        for (int i = 0; i < 20 && state.more && outcome == KV_APPLIED; i++)
            outcome = step(kv, &keep, &state, &err);
        CHECK(outcome == KV_FAILED && err.kind == ERROR_INVALID && strstr(err.message, "record 17 ") != NULL);
        CHECK(count_rows(kv, AUDIT_SEALS) == 0);
    }
}

/* Killed between any two steps: the next round, from nothing, ends the same. */
static void test_interrupted(struct kv *kv)
{
    struct audit_keep keep = {.keep_ms = 90 * DAY_MS, .now_ms = BEGIN_MS + 100 * DAY_MS};
    struct error err = {0};
    fill(kv, 1700, BEGIN_MS);
    size_t steps = 0;
    for (size_t stop = 1; stop < 12; stop++) {
        struct audit_retention state = {.more = true};
        for (steps = 0; steps < stop && state.more; steps++)
            CHECK(step(kv, &keep, &state, &err) == KV_APPLIED);
        uint64_t count = 0;
        CHECK(audit_verify(kv, &audit_key, &count, NULL) && (count == 1700 || count == 1701));
        if (!state.more)
            break;
    }
    CHECK(count_rows(kv, AUDIT_RECORDS) == 1 && count_rows(kv, AUDIT_SEALS) == 1);
    check_whole(kv, 1701);
}

static void test_whole_segments(struct kv *kv)
{
    int64_t soon = BEGIN_MS + DAY_MS + 1000; /* old for a second: only what is a whole segment goes */
    fill(kv, AUDIT_SEGMENT - 1, BEGIN_MS);
    CHECK(retain(kv, soon, 1) == 0);
    fill(kv, AUDIT_SEGMENT + 50, BEGIN_MS);
    CHECK(retain(kv, soon, 1) == 2);
    CHECK(count_rows(kv, AUDIT_SEALS) == 2 && count_rows(kv, AUDIT_RECORDS) == 49 + 2);
    check_whole(kv, 2 * AUDIT_SEGMENT + 49 + 2);
}

/* Steps of a proof, with records and seals coming in between. */
static void test_proof_in_steps(struct kv *kv)
{
    fill(kv, 400, BEGIN_MS);
    CHECK(retain(kv, BEGIN_MS + 100 * DAY_MS, 90) == 1);
    fill(kv, 400, BEGIN_MS + 100 * DAY_MS);
    struct audit_proof proof = {.key = &audit_key};
    struct error err = {0};
    for (int i = 0; i < 3; i++)
        CHECK(audit_prove(kv, &proof, 50, &err) && !proof.whole && proof.flaw.kind == ERROR_NONE);
    CHECK(proof.sealed.last == 400 && proof.last.seq == 550 && proof.records == 150);
    CHECK(retain(kv, BEGIN_MS + 200 * DAY_MS, 90) == 1); /* past where the proof stands */
    fill(kv, 120, BEGIN_MS + 200 * DAY_MS);
    for (int i = 0; i < 20 && !proof.whole && proof.flaw.kind == ERROR_NONE; i++)
        CHECK(audit_prove(kv, &proof, 50, &err));
    CHECK(proof.whole && proof.sealed.last == 801 && proof.last.seq == 922);
    CHECK(proof.records == 150 + 121);

    /* What is wrong behind it is found when it comes there, and where. */
    proof = (struct audit_proof){.key = &audit_key};
    CHECK(audit_prove(kv, &proof, 50, &err));
    write_raw(kv, key_of(AUDIT_RECORDS, 900), "{}");
    for (int i = 0; i < 20 && !proof.whole && proof.flaw.kind == ERROR_NONE; i++)
        CHECK(audit_prove(kv, &proof, 50, &err));
    CHECK(!proof.whole && proof.flaw.kind == ERROR_INVALID && proof.at == 900);
}

int main(void)
{
    static void (*const TESTS[])(struct kv *) = {
        test_keeps,       test_seals,          test_empty,         test_times_mixed,
        test_tampered,    test_removed,        test_forged,        test_never_seals_what_is_wrong,
        test_interrupted, test_proof_in_steps, test_whole_segments};
    keys_start();
    key_random(&audit_key);
    for (int engine = 0; engine < STORES_ENGINES; engine++) {
        int before = check_failures;
        for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
            if (TESTS[i] == test_whole_segments && engine != STORES_LMDB)
                continue; /* 20,000 records: once is enough */
            char folder[4096];
            stores_make_folder(folder);
            struct kv *kv = stores_open((enum stores_engine)engine, folder);
            TESTS[i](kv);
            kv_free(kv);
            stores_remove_folder(folder);
        }
        if (check_failures > before)
            fprintf(stderr, "... with %s\n", STORES_NAMES[engine]);
    }
    return check_done();
}
