/* Goal: what a death, a failing store, a damaged row or a ledger of before leaves behind is found and put right: nobody
 * waits for ever, no sandbox is left that nobody looks at, and one bad row keeps no other one from its end. */
#include "negotiator/leasing/lost.h"
#include "tests/unit/negotiator/leasing/grants.h"

#include <string.h>

static void set_life(struct world *world, enum node_life life)
{
    pthread_mutex_lock(&world->mutex);
    world->life = life;
    pthread_mutex_unlock(&world->mutex);
}

static bool is_answered(struct attempt *attempt)
{
    pthread_mutex_lock(&attempt->world->mutex);
    bool done = attempt->done;
    pthread_mutex_unlock(&attempt->world->mutex);
    return done;
}

static json_t *holding(const char *id)
{
    return json_pack("[o]", on_node(id, world_clock(), INT64_MAX / 2));
}

/* ---- what a node is told ---- */

/* A node takes a word of at most 63 bytes (world.h holds every call to that): a longer one would be refused, and what
 * it had made would stay. */
static void a_long_sentence_of_a_failure(struct world *world)
{
    char sentence[160];
    world_set_mode(world, FAKE_REFUSES, ERROR_INTERNAL);
    memset(sentence, 'x', 54); /* behind "failed: " the 63rd byte is half of a letter */
    sentence[54] = '\0';
    for (int i = 0; i < 50; i++)
        strcat(sentence, "ä");
    error_set(&world->refusal, ERROR_INTERNAL, "%s", sentence);
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t"});
    CHECK_KIND(n->refusal.kind, ERROR_INTERNAL);
    settle(world);
    CHECK(world_calls(world, "destroy", n->sandbox.id) == 1);
}

/* ---- deaths ---- */

/* It was nobody's turn to ask the node yet: so no answer of a node tells who waits that there is nothing to wait for.
 */
static void deleted_before_it_is_asked_for(struct world *world)
{
    static struct attempt lost, waiter; /* a failing test leaves the waiter to the end of the world */
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &lost, (struct asked){.thread = "t"});
    attempt_wait_started(&lost);
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    world_restart(world);
    attempt_start(world, &waiter, (struct asked){.thread = "t"});
    attempt_wait_started(&waiter);
    CHECK(world_calls(world, "prepare", NULL) == 1);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, q->sandbox.id), ERROR_NONE);
    settle(world);
    CHECK(is_answered(&waiter));
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *old = attempt_wait(&lost);
    CHECK_KIND(old->refusal.kind, ERROR_GONE);
    AUTO(negotiation) *n = waiter.n;
    CHECK_KIND(n ? n->refusal.kind : ERROR_NONE, ERROR_GONE);
}

/* Nobody could give us a sign of life while we were away: who does it soon after keeps what he has. */
static void a_start_after_a_long_time(struct world *world)
{
    char kept[RANDOM_ID_BYTES], idle[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "kept", .wanted = {.idle_timeout_s = 600}}, kept);
    ask_id(world, (struct asked){.thread = "idle", .wanted = {.idle_timeout_s = 600}}, idle);
    int64_t used_at = world_now;
    leasing_stopping(world->leasing);
    world_now += 3600000;
    world_restart(world);
    full_beat(world, json_pack("[o, o]", on_node(kept, used_at, INT64_MAX / 2), on_node(idle, used_at, INT64_MAX / 2)));
    later(world, 3000);
    delta_beat(world, json_array());
    CHECK(state_of(world, kept, reason) == SANDBOX_ACTIVE);
    CHECK_KIND(sign_kind(world, "ada", ROLE_USER, "kept", NULL), ERROR_NONE);
    later(world, 60000);
    delta_beat(world, json_array());
    later(world, 3000);
    CHECK(state_of(world, kept, reason) == SANDBOX_ACTIVE);
    CHECK(state_of(world, idle, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "idle_timeout");
}

/* The lease was revoked while its sandbox was made, and goes on under another id: what its thread gets is of that one.
 */
static void a_lease_revoked_while_it_is_made(struct world *world)
{
    struct attempt creator;
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "t"});
    attempt_wait_started(&creator);
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    struct revoke asked = {.who = "ada", .role = ROLE_USER, .kind = MARK_LEASE, .value = q->lease.id};
    CHECK_KIND(revoke_kind(world, asked), ERROR_NONE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *n = attempt_wait(&creator);
    struct token token;
    mint(world, n, &token);
    CHECK(strcmp(token.claims.lease, q->lease.id) != 0);
    CHECK(!is_refused(world, &token.claims, world_now));
}

/* Dead after the commit and before a node heard of it. */
static void a_revocation_outlives_a_death(struct world *world)
{
    struct token token;
    struct revoke_attempt attempt;
    get_token(world, (struct asked){.thread = "t"}, &token);
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE); /* what is sent from now on never comes */
    revoke_start(world, &attempt, (struct revoke){.who = "ada", .role = ROLE_USER, .value = token.claims.jti});
    settle(world);
    CHECK(!revoke_is_done(&attempt));
    world_restart(world);
    settle(world);
    CHECK(is_refused(world, &token.claims, world_now));
    json_t *message = json_pack("{s:b, s:[], s:[], s:{s:s, s:i}}", "full", 1, "sandboxes", "ended", "marks",
                                "ledger_id", "led_before", "cursor", 0);
    struct beat beat = {.report = {.leasing = world->leasing, .node = "n1", .message = message}};
    ledger_submit(world->ledger, beat_rule, beat_act, &beat);
    settle(world);
    const json_t *marks = json_object_get(beat.report.marks, "marks");
    CHECK(json_array_size(marks) == 1);
    CHECK_TEXT(json_string_value(json_object_get(json_array_get(marks, 0), "value")), token.claims.jti);
    leasing_report_done(&beat.report);
    json_decref(message);
    world_now += REVOCATION_WAIT_MS; /* the one of before answers who still waits */
    settle(world);
    AUTO(revoking) *r = revoke_wait(&attempt);
    CHECK(r->refusal.kind != ERROR_NONE || !r->list->in_force);
}

/* ---- the store ---- */

static void fail_next(void *argument, const struct error *err UNUSED)
{
    kv_memory_fail_ends(((struct world *)argument)->kv, 1);
}

static void act_then_fail_reading(void *argument, const struct error *err)
{
    struct beat *beat = argument;
    beat_act(beat, err);
    fail_next(beat->report.leasing->options.nodes.context, err);
}

/* What is submitted here runs with what the round reads, and so before what the round submits. */
static void act_then_fail_looking(void *argument, const struct error *err)
{
    struct beat *beat = argument;
    beat_act(beat, err);
    ledger_submit(beat->report.leasing->options.ledger, nothing_rule, fail_next,
                  beat->report.leasing->options.nodes.context);
}

static void failing_beat(struct world *world, json_t *sandboxes, bool full, ledger_done *done)
{
    struct error err = {0};
    json_t *message = json_pack("{s:b, s:o, s:[]}", "full", full, "sandboxes", sandboxes, "ended");
    struct beat beat = {.report = {.leasing = world->leasing, .node = "n1", .message = message}};
    ledger_submit(world->ledger, beat_rule, done, &beat);
    for (int i = 0; i < 6; i++)
        (void)!ledger_run(world->ledger, nothing_rule, NULL, &err); /* may be of the batch that fails */
    settle(world);
    leasing_report_done(&beat.report);
    json_decref(message);
}

/* What a node told is looked at, though the store failed when it was to be. */
static void a_failing_look(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    bool wanted = true;
    ask_id(world, (struct asked){.thread = "t"}, id);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    json_t *ended = json_pack("[{s:s, s:s}]", "id", id, "reason", "deleted");
    json_decref(heartbeat_of(world, true, json_array(), ended, NULL));
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    size_t before = world_calls(world, "destroy", id);
    failing_beat(world, holding(id), false, act_then_fail_looking); /* it has it all the same */
    CHECK(world_calls(world, "destroy", id) == before);
    delta_beat(world, json_array());
    CHECK(world_calls(world, "destroy", id) == before); /* not at once again: a row may be damaged for good */
    later(world, 60000);
    delta_beat(world, json_array());
    CHECK(world_calls(world, "destroy", id) == before + 1);
    failing_beat(world, holding(id), true, act_then_fail_reading);
    json_decref(heartbeat_of(world, false, json_array(), json_array(), &wanted));
    CHECK(wanted); /* so that all is looked at after all */
}

static enum kv_outcome damage_rule(struct kv *kv, void *argument, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    AUTO_FREE char *key = memory_printf("sandbox/%s", (const char *)argument);
    kv_change_put(change, key, "{", 1);
    return kv_apply(kv, change, err);
}

/* A heartbeat that names a damaged row counts for all else that it says. */
static void a_damaged_row_in_a_heartbeat(struct world *world)
{
    char bad[RANDOM_ID_BYTES], good[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    struct error err = {0};
    ask_id(world, (struct asked){.thread = "bad"}, bad);
    ask_id(world, (struct asked){.thread = "good"}, good);
    CHECK(ledger_run(world->ledger, damage_rule, bad, &err));
    json_t *known = heartbeat_of(
        world, true, json_array(),
        json_pack("[{s:s, s:s}, {s:s, s:s}]", "id", bad, "reason", "oom", "id", good, "reason", "oom"), NULL);
    CHECK(json_array_size(known) == 1); /* what could not be recorded is told again */
    CHECK_TEXT(json_string_value(json_array_get(known, 0)), good);
    json_decref(known);
    CHECK(state_of(world, good, reason) == SANDBOX_TERMINATED);
}

static void lose_answered(void *cookie)
{
    question_answered(cookie, NULL);
}

/* Nor does it keep a node from being given up. */
static void a_damaged_row_on_a_lost_node(struct world *world)
{
    char ids[3][RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    struct error err = {0};
    struct questioning questioning = {.world = world};
    struct losing losing = {.node = "n1", .answered = lose_answered, .cookie = &questioning};
    for (int i = 0; i < 3; i++)
        ask_id(world, (struct asked){.thread = (const char *[]){"a", "b", "c"}[i]}, ids[i]);
    CHECK(ledger_run(world->ledger, damage_rule, ids[1], &err));
    set_life(world, NODE_LOST);
    leasing_lose(world->leasing, &losing);
    pthread_mutex_lock(&world->mutex);
    while (!questioning.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    CHECK_TEXT(losing.refusal.message, "");
    CHECK(losing.ended == 2);
    CHECK(state_of(world, ids[0], reason) == SANDBOX_TERMINATED &&
          state_of(world, ids[2], reason) == SANDBOX_TERMINATED);
}

/* ---- a ledger of before ---- */

static bool forget_due(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    kv_change_delete(cookie, key);
    return true;
}

static bool age_watch(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    static const char DEADLINE_AND_WAKE[] = "1800000100000 1800000001000";
    kv_change_put(cookie, key, DEADLINE_AND_WAKE, strlen(DEADLINE_AND_WAKE));
    return true;
}

static enum kv_outcome age_rule(struct kv *kv, void *argument UNUSED, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    if (!kv_range(kv, "due/", NULL, 0, forget_due, change, err) ||
        !kv_range(kv, "watch/", NULL, 0, age_watch, change, err))
        return KV_FAILED;
    return kv_apply(kv, change, err);
}

/* It said nowhere when to look at a sandbox, and its node is never heard of again. */
static void rows_that_nobody_looks_at(struct world *world)
{
    struct error err = {0};
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 100}}, id);
    settle(world);
    CHECK(ledger_run(world->ledger, age_rule, NULL, &err));
    set_life(world, NODE_LOST);
    world_restart(world);
    settle(world);
    later(world, 219000);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    later(world, 2000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
}

/* ---- times ---- */

/* A key whose sandbox could not be made is free again, and then kept for 24 h from when it is used next. */
static void a_key_that_is_used_again(struct world *world)
{
    struct asked asked = {.thread = "t", .once = "k", .body = "b"};
    world_set_mode(world, FAKE_REFUSES, ERROR_NO_CAPACITY);
    CHECK_KIND(ask_kind(world, asked), ERROR_NO_CAPACITY);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    later(world, 12 * 3600 * 1000);
    CHECK_KIND(ask_kind(world, asked), ERROR_NONE);
    later(world, 12 * 3600 * 1000 + 60000);
    CHECK_KIND(ask_kind(world, asked), ERROR_GONE); /* not a second sandbox */
    later(world, 12 * 3600 * 1000);
    CHECK_KIND(ask_kind(world, asked), ERROR_NONE);
}

/* The clock was set back: what was heard before that says nothing about what was made since. */
static void a_list_of_before_the_clock_was_set_back(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    full_beat(world, json_array());
    world_now += 2000;
    full_beat(world, json_array());
    world_now -= 3600000;
    ask_id(world, (struct asked){.thread = "t"}, id);
    struct asked join = {.thread = "b"};
    memcpy(join.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, join), ERROR_NONE); /* it is looked at now */
    settle(world);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    world_now += 1000;
    full_beat(world, json_array()); /* may have crossed the answer to prepare */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    world_now += 2000;
    full_beat(world, json_array());
    world_now += 2000;
    full_beat(world, json_array());
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
}

int main(void)
{
    in_both_worlds(a_long_sentence_of_a_failure);
    in_both_worlds(deleted_before_it_is_asked_for);
    in_both_worlds(a_start_after_a_long_time);
    in_both_worlds(a_lease_revoked_while_it_is_made);
    in_both_worlds(a_revocation_outlives_a_death);
    in_both_worlds(a_failing_look);
    in_both_worlds(a_damaged_row_in_a_heartbeat);
    in_both_worlds(a_damaged_row_on_a_lost_node);
    in_both_worlds(rows_that_nobody_looks_at);
    in_both_worlds(a_key_that_is_used_again);
    in_both_worlds(a_list_of_before_the_clock_was_set_back);
    return check_done();
}
