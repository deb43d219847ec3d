/* audit_search_test.c - pages of the audit: filters alone and together, the first and the last ones, what a page and a
 * search are bounded by, and that no filter shows what it should not. On every engine. */
#include "negotiator/ledger/audit_internal.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/negotiator/ledger/stores.h"

#include <inttypes.h>

static const int64_t BEGIN_MS = 1795309323004;

static struct key audit_key;

static void apply_now(struct kv *kv, const struct kv_change *change)
{
    enum kv_outcome outcome = KV_CONFLICT;
    CHECK(kv_batch_begin(kv, NULL));
    for (int i = 0; i < 200 && outcome == KV_CONFLICT; i++)
        outcome = kv_apply(kv, change, NULL);
    CHECK(outcome == KV_APPLIED && kv_batch_end(kv, NULL));
}

/* `count` of them in one change. */
static void fill(struct kv *kv, size_t count, struct audit_record record)
{
    AUTO(kv_change) *change = kv_change_new();
    record.plane = "sandboxd";
    for (size_t i = 0; i < count; i++)
        CHECK(audit_append(kv, change, &audit_key, &record, NULL));
    apply_now(kv, change);
}

/* Steps to the end of one page; the numbers found, "3 4 9". The caller frees. */
static char *page(struct kv *kv, struct audit_search *search)
{
    struct error err = {0};
    AUTO_TEXT numbers = {0};
    size_t i;
    const json_t *record;
    audit_search_done(search);
    search->done = false;
    search->scanned = search->bytes = 0;
    for (int steps = 0; steps < 1000 && !search->done; steps++)
        CHECK(audit_search_step(kv, search, &err));
    CHECK_TEXT(err.message, "");
    CHECK(search->done);
    text_append_string(&numbers, "");
    json_array_foreach (search->records, i, record)
        text_append_format(&numbers, "%s%" JSON_INTEGER_FORMAT, i ? " " : "",
                           json_integer_value(json_object_get(record, "seq")));
    return TAKE(numbers.data);
}

/* The same; what is found is looked at in search->records. */
static void turn(struct kv *kv, struct audit_search *search)
{
    free(page(kv, search));
}

static void check_found(struct kv *kv, struct audit_filter filter, const char *want)
{
    struct audit_search first = {.filter = filter, .limit = 100};
    struct audit_search last = {.filter = filter, .limit = 100, .newest = true};
    AUTO_FREE char *found = page(kv, &first);
    AUTO_FREE char *found_back = page(kv, &last);
    CHECK_TEXT(found, want);
    CHECK_TEXT(found_back, want);
    CHECK(first.next == 0 && last.next == 0);
    audit_search_done(&first);
    audit_search_done(&last);
}

/* An issuance, its uses under two attenuations, another's records that mention all of it. */
static void make_story(struct kv *kv)
{
    struct audit_record ada = {.time_ms = BEGIN_MS,
                               .action = "negotiate",
                               .principal = "ada",
                               .thread_id = "t1",
                               .sandbox_id = "sbx_1",
                               .jti = "tok_1"};
    fill(kv, 1, ada); /* 1 */
    ada.action = "exec";
    ada.time_ms += 1000;
    ada.links = "lnk_a";
    fill(kv, 1, ada); /* 2 */
    ada.links = "lnk_a lnk_b";
    fill(kv, 1, ada); /* 3 */
    ada.action = "exec.end";
    ada.time_ms += 1000;
    fill(kv, 1, ada); /* 4 */
    struct audit_record bob = {.time_ms = BEGIN_MS + 3000,
                               .action = "exec",
                               .principal = "bob",
                               .thread_id = "t1",
                               .sandbox_id = "sbx_2",
                               .jti = "tok_2",
                               .links = "lnk_ab",
                               .detail = "ada tok_1 lnk_a sbx_1 \"principal\":\"ada\",\"jti\":\"tok_1\""};
    fill(kv, 1, bob); /* 5 */
    bob.principal = "ada2";
    fill(kv, 1, bob); /* 6 */
    struct audit_record nobody = {.time_ms = BEGIN_MS + 4000, .action = "authenticate", .detail = "ada"};
    fill(kv, 1, nobody); /* 7 */
}

static void test_filters(struct kv *kv)
{
    make_story(kv);
    check_found(kv, (struct audit_filter){.jti = NULL}, "1 2 3 4 5 6 7");
    check_found(kv, (struct audit_filter){.principal = "ada"}, "1 2 3 4");
    check_found(kv, (struct audit_filter){.principal = "bob"}, "5");
    check_found(kv, (struct audit_filter){.principal = "ad"}, "");
    check_found(kv, (struct audit_filter){.jti = "tok_1"}, "1 2 3 4");
    check_found(kv, (struct audit_filter){.jti = "tok_1", .principal = "bob"}, "");
    check_found(kv, (struct audit_filter){.jti = "tok_1", .action = "exec"}, "2 3");
    check_found(kv, (struct audit_filter){.link = "lnk_a"}, "2 3 4");
    check_found(kv, (struct audit_filter){.link = "lnk_b"}, "3 4");
    check_found(kv, (struct audit_filter){.link = "lnk_"}, "");
    check_found(kv, (struct audit_filter){.thread_id = "t1"}, "1 2 3 4 5 6");
    check_found(kv, (struct audit_filter){.thread_id = "t1", .principal = "bob"}, "5");
    check_found(kv, (struct audit_filter){.sandbox_id = "sbx_2"}, "5 6");
    check_found(kv, (struct audit_filter){.sandbox_id = "sbx_2", .principal = "bob"}, "5");
    check_found(kv, (struct audit_filter){.sandbox_id = "sbx_2", .principal = "bob", .or_plane = "sandboxd"}, "5 6");
    check_found(kv, (struct audit_filter){.sandbox_id = "sbx_2", .principal = "bob", .or_plane = "negotiator"}, "5");
    check_found(kv, (struct audit_filter){.action = "exec"}, "2 3 5 6");
    check_found(kv, (struct audit_filter){.since = "2026-11-22T01:02:04.004Z"}, "2 3 4 5 6 7");
    check_found(kv, (struct audit_filter){.until = "2026-11-22T01:02:05.004Z"}, "1 2 3");
    check_found(kv, (struct audit_filter){.since = "2026-11-22T01:02:04.004Z", .until = "2026-11-22T01:02:05.004Z"},
                "2 3");
    check_found(kv, (struct audit_filter){.since = "2027-01-01T00:00:00.000Z"}, "");
}

static void test_chained(struct kv *kv)
{
    fill(kv, 1, (struct audit_record){.time_ms = BEGIN_MS});
    struct audit_search search = {.limit = 1, .chained = true};
    AUTO_FREE char *found = page(kv, &search);
    CHECK_TEXT(found, "1");
    CHECK(json_object_size(json_array_get(search.records, 0)) == 21);
    search.chained = false;
    search.after = 0;
    AUTO_FREE char *again = page(kv, &search);
    CHECK_TEXT(again, "1");
    CHECK(json_object_size(json_array_get(search.records, 0)) == 19);
    CHECK(json_object_get(json_array_get(search.records, 0), "hash") == NULL);
    audit_search_done(&search);
}

/* All pages together are everything, once. */
static void test_pages(struct kv *kv)
{
    for (int i = 0; i < 12; i++) {
        fill(kv, 90, (struct audit_record){.time_ms = BEGIN_MS, .principal = "ada"});
        fill(kv, 10, (struct audit_record){.time_ms = BEGIN_MS, .principal = "bob"});
    }
    struct audit_search search = {.filter = {.principal = "bob"}, .limit = 33};
    size_t count = 0, pages = 0;
    uint64_t last = 0;
    do {
        turn(kv, &search);
        size_t i;
        const json_t *record;
        json_array_foreach (search.records, i, record) {
            uint64_t seq = (uint64_t)json_integer_value(json_object_get(record, "seq"));
            CHECK(seq > last);
            last = seq;
            count++;
        }
        pages++;
    } while (search.next > 0 && pages < 100);
    CHECK(count == 120 && pages == 4 && last == 1200);
    audit_search_done(&search);

    struct audit_search newest = {.filter = {.principal = "bob"}, .limit = 25, .newest = true};
    AUTO_FREE char *found = page(kv, &newest);
    CHECK(text_starts_with(found, "996 997 998 999 1000 1091 ") && json_array_size(newest.records) == 25);
    audit_search_done(&newest);
    struct audit_search past = {.after = 5000, .limit = 10};
    AUTO_FREE char *nothing = page(kv, &past);
    CHECK(nothing[0] == '\0' && past.next == 0);
    audit_search_done(&past);
}

static void test_empty(struct kv *kv)
{
    check_found(kv, (struct audit_filter){.principal = NULL}, "");
}

static void test_scan_bound(struct kv *kv)
{
    fill(kv, 1, (struct audit_record){.time_ms = BEGIN_MS, .principal = "ada"});
    for (int i = 0; i < AUDIT_SCAN_MAX / 1000; i++)
        fill(kv, 1000, (struct audit_record){.time_ms = BEGIN_MS, .principal = "bob"});
    fill(kv, 1, (struct audit_record){.time_ms = BEGIN_MS, .principal = "ada"});
    struct audit_search search = {.filter = {.principal = "ada"}, .limit = 10};
    AUTO_FREE char *first = page(kv, &search);
    CHECK_TEXT(first, "1");
    CHECK(search.next == AUDIT_SCAN_MAX);
    AUTO_FREE char *second = page(kv, &search);
    CHECK_TEXT(second, "20002");
    CHECK(search.next == 0);
    audit_search_done(&search);
    struct audit_search newest = {.filter = {.principal = "ada"}, .limit = 10, .newest = true};
    AUTO_FREE char *last = page(kv, &newest);
    CHECK_TEXT(last, "20002"); /* not the one before the last 20,000 */
    audit_search_done(&newest);
}

static void test_bytes_bound(struct kv *kv)
{
    AUTO_FREE char *longest = memory_new(AUDIT_DETAIL_MAX_BYTES + 1);
    memset(longest, 'x', AUDIT_DETAIL_MAX_BYTES);
    for (int i = 0; i < 6; i++)
        fill(kv, 100, (struct audit_record){.time_ms = BEGIN_MS, .detail = longest});
    struct audit_search search = {.limit = AUDIT_PAGE_MAX};
    turn(kv, &search);
    size_t count = json_array_size(search.records);
    CHECK(count > 200 && count < 300 && search.next == count);
    turn(kv, &search);
    CHECK(json_integer_value(json_object_get(json_array_get(search.records, 0), "seq")) == (json_int_t)count + 1);
    audit_search_done(&search);
    /* Backwards nothing is left out in the middle. */
    struct audit_search newest = {.limit = AUDIT_PAGE_MAX, .newest = true};
    turn(kv, &newest);
    count = json_array_size(newest.records);
    CHECK(count == 300);
    for (size_t i = 0; i < count; i++)
        CHECK(json_integer_value(json_object_get(json_array_get(newest.records, i), "seq")) ==
              (json_int_t)(600 - count + 1 + i));
    audit_search_done(&newest);
}

static void test_sealed(struct kv *kv)
{
    static const int64_t DAY_MS = 24LL * 3600 * 1000;
    fill(kv, 700, (struct audit_record){.time_ms = BEGIN_MS, .principal = "ada"});
    struct audit_keep keep = {.keep_ms = DAY_MS, .now_ms = BEGIN_MS + 10 * DAY_MS};
    struct audit_retention state = {.more = true};
    for (int i = 0; i < 100 && state.more; i++) {
        enum kv_outcome outcome = KV_CONFLICT;
        CHECK(kv_batch_begin(kv, NULL));
        for (int k = 0; k < 200 && outcome == KV_CONFLICT; k++)
            outcome = audit_retain(kv, &audit_key, &keep, &state, NULL);
        CHECK(outcome == KV_APPLIED && kv_batch_end(kv, NULL));
    }
    fill(kv, 3, (struct audit_record){.time_ms = BEGIN_MS + 10 * DAY_MS, .principal = "ada"});
    check_found(kv, (struct audit_filter){.principal = "ada"}, "702 703 704");
    check_found(kv, (struct audit_filter){.action = NULL}, "701 702 703 704");
}

static void test_damaged(struct kv *kv)
{
    fill(kv, 3, (struct audit_record){.time_ms = BEGIN_MS, .principal = "ada"});
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "audit/00000000000000000002", "ada", 3);
    apply_now(kv, change);
    struct audit_search search = {.filter = {.principal = "ada"}, .limit = 10};
    struct error err = {0};
    CHECK(!audit_search_step(kv, &search, &err) && err.kind == ERROR_INTERNAL);
    audit_search_done(&search);
}

int main(void)
{
    static void (*const TESTS[])(struct kv *) = {test_filters,     test_chained, test_pages,   test_empty,
                                                 test_bytes_bound, test_sealed,  test_damaged, test_scan_bound};
    keys_start();
    key_random(&audit_key);
    for (int engine = 0; engine < STORES_ENGINES; engine++) {
        int before = check_failures;
        for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
            if (TESTS[i] == test_scan_bound && engine != STORES_LMDB)
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
