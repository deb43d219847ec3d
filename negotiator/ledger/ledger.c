#include "negotiator/ledger/ledger.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

static const int64_t CLOCK_LOOK_MS = 10000; /* a step of the wall clock is noticed after that */

struct task {
    ledger_rule *rule;
    ledger_done *done;
    void *argument;
    struct error err; /* its answer */
    struct task *next;
};

struct alarm {
    int64_t at_ms;
    ledger_alarm_call *call;
    void *argument;
};

/* Something long, by turns. */
struct turn {
    struct ledger *ledger;
    ledger_rule *rule;
    ledger_is_over *is_over;
    ledger_done *done;
    void *argument;
    struct turn *next;
};

struct ledger {
    struct kv *kv; /* the ledger thread's */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t queued; /* the queue is not empty, an earlier alarm was set, or `stopping` */
    struct alarm *alarms;  /* a heap: none is before the first one */
    size_t alarm_count, alarm_capacity;
    int64_t (*wall_ms)(void);
    struct task *first, **last;
    struct turn *turns, **last_turn; /* that wait for their next step */
    bool is_turning;                 /* one of the long ones has its step in the queue */
    bool stopping;
    struct ledger_figures figures;
    pthread_mutex_t commit_mutex; /* guards the two; held while it is called */
    ledger_committed *committed;
    void *commit_context;
    struct metrics_histogram syncs; /* not guarded: it counts by itself */
};

/* --- alarms; locked, but for call_alarms --- */

static void swap_alarms(struct alarm *a, struct alarm *b)
{
    struct alarm kept = *a;
    *a = *b;
    *b = kept;
}

static void rise(struct alarm *heap, size_t at)
{
    for (; at > 0 && heap[at].at_ms < heap[(at - 1) / 2].at_ms; at = (at - 1) / 2)
        swap_alarms(&heap[at], &heap[(at - 1) / 2]);
}

static void sink(struct alarm *heap, size_t count, size_t at)
{
    for (;;) {
        size_t first = at, left = 2 * at + 1, right = left + 1;
        if (left < count && heap[left].at_ms < heap[first].at_ms)
            first = left;
        if (right < count && heap[right].at_ms < heap[first].at_ms)
            first = right;
        if (first == at)
            return;
        swap_alarms(&heap[at], &heap[first]);
        at = first;
    }
}

static void add_alarm(struct ledger *ledger, struct alarm alarm)
{
    if (ledger->alarm_count == ledger->alarm_capacity) {
        ledger->alarm_capacity = ledger->alarm_capacity ? ledger->alarm_capacity * 2 : 16;
        ledger->alarms = memory_resize(ledger->alarms, ledger->alarm_capacity * sizeof *ledger->alarms);
    }
    ledger->alarms[ledger->alarm_count] = alarm;
    rise(ledger->alarms, ledger->alarm_count++);
    if (ledger->alarms[0].at_ms == alarm.at_ms)
        pthread_cond_signal(&ledger->queued); /* it waits for a later one */
}

static void remove_alarm(struct ledger *ledger, size_t at)
{
    ledger->alarms[at] = ledger->alarms[--ledger->alarm_count];
    if (at == ledger->alarm_count)
        return;
    rise(ledger->alarms, at);
    sink(ledger->alarms, ledger->alarm_count, at);
}

static bool is_due(const struct ledger *ledger, int64_t now)
{
    return ledger->alarm_count > 0 && ledger->alarms[0].at_ms <= now && !ledger->stopping;
}

/* Those that are due by now; not what they set in turn, so that rules get their turn too. */
static void call_alarms(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->mutex);
    int64_t now = ledger->wall_ms();
    for (size_t left = ledger->alarm_count; left > 0 && is_due(ledger, now); left--) {
        struct alarm alarm = ledger->alarms[0];
        remove_alarm(ledger, 0);
        pthread_mutex_unlock(&ledger->mutex);
        alarm.call(alarm.argument, now);
        pthread_mutex_lock(&ledger->mutex);
    }
    pthread_mutex_unlock(&ledger->mutex);
}

/* For a rule, or until the first alarm may be due. */
static void wait_queued(struct ledger *ledger, int64_t now)
{
    if (ledger->alarm_count == 0) {
        pthread_cond_wait(&ledger->queued, &ledger->mutex);
        return;
    }
    int64_t wait = ledger->alarms[0].at_ms - now;
    if (wait > CLOCK_LOOK_MS)
        wait = CLOCK_LOOK_MS;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + wait % 1000 * 1000000;
    until.tv_sec += wait / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&ledger->queued, &ledger->mutex, &until);
}

/* --- batches --- */

/* The next batch, in order, at most LEDGER_BATCH_MAX; waits for one. NULL: an alarm is due, or *stopped: nothing is
 * left. It does not wait for more to come: what comes during a batch's sync is the next batch. (Gathering all of 64
 * callers made larger batches and fewer rules a second: their wake-ups then no longer overlap with the sync.) */
static struct task *take_batch(struct ledger *ledger, bool *stopped)
{
    pthread_mutex_lock(&ledger->mutex);
    for (int64_t now = ledger->wall_ms(); ledger->first == NULL && !ledger->stopping && !is_due(ledger, now);
         now = ledger->wall_ms())
        wait_queued(ledger, now);
    *stopped = ledger->first == NULL && ledger->stopping;
    struct task *batch = ledger->first, **cut = &ledger->first;
    for (size_t taken = 0; *cut && taken < LEDGER_BATCH_MAX; taken++)
        cut = &(*cut)->next;
    struct task *rest = *cut;
    *cut = NULL;
    ledger->first = rest;
    if (rest == NULL)
        ledger->last = &ledger->first;
    pthread_mutex_unlock(&ledger->mutex);
    return batch;
}

/* Runs a rule until it does not conflict; its answer is in task->err. Returns the number of conflicts. */
static uint64_t run_rule(struct kv *kv, struct task *task)
{
    for (uint64_t conflicts = 0; conflicts < LEDGER_RETRIES_MAX; conflicts++) {
        task->err = (struct error){0};
        enum kv_outcome outcome = task->rule(kv, task->argument, &task->err);
        if (outcome == KV_CONFLICT)
            continue;
        if (outcome == KV_APPLIED)
            task->err = (struct error){0};
        else if (task->err.kind == ERROR_NONE)
            error_set(&task->err, ERROR_INTERNAL, "a rule failed without a reason");
        return conflicts;
    }
    error_set(&task->err, ERROR_INTERNAL, "gave up after %d conflicting writes", LEDGER_RETRIES_MAX);
    return LEDGER_RETRIES_MAX;
}

/* When the batch as a whole failed, a rule that thought it had succeeded did not. */
static void fail_all(struct task *batch, struct error why)
{
    if (why.kind == ERROR_NONE)
        error_set(&why, ERROR_INTERNAL, "a batch failed without a reason");
    for (struct task *task = batch; task; task = task->next) {
        if (task->err.kind == ERROR_NONE)
            task->err = why;
    }
}

static void add_figures(struct ledger *ledger, const struct task *batch, uint64_t conflicts)
{
    uint64_t rules = 0, failures = 0;
    for (const struct task *task = batch; task; task = task->next) {
        rules++;
        failures += task->err.kind != ERROR_NONE;
    }
    pthread_mutex_lock(&ledger->mutex);
    ledger->figures.rules += rules;
    ledger->figures.batches++;
    ledger->figures.conflicts += conflicts;
    ledger->figures.failures += failures;
    pthread_mutex_unlock(&ledger->mutex);
}

static void tell_committed(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->commit_mutex);
    if (ledger->committed)
        ledger->committed(ledger->commit_context, ledger->kv);
    pthread_mutex_unlock(&ledger->commit_mutex);
}

void ledger_on_commit(struct ledger *ledger, ledger_committed *committed, void *context)
{
    pthread_mutex_lock(&ledger->commit_mutex);
    ledger->committed = committed;
    ledger->commit_context = context;
    pthread_mutex_unlock(&ledger->commit_mutex);
}

static void run_batch(struct ledger *ledger, struct task *batch)
{
    struct error err = {0};
    uint64_t conflicts = 0;
    bool begun = kv_batch_begin(ledger->kv, &err);
    for (struct task *task = batch; begun && task; task = task->next)
        conflicts += run_rule(ledger->kv, task);
    uint64_t ended_ns = clock_monotonic_ns();
    if (!begun || !kv_batch_end(ledger->kv, &err))
        fail_all(batch, err);
    else
        metrics_observe(&ledger->syncs, clock_monotonic_ns() - ended_ns);
    bool is_durable = err.kind == ERROR_NONE;
    add_figures(ledger, batch, conflicts);
    while (batch) {
        AUTO_FREE struct task *task = batch;
        batch = task->next;
        if (task->done)
            task->done(task->argument, &task->err);
    }
    if (is_durable)
        tell_committed(ledger);
}

static void *run_ledger(void *argument)
{
    struct ledger *ledger = argument;
    for (bool stopped = false; !stopped;) {
        call_alarms(ledger);
        struct task *batch = take_batch(ledger, &stopped);
        if (batch)
            run_batch(ledger, batch);
    }
    return NULL;
}

static void ledger_free(struct ledger *ledger)
{
    pthread_cond_destroy(&ledger->queued);
    pthread_mutex_destroy(&ledger->mutex);
    pthread_mutex_destroy(&ledger->commit_mutex);
    free(ledger->alarms);
    free(ledger);
}

static void prepare_condition(struct ledger *ledger)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&ledger->queued, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct ledger *ledger_start(struct kv *kv, struct error *err)
{
    struct ledger *ledger = memory_new(sizeof *ledger);
    ledger->kv = kv;
    ledger->last = &ledger->first;
    ledger->last_turn = &ledger->turns;
    ledger->wall_ms = clock_wall_ms;
    pthread_mutex_init(&ledger->mutex, NULL);
    pthread_mutex_init(&ledger->commit_mutex, NULL);
    prepare_condition(ledger);
    /* Signals are for the program's loops: a thread inherits the mask of its maker. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&ledger->thread, NULL, run_ledger, ledger);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) {
        ledger_free(ledger);
        errno = code;
        error_set_errno(err, ERROR_INTERNAL, "starting the ledger thread");
        return NULL;
    }
    pthread_setname_np(ledger->thread, "ledger");
    return ledger;
}

void ledger_submit(struct ledger *ledger, ledger_rule *rule, ledger_done *done, void *argument)
{
    struct task *task = memory_new(sizeof *task);
    *task = (struct task){.rule = rule, .done = done, .argument = argument};
    pthread_mutex_lock(&ledger->mutex);
    bool was_empty = ledger->first == NULL;
    *ledger->last = task;
    ledger->last = &task->next;
    if (was_empty)
        pthread_cond_signal(&ledger->queued);
    pthread_mutex_unlock(&ledger->mutex);
}

/* --- long ones --- */

static enum kv_outcome turn_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct turn *turn = argument;
    return turn->is_over(turn->argument) ? KV_APPLIED : turn->rule(kv, turn->argument, err);
}

/* Who comes last in line; returns whose turn it is, NULL when somebody has it. `over`: the one that had it gives it up.
 */
static struct turn *next_turn(struct ledger *ledger, struct turn *comes, bool over)
{
    struct turn *next = NULL;
    pthread_mutex_lock(&ledger->mutex);
    if (comes) {
        *ledger->last_turn = comes;
        ledger->last_turn = &comes->next;
    }
    if (over)
        ledger->is_turning = false;
    if (!ledger->is_turning && ledger->turns) {
        next = ledger->turns;
        ledger->turns = TAKE(next->next);
        if (ledger->turns == NULL)
            ledger->last_turn = &ledger->turns;
        ledger->is_turning = true;
    }
    pthread_mutex_unlock(&ledger->mutex);
    return next;
}

static void turn_done(void *argument, const struct error *err)
{
    struct turn *turn = argument;
    bool over = err->kind != ERROR_NONE || turn->is_over(turn->argument);
    struct turn *next = next_turn(turn->ledger, over ? NULL : turn, true);
    if (next)
        ledger_submit(next->ledger, turn_rule, turn_done, next);
    if (!over)
        return;
    turn->done(turn->argument, err);
    free(turn);
}

void ledger_submit_long(struct ledger *ledger, ledger_rule *rule, ledger_is_over *is_over, ledger_done *done,
                        void *argument)
{
    struct turn *turn = memory_new(sizeof *turn);
    *turn = (struct turn){.ledger = ledger, .rule = rule, .is_over = is_over, .done = done, .argument = argument};
    struct turn *next = next_turn(ledger, turn, false);
    if (next)
        ledger_submit(ledger, turn_rule, turn_done, next);
}

void ledger_alarm(struct ledger *ledger, int64_t at_ms, ledger_alarm_call *alarm, void *argument)
{
    pthread_mutex_lock(&ledger->mutex);
    add_alarm(ledger, (struct alarm){.at_ms = at_ms, .call = alarm, .argument = argument});
    pthread_mutex_unlock(&ledger->mutex);
}

void ledger_alarm_move(struct ledger *ledger, int64_t at_ms, ledger_alarm_call *alarm, void *argument)
{
    pthread_mutex_lock(&ledger->mutex);
    for (size_t i = ledger->alarm_count; i > 0; i--) {
        if (ledger->alarms[i - 1].call == alarm && ledger->alarms[i - 1].argument == argument)
            remove_alarm(ledger, i - 1);
    }
    add_alarm(ledger, (struct alarm){.at_ms = at_ms, .call = alarm, .argument = argument});
    pthread_mutex_unlock(&ledger->mutex);
}

void ledger_set_clock(struct ledger *ledger, int64_t (*wall_ms)(void))
{
    pthread_mutex_lock(&ledger->mutex);
    ledger->wall_ms = wall_ms;
    pthread_cond_signal(&ledger->queued);
    pthread_mutex_unlock(&ledger->mutex);
}

struct waiting {
    ledger_rule *rule;
    void *argument;
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    bool done;
    struct error answer;
};

static enum kv_outcome run_waiting(struct kv *kv, void *argument, struct error *err)
{
    const struct waiting *waiting = argument;
    return waiting->rule(kv, waiting->argument, err);
}

static void answer_waiting(void *argument, const struct error *err)
{
    struct waiting *waiting = argument;
    pthread_mutex_lock(&waiting->mutex);
    waiting->answer = *err;
    waiting->done = true;
    pthread_cond_signal(&waiting->answered);
    pthread_mutex_unlock(&waiting->mutex);
}

bool ledger_run(struct ledger *ledger, ledger_rule *rule, void *argument, struct error *err)
{
    if (pthread_equal(pthread_self(), ledger->thread))
        return error_set(err, ERROR_INTERNAL, "the ledger thread would wait for itself");
    struct waiting waiting = {.rule = rule, .argument = argument};
    pthread_mutex_init(&waiting.mutex, NULL);
    pthread_cond_init(&waiting.answered, NULL);
    ledger_submit(ledger, run_waiting, answer_waiting, &waiting);
    pthread_mutex_lock(&waiting.mutex);
    while (!waiting.done)
        pthread_cond_wait(&waiting.answered, &waiting.mutex);
    pthread_mutex_unlock(&waiting.mutex);
    pthread_cond_destroy(&waiting.answered);
    pthread_mutex_destroy(&waiting.mutex);
    if (waiting.answer.kind == ERROR_NONE)
        return true;
    if (err)
        *err = waiting.answer;
    return false;
}

void ledger_figures(struct ledger *ledger, struct ledger_figures *figures)
{
    pthread_mutex_lock(&ledger->mutex);
    *figures = ledger->figures;
    pthread_mutex_unlock(&ledger->mutex);
}

const struct metrics_histogram *ledger_syncs(const struct ledger *ledger)
{
    return &ledger->syncs;
}

void ledger_stop(struct ledger *ledger)
{
    if (ledger == NULL)
        return;
    pthread_mutex_lock(&ledger->mutex);
    ledger->stopping = true;
    pthread_cond_signal(&ledger->queued);
    pthread_mutex_unlock(&ledger->mutex);
    pthread_join(ledger->thread, NULL);
    kv_free(ledger->kv);
    ledger_free(ledger);
}
