/* ledger_alarm_test.c - the ledger thread's alarms: in order of time, never early, once, whatever the clock does; and
 * they wake a thread that waits for nothing else. */
#include "negotiator/ledger/ledger.h"

#include "shared/base/clock.h"
#include "tests/unit/check.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct ledger *start(void)
{
    struct error err = {0};
    struct ledger *ledger = ledger_start(kv_memory_new(0, 1), &err);
    if (ledger == NULL) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return ledger;
}

static enum kv_outcome do_nothing(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

#define ALARMS 200

static _Atomic int64_t fake_now;

static int64_t fake_clock(void)
{
    return fake_now;
}

struct rung {
    struct ledger *ledger;
    int64_t at[ALARMS + 8]; /* of those called, in order */
    size_t count;
    int64_t again; /* sets itself anew at that time, once; 0: no */
    unsigned rules;
};

struct bell {
    struct rung *rung;
    int64_t at;
};

static void count_rule_done(void *argument, const struct error *err)
{
    CHECK(err->kind == ERROR_NONE);
    ++*(unsigned *)argument;
}

static void ring(void *argument, int64_t now)
{
    struct bell *bell = argument;
    struct rung *rung = bell->rung;
    CHECK(now >= bell->at && rung->count < ALARMS + 8);
    rung->at[rung->count++] = bell->at;
    ledger_submit(rung->ledger, do_nothing, count_rule_done, &rung->rules);
    if (rung->again) {
        bell->at = rung->again;
        rung->again = 0;
        ledger_alarm(rung->ledger, bell->at, ring, bell);
    }
}

/* Alarms that are due when the first rule ends are called before the second's answer; what they submit is answered before
 * the third's. */
static void pass(struct ledger *ledger)
{
    for (int i = 0; i < 3; i++)
        CHECK(ledger_run(ledger, do_nothing, NULL, NULL));
}

static void test_alarms_in_order(void)
{
    struct ledger *ledger = start();
    static struct bell bells[ALARMS];
    struct rung rung = {.ledger = ledger};
    fake_now = 1000;
    ledger_set_clock(ledger, fake_clock);
    for (unsigned i = 0; i < ALARMS; i++) {
        bells[i] = (struct bell){&rung, 2000 + (int64_t)(i * 7919U % 1000U)};
        ledger_alarm(ledger, bells[i].at, ring, &bells[i]);
    }
    pass(ledger);
    CHECK(rung.count == 0);
    fake_now = 2499;
    pass(ledger);
    size_t first = rung.count;
    for (size_t i = 0; i < first; i++)
        CHECK(rung.at[i] < 2500 && (i == 0 || rung.at[i - 1] <= rung.at[i]));
    CHECK(first > 0 && first < ALARMS);
    fake_now = 100; /* a clock that is set back calls nothing twice, and nothing early */
    pass(ledger);
    CHECK(rung.count == first);
    fake_now = 10000;
    pass(ledger);
    CHECK(rung.count == ALARMS && rung.rules == ALARMS);
    for (size_t i = 1; i < rung.count; i++)
        CHECK(rung.at[i - 1] <= rung.at[i]);
    ledger_stop(ledger);
}

static void test_alarms_set_by_alarms(void)
{
    struct ledger *ledger = start();
    struct rung rung = {.ledger = ledger, .again = 500};
    struct bell bell = {&rung, 400}, never = {&rung, 100000};
    fake_now = 1000;
    ledger_set_clock(ledger, fake_clock);
    ledger_alarm(ledger, 400, ring, &bell); /* over already: at once, and the next one after a batch */
    ledger_alarm(ledger, 100000, ring, &never);
    pass(ledger);
    pass(ledger);
    CHECK(rung.count == 2 && rung.at[0] == 400 && rung.at[1] == 500);
    ledger_stop(ledger); /* drops the other one */
    CHECK(rung.count == 2);
}

static void test_alarms_move(void)
{
    struct ledger *ledger = start();
    struct rung rung = {.ledger = ledger};
    struct bell moved = {&rung, 0}, other = {&rung, 3000};
    fake_now = 1000;
    ledger_set_clock(ledger, fake_clock);
    ledger_alarm(ledger, 3000, ring, &other);
    for (int64_t at = 5000; at >= 2000; at -= 1000)
        ledger_alarm_move(ledger, at, ring, &moved);
    ledger_alarm_move(ledger, 4000, ring, &moved);
    moved.at = 4000;
    fake_now = 3500;
    pass(ledger);
    CHECK(rung.count == 1 && rung.at[0] == 3000);
    fake_now = 9000;
    pass(ledger);
    CHECK(rung.count == 2 && rung.at[1] == 4000);
    ledger_stop(ledger);
}

static void post(void *argument, int64_t now UNUSED)
{
    sem_post(argument);
}

/* The real clock, and nobody asks for anything meanwhile. */
static void test_alarms_wake(void)
{
    struct ledger *ledger = start();
    sem_t rung;
    struct timespec late;
    sem_init(&rung, 0, 0);
    int64_t now = clock_wall_ms();
    ledger_alarm(ledger, now + 3600000, post, &rung);
    ledger_alarm(ledger, now + 150, post, &rung); /* earlier than the one that is waited for */
    clock_gettime(CLOCK_REALTIME, &late);
    late.tv_sec += 8;
    CHECK(sem_timedwait(&rung, &late) == 0);
    int64_t took = clock_wall_ms() - now;
    CHECK(took >= 150 && took < 5000);
    CHECK(sem_trywait(&rung) != 0);
    struct ledger_figures figures;
    ledger_figures(ledger, &figures);
    CHECK(figures.batches == 0); /* no rule, no batch: waiting costs nothing */
    ledger_stop(ledger);
    sem_destroy(&rung);
}

int main(void)
{
    test_alarms_in_order();
    test_alarms_set_by_alarms();
    test_alarms_move();
    test_alarms_wake();
    return check_done();
}
