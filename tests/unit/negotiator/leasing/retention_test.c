/* retention_test.c - the retention of audit records on a running ledger: by its alarm and by a clock that does as it is
 * told, while other rules come in between; off when nothing is to go; over when the negotiator stops. */
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/ledger/kv_internal.h"
#include "shared/base/clock.h"
#include "tests/unit/check.h"

#include <time.h>

static const int64_t DAY_MS = 24LL * 3600 * 1000;

static _Atomic int64_t now_ms;

static int64_t fake_clock(void)
{
    return now_ms;
}

struct stage {
    struct kv *kv; /* the ledger's */
    struct ledger *ledger;
    struct leasing *leasing;
    struct key master, audit_key;
    size_t fill;              /* of fill_rule */
    uint64_t records, sealed; /* of check_rule */
    bool running;
};

static void stage_begin(struct stage *stage, unsigned conflict_percent, int64_t keep_days)
{
    struct error err = {0};
    *stage = (struct stage){.kv = kv_memory_new(conflict_percent, 5)};
    key_random(&stage->master);
    key_derive(&stage->audit_key, &stage->master, "parley/audit/1");
    stage->ledger = ledger_start(stage->kv, &err);
    stage->leasing = leasing_new(&(struct leasing_options){.ledger = stage->ledger,
                                                           .master = &stage->master,
                                                           .deployment = "dep_aaaaaaaaaaaaaaaaaaaa",
                                                           .audit_keep_days = keep_days,
                                                           .wall_ms = fake_clock});
}

static void stage_end(struct stage *stage)
{
    ledger_stop(stage->ledger);
    leasing_free(stage->leasing);
}

static enum kv_outcome fill_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct stage *stage = argument;
    AUTO(kv_change) *change = kv_change_new();
    for (size_t i = 0; i < stage->fill; i++) {
        struct audit_record record = {.time_ms = now_ms, .plane = "negotiator", .action = "negotiate"};
        if (!audit_append(kv, change, &stage->audit_key, &record, err))
            return KV_FAILED;
    }
    return kv_apply(kv, change, err);
}

static void fill(struct stage *stage, size_t count)
{
    struct error err = {0};
    stage->fill = count;
    CHECK(ledger_run(stage->ledger, fill_rule, stage, &err));
}

static bool count_row(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ++*(uint64_t *)cookie;
    return true;
}

/* What is there, and that it is whole: also in the middle of a round. */
static enum kv_outcome check_rule(struct kv *kv, void *argument, struct error *err)
{
    struct stage *stage = argument;
    uint64_t count = 0;
    stage->records = 0;
    stage->sealed = stage->leasing->retention.sealed;
    stage->running = stage->leasing->retention.running;
    bool read = kv_range(kv, "audit/", NULL, 0, count_row, &stage->records, err) &&
                audit_verify(kv, &stage->audit_key, &count, err);
    CHECK_TEXT(err->message, "");
    return read ? KV_APPLIED : KV_FAILED;
}

static void look(struct stage *stage)
{
    struct error err = {0};
    CHECK(ledger_run(stage->ledger, check_rule, stage, &err));
}

static enum kv_outcome nothing_rule(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

static void begin_round(void *argument, const struct error *err UNUSED)
{
    retention_round(argument);
}

/* A whole round; *steps gets how many other rules ran in between. */
static void run_round(struct stage *stage, size_t *between)
{
    struct error err = {0};
    ledger_submit(stage->ledger, nothing_rule, begin_round, stage->leasing);
    CHECK(ledger_run(stage->ledger, nothing_rule, NULL, &err)); /* answered after it: the round has begun */
    *between = 0;
    do {
        look(stage);
        ++*between;
    } while (stage->running && *between < 10000);
    CHECK(!stage->running);
}

static void test_rounds(struct stage *stage)
{
    size_t between;
    now_ms = 1800000000000;
    fill(stage, 1000);
    fill(stage, 300);
    run_round(stage, &between);
    CHECK(stage->sealed == 0 && stage->records == 1300);
    now_ms += 90 * DAY_MS;
    fill(stage, 7);
    run_round(stage, &between);
    CHECK(stage->sealed == 0 && stage->records == 1307);
    now_ms += 2 * DAY_MS;
    run_round(stage, &between);
    CHECK(stage->sealed == 1 && stage->records == 8); /* seven, and the one that tells of the seal */
    CHECK(between > 1);                               /* it let others in */
    run_round(stage, &between);
    CHECK(stage->sealed == 1 && stage->records == 8);
}

/* A batch fails at its end somewhere in the round: the next round makes it good. */
static void test_failing(struct stage *stage)
{
    size_t between;
    now_ms = 1800000000000;
    fill(stage, 1200);
    now_ms += 100 * DAY_MS;
    for (unsigned i = 0; i < 8; i++) {
        kv_memory_fail_ends(stage->kv, 1);
        ledger_submit(stage->ledger, nothing_rule, begin_round, stage->leasing);
        struct error err = {0};
        for (unsigned steps = 0; steps < i; steps++)
            (void)!ledger_run(stage->ledger, nothing_rule, NULL, &err);
    }
    kv_memory_fail_ends(stage->kv, 0);
    run_round(stage, &between);
    run_round(stage, &between);
    CHECK(stage->records == 1);
}

/* Its own time: a minute after the start. */
static void test_alarm(struct stage *stage)
{
    now_ms = clock_wall_ms() - 100 * DAY_MS;
    fill(stage, 600);
    now_ms = clock_wall_ms() - 60000;
    retention_start(stage->leasing);
    for (int i = 0; i < 500; i++) {
        look(stage);
        if (stage->sealed > 0 && !stage->running)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    CHECK(stage->sealed == 1 && stage->records == 1);
}

static void test_stopping(struct stage *stage)
{
    size_t between;
    now_ms = 1800000000000;
    fill(stage, 1000);
    now_ms += 100 * DAY_MS;
    leasing_stopping(stage->leasing);
    run_round(stage, &between);
    CHECK(stage->sealed == 0 && stage->records == 1000);
}

static void test_for_ever(void)
{
    struct stage stage;
    size_t between;
    stage_begin(&stage, 0, 0);
    now_ms = 1800000000000;
    fill(&stage, 1000);
    now_ms += 30000 * DAY_MS;
    run_round(&stage, &between);
    CHECK(stage.sealed == 0 && stage.records == 1000);
    stage_end(&stage);
}

int main(void)
{
    static void (*const TESTS[])(struct stage *) = {test_rounds, test_failing, test_alarm, test_stopping};
    keys_start();
    for (unsigned percent = 0; percent <= 40; percent += 40) {
        for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
            struct stage stage;
            stage_begin(&stage, percent, 90);
            TESTS[i](&stage);
            stage_end(&stage);
        }
    }
    test_for_ever();
    return check_done();
}
