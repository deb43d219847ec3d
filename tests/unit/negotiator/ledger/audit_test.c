/* audit_test.c - the audit chain on every engine: what is appended is listed and proven; every field changed, a record
 * removed, swapped, added or cut off at the end is found; hostile text becomes a record all the same. */
#include "negotiator/ledger/audit.h"

#include "negotiator/ledger/kv_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/negotiator/ledger/stores.h"

#include <sodium.h>

#define RECORDS 12

static struct key audit_key;

static const char *const FIELDS[] = {"time",  "plane", "node",      "action",     "outcome", "principal",
                                     "role",  "actor", "thread_id", "sandbox_id", "lease",   "jti",
                                     "links", "scope", "remote",    "request_id", "detail"};

static struct audit_record sample(void)
{
    return (struct audit_record){.time_ms = 1795309323004,
                                 .plane = "negotiator",
                                 .node = "node-1",
                                 .action = "negotiate",
                                 .outcome = "ok",
                                 .status = 201,
                                 .principal = "key_1",
                                 .role = "client",
                                 .actor = "agent:a",
                                 .thread_id = "thread-1",
                                 .sandbox_id = "sbx_1",
                                 .lease = "lse_1",
                                 .jti = "jti_1",
                                 .links = "lnk_1 lnk_2",
                                 .scope = "fs:rw process",
                                 .remote = "127.0.0.1",
                                 .request_id = "req_1",
                                 .detail = "caf\xc3\xa9"};
}

static enum kv_outcome apply_now(struct kv *kv, const struct kv_change *change)
{
    enum kv_outcome outcome = KV_CONFLICT;
    CHECK(kv_batch_begin(kv, NULL));
    for (int i = 0; i < 200 && outcome == KV_CONFLICT; i++)
        outcome = kv_apply(kv, change, NULL);
    CHECK(kv_batch_end(kv, NULL));
    return outcome;
}

static void append(struct kv *kv, struct audit_record record)
{
    AUTO(kv_change) *change = kv_change_new();
    CHECK(audit_append(kv, change, &audit_key, &record, NULL));
    CHECK(apply_now(kv, change) == KV_APPLIED);
}

/* Twelve records, the last three in one change. */
static void fill(struct kv *kv)
{
    for (int i = 0; i < RECORDS - 3; i++)
        append(kv, sample());
    AUTO(kv_change) *change = kv_change_new();
    for (uint64_t i = RECORDS - 2; i <= RECORDS; i++) {
        struct audit_record record = sample();
        CHECK(audit_append(kv, change, &audit_key, &record, NULL));
        CHECK(record.seq == i);
    }
    CHECK(apply_now(kv, change) == KV_APPLIED);
}

static void check_whole(struct kv *kv, uint64_t want)
{
    uint64_t count = 99;
    struct error err = {0};
    if (!audit_verify(kv, &audit_key, &count, &err))
        fprintf(stderr, "verify: %s\n", err.message);
    CHECK(err.kind == ERROR_NONE && count == want);
}

/* The chain is broken at `seq`. */
static void check_broken(struct kv *kv, uint64_t seq, const char *what)
{
    char number[32];
    uint64_t count = 99;
    struct error err = {0};
    snprintf(number, sizeof number, "record %llu ", (unsigned long long)seq);
    bool found = !audit_verify(kv, &audit_key, &count, &err) && err.kind == ERROR_INVALID;
    if (!found || !strstr(err.message, number) || count != seq - 1)
        fprintf(stderr, "%s: \"%s\", %llu hold\n", what, err.message, (unsigned long long)count);
    CHECK(found && strstr(err.message, number) && count == seq - 1);
}

static void record_key(char to[static 32], uint64_t seq)
{
    snprintf(to, 32, "audit/%020llu", (unsigned long long)seq);
}

static json_t *read_record(struct kv *kv, uint64_t seq)
{
    char key[32];
    AUTO_KV_VALUE value = {0};
    record_key(key, seq);
    CHECK(kv_get(kv, key, &value, NULL));
    json_t *record = json_loadb(value.data, value.size, 0, NULL);
    CHECK(record != NULL);
    return record;
}

/* text NULL: deletes. */
static void write_raw(struct kv *kv, const char *key, const char *text)
{
    AUTO(kv_change) *change = kv_change_new();
    if (text)
        kv_change_put(change, key, text, strlen(text));
    else
        kv_change_delete(change, key);
    CHECK(apply_now(kv, change) == KV_APPLIED);
}

static void write_record(struct kv *kv, uint64_t seq, const json_t *record)
{
    char key[32];
    record_key(key, seq);
    AUTO_FREE char *text = record ? json_dumps(record, JSON_COMPACT) : NULL;
    write_raw(kv, key, text);
}

/* --- what is there --- */

static void absorb(struct text *bytes, const char *text)
{
    size_t size = strlen(text);
    unsigned char length[4] = {(unsigned char)(size >> 24), (unsigned char)(size >> 16), (unsigned char)(size >> 8),
                               (unsigned char)size};
    text_append(bytes, length, 4);
    text_append(bytes, text, size);
}

/* The hash written down a second time, from protocol.md. */
static void test_hash(struct kv *kv)
{
    static const char *const TEXTS[] = {"1",           "2026-11-22T01:02:03.004Z",
                                        "negotiator",  "node-1",
                                        "negotiate",   "ok",
                                        "201",         "key_1",
                                        "client",      "agent:a",
                                        "thread-1",    "sbx_1",
                                        "lse_1",       "jti_1",
                                        "lnk_1 lnk_2", "fs:rw process",
                                        "127.0.0.1",   "req_1",
                                        "caf\xc3\xa9"};
    append(kv, sample());
    uint8_t prev[AUDIT_HASH_BYTES] = {0}, hash[AUDIT_HASH_BYTES], head[AUDIT_HASH_BYTES];
    AUTO_TEXT bytes = {0};
    text_append(&bytes, prev, sizeof prev);
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        absorb(&bytes, TEXTS[i]);
    crypto_generichash(hash, sizeof hash, (unsigned char *)bytes.data, bytes.length, audit_key.bytes, KEY_BYTES);
    uint64_t seq = 0;
    CHECK(audit_head(kv, &seq, head, NULL));
    CHECK(seq == 1 && memcmp(head, hash, sizeof hash) == 0);
}

static void test_empty(struct kv *kv)
{
    uint64_t seq = 99;
    uint8_t hash[AUDIT_HASH_BYTES] = {1};
    CHECK(audit_head(kv, &seq, hash, NULL));
    CHECK(seq == 0 && sodium_is_zero(hash, sizeof hash));
    CHECK(audit_verify_head(kv, 0, hash, NULL));
    check_whole(kv, 0);
    json_t *list = audit_list(kv, 0, 10, NULL);
    CHECK(json_is_array(list) && json_array_size(list) == 0);
    json_decref(list);
}

static void check_list(struct kv *kv, uint64_t after, size_t limit, size_t want)
{
    json_t *list = audit_list(kv, after, limit, NULL);
    CHECK(list && json_array_size(list) == want);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t seq = json_integer_value(json_object_get(json_array_get(list, i), "seq"));
        CHECK((uint64_t)seq == after + 1 + i);
    }
    json_decref(list);
}

static void test_list(struct kv *kv)
{
    fill(kv);
    check_whole(kv, RECORDS);
    check_list(kv, 0, 100, RECORDS);
    check_list(kv, 0, 5, 5);
    check_list(kv, 5, 5, 5);
    check_list(kv, 10, 5, 2);
    check_list(kv, RECORDS, 5, 0);
    check_list(kv, 0, 0, 0);
    check_list(kv, UINT64_MAX, 5, 0);
    json_t *record = read_record(kv, 3);
    struct audit_record want = sample();
    CHECK(json_object_size(record) == 21);
    CHECK_TEXT(json_string_value(json_object_get(record, "time")), "2026-11-22T01:02:03.004Z");
    CHECK_TEXT(json_string_value(json_object_get(record, "request_id")), want.request_id);
    CHECK_TEXT(json_string_value(json_object_get(record, "detail")), want.detail);
    CHECK(json_integer_value(json_object_get(record, "status")) == 201);
    json_decref(record);
    write_raw(kv, "audit/00000000000000000004", "no json");
    struct error err = {0};
    CHECK(audit_list(kv, 0, 10, &err) == NULL && err.kind == ERROR_INTERNAL);
}

static void test_writers_conflict(struct kv *kv)
{
    AUTO(kv_change) *first = kv_change_new();
    AUTO(kv_change) *second = kv_change_new();
    struct audit_record one = sample(), two = sample();
    CHECK(audit_append(kv, first, &audit_key, &one, NULL) && audit_append(kv, second, &audit_key, &two, NULL));
    kv_change_put(second, "what it tells", "x", 1);
    CHECK(one.seq == 1 && two.seq == 1);
    CHECK(apply_now(kv, first) == KV_APPLIED);
    CHECK(apply_now(kv, second) == KV_CONFLICT);
    AUTO_KV_VALUE value = {0};
    CHECK(kv_get(kv, "what it tells", &value, NULL) && value.data == NULL);
    check_whole(kv, 1);
}

/* --- what must be found --- */

static void tamper(struct kv *kv, const char *name, json_t *with)
{
    json_t *record = read_record(kv, 5);
    json_t *before = json_deep_copy(record);
    CHECK(json_object_set_new(record, name, with) == 0 && !json_equal(record, before));
    write_record(kv, 5, record);
    check_broken(kv, 5, name);
    json_object_del(record, name);
    write_record(kv, 5, record);
    check_broken(kv, 5, name);
    write_record(kv, 5, before);
    json_decref(record);
    json_decref(before);
}

static void test_tampered_fields(struct kv *kv)
{
    fill(kv);
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        json_t *record = read_record(kv, 5);
        const char *text = json_string_value(json_object_get(record, FIELDS[i]));
        CHECK(text != NULL);
        AUTO_FREE char *changed = memory_printf("%sx", text ? text : "");
        tamper(kv, FIELDS[i], json_string(changed));
        tamper(kv, FIELDS[i], json_string(""));
        tamper(kv, FIELDS[i], json_null());
        json_decref(record);
    }
    tamper(kv, "seq", json_integer(6));
    tamper(kv, "seq", json_integer(-5));
    tamper(kv, "seq", json_string("5"));
    tamper(kv, "status", json_integer(200));
    tamper(kv, "status", json_string("201"));
    tamper(kv, "prev", json_string("0000000000000000000000000000000000000000000000000000000000000000"));
    tamper(kv, "hash", json_string("0000000000000000000000000000000000000000000000000000000000000000"));
    tamper(kv, "hash", json_string("00"));
    check_whole(kv, RECORDS);
}

/* Moving a byte from one field to the next must not give the same hash. */
static void test_tampered_shape(struct kv *kv)
{
    fill(kv);
    json_t *record = read_record(kv, 5);
    json_t *before = json_deep_copy(record);
    CHECK(json_object_set_new(record, "plane", json_string("negotiato")) == 0);
    CHECK(json_object_set_new(record, "node", json_string("rnode-1")) == 0);
    write_record(kv, 5, record);
    check_broken(kv, 5, "moved byte");
    json_decref(record);

    record = json_deep_copy(before);
    CHECK(json_object_set_new(record, "added", json_string("x")) == 0);
    write_record(kv, 5, record);
    check_broken(kv, 5, "added field");
    json_decref(record);

    AUTO_FREE char *text = json_dumps(before, JSON_COMPACT);
    AUTO_FREE char *doubled = memory_printf("{\"seq\":5,%s", text + 1);
    write_raw(kv, "audit/00000000000000000005", doubled);
    check_broken(kv, 5, "a field twice");
    write_raw(kv, "audit/00000000000000000005", "[]");
    check_broken(kv, 5, "no object");
    write_raw(kv, "audit/00000000000000000005", "");
    check_broken(kv, 5, "empty");
    write_record(kv, 5, before);
    write_raw(kv, "audit/00000000000000000005x", text);
    check_broken(kv, 6, "a key between");
    write_raw(kv, "audit/00000000000000000005x", NULL);
    check_whole(kv, RECORDS);
    json_decref(before);
}

static void test_removed_and_moved(struct kv *kv)
{
    fill(kv);
    json_t *third = read_record(kv, 3), *fourth = read_record(kv, 4), *first = read_record(kv, 1);
    write_record(kv, 4, NULL);
    check_broken(kv, 4, "removed");
    write_record(kv, 4, fourth);
    write_record(kv, 1, NULL);
    check_broken(kv, 1, "first removed");
    write_record(kv, 1, first);
    write_record(kv, 3, fourth);
    write_record(kv, 4, third);
    check_broken(kv, 3, "swapped");
    /* Swapped and numbered anew, as somebody would who knows the format but not the key. */
    CHECK(json_object_set_new(fourth, "seq", json_integer(3)) == 0);
    CHECK(json_object_set(fourth, "prev", json_object_get(third, "prev")) == 0);
    write_record(kv, 3, fourth);
    check_broken(kv, 3, "swapped and renumbered");
    json_decref(first);
    json_decref(third);
    json_decref(fourth);
}

/* A record of the same number and key, but of another chain: a store restored from a backup went its own way. */
static void test_other_chain(struct kv *kv)
{
    AUTO(kv) *other = kv_memory_new(0, 1);
    append(other, (struct audit_record){.detail = "another beginning"});
    for (int i = 0; i < 5; i++)
        append(other, sample());
    check_whole(other, 6);
    fill(kv);
    json_t *record = read_record(other, 5);
    write_record(kv, 5, record);
    check_broken(kv, 5, "of another chain");
    json_decref(record);
}

static void test_cut_off(struct kv *kv)
{
    fill(kv);
    uint64_t kept_seq;
    uint8_t kept[AUDIT_HASH_BYTES];
    struct error err = {0};
    CHECK(audit_head(kv, &kept_seq, kept, NULL));
    CHECK(kept_seq == RECORDS && audit_verify_head(kv, kept_seq, kept, NULL));
    json_t *last = read_record(kv, RECORDS);
    write_record(kv, RECORDS, NULL);
    check_broken(kv, RECORDS, "last removed");
    /* With the head moved back the chain alone looks whole: only the head kept elsewhere tells. */
    json_t *before_last = read_record(kv, RECORDS - 1);
    const char *hash = json_string_value(json_object_get(before_last, "hash"));
    AUTO_FREE char *head = memory_printf("{\"seq\":%d,\"hash\":\"%s\"}", RECORDS - 1, hash);
    write_raw(kv, "audit-head", head);
    check_whole(kv, RECORDS - 1);
    CHECK(!audit_verify_head(kv, kept_seq, kept, &err) && err.kind == ERROR_INVALID);
    /* Written anew after that, the kept head still does not fit. */
    append(kv, (struct audit_record){.plane = "negotiator"});
    check_whole(kv, RECORDS);
    err = (struct error){0};
    CHECK(!audit_verify_head(kv, kept_seq, kept, &err) && err.kind == ERROR_INVALID);
    CHECK(!audit_verify_head(kv, 0, kept, &err));

    append(kv, sample());
    CHECK(audit_head(kv, &kept_seq, kept, NULL));
    append(kv, sample());
    CHECK(audit_verify_head(kv, kept_seq, kept, NULL)); /* an older head of the same chain */
    write_raw(kv, "audit-head", head);
    check_broken(kv, RECORDS, "beyond the head");
    json_decref(last);
    json_decref(before_last);
}

static void test_damaged_head(struct kv *kv)
{
    static const char *const HEADS[] = {"", "{}", "[1]", "{\"seq\":0,\"hash\":\"00\"}", "{\"seq\":3,\"hash\":3}"};
    fill(kv);
    for (size_t i = 0; i < sizeof HEADS / sizeof *HEADS; i++) {
        struct error err = {0};
        struct audit_record record = sample();
        uint64_t seq = 7, count;
        uint8_t hash[AUDIT_HASH_BYTES];
        AUTO(kv_change) *change = kv_change_new();
        write_raw(kv, "audit-head", HEADS[i]);
        CHECK(!audit_append(kv, change, &audit_key, &record, &err) && err.kind == ERROR_INTERNAL);
        CHECK(change->count == 0 && record.seq == 0);
        CHECK(!audit_head(kv, &seq, hash, NULL) && seq == 7);
        CHECK(!audit_verify(kv, &audit_key, &count, &err));
    }
    write_raw(kv, "audit-head",
              "{\"seq\":12,\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}");
    uint64_t count;
    struct error err = {0};
    CHECK(!audit_verify(kv, &audit_key, &count, &err) && err.kind == ERROR_INVALID && count == RECORDS - 1);
    write_raw(kv, "audit-head", NULL);
    CHECK(!audit_verify(kv, &audit_key, &count, &err) && err.kind == ERROR_INVALID);
}

static void test_other_key(struct kv *kv)
{
    struct key other = audit_key;
    other.bytes[31] ^= 1;
    fill(kv);
    uint64_t count;
    struct error err = {0};
    CHECK(!audit_verify(kv, &other, &count, &err) && err.kind == ERROR_INVALID && count == 0);
}

/* --- hostile text --- */

static void check_detail(struct kv *kv, uint64_t seq, const char *want)
{
    json_t *record = read_record(kv, seq);
    CHECK_TEXT(json_string_value(json_object_get(record, "detail")), want);
    json_decref(record);
}

static void test_text(struct kv *kv)
{
    append(kv, (struct audit_record){.detail = "\xff"
                                               "a\xc3"});
    check_detail(kv, 1,
                 "\xef\xbf\xbd"
                 "a\xef\xbf\xbd");
    append(kv, (struct audit_record){.detail = "\xed\xa0\x80\xc0\x80\",\"seq\":9\n\x01"});
    check_detail(kv, 2, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\",\"seq\":9\n\x01");
    append(kv, (struct audit_record){.status = -1});
    check_detail(kv, 3, "");

    /* The most that JSON can make of the longest texts still fits into a value. */
    AUTO_FREE char *longest = memory_new(100001);
    memset(longest, 1, 100000);
    append(kv, (struct audit_record){0, 0, longest, longest, longest, longest, 0, longest, longest, longest, longest,
                                     longest, longest, longest, longest, longest, longest, longest, longest});
    json_t *record = read_record(kv, 4);
    const char *detail = json_string_value(json_object_get(record, "detail"));
    const char *role = json_string_value(json_object_get(record, "role"));
    CHECK(strlen(detail) == AUDIT_DETAIL_MAX_BYTES && strcmp(detail + AUDIT_DETAIL_MAX_BYTES - 4, "\x01...") == 0);
    CHECK(strlen(role) == AUDIT_FIELD_MAX_BYTES && strcmp(role + AUDIT_FIELD_MAX_BYTES - 4, "\x01...") == 0);
    json_decref(record);

    /* Cut between characters, and only when there is more. */
    for (size_t i = 0; i + 1 < 100000; i += 2)
        memcpy(longest + i, "\xc3\xa9", 2);
    longest[AUDIT_DETAIL_MAX_BYTES] = '\0';
    append(kv, (struct audit_record){.detail = longest});
    check_detail(kv, 5, longest);
    longest[AUDIT_DETAIL_MAX_BYTES] = 'x';
    append(kv, (struct audit_record){.detail = longest});
    memcpy(longest + AUDIT_DETAIL_MAX_BYTES - 4, "...", 4);
    check_detail(kv, 6, longest);
    check_whole(kv, 6);
}

int main(void)
{
    static void (*const TESTS[])(struct kv *) = {test_hash,
                                                 test_empty,
                                                 test_list,
                                                 test_writers_conflict,
                                                 test_tampered_fields,
                                                 test_tampered_shape,
                                                 test_removed_and_moved,
                                                 test_other_chain,
                                                 test_cut_off,
                                                 test_damaged_head,
                                                 test_other_key,
                                                 test_text};
    keys_start();
    key_random(&audit_key);
    for (int engine = 0; engine < STORES_ENGINES; engine++) {
        int before = check_failures;
        for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
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
