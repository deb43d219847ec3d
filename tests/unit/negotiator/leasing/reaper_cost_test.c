/* Goal: what a heartbeat and an alarm cost does not grow with the number of leases: reads, rows walked and writes are
 * counted on a store with 100 and with 100,000 of them, and are the same to the last one. */
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/ledger/kv_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"
#include "tests/unit/negotiator/ledger/stores.h"

#include <stdatomic.h>

#ifdef __SANITIZE_THREAD__
enum { LARGE = 5000 }; /* there the threads matter, and each access costs ten times */
#else
enum { LARGE = 100000 };
#endif
enum { SMALL = 100, AT_ONCE = 500, ON_NODE = 50, TOLD = 10, DUE = 10 };

static _Atomic int64_t now = 1800000000000;

static int64_t clock_now(void)
{
    return now;
}

/* ---- a store that counts ---- */

struct counting {
    struct kv kv;
    struct kv *inner; /* owned */
    atomic_ulong gets, rows, writes;
};

static struct kv *inner(struct kv *kv)
{
    return ((struct counting *)kv)->inner;
}

static bool counting_get(struct kv *kv, const char *key, struct kv_value *value, struct error *err)
{
    atomic_fetch_add(&((struct counting *)kv)->gets, 1);
    return kv_get(inner(kv), key, value, err);
}

struct counted_visit {
    struct counting *counting;
    kv_visit *visit;
    void *cookie;
};

static bool count_row(void *cookie, const char *key, const struct kv_value *value)
{
    struct counted_visit *counted = cookie;
    atomic_fetch_add(&counted->counting->rows, 1);
    return counted->visit(counted->cookie, key, value);
}

static bool counting_range(struct kv *kv, const char *first, const char *end, size_t limit, kv_visit *visit,
                           void *cookie, struct error *err)
{
    struct counted_visit counted = {(struct counting *)kv, visit, cookie};
    return kv_range(inner(kv), first, end, limit, count_row, &counted, err);
}

static enum kv_outcome counting_apply(struct kv *kv, const struct kv_change *change, struct error *err)
{
    for (size_t i = 0; i < change->count; i++)
        atomic_fetch_add(&((struct counting *)kv)->writes, change->steps[i].kind != KV_STEP_EXPECT);
    return kv_apply(inner(kv), change, err);
}

static bool counting_begin(struct kv *kv, struct error *err)
{
    return kv_batch_begin(inner(kv), err);
}

static bool counting_end(struct kv *kv, struct error *err)
{
    return kv_batch_end(inner(kv), err);
}

static bool counting_usage(struct kv *kv, unsigned *percent, struct error *err)
{
    return kv_usage(inner(kv), percent, err);
}

static void counting_free(struct kv *kv)
{
    kv_free(inner(kv));
    free(kv);
}

static struct counting *counting_new(struct kv *kv)
{
    static const struct kv_engine ENGINE = {.get = counting_get,
                                            .range = counting_range,
                                            .apply = counting_apply,
                                            .batch_begin = counting_begin,
                                            .batch_end = counting_end,
                                            .usage = counting_usage,
                                            .free = counting_free};
    struct counting *counting = memory_new(sizeof *counting);
    counting->kv.engine = &ENGINE;
    counting->inner = kv;
    return counting;
}

struct cost {
    unsigned long gets, rows, writes;
};

static struct cost cost_of(struct counting *counting)
{
    return (struct cost){atomic_exchange(&counting->gets, 0), atomic_exchange(&counting->rows, 0),
                         atomic_exchange(&counting->writes, 0)};
}

static void check_same(const char *what, struct cost a, struct cost b)
{
    CHECK(a.gets == b.gets && a.rows == b.rows && a.writes == b.writes);
    if (a.gets != b.gets || a.rows != b.rows || a.writes != b.writes)
        fprintf(stderr, "%s: %lu/%lu reads, %lu/%lu rows, %lu/%lu writes\n", what, a.gets, b.gets, a.rows, b.rows,
                a.writes, b.writes);
}

/* ---- nodes that only count ---- */

static atomic_ulong calls;

static enum node_life find(void *context UNUSED, const char *node UNUSED, char url[static SANDBOX_URL_BYTES])
{
    CHECK(text_copy(url, SANDBOX_URL_BYTES, "http://127.0.0.1:1"));
    return NODE_ALIVE;
}

static void call(void *context UNUSED, const char *node UNUSED, json_t *message,
                 void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie UNUSED)
{
    CHECK(done == NULL); /* nothing is made here */
    atomic_fetch_add(&calls, 1);
    json_decref(message);
}

static uint64_t incarnation(void *context UNUSED, const char *node UNUSED)
{
    return 1;
}

static uint32_t key_epoch(void *context UNUSED, const char *node UNUSED)
{
    return 1;
}

/* ---- one deployment with so many leases ---- */

struct town {
    struct counting *counting;
    struct ledger *ledger;
    struct leasing *leasing;
    struct key master;
    char folder[4096];
    unsigned leases;
};

struct filling {
    struct town *town;
    unsigned from;
};

static void name_id(char id[static RANDOM_ID_BYTES], const char *prefix, unsigned number)
{
    snprintf(id, RANDOM_ID_BYTES, "%s_%020u", prefix, number);
}

/* The first ones are on n0, of which the tests tell; they end in an hour's idleness, the others later. Every third one
 * has no end besides: its node's is moved, but not within what is measured. */
static void fill_one(struct work *work, unsigned number)
{
    struct lease lease = {.created_at = work->now, .idle_timeout_s = 3600};
    bool is_endless = number % 3 == 0;
    struct sandbox sandbox = {.state = SANDBOX_ACTIVE,
                              .epoch = 1,
                              .created_at = work->now,
                              .active_since = work->now,
                              .state_since = work->now,
                              .deadline = is_endless ? LIFE_ENDLESS_MS : work->now + 28800000,
                              .node_deadline = work->now + (is_endless ? 86400000 : 28800000)};
    name_id(sandbox.id, "sbx", number);
    name_id(lease.id, "lse", number);
    memcpy(lease.sandbox_id, sandbox.id, sizeof lease.sandbox_id);
    lease.max_expires_at = sandbox.deadline;
    lease.expires_at = work->now + 3600000 + (number < ON_NODE ? 0 : 1000 + number);
    snprintf(lease.thread_id, sizeof lease.thread_id, "t%u", number);
    snprintf(sandbox.name, sizeof sandbox.name, "box-%u", number);
    snprintf(sandbox.node, sizeof sandbox.node, "n%u", number / ON_NODE);
    CHECK(text_copy(sandbox.principal, sizeof sandbox.principal, "ada"));
    sandbox_add_thread(&sandbox, lease.thread_id);
    store_put_sandbox(work, &sandbox);
    store_put_lease(work, "ada", &lease);
    store_take_name(work, &sandbox);
    store_own(work, &sandbox);
    store_watch(work, &sandbox, lease.expires_at);
    sandbox_done(&sandbox);
}

static enum kv_outcome fill_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct filling *filling = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(filling->town->leasing, kv, change, err);
    for (unsigned i = 0; i < AT_ONCE && filling->from + i < filling->town->leases; i++)
        fill_one(&work, filling->from + i);
    return store_apply(&work);
}

static enum kv_outcome nothing_rule(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

static void settle(struct town *town)
{
    struct error err = {0};
    struct ledger_figures before, after;
    do {
        ledger_figures(town->ledger, &before);
        CHECK(ledger_run(town->ledger, nothing_rule, NULL, &err) && ledger_run(town->ledger, nothing_rule, NULL, &err));
        ledger_figures(town->ledger, &after);
    } while (after.rules > before.rules + 2);
}

static void town_open(struct town *town, unsigned leases)
{
    struct error err = {0};
    *town = (struct town){.leases = leases};
    key_random(&town->master);
    stores_make_folder(town->folder);
    struct kv *kv = kv_lmdb_open(town->folder, (size_t)1 << 30, &err);
    CHECK_TEXT(err.message, "");
    town->counting = counting_new(kv);
    town->ledger = ledger_start(&town->counting->kv, &err);
    ledger_set_clock(town->ledger, clock_now);
    town->leasing = leasing_new(&(struct leasing_options){
        .ledger = town->ledger,
        .master = &town->master,
        .deployment = "dep_aaaaaaaaaaaaaaaaaaaa",
        .nodes = {.find = find, .call = call, .incarnation = incarnation, .key_epoch = key_epoch},
        .wall_ms = clock_now});
    for (struct filling filling = {.town = town}; filling.from < leases; filling.from += AT_ONCE)
        CHECK(ledger_run(town->ledger, fill_rule, &filling, &err));
    CHECK(leasing_start(town->leasing, &err));
    settle(town);
}

static void town_close(struct town *town)
{
    leasing_stopping(town->leasing);
    ledger_stop(town->ledger);
    leasing_free(town->leasing);
    stores_remove_folder(town->folder);
}

/* ---- what is measured ---- */

static enum kv_outcome beat_rule(struct kv *kv, void *argument, struct error *err)
{
    return leasing_report_rule(kv, argument, err);
}

static void beat_done(void *argument, const struct error *err)
{
    CHECK_TEXT(err->message, "");
    leasing_report_act(argument);
}

/* Names the first `count` of n0; from `epoch` above 1 on each is one that the ledger has to be asked about. */
static struct cost beat(struct town *town, bool full, unsigned count, unsigned epoch)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++) {
        char id[RANDOM_ID_BYTES];
        name_id(id, "sbx", i);
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:i}", "id", id, "active_at", (json_int_t)clock_now(),
                                              "deadline", (json_int_t)INT64_MAX / 2, "epoch", (int)epoch));
    }
    json_t *message = json_pack("{s:b, s:o, s:[]}", "full", full, "sandboxes", list, "ended");
    struct leasing_report report = {.leasing = town->leasing, .node = "n0", .message = message, .incarnation = 1};
    cost_of(town->counting);
    ledger_submit(town->ledger, beat_rule, beat_done, &report);
    settle(town);
    struct cost cost = cost_of(town->counting);
    leasing_report_done(&report);
    json_decref(message);
    return cost;
}

struct costs {
    struct cost full, idle_delta, told, changed, nothing_due, due, used;
};

static struct costs measure(unsigned leases)
{
    struct town town;
    struct costs costs;
    now = 1800000000000;
    town_open(&town, leases);
    now += 2000;
    costs.full = beat(&town, true, ON_NODE, 1);
    now += 2000;
    costs.idle_delta = beat(&town, false, 0, 1);
    now += 2000;
    costs.told = beat(&town, false, TOLD, 1);
    now += 2000;
    costs.changed = beat(&town, false, TOLD, 2);
    now += 1800000;
    cost_of(town.counting);
    settle(&town);
    costs.nothing_due = cost_of(town.counting);
    for (unsigned i = 0; i < 2; i++)
        beat(&town, false, ON_NODE - DUE, 2); /* all but the last ones are in use */
    now = 1800000000000 + 3600000;
    cost_of(town.counting);
    settle(&town); /* all of n0 are looked at; the last ones end when it has told since */
    costs.used = cost_of(town.counting);
    beat(&town, false, 0, 1);
    now += 400; /* by then the first of the other nodes' are not due yet */
    settle(&town);
    unsigned long before = atomic_load(&calls);
    now += 500;
    settle(&town);
    costs.due = cost_of(town.counting);
    CHECK(atomic_load(&calls) == before);
    town_close(&town);
    return costs;
}

int main(void)
{
    keys_start();
    struct costs small = measure(SMALL), large = measure(LARGE);
    check_same("a full list", small.full, large.full);
    check_same("a heartbeat without news", small.idle_delta, large.idle_delta);
    CHECK(large.idle_delta.gets == 0 && large.idle_delta.rows == 0 && large.idle_delta.writes == 0);
    check_same("a heartbeat with signs of life", small.told, large.told);
    CHECK(large.told.gets == 0 && large.told.rows == 0 && large.told.writes == 0);
    check_same("a heartbeat with changes", small.changed, large.changed);
    CHECK(large.changed.gets > 0 && large.changed.gets <= TOLD * 6);
    check_same("half an hour in which nothing is due", small.nothing_due, large.nothing_due);
    CHECK(large.nothing_due.writes == 0);
    check_same("an alarm", small.used, large.used);
    CHECK(large.used.writes > 0 && large.used.gets <= ON_NODE * 8);
    check_same("what is not due", small.due, large.due);
    return check_done();
}
