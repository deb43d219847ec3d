/* Goal: the row says what the node said yes to, never more; changes of one sandbox come one after another; an idle one
 * that would rather sleep does, with all its leases, until somebody uses it or its longest life is over. */
#include "negotiator/leasing/changing.h"

#include "tests/unit/negotiator/leasing/grants.h"

#include <string.h>

struct change {
    struct world *world;
    bool done;
    struct changing *changing;
};

static void change_answered(void *cookie, struct changing *changing)
{
    struct change *change = cookie;
    pthread_mutex_lock(&change->world->mutex);
    change->changing = changing;
    change->done = true;
    pthread_cond_broadcast(&change->world->changed);
    pthread_mutex_unlock(&change->world->mutex);
}

static void change_start(struct world *world, struct change *change, enum changing_verb verb, const char *who,
                         enum role role, const char *id, struct wanted wanted)
{
    struct error err = {0};
    *change = (struct change){.world = world};
    struct changing *changing = changing_new();
    changing->verb = verb;
    changing->caller.principal.role = role;
    changing->wanted = wanted;
    CHECK(text_copy(changing->caller.principal.name, PRINCIPAL_BYTES, who) &&
          text_copy(changing->sandbox_id, sizeof changing->sandbox_id, id));
    changing->answered = change_answered;
    changing->cookie = change;
    if (!leasing_change(world->leasing, changing, &err)) {
        changing->refusal = err;
        change_answered(change, changing);
    }
}

static struct changing *change_wait(struct change *change)
{
    pthread_mutex_lock(&change->world->mutex);
    while (!change->done)
        pthread_cond_wait(&change->world->changed, &change->world->mutex);
    pthread_mutex_unlock(&change->world->mutex);
    return change->changing;
}

static struct changing *change(struct world *world, enum changing_verb verb, const char *id, struct wanted wanted)
{
    struct change it;
    change_start(world, &it, verb, "ada", ROLE_USER, id, wanted);
    return change_wait(&it);
}

static enum error_kind change_kind(struct world *world, enum changing_verb verb, const char *id, struct wanted wanted)
{
    AUTO(changing) *changing = change(world, verb, id, wanted);
    return changing->refusal.kind;
}

static enum error_kind change_as(struct world *world, const char *who, enum role role, const char *id)
{
    struct change it;
    change_start(world, &it, CHANGING_PAUSE, who, role, id, (struct wanted){.ttl_s = 0});
    AUTO(changing) *changing = change_wait(&it);
    return changing->refusal.kind;
}

static enum sandbox_state state(struct world *world, const char *id)
{
    char reason[SANDBOX_REASON_BYTES];
    return state_of(world, id, reason);
}

/* Everything it has, as a node that sees it used at `active`, asleep or not. */
static json_t *beating(const char *id, int64_t active, bool paused)
{
    json_t *told = on_node(id, active, INT64_MAX / 2);
    json_object_set_new(told, "paused", json_boolean(paused));
    return json_pack("[o]", told);
}

static const struct wanted NOTHING = {.ttl_s = 0};

/* ---- pause and resume ---- */

static void pause_and_resume(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    AUTO(changing) *paused = change(world, CHANGING_PAUSE, id, NOTHING);
    CHECK_TEXT(paused->refusal.message, "");
    CHECK(paused->sandbox.state == SANDBOX_PAUSED && state(world, id) == SANDBOX_PAUSED);
    CHECK(world_calls(world, "pause", id) == 1);
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NONE);
    CHECK(world_calls(world, "pause", id) == 2); /* it may have been woken meanwhile: the node knows */
    CHECK_KIND(change_kind(world, CHANGING_RESUME, id, NOTHING), ERROR_NONE);
    CHECK(state(world, id) == SANDBOX_ACTIVE && world_calls(world, "resume", id) == 1);
    CHECK(audited(world, (struct audited){.action = "sandbox.pause", .status = 200}) == 2);
    CHECK(audited(world, (struct audited){.action = "sandbox.resume", .status = 200}) == 1);
}

static void who_may(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    CHECK_KIND(change_as(world, "bob", ROLE_USER, id), ERROR_NOT_FOUND);
    CHECK_KIND(change_as(world, "ada", ROLE_VIEWER, id), ERROR_FORBIDDEN);
    CHECK_KIND(change_as(world, "ada", ROLE_USER, "sbx_zzzzzzzzzzzzzzzzzzzz"), ERROR_NOT_FOUND);
    CHECK(world_calls(world, "pause", NULL) == 0 && state(world, id) == SANDBOX_ACTIVE);
    CHECK(audited(world, (struct audited){.action = "sandbox.pause", .status = 404}) == 2);
    CHECK_KIND(change_as(world, "root", ROLE_ADMIN, id), ERROR_NONE);
    question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id);
    CHECK_KIND(change_as(world, "ada", ROLE_USER, id), ERROR_GONE);
}

static void one_that_is_being_made(struct world *world)
{
    struct attempt creator;
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "t"});
    attempt_wait_started(&creator);
    settle(world);
    json_t *prepare = world_last_call(world, "prepare");
    const char *id = json_string_value(json_object_get(json_object_get(prepare, "sandbox"), "id"));
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_STARTING);
    json_decref(prepare);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    negotiation_free(attempt_wait(&creator));
}

/* Whatever goes wrong at the node, the row stays as it is. */
static void a_node_that_fails(struct world *world)
{
    static const struct {
        enum error_kind of_node, answer;
    } CASES[] = {{ERROR_NODE_UNREACHABLE, ERROR_NODE_UNREACHABLE},
                 {ERROR_NOT_FOUND, ERROR_GONE},
                 {ERROR_GONE, ERROR_GONE},
                 {ERROR_TIMEOUT, ERROR_NODE_UNREACHABLE},
                 {ERROR_INVALID, ERROR_INVALID},
                 {ERROR_NO_CAPACITY, ERROR_NO_CAPACITY},
                 {ERROR_DISK_FULL, ERROR_DISK_FULL},
                 {ERROR_CONFLICT, ERROR_CONFLICT}};
    struct wanted more = {.resources = {.memory_mb = 1024}, .on_idle_given = true, .on_idle = ON_IDLE_PAUSE};
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        world_set_mode(world, FAKE_REFUSES, CASES[i].of_node);
        CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), CASES[i].answer);
        CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, more), CASES[i].answer);
    }
    AUTO(question) *q = question_ask(world, QUESTION_SANDBOX, "ada", ROLE_USER, id);
    CHECK(q->sandbox.state == SANDBOX_ACTIVE && q->sandbox.resources.memory_mb == 512 &&
          q->sandbox.on_idle == ON_IDLE_STOP);
    world->life = NODE_LOST;
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NODE_UNREACHABLE);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, (struct wanted){.name = "still-me"}), ERROR_NONE);
    world->life = NODE_ALIVE;
}

/* It ended while its node was asked: no row of an ended one changes. */
static void one_that_ends_meanwhile(struct world *world)
{
    struct change it;
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    world_set_mode_of(world, "pause", FAKE_HOLDS, ERROR_NONE);
    change_start(world, &it, CHANGING_PAUSE, "ada", ROLE_USER, id, NOTHING);
    settle(world);
    CHECK(world_calls(world, "pause", id) == 1);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(changing) *changing = change_wait(&it);
    CHECK_KIND(changing->refusal.kind, ERROR_GONE);
    CHECK(state(world, id) == SANDBOX_TERMINATING);
}

static void one_after_another(struct world *world)
{
    struct change first, second, third, others[CHANGING_WAITERS_MAX];
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    world_set_mode_of(world, "pause", FAKE_HOLDS, ERROR_NONE);
    change_start(world, &first, CHANGING_PAUSE, "ada", ROLE_USER, id, NOTHING);
    settle(world);
    change_start(world, &second, CHANGING_RESUME, "ada", ROLE_USER, id, NOTHING);
    change_start(world, &third, CHANGING_UPDATE, "ada", ROLE_USER, id, (struct wanted){.name = "third"});
    settle(world);
    CHECK(world_calls(world, "resume", id) == 0);
    for (int i = 0; i < CHANGING_WAITERS_MAX; i++) {
        change_start(world, &others[i], CHANGING_UPDATE, "ada", ROLE_USER, id, (struct wanted){.name = "other"});
        settle(world);
    }
    AUTO(changing) *too_many = change_wait(&others[CHANGING_WAITERS_MAX - 1]);
    CHECK_KIND(too_many->refusal.kind, ERROR_RATE_LIMITED);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(changing) *a = change_wait(&first);
    AUTO(changing) *b = change_wait(&second);
    AUTO(changing) *c = change_wait(&third);
    CHECK(a->sandbox.state == SANDBOX_PAUSED && b->sandbox.state == SANDBOX_ACTIVE);
    CHECK_TEXT(c->sandbox.name, "third");
    for (int i = 0; i < CHANGING_WAITERS_MAX - 2; i++)
        changing_free(change_wait(&others[i]));
    CHECK_KIND(change_wait(&others[CHANGING_WAITERS_MAX - 2])->refusal.kind, ERROR_RATE_LIMITED);
    changing_free(others[CHANGING_WAITERS_MAX - 2].changing);
}

/* Who waits for his turn is answered when the negotiator stops. */
static void a_stop(struct world *world)
{
    static struct change waits[3];
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    world_set_mode_of(world, "pause", FAKE_HOLDS, ERROR_NONE);
    for (int i = 0; i < 3; i++)
        change_start(world, &waits[i], CHANGING_PAUSE, "ada", ROLE_USER, id, NOTHING);
    settle(world);
    leasing_stopping(world->leasing);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    for (int i = 0; i < 3; i++) {
        AUTO(changing) *changing = change_wait(&waits[i]);
        CHECK_KIND(changing->refusal.kind, i == 0 ? ERROR_NONE : ERROR_STARTING);
    }
}

/* ---- what may be changed ---- */

static void an_update(struct world *world)
{
    struct wanted wanted = {
        .resources = {.cpu_milli = 2000, .memory_mb = 1024, .open_files = 100, .processes = 7, .output_mb = 5},
        .on_idle_given = true,
        .on_idle = ON_IDLE_PAUSE,
        .name = "renamed",
        .metadata = json_pack("{s:s}", "k", "v")};
    char id[RANDOM_ID_BYTES], other[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.name = "first"}}, id);
    AUTO(changing) *changing = change(world, CHANGING_UPDATE, id, wanted);
    CHECK_TEXT(changing->refusal.message, "");
    json_t *limits = world_last_call(world, "limits");
    CHECK(json_integer_value(json_object_get(limits, "memory_bytes")) == 1024LL * 1024 * 1024 &&
          json_integer_value(json_object_get(limits, "cpu_milli")) == 2000 &&
          json_integer_value(json_object_get(limits, "commands")) == 7 &&
          json_integer_value(json_object_get(limits, "output_bytes")) == 5 * 1024 * 1024 &&
          json_integer_value(json_object_get(limits, "disk_bytes")) == 0);
    json_decref(limits);
    AUTO(question) *q = question_ask(world, QUESTION_SANDBOX, "ada", ROLE_USER, id);
    const struct resources *has = &q->sandbox.resources;
    CHECK(has->cpu_milli == 2000 && has->memory_mb == 1024 && has->open_files == 100 && has->processes == 7 &&
          has->output_mb == 5 && has->pids == 256 && has->disk_mb == 1024);
    CHECK(q->sandbox.on_idle == ON_IDLE_PAUSE && json_object_size(q->sandbox.metadata) == 1);
    CHECK_TEXT(q->sandbox.name, "renamed");
    /* The old name is free, the new one is not. */
    ask_id(world, (struct asked){.thread = "u", .wanted = {.name = "first"}}, other);
    CHECK(strcmp(id, other) != 0);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, other, (struct wanted){.name = "renamed"}), ERROR_CONFLICT);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, (struct wanted){.name = "renamed"}), ERROR_NONE);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, (struct wanted){.resources = {.pids = 1}}), ERROR_INVALID);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, (struct wanted){.name = "Not-A-Name"}), ERROR_INVALID);
    CHECK(world_calls(world, "limits", NULL) == 1);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t"), ERROR_NONE);
    ask_id(world, (struct asked){.thread = "v", .wanted = {.name = "renamed"}}, other);
}

/* ---- asleep instead of ended ---- */

static void idle_ones_fall_asleep(struct world *world)
{
    const struct wanted sleepy = {.idle_timeout_s = 100, .on_idle_given = true, .on_idle = ON_IDLE_PAUSE};
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = sleepy}, id);
    struct wanted join = {.idle_timeout_s = 300};
    memcpy(join.hint, id, sizeof id);
    ask_kind(world, (struct asked){.thread = "u", .wanted = join});
    int64_t used = world_now;
    full_beat(world, beating(id, used, false));
    for (int i = 0; i < 29; i++) { /* one lease is idle long before the other: both stay */
        later(world, 10000);
        delta_beat(world, json_array());
        CHECK(state(world, id) == SANDBOX_ACTIVE);
    }
    for (int i = 0; i < 3; i++) {
        later(world, 10000);
        delta_beat(world, json_array());
    }
    CHECK(state(world, id) == SANDBOX_PAUSED && world_calls(world, "pause", id) == 1);
    CHECK(audited(world, (struct audited){.action = "sandbox.pause", .status = 200, .detail = "idle"}) == 1);
    AUTO(question) *asleep = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    CHECK(asleep->refusal.kind == ERROR_NONE && asleep->lease.expires_at == asleep->lease.max_expires_at);
    for (int i = 0; i < 30; i++) { /* no idle time runs */
        later(world, 60000);
        delta_beat(world, i == 0 ? beating(id, used, true) : json_array());
    }
    CHECK(state(world, id) == SANDBOX_PAUSED && world_calls(world, "pause", id) == 1);
    /* Somebody uses it: awake, and all the idle time is to come. */
    delta_beat(world, beating(id, used, false));
    CHECK(state(world, id) == SANDBOX_ACTIVE);
    CHECK(audited(world, (struct audited){.action = "sandbox.resume", .detail = "used it"}) == 1);
    AUTO(question) *awake = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    CHECK(awake->lease.expires_at == world_now + 100000);
    later(world, 299000);
    delta_beat(world, json_array());
    CHECK(state(world, id) == SANDBOX_ACTIVE);
    later(world, 10000);
    delta_beat(world, json_array());
    later(world, 10000);
    delta_beat(world, json_array());
    CHECK(state(world, id) == SANDBOX_PAUSED);
    CHECK(world_calls(world, "destroy", NULL) == 0);
}

/* What a lease may while its sandbox sleeps: be looked at, refreshed, signed, joined, released; it ends in its time. */
static void leases_of_a_sleeping_one(struct world *world)
{
    struct token token, next;
    char reason[SANDBOX_REASON_BYTES];
    const struct asked asked = {.thread = "t", .wanted = {.idle_timeout_s = 100, .max_lifetime_s = 2000}};
    get_token(world, asked, &token);
    const char *id = token.claims.sandbox_id;
    full_beat(world, beating(id, world_now, false));
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NONE);
    later(world, 800000);
    delta_beat(world, beating(id, 0, true));
    refresh_token(world, asked, token.text, &next);
    CHECK_KIND(refresh_kind(world, asked, token.text), ERROR_NONE); /* a lost reply */
    AUTO(negotiation) *again = ask(world, asked);
    CHECK(again->sandbox.state == SANDBOX_PAUSED && again->lease.expires_at == again->lease.max_expires_at);
    CHECK_KIND(sign_kind(world, "ada", ROLE_USER, "t", NULL), ERROR_NONE);
    CHECK(world_calls(world, "resume", NULL) == 0); /* none of that wakes it */
    later(world, 1190000);
    CHECK(state(world, id) == SANDBOX_PAUSED);
    /* The row has the lease's own time: what was shown while it slept is not kept. */
    CHECK_KIND(change_kind(world, CHANGING_RESUME, id, NOTHING), ERROR_NONE);
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    CHECK(q->lease.expires_at == q->lease.max_expires_at); /* 10 s are left, less than its idle time */
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NONE);
    later(world, 11000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "max_lifetime");
    CHECK(world_calls(world, "destroy", id) > 0);
    get_token(world, asked, &token);
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, token.claims.sandbox_id, NOTHING), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t"), ERROR_NONE);
    CHECK(state_of(world, token.claims.sandbox_id, reason) == SANDBOX_TERMINATING);
    get_token(world, asked, &token);
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, token.claims.sandbox_id, NOTHING), ERROR_NONE);
    CHECK_KIND(
        revoke_kind(
            world,
            (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_SANDBOX, .value = token.claims.sandbox_id}),
        ERROR_NONE);
    CHECK(is_refused(world, &token.claims, world_now) || state(world, token.claims.sandbox_id) == SANDBOX_PAUSED);
}

/* What the node said before it was asked is no news, whichever way round. */
static void old_words(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    later(world, 1000);
    full_beat(world, beating(id, world_now, false));
    later(world, 2000);
    delta_beat(world, json_array());
    later(world, 1000);
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NONE);
    later(world, 500);
    delta_beat(world, json_array()); /* made after, but maybe told before: it is asked again */
    CHECK(state(world, id) == SANDBOX_PAUSED);
    later(world, 2000);
    delta_beat(world, beating(id, world_now, true));
    for (int i = 0; i < 5; i++) {
        later(world, 2000);
        delta_beat(world, json_array());
    }
    CHECK(state(world, id) == SANDBOX_PAUSED);
    CHECK_KIND(change_kind(world, CHANGING_RESUME, id, NOTHING), ERROR_NONE);
    later(world, 1000);
    delta_beat(world, json_array()); /* asleep, it said last: that was before */
    CHECK(state(world, id) == SANDBOX_ACTIVE);
    delta_beat(world, beating(id, world_now, false));
    for (int i = 0; i < 5; i++) {
        later(world, 2000);
        delta_beat(world, json_array());
    }
    CHECK(state(world, id) == SANDBOX_ACTIVE);
    CHECK(audited(world, (struct audited){.action = "sandbox.resume", .detail = "used it"}) == 0);
}

/* The answer to `pause` was lost: the node's word makes up for it. So it does after a start of ours. */
static void a_lost_answer(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    full_beat(world, beating(id, world_now, false));
    world_set_mode_of(world, "pause", FAKE_REFUSES, ERROR_NODE_UNREACHABLE);
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NODE_UNREACHABLE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    later(world, 2000);
    delta_beat(world, beating(id, world_now, true));
    later(world, 2000);
    delta_beat(world, json_array());
    later(world, 3000);
    CHECK(state(world, id) == SANDBOX_PAUSED);
    world_restart(world);
    later(world, 2000);
    full_beat(world, beating(id, 0, false));
    later(world, 2000);
    delta_beat(world, json_array());
    later(world, 3000);
    CHECK(state(world, id) == SANDBOX_ACTIVE);
}

/* Its node cannot: it is said, and tried again, but not all the time. */
static void one_that_cannot_sleep(struct world *world)
{
    const struct wanted sleepy = {.idle_timeout_s = 100, .on_idle_given = true, .on_idle = ON_IDLE_PAUSE};
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = sleepy}, id);
    full_beat(world, beating(id, world_now, false));
    world_set_mode(world, FAKE_REFUSES, ERROR_INTERNAL);
    for (int i = 0; i < 100; i++) {
        later(world, 10000);
        delta_beat(world, json_array());
    }
    size_t tries = world_calls(world, "pause", id);
    CHECK(tries >= 2 && tries <= 4);
    CHECK(state(world, id) == SANDBOX_ACTIVE);
    CHECK(audited(world, (struct audited){.action = "sandbox.pause", .status = 500}) == tries);
}

static void a_lost_node(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    world->incarnation = 1;
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 1000}}, id);
    full_beat(world, beating(id, world_now, false));
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NONE);
    world->life = NODE_LOST;
    later(world, 900000);
    CHECK(state(world, id) == SANDBOX_PAUSED);
    later(world, 300000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    world->life = NODE_ALIVE;
    ask_id(world, (struct asked){.thread = "u"}, id);
    CHECK_KIND(change_kind(world, CHANGING_PAUSE, id, NOTHING), ERROR_NONE);
    world->incarnation = 2;
    later(world, 2000);
    full_beat(world, json_array());
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
}

static struct wanted to_network(const char *egress, const char *rule)
{
    json_t *network =
        rule ? json_pack("{s:s, s:[s]}", "egress", egress, "allow", rule) : json_pack("{s:s}", "egress", egress);
    return (struct wanted){.network = network};
}

static bool has_network(struct world *world, const char *id, const char *egress)
{
    AUTO(question) *q = question_ask(world, QUESTION_SANDBOX, "ada", ROLE_USER, id);
    return text_equal(json_string_value(json_object_get(q->sandbox.network, "egress")), egress);
}

/* What is asked for first goes with the prepare, later ones by a call of their own; the row follows the node. */
static void networks(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = to_network("allow", "a.org")}, id);
    json_t *prepare = world_last_call(world, "prepare");
    struct wanted asked = to_network("allow", "a.org");
    CHECK(json_equal(json_object_get(json_object_get(prepare, "sandbox"), "network"), asked.network));
    wanted_done(&asked);
    json_decref(prepare);
    CHECK(has_network(world, id, "allow"));
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = to_network("allow", "a.org")}), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = to_network("public", NULL)}), ERROR_CONFLICT);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, to_network("public", NULL)), ERROR_NONE);
    CHECK(has_network(world, id, "public") && world_calls(world, "network", id) == 1);
    world_set_mode(world, FAKE_REFUSES, ERROR_FORBIDDEN);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, to_network("none", NULL)), ERROR_FORBIDDEN);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    CHECK(has_network(world, id, "public"));
    struct wanted both = to_network("none", NULL);
    both.resources.pids = 64;
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, both), ERROR_INVALID);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, to_network("none", NULL)), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = to_network("none", NULL)}), ERROR_NONE);
}

static void networks_of_roles(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    struct leasing_policy *policy = &world->leasing->options.policy;
    policy->egress_user = "allow";
    policies_take_settings(world->leasing->policies, &world->leasing->options);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = to_network("public", NULL)}), ERROR_FORBIDDEN);
    ask_id(world, (struct asked){.thread = "t", .wanted = to_network("allow", "a.org")}, id);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, to_network("public", NULL)), ERROR_FORBIDDEN);
    CHECK(has_network(world, id, "allow") && world_calls(world, "network", id) == 0);
    policy->egress_user = "none";
    policies_take_settings(world->leasing->policies, &world->leasing->options);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "u", .wanted = to_network("allow", "a.org")}), ERROR_FORBIDDEN);
    CHECK_KIND(change_kind(world, CHANGING_UPDATE, id, to_network("none", NULL)), ERROR_NONE);
    struct asked admin = {.who = "root", .role = ROLE_ADMIN, .thread = "u", .wanted = to_network("public", NULL)};
    CHECK_KIND(ask_kind(world, admin), ERROR_NONE);
}

/* ---- by a capability ---- */

/* What it is, with one more name; "wrong" cannot be. */
static json_t *add_name(void *cookie, const json_t *network, struct error *err)
{
    const char *name = cookie;
    if (strcmp(name, "wrong") == 0) {
        (void)error_set(err, ERROR_INVALID, "as told");
        return NULL;
    }
    json_t *edited = network ? json_deep_copy(network) : json_pack("{s:s, s:[]}", "egress", "allow", "allow");
    json_array_append_new(json_object_get(edited, "allow"), json_string(name));
    return edited;
}

static enum error_kind edit_kind(struct world *world, const char *id, const char *token, char *name)
{
    struct change it = {.world = world};
    struct error err = {0};
    struct changing *changing = changing_new();
    changing->verb = CHANGING_UPDATE;
    changing->token = token ? memory_string(token) : NULL;
    changing->edit_network = add_name;
    changing->edit_cookie = name;
    changing->answered = change_answered;
    changing->cookie = &it;
    CHECK(text_copy(changing->sandbox_id, sizeof changing->sandbox_id, id));
    CHECK(leasing_change(world->leasing, changing, &err));
    AUTO(changing) *answered = change_wait(&it);
    return answered->refusal.kind;
}

static struct asked with_scopes(const char *thread, const char *scopes, struct wanted wanted)
{
    struct error err;
    wanted.scopes_given = true;
    CHECK(scope_parse(&wanted.scopes, scopes, strlen(scopes), SCOPE_UNKNOWN_REFUSED, &err));
    return (struct asked){.thread = thread, .wanted = wanted};
}

static void by_a_capability(struct world *world)
{
    struct token token, narrow, foreign;
    get_token(world, with_scopes("t", "network", to_network("allow", "a.org")), &token);
    get_token(world, with_scopes("t", "fs:rw process shell code port", (struct wanted){.ttl_s = 0}), &narrow);
    get_token(world, with_scopes("u", "network", (struct wanted){.ttl_s = 0}), &foreign);
    const char *id = token.claims.sandbox_id;
    char one[] = "b.org", two[] = "c.org", wrong[] = "wrong", broken[CAPABILITY_TEXT_BYTES];
    CHECK_KIND(edit_kind(world, id, token.text, one), ERROR_NONE);
    CHECK_KIND(edit_kind(world, id, token.text, two), ERROR_NONE);
    json_t *sent = world_last_call(world, "network");
    CHECK(json_array_size(json_object_get(json_object_get(sent, "network"), "allow")) == 3); /* of what it was then */
    json_decref(sent);
    CHECK_KIND(edit_kind(world, id, token.text, wrong), ERROR_INVALID);
    CHECK_KIND(edit_kind(world, id, narrow.text, one), ERROR_CAPABILITY_DENIED);
    CHECK_KIND(edit_kind(world, id, foreign.text, one), ERROR_UNAUTHENTICATED); /* of another sandbox */
    memcpy(broken, token.text, sizeof broken);
    broken[strlen(broken) - 2] ^= 1;
    CHECK_KIND(edit_kind(world, id, broken, one), ERROR_UNAUTHENTICATED);
    CHECK_KIND(edit_kind(world, id, "", one), ERROR_UNAUTHENTICATED);
    CHECK_KIND(edit_kind(world, id, NULL, one), ERROR_FORBIDDEN); /* nobody has no role */
    CHECK(world_calls(world, "network", id) == 2);
    world->leasing->options.policy.egress_user = "none"; /* the owner's policy, whoever asks */
    policies_take_settings(world->leasing->policies, &world->leasing->options);
    CHECK_KIND(edit_kind(world, id, token.text, one), ERROR_FORBIDDEN);
}

int main(void)
{
    in_both_worlds(by_a_capability);
    in_both_worlds(pause_and_resume);
    in_both_worlds(who_may);
    in_both_worlds(one_that_is_being_made);
    in_both_worlds(a_node_that_fails);
    in_both_worlds(one_that_ends_meanwhile);
    in_both_worlds(one_after_another);
    in_both_worlds(a_stop);
    in_both_worlds(an_update);
    in_both_worlds(idle_ones_fall_asleep);
    in_both_worlds(leases_of_a_sleeping_one);
    in_both_worlds(old_words);
    in_both_worlds(a_lost_answer);
    in_both_worlds(one_that_cannot_sleep);
    in_both_worlds(a_lost_node);
    in_both_worlds(networks);
    in_both_worlds(networks_of_roles);
    return check_done();
}
