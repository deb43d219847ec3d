/* kv_test.c - one suite for every engine: reads, order, limits, comparisons, all-or-nothing, what each engine may not.
 */
#include "negotiator/ledger/kv.h"

#include "negotiator/ledger/kv_internal.h"
#include "shared/base/text.h"
#include "tests/unit/negotiator/ledger/stores.h"

/* Applies until it is no made-up conflict: comparisons that fail do so each time. */
static enum kv_outcome apply(struct kv *kv, const struct kv_change *change, struct error *err)
{
    enum kv_outcome outcome = KV_CONFLICT;
    for (int i = 0; i < 200 && outcome == KV_CONFLICT; i++)
        outcome = kv_apply(kv, change, err);
    return outcome;
}

/* A batch of one change. */
static enum kv_outcome change_now(struct kv *kv, const struct kv_change *change)
{
    struct error err = {0};
    CHECK(kv_batch_begin(kv, &err));
    enum kv_outcome outcome = apply(kv, change, &err);
    CHECK(kv_batch_end(kv, &err));
    return outcome;
}

static void put_now(struct kv *kv, const char *key, const char *text)
{
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, key, text, strlen(text));
    CHECK(change_now(kv, change) == KV_APPLIED);
}

static uint64_t revision_of(struct kv *kv, const char *key)
{
    AUTO_KV_VALUE value = {0};
    CHECK(kv_get(kv, key, &value, NULL));
    CHECK((value.revision == 0) == (value.data == NULL));
    return value.revision;
}

static void check_value(struct kv *kv, const char *key, const char *want)
{
    AUTO_KV_VALUE value = {0};
    CHECK(kv_get(kv, key, &value, NULL));
    if (want == NULL) {
        CHECK(value.data == NULL && value.size == 0 && value.revision == 0);
        return;
    }
    CHECK_TEXT(value.data, want);
    CHECK(value.size == strlen(want));
}

static void test_put_get_delete(struct kv *kv)
{
    check_value(kv, "a", NULL);
    put_now(kv, "a", "one");
    check_value(kv, "a", "one");
    uint64_t first = revision_of(kv, "a");
    put_now(kv, "a", "a longer one");
    check_value(kv, "a", "a longer one");
    CHECK(revision_of(kv, "a") > first);
    put_now(kv, "b", "");
    check_value(kv, "b", "");

    AUTO(kv_change) *change = kv_change_new();
    kv_change_delete(change, "a");
    kv_change_delete(change, "never there");
    CHECK(change_now(kv, change) == KV_APPLIED);
    check_value(kv, "a", NULL);
    check_value(kv, "b", "");

    /* Made again it has a new revision: nobody mistakes it for the old one. */
    uint64_t second = revision_of(kv, "b");
    put_now(kv, "a", "one");
    CHECK(revision_of(kv, "a") > second);
}

static void test_bytes(struct kv *kv)
{
    static char big[KV_VALUE_MAX_BYTES];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 31);
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "bytes", "\0\x01\0", 3);
    kv_change_put(change, "big", big, sizeof big);
    CHECK(change_now(kv, change) == KV_APPLIED);
    AUTO_KV_VALUE value = {0};
    CHECK(kv_get(kv, "bytes", &value, NULL));
    CHECK(value.size == 3 && memcmp(value.data, "\0\x01\0", 4) == 0);
    CHECK(kv_get(kv, "big", &value, NULL)); /* frees what it held */
    CHECK(value.size == sizeof big && memcmp(value.data, big, sizeof big) == 0 && value.data[sizeof big] == '\0');
    CHECK(revision_of(kv, "bytes") == revision_of(kv, "big"));
}

struct seen {
    struct text keys; /* "a=1 b=2 " */
    size_t left;      /* stop after so many */
};

static bool note(void *cookie, const char *key, const struct kv_value *value)
{
    struct seen *seen = cookie;
    CHECK(strlen(value->data) == value->size && value->revision > 0);
    text_append_format(&seen->keys, "%s=%s ", key, value->data);
    return --seen->left > 0;
}

static void check_range(struct kv *kv, const char *first, const char *end, size_t limit, const char *want)
{
    struct seen seen = {.left = SIZE_MAX};
    text_append_string(&seen.keys, "");
    CHECK(kv_range(kv, first, end, limit, note, &seen, NULL));
    CHECK_TEXT(seen.keys.data, want);
    text_done(&seen.keys);
}

static void test_range(struct kv *kv)
{
    put_now(kv, "l/2", "2");
    put_now(kv, "l/10", "10");
    put_now(kv, "l/1", "1");
    put_now(kv, "l", "0");
    put_now(kv, "l0", "x");
    put_now(kv, "\xc3\xa4", "high");
    put_now(kv, "L/1", "upper");
    check_range(kv, "l/", NULL, 0, "l/1=1 l/10=10 l/2=2 ");
    check_range(kv, "l/", NULL, 2, "l/1=1 l/10=10 ");
    check_range(kv, "l/1", NULL, 0, "l/1=1 l/10=10 ");
    check_range(kv, "l/1", "l/2", 0, "l/1=1 l/10=10 ");
    check_range(kv, "l/11", "l1", 0, "l/2=2 l0=x ");
    check_range(kv, "l/2", "l/2", 0, "");
    check_range(kv, "m", NULL, 0, "");
    check_range(kv, "zz", "\xff", 0, "\xc3\xa4=high ");
    check_range(kv, "", NULL, 0, "L/1=upper l=0 l/1=1 l/10=10 l/2=2 l0=x \xc3\xa4=high ");
    check_range(kv, "", "l/1", 0, "L/1=upper l=0 ");
    struct seen seen = {.left = 2};
    CHECK(kv_range(kv, "", NULL, 0, note, &seen, NULL));
    CHECK_TEXT(seen.keys.data, "L/1=upper l=0 ");
    text_done(&seen.keys);
}

static void check_refused(struct kv *kv, struct kv_change *change)
{
    struct error err = {0};
    kv_change_put(change, "beside", "x", 1);
    CHECK(kv_batch_begin(kv, NULL));
    CHECK(kv_apply(kv, change, &err) == KV_FAILED);
    CHECK(err.kind == ERROR_INVALID);
    CHECK(kv_batch_end(kv, NULL));
    check_value(kv, "beside", NULL);
    kv_change_free(change);
}

static void test_limits(struct kv *kv)
{
    static char value[KV_VALUE_MAX_BYTES + 1];
    char key[KV_KEY_MAX_BYTES + 2] = {0};
    memset(key, 'k', KV_KEY_MAX_BYTES);
    put_now(kv, key, "longest");
    check_value(kv, key, "longest");
    char pair[sizeof key + 16];
    snprintf(pair, sizeof pair, "%s=longest ", key);
    check_range(kv, key, NULL, 0, pair);
    key[KV_KEY_MAX_BYTES] = 'k';

    struct kv_change *change = kv_change_new();
    kv_change_put(change, key, "", 0);
    check_refused(kv, change);
    change = kv_change_new();
    kv_change_delete(change, key);
    check_refused(kv, change);
    change = kv_change_new();
    kv_change_expect(change, key, 0);
    check_refused(kv, change);
    change = kv_change_new();
    kv_change_put(change, "", "x", 1);
    check_refused(kv, change);
    change = kv_change_new();
    kv_change_put(change, "v", value, sizeof value);
    check_refused(kv, change);

    struct error err = {0};
    AUTO_KV_VALUE got = {0};
    CHECK(!kv_get(kv, key, &got, &err) && err.kind == ERROR_INVALID);
    CHECK(!kv_get(kv, "", &got, &err) && err.kind == ERROR_INVALID);
    CHECK(!kv_range(kv, key, NULL, 0, note, NULL, &err) && err.kind == ERROR_INVALID);
    CHECK(!kv_range(kv, "", key, 0, note, NULL, &err) && err.kind == ERROR_INVALID);
}

static enum kv_outcome put_if(struct kv *kv, const char *key, uint64_t revision, const char *text)
{
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "other", text, strlen(text)); /* comparisons come first, wherever they stand */
    kv_change_put(change, key, text, strlen(text));
    kv_change_expect(change, key, revision);
    return change_now(kv, change);
}

static void test_comparisons(struct kv *kv)
{
    CHECK(put_if(kv, "c", 1, "wrong") == KV_CONFLICT);
    check_value(kv, "c", NULL);
    check_value(kv, "other", NULL);
    CHECK(put_if(kv, "c", 0, "made") == KV_APPLIED);
    CHECK(put_if(kv, "c", 0, "again") == KV_CONFLICT);
    check_value(kv, "other", "made");
    uint64_t revision = revision_of(kv, "c");
    CHECK(put_if(kv, "c", revision + 1, "ahead") == KV_CONFLICT);
    CHECK(put_if(kv, "c", revision, "next") == KV_APPLIED);
    CHECK(put_if(kv, "c", revision, "late") == KV_CONFLICT);
    check_value(kv, "c", "next");

    AUTO(kv_change) *only = kv_change_new(); /* compares and writes nothing */
    kv_change_expect(only, "c", revision_of(kv, "c"));
    revision = revision_of(kv, "c");
    CHECK(change_now(kv, only) == KV_APPLIED);
    put_now(kv, "d", "");
    CHECK(revision_of(kv, "d") == revision + 1);
}

static void test_batch(struct kv *kv)
{
    struct error err = {0};
    AUTO(kv_change) *first = kv_change_new();
    AUTO(kv_change) *second = kv_change_new();
    AUTO(kv_change) *third = kv_change_new();
    kv_change_expect(first, "n", 0);
    kv_change_put(first, "n", "1", 1);
    kv_change_expect(second, "n", 0); /* fails: the first made it */
    kv_change_put(second, "n", "2", 1);
    kv_change_put(second, "m", "2", 1);
    kv_change_put(third, "o", "3", 1);
    kv_change_put(third, "o", "4", 1); /* the last one counts */
    CHECK(kv_batch_begin(kv, &err));
    CHECK(apply(kv, first, &err) == KV_APPLIED);
    check_value(kv, "n", "1");
    check_range(kv, "n", NULL, 0, "n=1 ");
    CHECK(apply(kv, second, &err) == KV_CONFLICT);
    CHECK(apply(kv, third, &err) == KV_APPLIED);
    CHECK(kv_batch_end(kv, &err));
    check_value(kv, "n", "1");
    check_value(kv, "m", NULL);
    check_value(kv, "o", "4");
    CHECK(revision_of(kv, "o") == revision_of(kv, "n") + 1);
    CHECK(kv_batch_begin(kv, &err) && kv_batch_end(kv, &err)); /* an empty one */
}

static bool change_in_walk(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    struct kv *kv = cookie;
    struct error err = {0};
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "w", "x", 1);
    CHECK(kv_apply(kv, change, &err) == KV_FAILED && err.kind == ERROR_INTERNAL);
    check_value(kv, "n", "1"); /* reading is allowed */
    check_range(kv, "n", NULL, 0, "n=1 ");
    return true;
}

static void test_misuse(struct kv *kv)
{
    struct error err = {0};
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "n", "1", 1);
    CHECK(kv_apply(kv, change, &err) == KV_FAILED && err.kind == ERROR_INTERNAL);
    CHECK(!kv_batch_end(kv, &err));
    CHECK(kv_batch_begin(kv, &err));
    CHECK(!kv_batch_begin(kv, &err));
    CHECK(kv_apply(kv, change, &err) == KV_APPLIED);
    CHECK(kv_range(kv, "n", NULL, 0, change_in_walk, kv, &err));
    CHECK(kv_batch_end(kv, &err));
    CHECK(kv_range(kv, "n", NULL, 0, change_in_walk, kv, &err));
    check_value(kv, "w", NULL);
}

/* Freed with a batch open and a change in it: nothing leaks. */
static void test_free_in_batch(struct kv *kv)
{
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "n", "1", 1);
    CHECK(kv_batch_begin(kv, NULL));
    CHECK(kv_apply(kv, change, NULL) == KV_APPLIED);
}

static void test_memory_rollback(void)
{
    AUTO(kv) *kv = kv_memory_new(0, 1);
    struct error err = {0};
    put_now(kv, "kept", "1");
    put_now(kv, "changed", "1");
    put_now(kv, "deleted", "1");
    uint64_t revision = revision_of(kv, "deleted");
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "changed", "2", 1);
    kv_change_delete(change, "deleted");
    kv_change_put(change, "new", "2", 1);
    kv_change_put(change, "deleted", "3", 1);
    kv_change_put(change, "changed", "3", 1);
    kv_memory_fail_ends(kv, 1);
    CHECK(kv_batch_begin(kv, &err));
    CHECK(kv_apply(kv, change, &err) == KV_APPLIED);
    check_value(kv, "changed", "3");
    CHECK(!kv_batch_end(kv, &err) && err.kind == ERROR_DISK_FULL);
    check_range(kv, "", NULL, 0, "changed=1 deleted=1 kept=1 ");
    CHECK(revision_of(kv, "deleted") == revision);
    put_now(kv, "after", "1"); /* the next end succeeds, and uses the revision again */
    CHECK(revision_of(kv, "after") == revision + 1);
}

/* Of 1000 changes; *order gets a number that depends on which ones. */
static unsigned count_conflicts(unsigned percent, uint64_t seed, bool compare, unsigned *order)
{
    AUTO(kv) *kv = kv_memory_new(percent, seed);
    AUTO(kv_change) *change = kv_change_new();
    if (compare)
        kv_change_expect(change, "missing", 0);
    kv_change_put(change, "n", "1", 1);
    unsigned conflicts = 0;
    *order = 0;
    CHECK(kv_batch_begin(kv, NULL));
    for (unsigned i = 0; i < 1000; i++) {
        bool conflict = kv_apply(kv, change, NULL) == KV_CONFLICT;
        conflicts += conflict;
        *order = *order * 31 + conflict;
    }
    CHECK(kv_batch_end(kv, NULL));
    return conflicts;
}

static void test_memory_conflicts(void)
{
    unsigned order, again, other;
    CHECK(count_conflicts(0, 1, true, &order) == 0);
    CHECK(count_conflicts(100, 1, true, &order) == 1000);
    CHECK(count_conflicts(100, 1, false, &order) == 0);
    unsigned conflicts = count_conflicts(40, 1, true, &order);
    CHECK(conflicts > 340 && conflicts < 460);
    CHECK(count_conflicts(40, 1, true, &again) == conflicts && again == order);
    CHECK(count_conflicts(40, 2, true, &other) > 0 && other != order);
}

int main(void)
{
    static void (*const TESTS[])(struct kv *) = {test_put_get_delete, test_bytes, test_range,  test_limits,
                                                 test_comparisons,    test_batch, test_misuse, test_free_in_batch};
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
    test_memory_rollback();
    test_memory_conflicts();
    return check_done();
}
