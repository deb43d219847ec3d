/** world.h - leasing with a memory store, a clock that stands still until told, and nodes that do as they are told. */
#pragma once

#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/ledger/audit.h"
#include "negotiator/ledger/kv_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <stdatomic.h>

#define CHECK_KIND(got, want) CHECK((got) == (want))

static _Atomic int64_t world_now = 1800000000000;

static int64_t world_clock(void)
{
    return world_now;
}

enum fake_mode { FAKE_ANSWERS, FAKE_HOLDS, FAKE_REFUSES };

struct fake_call {
    struct fake_call *next;
    json_t *message;
    void (*done)(void *cookie, const json_t *reply, const struct error *err);
    void *cookie;
};

struct world {
    pthread_mutex_t mutex; /* guards all below but what is said to be otherwise */
    pthread_cond_t changed;
    enum fake_mode mode;
    struct error refusal; /* of FAKE_REFUSES */
    const char *only;     /* mode is of this call alone, all others are answered; NULL: of all */
    struct fake_call *first, **last;
    bool stopping, answering;
    json_t *log;                                                             /* every message, in order */
    enum node_life life;                                                     /* of every node */
    struct error no_place;                                                   /* kind ERROR_NONE: there is room */
    size_t places;                                                           /* how often one was asked for */
    char asked_node[SANDBOX_NODE_BYTES], asked_template[SANDBOX_WORD_BYTES]; /* the last time; "" any */
    uint64_t incarnation;                                                    /* of every node */
    pthread_t node;
    struct kv *kv; /* the ledger's */
    struct ledger *ledger;
    struct leasing *leasing;
    struct leasing *before; /* of a start before: NULL when there was none */
    struct principal_table *principals;
    struct key master;
    unsigned conflict_percent;
    int64_t long_ttl_max_s; /* of the next start; 0: the default */
};

static bool fake_place(void *context, const struct placement *placement, char node[static SANDBOX_NODE_BYTES],
                       uint32_t *epoch, struct error *err)
{
    struct world *world = context;
    pthread_mutex_lock(&world->mutex);
    struct error why = world->no_place;
    world->places++;
    const char *asked = placement->node, *template_name = placement->template_name;
    CHECK(text_copy(world->asked_node, SANDBOX_NODE_BYTES, asked ? asked : "") &&
          text_copy(world->asked_template, SANDBOX_WORD_BYTES, template_name ? template_name : ""));
    pthread_mutex_unlock(&world->mutex);
    if (why.kind != ERROR_NONE)
        return error_set(err, why.kind, "%s", why.message);
    *epoch = 1;
    return text_copy(node, SANDBOX_NODE_BYTES, "n1");
}

static enum node_life fake_find(void *context, const char *node UNUSED, char url[static SANDBOX_URL_BYTES])
{
    struct world *world = context;
    CHECK(text_copy(url, SANDBOX_URL_BYTES, "http://127.0.0.1:8701"));
    pthread_mutex_lock(&world->mutex);
    enum node_life life = world->life;
    pthread_mutex_unlock(&world->mutex);
    return life;
}

static uint64_t fake_incarnation(void *context, const char *node UNUSED)
{
    struct world *world = context;
    pthread_mutex_lock(&world->mutex);
    uint64_t incarnation = world->incarnation;
    pthread_mutex_unlock(&world->mutex);
    return incarnation;
}

static uint32_t fake_key_epoch(void *context UNUSED, const char *node UNUSED)
{
    return 1;
}

/* As a node takes it (shared/node_protocol/DESIGN.md). */
static void check_message(const json_t *message)
{
    const json_t *reason = json_object_get(message, "reason");
    if (text_equal(json_string_value(json_object_get(message, "call")), "destroy"))
        CHECK(json_is_string(reason) && json_string_length(reason) <= 63);
}

static void fake_call(void *context, const char *node, json_t *message,
                      void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie)
{
    struct world *world = context;
    struct fake_call *call = memory_new(sizeof *call);
    *call = (struct fake_call){.message = message, .done = done, .cookie = cookie};
    CHECK_TEXT(node, "n1");
    check_message(message);
    pthread_mutex_lock(&world->mutex);
    json_array_append(world->log, message);
    *world->last = call;
    world->last = &call->next;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->mutex);
}

static void fake_answer(const struct fake_call *call, const struct error *refusal)
{
    struct error none = {0};
    if (call->done == NULL)
        return;
    if (refusal->kind != ERROR_NONE) {
        call->done(call->cookie, NULL, refusal);
        return;
    }
    json_t *reply = json_pack("{s:b, s:{s:s, s:s, s:b}, s:O, s:I, s:s, s:s, s:i}", "ok", 1, "sandbox", "isolation",
                              "namespaces", "storage", "btrfs", "warm", 1, "limits", call->message, "size_bytes",
                              (json_int_t)4096, "template", "py", "storage", "btrfs", "running", 3);
    if (text_equal(json_string_value(json_object_get(call->message, "call")), "logs"))
        (void)json_object_update_new(reply, json_pack("{s:b, s:n, s:s, s:s, s:b}", "running", 1, "exit_code", "stdout",
                                                      "out", "stderr", "", "truncated", 0));
    call->done(call->cookie, reply, &none);
    json_decref(reply);
}

/* Of the calls that are not held back. */
static struct fake_call **fake_next(struct world *world)
{
    for (struct fake_call **at = &world->first; *at; at = &(*at)->next) {
        const char *call = json_string_value(json_object_get((*at)->message, "call"));
        if (world->stopping || world->mode != FAKE_HOLDS || (world->only && !text_equal(call, world->only)))
            return at;
    }
    return NULL;
}

static bool fake_refuses(const struct world *world, const struct fake_call *call)
{
    const char *name = json_string_value(json_object_get(call->message, "call"));
    return world->mode == FAKE_REFUSES && (world->only == NULL || text_equal(name, world->only));
}

static void *fake_node(void *argument)
{
    struct world *world = argument;
    pthread_mutex_lock(&world->mutex);
    for (;;) {
        struct fake_call **at = NULL;
        while ((at = fake_next(world)) == NULL && !world->stopping)
            pthread_cond_wait(&world->changed, &world->mutex);
        if (at == NULL)
            break;
        struct fake_call *call = *at;
        *at = call->next;
        if (*at == NULL)
            world->last = at;
        struct error refusal = {0};
        if (fake_refuses(world, call))
            refusal = world->refusal;
        if (world->stopping)
            error_set(&refusal, ERROR_NODE_UNREACHABLE, "stopped");
        world->answering = true;
        pthread_mutex_unlock(&world->mutex);
        fake_answer(call, &refusal);
        json_decref(call->message);
        free(call);
        pthread_mutex_lock(&world->mutex);
        world->answering = false;
        pthread_cond_broadcast(&world->changed);
    }
    pthread_mutex_unlock(&world->mutex);
    return NULL;
}

static struct leasing *world_leasing(struct world *world)
{
    return leasing_new(&(struct leasing_options){
        .ledger = world->ledger,
        .master = &world->master,
        .deployment = "dep_aaaaaaaaaaaaaaaaaaaa",
        .nodes = {.context = world,
                  .place = fake_place,
                  .find = fake_find,
                  .call = fake_call,
                  .incarnation = fake_incarnation,
                  .key_epoch = fake_key_epoch},
        .limits = {.ttl_default_s = 900,
                   .ttl_max_s = 3600,
                   .idle_timeout_s = 3600,
                   .max_lifetime_s = 28800,
                   .max_lifetime_max_s = 86400,
                   .long_ttl_max_s = world->long_ttl_max_s,
                   .resources = {.cpu_milli = 1000, .memory_mb = 512, .disk_mb = 1024, .pids = 256}},
        .policy = {.snapshots_max = 5, .volumes_max = 3},
        .principals = world->principals,
        .wall_ms = world_clock});
}

static enum kv_outcome nothing_rule(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

static void settle_ledger(struct world *world)
{
    struct error err = {0};
    struct ledger_figures before, after;
    do {
        ledger_figures(world->ledger, &before);
        CHECK(ledger_run(world->ledger, nothing_rule, NULL, &err));
        CHECK(ledger_run(world->ledger, nothing_rule, NULL, &err));
        ledger_figures(world->ledger, &after);
    } while (after.rules > before.rules + 2);
}

/* Whether there was something to wait for. */
static bool settle_node(struct world *world)
{
    pthread_mutex_lock(&world->mutex);
    bool waited = false;
    while (world->answering || fake_next(world)) {
        waited = true;
        pthread_cond_wait(&world->changed, &world->mutex);
    }
    pthread_mutex_unlock(&world->mutex);
    return waited;
}

/** Lets the ledger do what is due by now, and the node answer what it does not hold back, what that brings about, and
 *  so on until nothing more is. */
static UNUSED void settle(struct world *world)
{
    do
        settle_ledger(world);
    while (settle_node(world));
}

static void world_begin(struct world *world)
{
    struct error err = {0};
    world->ledger = ledger_start(world->kv, &err);
    CHECK(world->ledger != NULL);
    ledger_set_clock(world->ledger, world_clock);
    world->leasing = world_leasing(world);
    CHECK(leasing_start(world->leasing, &err));
    settle(world);
}

static struct world *world_new(unsigned conflict_percent)
{
    struct world *world = memory_new(sizeof *world);
    keys_start();
    key_random(&world->master);
    pthread_mutex_init(&world->mutex, NULL);
    pthread_cond_init(&world->changed, NULL);
    world->last = &world->first;
    world->log = json_array();
    world->life = NODE_ALIVE;
    world->conflict_percent = conflict_percent;
    world->principals = principal_table_new(&world->master);
    principal_table_set_clock(world->principals, world_clock);
    world->kv = kv_memory_new(conflict_percent, 42);
    world_begin(world);
    CHECK(pthread_create(&world->node, NULL, fake_node, world) == 0);
    return world;
}

/** The negotiator starts anew on the same store: what it knew by heart is gone. */
static UNUSED void world_restart(struct world *world)
{
    struct error err = {0};
    CHECK(world->before == NULL);
    leasing_stopping(world->leasing);
    world->before = world->leasing;
    world->leasing = world_leasing(world);
    CHECK(leasing_start(world->leasing, &err));
}

static enum kv_outcome world_verify(struct kv *kv, void *argument, struct error *err)
{
    struct world *world = argument;
    struct key key;
    uint64_t count = 0;
    key_derive(&key, &world->master, "parley/audit/1");
    bool holds = audit_verify(kv, &key, &count, err);
    CHECK(count > 0);
    return holds ? KV_APPLIED : KV_FAILED;
}

/** Every world ends with its audit chain proven. */
static void world_free(struct world *world)
{
    struct error err = {0};
    leasing_stopping(world->leasing);
    pthread_mutex_lock(&world->mutex);
    world->stopping = true;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->mutex);
    pthread_join(world->node, NULL);
    CHECK(ledger_run(world->ledger, world_verify, world, &err));
    ledger_stop(world->ledger);
    leasing_free(world->leasing);
    leasing_free(world->before);
    principal_table_free(world->principals);
    for (struct fake_call *next, *each = world->first; each; each = next) { /* of answers that came last */
        next = each->next;
        json_decref(each->message);
        free(each);
    }
    json_decref(world->log);
    pthread_cond_destroy(&world->changed);
    pthread_mutex_destroy(&world->mutex);
    free(world);
}

/** Of that call alone: all others are answered. */
static UNUSED void world_set_mode_of(struct world *world, const char *call, enum fake_mode mode, enum error_kind kind);

static UNUSED void world_set_mode(struct world *world, enum fake_mode mode, enum error_kind kind)
{
    pthread_mutex_lock(&world->mutex);
    world->mode = mode;
    world->refusal = (struct error){0};
    if (kind != ERROR_NONE)
        error_set(&world->refusal, kind, "as told");
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->mutex);
}

static UNUSED void world_set_mode_of(struct world *world, const char *call, enum fake_mode mode, enum error_kind kind)
{
    pthread_mutex_lock(&world->mutex);
    world->only = call;
    pthread_mutex_unlock(&world->mutex);
    world_set_mode(world, mode, kind);
}

/** The last message of that call; NULL when there was none. The caller decrefs. */
static UNUSED json_t *world_last_call(struct world *world, const char *call)
{
    json_t *found = NULL;
    pthread_mutex_lock(&world->mutex);
    for (size_t i = json_array_size(world->log); i > 0 && found == NULL; i--) {
        json_t *message = json_array_get(world->log, i - 1);
        if (text_equal(json_string_value(json_object_get(message, "call")), call))
            found = json_deep_copy(message);
    }
    pthread_mutex_unlock(&world->mutex);
    return found;
}

/** How many messages of that call about that sandbox (NULL: any) the node got. */
static UNUSED size_t world_calls(struct world *world, const char *call, const char *id)
{
    size_t count = 0, i;
    json_t *message;
    pthread_mutex_lock(&world->mutex);
    json_array_foreach (world->log, i, message) {
        const char *about = json_string_value(json_object_get(message, "id"));
        if (about == NULL)
            about = json_string_value(json_object_get(json_object_get(message, "sandbox"), "id"));
        count += text_equal(json_string_value(json_object_get(message, "call")), call) &&
                 (id == NULL || text_equal(about, id));
    }
    pthread_mutex_unlock(&world->mutex);
    return count;
}

/* ---- asking ---- */

struct attempt {
    struct world *world;
    bool started, done, abandoned;
    struct negotiation *n; /* the answer */
};

static void attempt_starting(void *cookie)
{
    struct attempt *attempt = cookie;
    pthread_mutex_lock(&attempt->world->mutex);
    CHECK(!attempt->started);
    attempt->started = true;
    pthread_cond_broadcast(&attempt->world->changed);
    pthread_mutex_unlock(&attempt->world->mutex);
}

static bool attempt_abandoned(void *cookie)
{
    struct attempt *attempt = cookie;
    pthread_mutex_lock(&attempt->world->mutex);
    bool abandoned = attempt->abandoned;
    pthread_mutex_unlock(&attempt->world->mutex);
    return abandoned;
}

static void attempt_answered(void *cookie, struct negotiation *n)
{
    struct attempt *attempt = cookie;
    pthread_mutex_lock(&attempt->world->mutex);
    attempt->n = n;
    attempt->done = true;
    pthread_cond_broadcast(&attempt->world->changed);
    pthread_mutex_unlock(&attempt->world->mutex);
}

struct asked {
    const char *who; /* NULL: "ada" */
    enum role role;  /* default (0) is viewer: see ask() */
    bool viewer;
    const char *owner, *thread, *once, *body;
    const char *key; /* id of the API key that is shown; NULL none */
    struct wanted wanted;
};

static struct negotiation *make_negotiation(struct attempt *attempt, const struct asked *asked)
{
    struct negotiation *n = negotiation_new();
    enum role role = asked->viewer ? ROLE_VIEWER : asked->role ? asked->role : ROLE_USER;
    n->caller.principal.role = role;
    n->wanted = asked->wanted;
    CHECK(text_copy(n->caller.principal.name, PRINCIPAL_BYTES, asked->who ? asked->who : "ada") &&
          text_copy(n->caller.owner, PRINCIPAL_BYTES, asked->owner ? asked->owner : "") &&
          text_copy(n->caller.principal.key_id, RANDOM_ID_BYTES, asked->key ? asked->key : "") &&
          text_copy(n->thread_id, sizeof n->thread_id, asked->thread) &&
          text_copy(n->idempotency, sizeof n->idempotency, asked->once ? asked->once : "") &&
          text_copy(n->body_hash, sizeof n->body_hash, asked->body ? asked->body : ""));
    n->starting = attempt_starting;
    n->is_abandoned = attempt_abandoned;
    n->answered = attempt_answered;
    n->cookie = attempt;
    return n;
}

static void attempt_start(struct world *world, struct attempt *attempt, struct asked asked)
{
    struct error err = {0};
    *attempt = (struct attempt){.world = world};
    struct negotiation *n = make_negotiation(attempt, &asked);
    if (!leasing_negotiate(world->leasing, n, &err)) {
        n->refusal = err;
        attempt_answered(attempt, n);
    }
}

/** The answer; the caller frees. */
static struct negotiation *attempt_wait(struct attempt *attempt)
{
    pthread_mutex_lock(&attempt->world->mutex);
    while (!attempt->done)
        pthread_cond_wait(&attempt->world->changed, &attempt->world->mutex);
    pthread_mutex_unlock(&attempt->world->mutex);
    return attempt->n;
}

static UNUSED void attempt_wait_started(struct attempt *attempt)
{
    pthread_mutex_lock(&attempt->world->mutex);
    while (!attempt->started && !attempt->done)
        pthread_cond_wait(&attempt->world->changed, &attempt->world->mutex);
    pthread_mutex_unlock(&attempt->world->mutex);
}

static struct negotiation *ask(struct world *world, struct asked asked)
{
    struct attempt attempt;
    attempt_start(world, &attempt, asked);
    return attempt_wait(&attempt);
}

/** Asks, and only tells how it ended. */
static UNUSED enum error_kind ask_kind(struct world *world, struct asked asked)
{
    AUTO(negotiation) *n = ask(world, asked);
    return n->refusal.kind;
}

/** As who/thread; the sandbox's id. */
static UNUSED void ask_id(struct world *world, struct asked asked, char id[static RANDOM_ID_BYTES])
{
    AUTO(negotiation) *n = ask(world, asked);
    CHECK_TEXT(n->refusal.message, "");
    memcpy(id, n->sandbox.id, RANDOM_ID_BYTES);
}

struct questioning {
    struct world *world;
    bool done;
};

static void question_answered(void *cookie, struct question *q UNUSED)
{
    struct questioning *questioning = cookie;
    pthread_mutex_lock(&questioning->world->mutex);
    questioning->done = true;
    pthread_cond_broadcast(&questioning->world->changed);
    pthread_mutex_unlock(&questioning->world->mutex);
}

/** Asks and waits; the question again, answered. */
static UNUSED struct question *question_wait(struct world *world, struct question *q)
{
    struct questioning questioning = {.world = world};
    q->answered = question_answered;
    q->cookie = &questioning;
    leasing_ask(world->leasing, q);
    pthread_mutex_lock(&world->mutex);
    while (!questioning.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    return q;
}

/** `target` is a thread or a sandbox's id, as the verb wants. The caller frees. */
static UNUSED struct question *question_ask(struct world *world, enum question_verb verb, const char *who,
                                            enum role role, const char *target)
{
    struct question *q = question_new();
    q->verb = verb;
    q->caller.principal.role = role;
    q->limit = 100;
    bool by_thread = verb == QUESTION_THREAD || verb == QUESTION_RELEASE || verb == QUESTION_SHARES;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who) &&
          text_copy(q->thread_id, sizeof q->thread_id, by_thread ? target : "") &&
          text_copy(q->sandbox_id, sizeof q->sandbox_id, by_thread || target == NULL ? "" : target));
    return question_wait(world, q);
}

static UNUSED enum error_kind question_kind(struct world *world, enum question_verb verb, const char *who,
                                            enum role role, const char *target)
{
    AUTO(question) *q = question_ask(world, verb, who, role, target);
    return q->refusal.kind;
}

static UNUSED enum sandbox_state state_of(struct world *world, const char *id, char reason[static SANDBOX_REASON_BYTES])
{
    AUTO(question) *q = question_ask(world, QUESTION_SANDBOX, "root", ROLE_ADMIN, id);
    memcpy(reason, q->sandbox.reason, SANDBOX_REASON_BYTES);
    return q->refusal.kind == ERROR_NONE ? q->sandbox.state : SANDBOX_STATES;
}

/* ---- heartbeats ---- */

struct beat {
    struct leasing_report report;
};

static enum kv_outcome beat_rule(struct kv *kv, void *argument, struct error *err)
{
    return leasing_report_rule(kv, &((struct beat *)argument)->report, err);
}

static void beat_act(void *argument, const struct error *err)
{
    struct beat *beat = argument;
    CHECK_TEXT(err->message, "");
    leasing_report_act(&beat->report);
}

static UNUSED void later(struct world *world, int64_t ms)
{
    world_now += ms;
    settle(world);
}

/* Heartbeats come so long after they were made. */
static UNUSED int64_t world_delay;

/** Takes `sandboxes` and `ended`; the ended ids that were acknowledged (the caller decrefs). *full_wanted may be NULL.
 */
static UNUSED json_t *heartbeat_of(struct world *world, bool full, json_t *sandboxes, json_t *ended, bool *full_wanted)
{
    json_t *message = json_pack("{s:b, s:I, s:o, s:o}", "full", full, "time", (json_int_t)(world_now - world_delay),
                                "sandboxes", sandboxes, "ended", ended);
    struct beat beat = {
        .report = {
            .leasing = world->leasing, .node = "n1", .message = message, .incarnation = fake_incarnation(world, "n1")}};
    ledger_submit(world->ledger, beat_rule, beat_act, &beat);
    settle(world);
    json_t *known = json_incref(beat.report.ended_known);
    if (full_wanted)
        *full_wanted = beat.report.full_wanted;
    leasing_report_done(&beat.report);
    json_decref(message);
    return known;
}

/** One that names all; takes `sandboxes`. */
static UNUSED void full_beat(struct world *world, json_t *sandboxes)
{
    json_decref(heartbeat_of(world, true, sandboxes, json_array(), NULL));
}

/** One that names what changed; takes `sandboxes`. */
static UNUSED void delta_beat(struct world *world, json_t *sandboxes)
{
    json_decref(heartbeat_of(world, false, sandboxes, json_array(), NULL));
}

static UNUSED json_t *on_node(const char *id, int64_t active_at, int64_t deadline)
{
    return json_pack("{s:s, s:I, s:I}", "id", id, "active_at", (json_int_t)active_at, "deadline", (json_int_t)deadline);
}

/* ---- the audit ---- */

struct audited {
    const char *action, *remote, *detail;
    int status;
    size_t count;
};

static UNUSED enum kv_outcome audited_rule(struct kv *kv, void *argument, struct error *err)
{
    struct audited *sought = argument;
    size_t i;
    json_t *each, *all = audit_list(kv, 0, 1000000, err);
    sought->count = 0;
    json_array_foreach (all, i, each)
        sought->count += text_equal(json_string_value(json_object_get(each, "action")), sought->action) &&
                         json_integer_value(json_object_get(each, "status")) == sought->status &&
                         (sought->remote == NULL ||
                          text_equal(json_string_value(json_object_get(each, "remote")), sought->remote)) &&
                         (sought->detail == NULL ||
                          strstr(json_string_value(json_object_get(each, "detail")), sought->detail) != NULL);
    json_decref(all);
    return KV_APPLIED;
}

static UNUSED size_t audited(struct world *world, struct audited sought)
{
    struct error err = {0};
    CHECK(ledger_run(world->ledger, audited_rule, &sought, &err));
    return sought.count;
}

/** Runs `scenario` with a calm store and with one that refuses 40 % of what it compares. */
static UNUSED void in_both_worlds(void (*scenario)(struct world *world))
{
    for (unsigned percent = 0; percent <= 40; percent += 40) {
        struct world *world = world_new(percent);
        scenario(world);
        world_free(world);
    }
}
