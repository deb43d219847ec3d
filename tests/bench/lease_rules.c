/* lease_rules.c - negotiate, refresh and revoke through the rules on LMDB, 64 in flight, against raw LMDB commits in
 * the same run; then with 100,000 leases: what they take of memory, and what a negotiation takes among them. The nodes
 * are a thread that says yes to all and acknowledges marks at once: what is measured is the negotiator's core.
 * lease_rules [FOLDER [LEASES]]: FOLDER is where the stores are made (default: TMPDIR or /tmp). */
#include "negotiator/leasing/revocation.h"
#include "shared/base/text.h"
#include "tests/bench/series.h"

#include <pthread.h>
#include <unistd.h>

enum { FLIGHTS = 64, A_SANDBOX = 20, TOKENS_EACH = 400 };
static const uint64_t RUN_NS = 2000000000;

/* --- nodes that say yes --- */

struct node_job {
    struct node_job *next;
    json_t *message;
    void (*done)(void *cookie, const json_t *reply, const struct error *err);
    void *cookie;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct node_job *first, **last;
    bool stopping;
} nodes = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .last = &nodes.first};

static json_t *answer_of(const json_t *message)
{
    if (text_equal(json_string_value(json_object_get(message, "call")), "marks"))
        return json_pack("{s:b, s:O, s:O}", "ok", 1, "ledger_id", json_object_get(message, "ledger_id"), "cursor",
                         json_object_get(message, "upto"));
    return json_pack("{s:b, s:{s:s, s:i}}", "ok", 1, "sandbox", "isolation", "namespaces", "disk_bytes", 0);
}

static void *serve_nodes(void *unused UNUSED)
{
    for (;;) {
        pthread_mutex_lock(&nodes.mutex);
        while (nodes.first == NULL && !nodes.stopping)
            pthread_cond_wait(&nodes.changed, &nodes.mutex);
        struct node_job *job = nodes.first;
        nodes.first = NULL;
        nodes.last = &nodes.first;
        pthread_mutex_unlock(&nodes.mutex);
        if (job == NULL)
            return NULL;
        for (struct node_job *next; job; job = next) {
            static const struct error NONE = {0};
            next = job->next;
            json_t *reply = answer_of(job->message);
            if (job->done)
                job->done(job->cookie, reply, &NONE);
            json_decref(reply);
            json_decref(job->message);
            free(job);
        }
    }
}

static void node_call(void *context UNUSED, const char *node UNUSED, json_t *message,
                      void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie)
{
    struct node_job *job = memory_new(sizeof *job);
    *job = (struct node_job){.message = message, .done = done, .cookie = cookie};
    pthread_mutex_lock(&nodes.mutex);
    *nodes.last = job;
    nodes.last = &job->next;
    pthread_cond_signal(&nodes.changed);
    pthread_mutex_unlock(&nodes.mutex);
}

static bool node_place(void *context UNUSED, const struct placement *placement UNUSED, char node[static SANDBOX_NODE_BYTES],
                       uint32_t *epoch, struct error *err UNUSED)
{
    memcpy(node, "n1", 3);
    *epoch = 1;
    return true;
}

static enum node_life node_find(void *context UNUSED, const char *node UNUSED, char url[static SANDBOX_URL_BYTES])
{
    memcpy(url, "http://127.0.0.1:1", 19);
    return NODE_ALIVE;
}

static uint64_t node_incarnation(void *context UNUSED, const char *node UNUSED)
{
    return 1;
}

static uint32_t node_key_epoch(void *context UNUSED, const char *node UNUSED)
{
    return 1;
}

/* --- 64 in flight: each flight asks its next question when its last is answered --- */

enum task { FILL, ATTACH, REFRESH, STOCK, REVOKE };

struct flight {
    unsigned number;
    uint64_t asked_ns, revoked;
    unsigned made; /* FILL: leases of this flight */
    unsigned long long dice;
    char sandbox[RANDOM_ID_BYTES];
    char token[CAPABILITY_TEXT_BYTES];
    char thread[CAPABILITY_THREAD_BYTES];
    char (*jtis)[CAPABILITY_ID_BYTES]; /* STOCK: TOKENS_EACH of them, then REVOKE takes them */
    unsigned stocked;
};

static struct {
    struct ledger *ledger;
    struct leasing *leasing;
    struct flight flights[FLIGHTS];
    enum task task;
    uint64_t until_ns;
    unsigned leases;       /* all that are wanted */
    unsigned upto;         /* threads that ATTACH chooses from */
    struct series *series; /* NULL: not measured */
    _Atomic unsigned flying;
    pthread_mutex_t mutex; /* the series; answers come on the ledger thread, so it is never waited for */
} bench = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void ask(struct flight *flight);

static void land(struct flight *flight)
{
    uint64_t now = clock_monotonic_ns();
    if (bench.series) {
        pthread_mutex_lock(&bench.mutex);
        series_add(bench.series, now - flight->asked_ns);
        pthread_mutex_unlock(&bench.mutex);
    }
    ask(flight);
}

static void starting(void *cookie UNUSED)
{
}

static bool is_abandoned(void *cookie UNUSED)
{
    return false;
}

static void granted(void *cookie, struct negotiation *n)
{
    struct flight *flight = cookie;
    struct error err = {0};
    if (n->refusal.kind != ERROR_NONE)
        give_up(n->refusal.message);
    if (!leasing_mint(bench.leasing, n, flight->token, &err)) /* the loop's work in the program */
        give_up(err.message);
    if (bench.task == FILL) {
        memcpy(flight->sandbox, n->sandbox.id, sizeof flight->sandbox);
        flight->made++;
    }
    if (bench.task == STOCK)
        memcpy(flight->jtis[flight->stocked++], n->claims.jti, CAPABILITY_ID_BYTES);
    negotiation_free(n);
    land(flight);
}

static void revoked(void *cookie, struct revoking *revoking)
{
    struct flight *flight = cookie;
    if (revoking->refusal.kind != ERROR_NONE || revoking->count != 1 || !revoking->list[0].in_force)
        give_up(revoking->refusal.message[0] ? revoking->refusal.message : "a revocation is not in force");
    revoking_free(revoking);
    land(flight);
}

static void ask_revocation(struct flight *flight)
{
    struct revoking *revoking = revoking_new();
    revoking->verb = REVOKING_MAKE;
    revoking->kind = MARK_JTI;
    revoking->caller = (struct caller){.principal = {.name = "bench", .role = ROLE_ADMIN}};
    memcpy(revoking->value, flight->jtis[--flight->stocked], CAPABILITY_ID_BYTES);
    memcpy(revoking->reason, "bench", 6);
    revoking->answered = revoked;
    revoking->cookie = flight;
    leasing_revoke(bench.leasing, revoking);
}

static void ask_grant(struct flight *flight)
{
    struct error err = {0};
    struct negotiation *n = negotiation_new();
    n->caller = (struct caller){.principal = {.name = "bench", .role = ROLE_ADMIN}};
    n->starting = starting;
    n->is_abandoned = is_abandoned;
    n->answered = granted;
    n->cookie = flight;
    unsigned thread = flight->number;
    if (bench.task == FILL)
        thread = flight->number + flight->made * FLIGHTS;
    flight->dice = flight->dice * 6364136223846793005ULL + 1442695040888963407ULL;
    if (bench.task == ATTACH)
        thread = (unsigned)(flight->dice >> 33) % bench.upto;
    snprintf(n->thread_id, sizeof n->thread_id, "t%u", thread);
    if (bench.task == FILL && flight->made % A_SANDBOX != 0)
        memcpy(n->wanted.hint, flight->sandbox, sizeof flight->sandbox);
    if (bench.task == REFRESH)
        n->current_token = memory_string(flight->token);
    bool asked =
        bench.task == REFRESH ? leasing_refresh(bench.leasing, n, &err) : leasing_negotiate(bench.leasing, n, &err);
    if (!asked)
        give_up(err.message);
}

static bool is_done(const struct flight *flight)
{
    switch (bench.task) {
    case FILL:
        return flight->number + flight->made * FLIGHTS >= bench.leases;
    case STOCK:
        return flight->stocked == TOKENS_EACH;
    case REVOKE:
        return flight->stocked == 0;
    case ATTACH:
    case REFRESH:
        break;
    }
    return flight->asked_ns >= bench.until_ns;
}

static void ask(struct flight *flight)
{
    flight->asked_ns = clock_monotonic_ns();
    if (is_done(flight))
        atomic_fetch_sub(&bench.flying, 1);
    else if (bench.task == REVOKE)
        ask_revocation(flight);
    else
        ask_grant(flight);
}

static void fly(enum task task, struct series *series)
{
    struct ledger_figures before, after;
    uint64_t start = clock_monotonic_ns();
    ledger_figures(bench.ledger, &before);
    bench.task = task;
    bench.series = series;
    bench.until_ns = start + RUN_NS;
    atomic_store(&bench.flying, FLIGHTS);
    for (unsigned i = 0; i < FLIGHTS; i++)
        ask(&bench.flights[i]);
    while (atomic_load(&bench.flying) > 0)
        usleep(1000);
    ledger_figures(bench.ledger, &after);
    if (series == NULL)
        return;
    series->elapsed_ns += clock_monotonic_ns() - start;
    series->batches += after.batches - before.batches;
}

/* --- the whole --- */

static double resident_mib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2)
        give_up("cannot read statm");
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1024 * 1024);
}

/* The node is there and has nothing: its first heartbeat. */
static enum kv_outcome hear(struct kv *kv, void *argument, struct error *err)
{
    return leasing_report_rule(kv, argument, err);
}

static void heard(void *argument, const struct error *err)
{
    if (err->kind != ERROR_NONE)
        give_up(err->message);
    leasing_report_act(argument);
}

static enum kv_outcome nothing(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

static void hear_node(void)
{
    static struct leasing_report report;
    json_t *message = json_pack("{s:b, s:[], s:[], s:{s:s, s:i}}", "full", 1, "sandboxes", "ended", "marks",
                                "ledger_id", "", "cursor", 0);
    report = (struct leasing_report){.leasing = bench.leasing, .node = "n1", .message = message, .incarnation = 1};
    ledger_submit(bench.ledger, hear, heard, &report);
    if (!ledger_run(bench.ledger, nothing, NULL, NULL) || !ledger_run(bench.ledger, nothing, NULL, NULL))
        give_up("the ledger does not answer");
    leasing_report_done(&report);
    json_decref(message);
}

static void start(const char *folder, const struct key *master)
{
    struct error err = {0};
    struct kv *kv = kv_lmdb_open(folder, (size_t)8 << 30, &err);
    bench.ledger = kv ? ledger_start(kv, &err) : NULL;
    if (bench.ledger == NULL)
        give_up(err.message);
    bench.leasing =
        leasing_new(&(struct leasing_options){.ledger = bench.ledger,
                                              .master = master,
                                              .deployment = "dep_bench",
                                              .nodes = {.place = node_place,
                                                        .find = node_find,
                                                        .call = node_call,
                                                        .incarnation = node_incarnation,
                                                        .key_epoch = node_key_epoch},
                                              .limits = {900, 3600, 3600, 28800, 86400, 604800, 86400, {.cpu_milli = 1000, .memory_mb = 512, .disk_mb = 1024, .pids = 256}},
                                              .wall_ms = clock_wall_ms});
    if (!leasing_start(bench.leasing, &err))
        give_up(err.message);
    hear_node();
}

int main(int argc, char *argv[])
{
    const char *parent = argc > 1 ? argv[1] : getenv("TMPDIR");
    unsigned leases = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 100000;
    char folder[4096], raw_folder[4200], ledger_folder[4200];
    struct series raw, few, refreshed, revocations, many;
    struct key master;
    pthread_t thread;
    keys_start();
    key_random(&master);
    snprintf(folder, sizeof folder, "%s/parley-bench-XXXXXX", parent ? parent : "/tmp");
    if (mkdtemp(folder) == NULL || pthread_create(&thread, NULL, serve_nodes, NULL))
        give_up("cannot make a folder or thread");
    snprintf(raw_folder, sizeof raw_folder, "%s/raw", folder);
    snprintf(ledger_folder, sizeof ledger_folder, "%s/ledger", folder);
    struct series *const all[] = {&raw, &few, &refreshed, &revocations, &many};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        series_open(all[i]);
    series_run_raw(&raw, raw_folder, RUN_NS);
    start(ledger_folder, &master);
    for (unsigned i = 0; i < FLIGHTS; i++)
        bench.flights[i] =
            (struct flight){.number = i, .dice = i, .jtis = memory_array(TOKENS_EACH, CAPABILITY_ID_BYTES)};
    bench.leases = FLIGHTS;
    fly(FILL, NULL);
    for (unsigned i = 0; i < FLIGHTS; i++)
        snprintf(bench.flights[i].thread, sizeof bench.flights[i].thread, "t%u", i);
    bench.upto = FLIGHTS;
    fly(ATTACH, &few);
    fly(STOCK, NULL); /* each flight's own thread and token */
    fly(REFRESH, &refreshed);
    fly(REVOKE, &revocations);
    series_run_raw(&raw, raw_folder, RUN_NS);
    double before = resident_mib();
    bench.leases = leases;
    fly(FILL, NULL);
    double after = resident_mib();
    bench.upto = leases;
    fly(ATTACH, &many);
    series_report(&raw, "raw LMDB, one put a commit", &raw);
    series_report(&few, "negotiate (attach), 64 leases", &raw);
    series_report(&refreshed, "refresh", &raw);
    series_report(&revocations, "revoke, node acknowledged", &raw);
    char name[64];
    snprintf(name, sizeof name, "negotiate (attach), %u leases", leases);
    series_report(&many, name, &raw);
    printf("%u leases on %u sandboxes: %.1f MiB more resident (the store's mapped pages count), %.0f bytes each\n",
           leases, leases / A_SANDBOX, after - before, (after - before) * 1024 * 1024 / leases);
    leasing_stopping(bench.leasing);
    pthread_mutex_lock(&nodes.mutex);
    nodes.stopping = true;
    pthread_cond_signal(&nodes.changed);
    pthread_mutex_unlock(&nodes.mutex);
    pthread_join(thread, NULL);
    ledger_stop(bench.ledger);
    leasing_free(bench.leasing);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->samples);
    for (unsigned i = 0; i < FLIGHTS; i++)
        free(bench.flights[i].jtis);
    return fd_remove_tree(folder, NULL) ? 0 : 1;
}
