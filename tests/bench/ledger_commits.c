/* ledger_commits.c - durable rules a second through the ledger, against raw LMDB commits of one put: by 1 and 64
 * threads that each wait for their answer, and by 64 rules in flight that are asked again when answered, as an event
 * loop does. In turns, on one file system, in one run; what counts is the ratio (goal: 10 x for 64). What bounds it:
 * each rule dirties a page of its own, written one by one before one sync; with threads, 64 wake-ups a batch.
 * ledger_commits [FOLDER [SECONDS]]: FOLDER is where the stores are made (default: TMPDIR or /tmp). */
#include "negotiator/ledger/ledger.h"
#include "tests/bench/series.h"

#include <pthread.h>
#include <time.h>

#define ROUNDS      3
#define CALLERS_MAX 64

enum kind { RAW, ONE, MANY, FLOW, KINDS };
static const char *const NAMES[KINDS] = {"raw LMDB, one put a commit", "ledger_run, 1 caller", "ledger_run, 64 callers",
                                         "ledger_submit, 64 in flight"};

static struct series results[KINDS];

/* --- through the ledger --- */

struct caller {
    struct ledger *ledger;
    pthread_t thread;
    uint64_t until_ns, asked_ns;
    char key[24];
    struct series series;
};

/* What a real one does: look, decide, compare and write. */
static enum kv_outcome put_new(struct kv *kv, void *argument, struct error *err)
{
    const struct caller *caller = argument;
    char data[SERIES_VALUE_BYTES] = {0};
    AUTO_KV_VALUE value = {0};
    AUTO(kv_change) *change = kv_change_new();
    if (!kv_get(kv, caller->key, &value, err))
        return KV_FAILED;
    kv_change_expect(change, caller->key, value.revision);
    kv_change_put(change, caller->key, data, sizeof data);
    return kv_apply(kv, change, err);
}

static void *call(void *argument)
{
    struct caller *caller = argument;
    struct error err = {0};
    for (uint64_t before = clock_monotonic_ns(); before < caller->until_ns;) {
        series_key(caller->key);
        if (!ledger_run(caller->ledger, put_new, caller, &err))
            give_up(err.message);
        uint64_t now = clock_monotonic_ns();
        series_add(&caller->series, now - before);
        before = now;
    }
    return NULL;
}

static void flow(void *argument, const struct error *err)
{
    struct caller *caller = argument;
    uint64_t now = clock_monotonic_ns();
    if (err && err->kind != ERROR_NONE)
        give_up(err->message);
    if (err)
        series_add(&caller->series, now - caller->asked_ns);
    if (now >= caller->until_ns)
        return;
    caller->asked_ns = now;
    series_key(caller->key);
    ledger_submit(caller->ledger, put_new, flow, caller);
}

static void run_ledger(const char *folder, enum kind kind, uint64_t run_ns)
{
    struct error err = {0};
    struct kv *kv = kv_lmdb_open(folder, (size_t)4 << 30, &err);
    struct ledger *ledger = kv ? ledger_start(kv, &err) : NULL;
    if (ledger == NULL)
        give_up(err.message);
    static struct caller callers[CALLERS_MAX];
    size_t count = kind == ONE ? 1 : CALLERS_MAX;
    uint64_t start = clock_monotonic_ns();
    for (size_t i = 0; i < count; i++) {
        uint64_t *samples = memory_array(SERIES_MAX / count, sizeof *samples);
        callers[i] = (struct caller){.ledger = ledger, .until_ns = start + run_ns};
        callers[i].series = (struct series){.samples = samples, .capacity = SERIES_MAX / count};
        if (kind == FLOW)
            flow(&callers[i], NULL);
        else if (pthread_create(&callers[i].thread, NULL, call, &callers[i]))
            give_up("no thread");
    }
    for (size_t i = 0; kind != FLOW && i < count; i++)
        pthread_join(callers[i].thread, NULL);
    struct timespec rest = {.tv_sec = (time_t)(run_ns / 1000000000), .tv_nsec = (long)(run_ns % 1000000000)};
    if (kind == FLOW)
        nanosleep(&rest, NULL);
    struct ledger_figures figures;
    ledger_figures(ledger, &figures);
    ledger_stop(ledger); /* finishes what is in flight */
    results[kind].elapsed_ns += clock_monotonic_ns() - start;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < callers[i].series.count; j++)
            series_add(&results[kind], callers[i].series.samples[j]);
        free(callers[i].series.samples);
    }
    results[kind].batches += figures.batches;
}

int main(int argc, char *argv[])
{
    const char *parent = argc > 1 ? argv[1] : getenv("TMPDIR");
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 1;
    uint64_t run_ns = (uint64_t)((seconds > 0 ? seconds : 1) * 1e9);
    char folder[4096], below[KINDS][4200];
    snprintf(folder, sizeof folder, "%s/parley-bench-XXXXXX", parent ? parent : "/tmp");
    if (mkdtemp(folder) == NULL)
        give_up("cannot make a folder");
    for (int kind = 0; kind < KINDS; kind++) {
        snprintf(below[kind], sizeof below[kind], "%s/%d", folder, kind);
        series_open(&results[kind]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        series_run_raw(&results[RAW], below[RAW], run_ns);
        run_ledger(below[ONE], ONE, run_ns);
        run_ledger(below[MANY], MANY, run_ns);
        run_ledger(below[FLOW], FLOW, run_ns);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        series_report(&results[kind], NAMES[kind], &results[RAW]);
        free(results[kind].samples);
    }
    return fd_remove_tree(folder, NULL) ? 0 : 1;
}
