/* intake_test.c - records that nodes ship: each is stored once, however often and in whatever portions it comes; what a
 * node may not say is not stored; what a sandbox wrote into a record harms nothing. On a store that conflicts too, and
 * when a batch fails at its end. */
#include "negotiator/leasing/intake.h"

#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/ledger/kv_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <inttypes.h>
#include <time.h>

static const int64_t NOW_MS = 1800000000000;
static const char *const SPOOL = "spl_aaaaaaaaaaaaaaaaaaaa";
static const char *const OTHER_SPOOL = "spl_bbbbbbbbbbbbbbbbbbbb";
static const char *const HERE_ID = "sbx_hhhhhhhhhhhhhhhhhhhh";
static const char *const THERE_ID = "sbx_tttttttttttttttttttt";
static const char *const NOWHERE_ID = "sbx_nnnnnnnnnnnnnnnnnnnn";

struct stage {
    struct kv *kv;
    struct leasing *leasing;
    struct key master, audit_key;
};

static int64_t stage_clock(void)
{
    return NOW_MS;
}

static void put_sandbox(struct stage *stage, const char *id, const char *node)
{
    struct sandbox sandbox = {.name = "box", .principal = "ada", .state = SANDBOX_ACTIVE};
    CHECK(text_copy(sandbox.id, sizeof sandbox.id, id) && text_copy(sandbox.node, sizeof sandbox.node, node));
    sandbox.threads = json_array();
    AUTO_FREE char *text = sandbox_format(&sandbox);
    AUTO_FREE char *key = memory_printf("sandbox/%s", id);
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, key, text, strlen(text));
    CHECK(kv_batch_begin(stage->kv, NULL) && kv_apply(stage->kv, change, NULL) == KV_APPLIED &&
          kv_batch_end(stage->kv, NULL));
    sandbox_done(&sandbox);
}

static void stage_begin(struct stage *stage, unsigned conflict_percent)
{
    stage->kv = kv_memory_new(conflict_percent, 11);
    key_random(&stage->master);
    key_derive(&stage->audit_key, &stage->master, "parley/audit/1");
    stage->leasing = leasing_new(&(struct leasing_options){
        .master = &stage->master, .deployment = "dep_aaaaaaaaaaaaaaaaaaaa", .wall_ms = stage_clock});
    put_sandbox(stage, HERE_ID, "n1");
    put_sandbox(stage, THERE_ID, "n2");
}

static void stage_end(struct stage *stage)
{
    uint64_t count = 0;
    struct error err = {0};
    CHECK(audit_verify(stage->kv, &stage->audit_key, &count, &err));
    CHECK_TEXT(err.message, "");
    leasing_free(stage->leasing);
    kv_free(stage->kv);
}

static json_t *record_of(uint64_t n, const char *sandbox_id)
{
    char jti[32];
    snprintf(jti, sizeof jti, "tok_%" PRIu64, n);
    return json_pack("{s:I, s:I, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:s}", "n", (json_int_t)n, "time",
                     (json_int_t)(NOW_MS - 5000), "action", "exec", "outcome", "ok", "status", 200, "principal", "ada",
                     "thread_id", "t1", "sandbox_id", sandbox_id, "jti", jti, "detail", "id=p1 command=true");
}

/* n from..to about the node's own sandbox. */
static json_t *records_of(uint64_t from, uint64_t to)
{
    json_t *records = json_array();
    for (uint64_t n = from; n <= to; n++)
        json_array_append_new(records, record_of(n, HERE_ID));
    return records;
}

/* Takes `records`. */
static enum kv_outcome ship(struct stage *stage, const char *node, const char *spool, json_t *records,
                            struct intake *intake, struct error *err)
{
    json_t *message = json_pack("{s:s, s:s, s:o}", "call", "audit", "spool", spool, "records", records);
    enum kv_outcome outcome = KV_CONFLICT;
    *intake = (struct intake){.leasing = stage->leasing, .message = message};
    CHECK(text_copy(intake->node, sizeof intake->node, node));
    CHECK(kv_batch_begin(stage->kv, NULL));
    for (int i = 0; i < 200 && outcome == KV_CONFLICT; i++)
        outcome = intake_rule(stage->kv, intake, err);
    if (!kv_batch_end(stage->kv, err))
        outcome = KV_FAILED;
    json_decref(message);
    intake->message = NULL;
    return outcome;
}

/* Ships and tells what is stored up to. */
static uint64_t upto(struct stage *stage, const char *node, const char *spool, json_t *records)
{
    struct intake intake;
    struct error err = {0};
    CHECK(ship(stage, node, spool, records, &intake, &err) == KV_APPLIED);
    CHECK_TEXT(err.message, "");
    CHECK_TEXT(intake.spool, spool);
    return intake.upto;
}

static size_t count_where(struct stage *stage, const char *name, const char *value)
{
    json_t *all = audit_list(stage->kv, 0, 100000, NULL), *each;
    size_t i, count = 0;
    json_array_foreach (all, i, each)
        count += text_equal(json_string_value(json_object_get(each, name)), value);
    json_decref(all);
    return count;
}

/* Every number of from..to is there exactly once. */
static void check_once(struct stage *stage, uint64_t from, uint64_t to)
{
    for (uint64_t n = from; n <= to; n++) {
        char jti[32];
        snprintf(jti, sizeof jti, "tok_%" PRIu64, n);
        CHECK(count_where(stage, "jti", jti) == 1);
    }
}

static size_t count_all(struct stage *stage)
{
    uint64_t seq = 0;
    uint8_t hash[AUDIT_HASH_BYTES];
    CHECK(audit_head(stage->kv, &seq, hash, NULL));
    return (size_t)seq;
}

static json_t *last_record(struct stage *stage)
{
    json_t *all = audit_list(stage->kv, count_all(stage) - 1, 1, NULL);
    json_t *record = json_incref(json_array_get(all, 0));
    json_decref(all);
    return record;
}

static void check_last(struct stage *stage, const char *name, const char *want)
{
    json_t *record = last_record(stage);
    CHECK_TEXT(json_string_value(json_object_get(record, name)), want);
    json_decref(record);
}

/* --- */

static void test_once(struct stage *stage)
{
    CHECK(upto(stage, "n1", SPOOL, json_array()) == 0);
    CHECK(upto(stage, "n1", SPOOL, records_of(1, 64)) == 64);
    CHECK(upto(stage, "n1", SPOOL, records_of(1, 64)) == 64); /* the answer was lost */
    CHECK(upto(stage, "n1", SPOOL, records_of(3, 5)) == 64);
    CHECK(upto(stage, "n1", SPOOL, records_of(33, 100)) == 100); /* half of it known */
    CHECK(upto(stage, "n1", SPOOL, records_of(101, 612)) == 612);
    CHECK(upto(stage, "n1", SPOOL, json_array()) == 612);
    CHECK(count_all(stage) == 612);
    check_once(stage, 1, 110);
    check_last(stage, "plane", "sandboxd");
    check_last(stage, "node", "n1");
    check_last(stage, "time", "2027-01-15T07:59:55.000Z");
    check_last(stage, "detail", "id=p1 command=true");
    check_last(stage, "role", "");
}

static void test_two_spools(struct stage *stage)
{
    CHECK(upto(stage, "n1", SPOOL, records_of(1, 10)) == 10);
    CHECK(upto(stage, "n1", OTHER_SPOOL, records_of(1, 3)) == 3);
    CHECK(upto(stage, "n1", SPOOL, records_of(5, 12)) == 12);
    CHECK(upto(stage, "n1", OTHER_SPOOL, records_of(1, 4)) == 4);
    CHECK(count_all(stage) == 16);
    /* Another node's spool of the same name is another one; its records are about a sandbox that is not there. */
    CHECK(upto(stage, "n2", SPOOL, records_of(1, 2)) == 2);
    CHECK(count_where(stage, "action", "audit.refused") == 2 && count_all(stage) == 18);
}

static void test_holes(struct stage *stage)
{
    json_t *records = records_of(1, 3);
    json_array_append_new(records, record_of(5, HERE_ID));
    json_array_append_new(records, record_of(6, HERE_ID));
    CHECK(upto(stage, "n1", SPOOL, records) == 3 && count_all(stage) == 3);
    CHECK(upto(stage, "n1", SPOOL, records_of(4, 6)) == 6);
    check_once(stage, 1, 6);
    records = records_of(7, 8);
    json_array_append_new(records, record_of(8, HERE_ID));
    json_array_append_new(records, record_of(2, HERE_ID));
    json_array_append_new(records, record_of(9, HERE_ID));
    CHECK(upto(stage, "n1", SPOOL, records) == 9); /* twice, and backwards, in one message */
    check_once(stage, 1, 9);

    /* The ledger was put back from a copy that knows less than what the node forgot. */
    CHECK(upto(stage, "n1", SPOOL, records_of(21, 25)) == 25);
    CHECK(count_where(stage, "action", "audit.gap") == 1 && count_all(stage) == 9 + 1 + 5);
    CHECK(upto(stage, "n1", SPOOL, records_of(21, 25)) == 25 && count_all(stage) == 15);
    check_once(stage, 21, 25);
}

static void test_whose(struct stage *stage)
{
    struct intake intake;
    struct error err = {0};
    json_t *records = records_of(1, 1);
    json_array_append_new(records, record_of(2, THERE_ID));
    json_array_append_new(records, record_of(3, NOWHERE_ID));
    json_array_append_new(records, record_of(4, "../../meta/deployment"));
    json_array_append_new(records, record_of(5, ""));
    CHECK(ship(stage, "n1", SPOOL, records, &intake, &err) == KV_APPLIED && intake.upto == 5 && intake.refused == 1);
    CHECK(count_all(stage) == 5 && count_where(stage, "jti", "tok_2") == 0);
    json_t *all = audit_list(stage->kv, 1, 10, NULL);
    const json_t *refused = json_array_get(all, 0);
    CHECK_TEXT(json_string_value(json_object_get(refused, "action")), "audit.refused");
    CHECK_TEXT(json_string_value(json_object_get(refused, "plane")), "negotiator");
    CHECK_TEXT(json_string_value(json_object_get(refused, "node")), "n1");
    CHECK_TEXT(json_string_value(json_object_get(refused, "principal")), "");
    CHECK_TEXT(json_string_value(json_object_get(refused, "detail")),
               "spool=spl_aaaaaaaaaaaaaaaaaaaa n=2 action=exec: sandbox sbx_tttttttttttttttttttt is on node n2");
    for (size_t i = 1; i < 4; i++)
        CHECK_TEXT(json_string_value(json_object_get(json_array_get(all, i), "detail")),
                   "(not in the ledger) id=p1 command=true");
    json_decref(all);
    /* A refusal of a stranger names nobody and nothing. */
    records = json_pack("[{s:i, s:s}]", "n", 6, "detail", "no token");
    CHECK(upto(stage, "n1", SPOOL, records) == 6);
    check_last(stage, "detail", "no token");
    /* Nor does a node put words into the mouth of somebody whose sandbox it is not. */
    json_t *forged = record_of(7, HERE_ID);
    json_object_set_new(forged, "principal", json_string("bob"));
    CHECK(ship(stage, "n1", SPOOL, json_pack("[o]", forged), &intake, &err) == KV_APPLIED && intake.upto == 7);
    CHECK(intake.refused == 1 && count_where(stage, "principal", "bob") == 0);
    check_last(stage, "action", "audit.refused");
    check_last(
        stage, "detail",
        "spool=spl_aaaaaaaaaaaaaaaaaaaa n=7 action=exec: sandbox sbx_hhhhhhhhhhhhhhhhhhhh is of another principal "
        "than bob");
}

static void test_hostile(struct stage *stage)
{
    AUTO_FREE char *longest = memory_new(100001);
    memset(longest, 'x', 100000);
    json_t *record = record_of(1, HERE_ID);
    json_object_set_new(record, "action", json_string(longest));
    json_object_set_new(record, "detail", json_string("\x01\x02\",\"seq\":1,\"hash\":\"00\"}\n\xf0\x9f\x98\x80"));
    json_object_set_new(record, "principal", json_array());
    json_object_set_new(record, "status", json_integer(1LL << 40));
    json_object_set_new(record, "time", json_integer(INT64_MAX));
    json_object_set_new(record, "seq", json_integer(77));
    json_object_set_new(record, "prev", json_string("x"));
    CHECK(upto(stage, "n1", SPOOL, json_pack("[o]", record)) == 1);
    record = last_record(stage);
    CHECK(json_string_length(json_object_get(record, "action")) == AUDIT_FIELD_MAX_BYTES);
    CHECK(json_integer_value(json_object_get(record, "status")) == 999);
    CHECK(json_integer_value(json_object_get(record, "seq")) == 1);
    json_decref(record);
    check_last(stage, "principal", "");
    check_last(stage, "time", "2027-01-15T08:00:00.000Z"); /* not later than now */
    check_last(stage, "detail", "\x01\x02\",\"seq\":1,\"hash\":\"00\"}\n\xf0\x9f\x98\x80");

    json_t *const wrong[] = {json_null(),
                             json_pack("[i]", 1),
                             json_pack("[{}]"),
                             json_pack("[{s:i}]", "n", 0),
                             json_pack("[{s:i}]", "n", -1),
                             json_pack("[{s:s}]", "n", "2"),
                             json_pack("[{s:i}, {s:f}]", "n", 2, "n", 3.5),
                             records_of(2, 514)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct intake intake;
        struct error err = {0};
        CHECK(ship(stage, "n1", SPOOL, wrong[i], &intake, &err) == KV_FAILED && err.kind == ERROR_INVALID);
    }
    static const char *const SPOOLS[] = {"", "spl_", "sbx_aaaaaaaaaaaaaaaaaaaa", "spl_../aaaaaaaaaaaaaaaaa",
                                         "spl_aaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof SPOOLS / sizeof *SPOOLS; i++) {
        struct intake intake;
        struct error err = {0};
        CHECK(ship(stage, "n1", SPOOLS[i], records_of(1, 1), &intake, &err) == KV_FAILED && err.kind == ERROR_INVALID);
    }
    CHECK(count_all(stage) == 1);
}

/* The batch's end fails: nothing of it is there, and the same message again stores all of it, once. */
static void test_torn(struct stage *stage)
{
    struct intake intake;
    struct error err = {0};
    CHECK(upto(stage, "n1", SPOOL, records_of(1, 10)) == 10);
    for (int i = 0; i < 3; i++) {
        kv_memory_fail_ends(stage->kv, 1);
        CHECK(ship(stage, "n1", SPOOL, records_of(8, 80), &intake, &err) == KV_FAILED && err.kind == ERROR_DISK_FULL);
        CHECK(count_all(stage) == 10);
    }
    CHECK(upto(stage, "n1", SPOOL, records_of(8, 80)) == 80);
    check_once(stage, 1, 80);
    CHECK(count_all(stage) == 80);
}

static void test_many_spools(struct stage *stage)
{
    char name[RANDOM_ID_BYTES];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "spl_%020d", i);
        CHECK(upto(stage, "n1", name, records_of(1, 1)) == 1);
    }
    size_t rows = 0;
    for (int i = 0; i < 200; i++) {
        AUTO_FREE char *row = memory_printf("spool/n1/spl_%020d", i);
        AUTO_KV_VALUE value = {0};
        CHECK(kv_get(stage->kv, row, &value, NULL));
        rows += value.revision > 0;
    }
    CHECK(rows == 64);
    CHECK(upto(stage, "n1", name, records_of(1, 2)) == 2 && count_all(stage) == 201);
}

/* So that nobody makes it slow unseen: 64 records are a few ms even here, with sanitizers. */
static void test_speed(struct stage *stage)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t n = 1; n <= 5 * 512; n += 512)
        CHECK(upto(stage, "n1", SPOOL, records_of(n, n + 511)) == n + 511);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("%.0f records/s\n", 5 * 512 / seconds);
    CHECK(seconds < 10);
}

int main(void)
{
    static void (*const TESTS[])(struct stage *) = {test_once,    test_two_spools, test_holes,       test_whose,
                                                    test_hostile, test_torn,       test_many_spools, test_speed};
    keys_start();
    for (unsigned percent = 0; percent <= 40; percent += 40) {
        for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
            struct stage stage;
            stage_begin(&stage, percent);
            TESTS[i](&stage);
            stage_end(&stage);
        }
    }
    return check_done();
}
