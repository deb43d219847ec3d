/* ledger_test.c - the ledger thread on every engine: exact totals under 64 writers, order, retries, answers only after
 * the batch's end, what a failed batch answers, and a stop that drains. */
#include "negotiator/ledger/ledger.h"

#include "negotiator/ledger/kv_internal.h"
#include "shared/base/text.h"
#include "tests/unit/negotiator/ledger/stores.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define WRITERS  64
#define ROUNDS   40
#define COUNTERS 3

static struct ledger *start(struct kv *kv)
{
    struct error err = {0};
    struct ledger *ledger = ledger_start(kv, &err);
    if (ledger == NULL) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return ledger;
}

static uint64_t read_number(struct kv *kv, const char *key, uint64_t *revision)
{
    AUTO_KV_VALUE value = {0};
    uint64_t number = 0;
    CHECK(kv_get(kv, key, &value, NULL));
    CHECK(value.data == NULL || text_parse_u64(value.data, value.size, UINT64_MAX, &number));
    *revision = value.revision;
    return number;
}

/* Adds one to the counter named by the argument. */
static enum kv_outcome increment(struct kv *kv, void *argument, struct error *err)
{
    const char *key = argument;
    char text[32];
    uint64_t revision, number = read_number(kv, key, &revision);
    snprintf(text, sizeof text, "%llu", (unsigned long long)number + 1);
    AUTO(kv_change) *change = kv_change_new();
    kv_change_expect(change, key, revision);
    kv_change_put(change, key, text, strlen(text));
    return kv_apply(kv, change, err);
}

struct reading {
    const char *key;
    uint64_t number;
};

static enum kv_outcome read_rule(struct kv *kv, void *argument, struct error *err UNUSED)
{
    struct reading *reading = argument;
    uint64_t revision;
    reading->number = read_number(kv, reading->key, &revision);
    return KV_APPLIED;
}

static uint64_t read_now(struct ledger *ledger, const char *key)
{
    struct reading reading = {.key = key};
    CHECK(ledger_run(ledger, read_rule, &reading, NULL));
    return reading.number;
}

/* --- many writers --- */

static char counter_names[COUNTERS][8] = {"count/0", "count/1", "count/2"};

struct writer {
    struct ledger *ledger;
    pthread_t thread;
    unsigned number, failures;
};

static void *write_rounds(void *argument)
{
    struct writer *writer = argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char *name = counter_names[(writer->number + i) % COUNTERS];
        writer->failures += !ledger_run(writer->ledger, increment, name, NULL);
    }
    return NULL;
}

static void test_writers(struct kv *kv, enum stores_engine engine)
{
    struct ledger *ledger = start(kv);
    static struct writer writers[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.ledger = ledger, .number = i};
        CHECK(pthread_create(&writers[i].thread, NULL, write_rounds, &writers[i]) == 0);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        CHECK(pthread_join(writers[i].thread, NULL) == 0);
        CHECK(writers[i].failures == 0);
    }
    uint64_t sum = 0;
    for (unsigned i = 0; i < COUNTERS; i++)
        sum += read_now(ledger, counter_names[i]);
    CHECK(sum == WRITERS * ROUNDS);
    struct ledger_figures figures;
    ledger_figures(ledger, &figures);
    CHECK(figures.rules == WRITERS * ROUNDS + COUNTERS && figures.failures == 0);
    CHECK(figures.batches <= figures.rules);
    CHECK((figures.conflicts > 0) == (engine == STORES_CONFLICTING));
    ledger_stop(ledger);
}

/* --- a batch of known content: a rule that waits, and all that is queued meanwhile --- */

struct gate {
    sem_t entered, opened;
    struct kv *kv;
    unsigned fail_ends; /* set once the gate's own batch has ended */
};

static enum kv_outcome wait_rule(struct kv *kv UNUSED, void *argument, struct error *err UNUSED)
{
    struct gate *gate = argument;
    sem_post(&gate->entered);
    while (sem_wait(&gate->opened) != 0)
        continue;
    return KV_APPLIED;
}

static void gate_done(void *argument, const struct error *err)
{
    struct gate *gate = argument;
    CHECK(err->kind == ERROR_NONE);
    if (gate->fail_ends)
        kv_memory_fail_ends(gate->kv, gate->fail_ends);
}

static void gate_close(struct gate *gate, struct ledger *ledger)
{
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->opened, 0, 0);
    ledger_submit(ledger, wait_rule, gate_done, gate);
    while (sem_wait(&gate->entered) != 0)
        continue;
}

/* One rule whose answer is looked at later. */
struct asked {
    struct kv *kv;
    char key[24];
    bool refuse;
    bool answered, in_batch;
    unsigned calls, order;
    uint64_t durable; /* the counter as read outside a batch when it was answered */
    struct error err;
};
static unsigned answers; /* ledger thread */

static enum kv_outcome asked_rule(struct kv *kv, void *argument, struct error *err)
{
    struct asked *asked = argument;
    asked->calls++;
    if (!asked->refuse)
        return increment(kv, asked->key, err);
    error_set(err, ERROR_FORBIDDEN, "refused");
    return KV_FAILED;
}

static void asked_done(void *argument, const struct error *err)
{
    struct asked *asked = argument;
    uint64_t revision;
    asked->answered = true;
    asked->in_batch = asked->kv->in_batch;
    asked->order = answers++;
    asked->err = *err;
    asked->durable = read_number(asked->kv, asked->key, &revision);
}

static void test_group(struct kv *kv, enum stores_engine engine)
{
    struct ledger *ledger = start(kv);
    struct gate gate = {0};
    struct asked asked[50] = {0};
    struct ledger_figures before, after;
    gate_close(&gate, ledger);
    ledger_figures(ledger, &before);
    answers = 0;
    for (unsigned i = 0; i < 50; i++) {
        asked[i] = (struct asked){.kv = kv, .key = "grouped", .refuse = i % 10 == 3};
        ledger_submit(ledger, asked_rule, asked_done, &asked[i]);
    }
    sem_post(&gate.opened);
    CHECK(read_now(ledger, "grouped") == 45);
    ledger_figures(ledger, &after);
    CHECK(after.batches - before.batches <= 3 && after.rules - before.rules == 52);
    CHECK(after.failures - before.failures == 5);
    for (unsigned i = 0; i < 50; i++) {
        CHECK(asked[i].answered && !asked[i].in_batch && asked[i].order == i);
        CHECK(asked[i].durable == 45); /* the whole batch was there before the first answer */
        CHECK(asked[i].err.kind == (asked[i].refuse ? ERROR_FORBIDDEN : ERROR_NONE));
        CHECK(asked[i].calls == 1 || engine == STORES_CONFLICTING);
    }
    ledger_stop(ledger);
}

static void test_failed_end(void)
{
    struct kv *kv = kv_memory_new(40, 3);
    struct ledger *ledger = start(kv);
    struct gate gate = {.kv = kv, .fail_ends = 1};
    struct asked asked[20] = {0};
    gate_close(&gate, ledger);
    for (unsigned i = 0; i < 20; i++) {
        asked[i] = (struct asked){.kv = kv, .key = "failing", .refuse = i % 5 == 1};
        ledger_submit(ledger, asked_rule, asked_done, &asked[i]);
    }
    sem_post(&gate.opened);
    /* Whether this one is in the failing batch depends on the scheduler; only its answer counts. */
    struct error err = {0};
    if (!ledger_run(ledger, increment, counter_names[0], &err))
        CHECK(err.kind == ERROR_DISK_FULL);
    for (unsigned i = 0; i < 20; i++) {
        CHECK(asked[i].answered && asked[i].durable == 0);
        CHECK(asked[i].err.kind == (asked[i].refuse ? ERROR_FORBIDDEN : ERROR_DISK_FULL));
    }
    CHECK(read_now(ledger, "failing") == 0);
    CHECK(ledger_run(ledger, increment, asked[0].key, &err));
    CHECK(read_now(ledger, "failing") == 1);
    ledger_stop(ledger);
}

static enum kv_outcome count_call(struct kv *kv, void *argument, struct error *err)
{
    ++*(unsigned *)argument;
    return increment(kv, counter_names[0], err);
}

static void test_retries_end(void)
{
    struct ledger *ledger = start(kv_memory_new(100, 1));
    struct error err = {0};
    unsigned calls = 0;
    CHECK(!ledger_run(ledger, count_call, &calls, &err));
    CHECK(err.kind == ERROR_INTERNAL && calls == LEDGER_RETRIES_MAX);
    struct ledger_figures figures;
    ledger_figures(ledger, &figures);
    CHECK(figures.conflicts == LEDGER_RETRIES_MAX && figures.failures == 1 && figures.rules == 1);
    ledger_stop(ledger);
}

/* --- answers of odd rules --- */

static enum kv_outcome fail_silently(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_FAILED;
}

static enum kv_outcome succeed_with_error(struct kv *kv UNUSED, void *argument UNUSED, struct error *err)
{
    error_set(err, ERROR_NOT_FOUND, "left over from something tried");
    return KV_APPLIED;
}

static enum kv_outcome run_inside(struct kv *kv UNUSED, void *argument, struct error *err)
{
    CHECK(!ledger_run(argument, fail_silently, NULL, err) && err->kind == ERROR_INTERNAL);
    sigset_t blocked;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
    CHECK(sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGCHLD) == 1);
    return KV_APPLIED;
}

static void test_odd_rules(struct kv *kv, enum stores_engine engine UNUSED)
{
    struct ledger *ledger = start(kv);
    struct error err = {0};
    CHECK(!ledger_run(ledger, fail_silently, NULL, &err) && err.kind == ERROR_INTERNAL);
    err = (struct error){0};
    CHECK(ledger_run(ledger, succeed_with_error, NULL, &err) && err.kind == ERROR_NONE);
    CHECK(ledger_run(ledger, run_inside, ledger, &err));
    CHECK(!ledger_run(ledger, fail_silently, NULL, NULL));
    ledger_submit(ledger, increment, NULL, counter_names[0]); /* nobody wants the answer */
    CHECK(read_now(ledger, counter_names[0]) == 1);
    ledger_stop(ledger);
}

/* --- stopping --- */

struct chain {
    struct ledger *ledger;
    unsigned left, done;
};

static enum kv_outcome do_nothing(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

static void go_on(void *argument, const struct error *err)
{
    struct chain *chain = argument;
    CHECK(err->kind == ERROR_NONE);
    chain->done++;
    if (chain->left-- > 0)
        ledger_submit(chain->ledger, do_nothing, go_on, chain);
}

static void count_done(void *argument, const struct error *err)
{
    CHECK(err->kind == ERROR_NONE);
    ++*(unsigned *)argument;
}

/* --- long ones --- */

struct journey {
    unsigned steps, length, fails_at; /* fails_at 0: never */
    unsigned *clock;                  /* counts all steps of all */
    unsigned ended_at;
    bool done, failed;
    sem_t *over;
};

static enum kv_outcome step_rule(struct kv *kv UNUSED, void *argument, struct error *err)
{
    struct journey *journey = argument;
    journey->steps++;
    ++*journey->clock;
    if (journey->steps != journey->fails_at)
        return KV_APPLIED;
    error_set(err, ERROR_INVALID, "a step failed");
    return KV_FAILED;
}

static bool journey_is_over(const void *argument)
{
    const struct journey *journey = argument;
    return journey->steps == journey->length;
}

static void journey_done(void *argument, const struct error *err)
{
    struct journey *journey = argument;
    CHECK(!journey->done);
    journey->done = true;
    journey->failed = err->kind != ERROR_NONE;
    journey->ended_at = *journey->clock;
    sem_post(journey->over);
}

static enum kv_outcome read_clock(struct kv *kv UNUSED, void *argument, struct error *err UNUSED)
{
    struct journey *journey = argument;
    journey->ended_at = *journey->clock;
    return KV_APPLIED;
}

/* One that is over before its first step, one that fails, and three long ones in turns; a rule behind them waits for a
 * step of one, not for all of theirs. */
static void test_long_ones(struct kv *kv, enum stores_engine engine UNUSED)
{
    enum { COUNT = 5, LENGTH = 2000 };
    struct ledger *ledger = start(kv);
    unsigned clock = 0;
    sem_t over;
    sem_init(&over, 0, 0);
    struct journey all[COUNT] = {
        {.length = 0}, {.length = LENGTH, .fails_at = 7}, {.length = LENGTH}, {.length = LENGTH}, {.length = LENGTH}};
    struct journey other = {.clock = &clock};
    for (size_t i = 0; i < COUNT; i++) {
        all[i].clock = &clock;
        all[i].over = &over;
        ledger_submit_long(ledger, step_rule, journey_is_over, journey_done, &all[i]);
    }
    CHECK(ledger_run(ledger, read_clock, &other, NULL));
    CHECK(other.ended_at < 3U * LENGTH);
    for (size_t i = 0; i < COUNT; i++)
        sem_wait(&over);
    CHECK(all[0].steps == 0 && !all[0].failed);
    CHECK(all[1].steps == 7 && all[1].failed);
    CHECK(all[2].steps == LENGTH && all[3].steps == LENGTH && all[4].steps == LENGTH && !all[4].failed);
    CHECK(all[2].ended_at > 2U * LENGTH && clock == 3U * LENGTH + 7); /* in turns: none was through before the others */
    ledger_submit_long(ledger, step_rule, journey_is_over, journey_done,
                       &(struct journey){.length = 3, .clock = &clock, .over = &over}); /* a stop waits for it */
    ledger_stop(ledger);
    CHECK(sem_trywait(&over) == 0);
    sem_destroy(&over);
}

static void test_stop_drains(struct kv *kv, enum stores_engine engine UNUSED)
{
    struct ledger *ledger = start(kv);
    unsigned done = 0;
    struct chain chain = {.ledger = ledger, .left = 20};
    const unsigned queued = 2 * LEDGER_BATCH_MAX + 500;
    for (unsigned i = 0; i < queued; i++)
        ledger_submit(ledger, do_nothing, count_done, &done);
    ledger_submit(ledger, do_nothing, go_on, &chain);
    ledger_stop(ledger);
    CHECK(done == queued);
    CHECK(chain.done == 21);
}

static void test_stop_idle(struct kv *kv, enum stores_engine engine UNUSED)
{
    ledger_stop(NULL);
    ledger_stop(start(kv));
}

int main(void)
{
    static void (*const TESTS[])(struct kv *, enum stores_engine) = {test_writers,   test_group,       test_odd_rules,
                                                                     test_long_ones, test_stop_drains, test_stop_idle};
    for (int engine = 0; engine < STORES_ENGINES; engine++) {
        int before = check_failures;
        for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
            char folder[4096];
            stores_make_folder(folder);
            TESTS[i](stores_open((enum stores_engine)engine, folder), (enum stores_engine)engine);
            stores_remove_folder(folder);
        }
        if (check_failures > before)
            fprintf(stderr, "... with %s\n", STORES_NAMES[engine]);
    }
    test_failed_end();
    test_retries_end();
    return check_done();
}
