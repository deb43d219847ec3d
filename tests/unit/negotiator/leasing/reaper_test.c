/* Goal: everything ends in its time by itself, whoever is heard of: leases, what a lost node had, what is remembered; a
 * ledger that was lost or put back from a copy destroys nothing; and strangers do not fill it. */
#include "tests/unit/negotiator/leasing/world.h"

#include <string.h>

static void set_life(struct world *world, enum node_life life)
{
    pthread_mutex_lock(&world->mutex);
    world->life = life;
    pthread_mutex_unlock(&world->mutex);
}

static json_t *holding(const char *id)
{
    return json_pack("[o]", on_node(id, world_clock(), INT64_MAX / 2));
}

/* ---- nodes that are lost, and come back ---- */

static void a_node_that_never_returns(struct world *world)
{
    struct attempt creator;
    char id[RANDOM_ID_BYTES], longer[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 100}}, id);
    ask_id(world, (struct asked){.thread = "longer", .wanted = {.max_lifetime_s = 1000}}, longer);
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "made", .wanted = {.max_lifetime_s = 100}});
    attempt_wait_started(&creator);
    set_life(world, NODE_LOST);
    later(world, 219000);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "longer"}), ERROR_NODE_UNREACHABLE);
    later(world, 2000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    CHECK(state_of(world, longer, reason) == SANDBOX_ACTIVE);
    AUTO(negotiation) *n = attempt_wait(&creator);
    CHECK_KIND(n->refusal.kind, ERROR_NODE_UNREACHABLE);
    set_life(world, NODE_ALIVE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NONE);
    set_life(world, NODE_LOST);
    later(world, 86401000); /* no heartbeat needs to come for the forgetting */
    CHECK(state_of(world, id, reason) == SANDBOX_STATES);
    CHECK(state_of(world, longer, reason) == SANDBOX_TERMINATED);
}

/* One that may come: its longest life ends a lease, nothing else does. */
static void a_suspect_node(struct world *world)
{
    char id[RANDOM_ID_BYTES], idle[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 100}}, id);
    ask_id(world, (struct asked){.thread = "idle", .wanted = {.idle_timeout_s = 10}}, idle);
    json_t *both = holding(id);
    json_array_append_new(both, on_node(idle, world_clock(), INT64_MAX / 2));
    full_beat(world, both);
    set_life(world, NODE_SUSPECT);
    for (int i = 0; i < 40; i++)
        later(world, 3000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "max_lifetime");
    CHECK(state_of(world, idle, reason) == SANDBOX_ACTIVE);
    set_life(world, NODE_ALIVE);
    delta_beat(world, json_array());
    later(world, 3000);
    CHECK(state_of(world, idle, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "idle_timeout");
}

/* A node that was lost is asked for all it has: with its sandboxes all goes on, without them they are gone. */
static void a_node_that_returns(struct world *world)
{
    char kept[RANDOM_ID_BYTES], gone[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    bool wanted = false;
    world->incarnation = 1;
    ask_id(world, (struct asked){.thread = "kept", .wanted = {.idle_timeout_s = 100}}, kept);
    ask_id(world, (struct asked){.thread = "gone", .wanted = {.idle_timeout_s = 100}}, gone);
    json_t *both = holding(kept);
    json_array_append_new(both, on_node(gone, world_clock(), INT64_MAX / 2));
    full_beat(world, both);
    set_life(world, NODE_LOST);
    later(world, 1000000);
    CHECK(state_of(world, kept, reason) == SANDBOX_ACTIVE);
    set_life(world, NODE_ALIVE);
    json_decref(heartbeat_of(world, false, json_array(), json_array(), &wanted));
    CHECK(wanted);
    CHECK(state_of(world, gone, reason) == SANDBOX_ACTIVE);
    full_beat(world, holding(kept));
    CHECK(state_of(world, gone, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    CHECK(state_of(world, kept, reason) == SANDBOX_ACTIVE);
    CHECK(world_calls(world, "destroy", NULL) == 0);
    /* And after a restart of the node, without the other one. */
    world->incarnation = 2;
    full_beat(world, json_array());
    CHECK(state_of(world, kept, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
}

/* More than one round looks at. */
static void many_at_once(struct world *world)
{
    enum { ROWS = 300 };
    char ids[ROWS][RANDOM_ID_BYTES], thread[16], reason[SANDBOX_REASON_BYTES];
    json_t *all = json_array();
    for (int i = 0; i < ROWS; i++) {
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, (struct asked){.thread = thread, .wanted = {.max_lifetime_s = i % 4 ? 10000 : 100}}, ids[i]);
        json_array_append_new(all, on_node(ids[i], world_clock(), INT64_MAX / 2));
    }
    world_now += 1000;
    full_beat(world, json_incref(all));
    later(world, 99000);
    for (int i = 0; i < ROWS; i++)
        CHECK(state_of(world, ids[i], reason) == (i % 4 ? SANDBOX_ACTIVE : SANDBOX_TERMINATING));
    for (int i = ROWS; i > ROWS / 2; i--)
        json_array_remove(all, (size_t)i - 1);
    later(world, 2000);
    full_beat(world, all);
    later(world, 2000);
    delta_beat(world, json_array()); /* by now it would have named what ended when it made the list */
    later(world, 15000);
    for (int i = 0; i < ROWS; i++) {
        bool is_there = i < ROWS / 2;
        enum sandbox_state state = !is_there ? SANDBOX_TERMINATED : i % 4 ? SANDBOX_ACTIVE : SANDBOX_TERMINATING;
        CHECK(state_of(world, ids[i], reason) == state);
        CHECK_TEXT(reason, i % 4 == 0 ? "max_lifetime" : is_there ? "" : "node_lost");
    }
    later(world, 86500000);
    for (int i = ROWS / 2; i < ROWS; i++)
        CHECK(state_of(world, ids[i], reason) == SANDBOX_STATES);
}

/* ---- the clock ---- */

static void a_clock_that_is_set_back_and_forth(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 100}}, id);
    full_beat(world, holding(id));
    later(world, 50000);
    later(world, -40000);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    later(world, 80000);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    later(world, 10000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
}

/* ---- a ledger that is not what it was ---- */

static enum kv_outcome damage_rule(struct kv *kv, void *argument, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    AUTO_FREE char *key = memory_printf("sandbox/%s", (const char *)argument);
    kv_change_put(change, key, "{", 1);
    return kv_apply(kv, change, err);
}

/* One row that cannot be read keeps no other one waiting. */
static void a_damaged_row(struct world *world)
{
    char bad[RANDOM_ID_BYTES], good[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    struct error err = {0};
    ask_id(world, (struct asked){.thread = "bad", .wanted = {.max_lifetime_s = 100}}, bad);
    ask_id(world, (struct asked){.thread = "good", .wanted = {.max_lifetime_s = 101}}, good);
    CHECK(ledger_run(world->ledger, damage_rule, bad, &err));
    for (int i = 0; i < 10; i++)
        later(world, 30000);
    CHECK(state_of(world, good, reason) == SANDBOX_TERMINATING);
    struct ledger_figures figures;
    ledger_figures(world->ledger, &figures);
    CHECK(figures.failures > 0 && figures.failures < 10);
}

/* The disk is full: what is due stays due, and is not tried at once again. */
static void a_failing_store(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    struct error err = {0};
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 100}}, id);
    settle(world);
    kv_memory_fail_ends(world->kv, 40);
    world_now += 100000;
    for (int i = 0; i < 45; i++)
        (void)!ledger_run(world->ledger, nothing_rule, NULL, &err);
    settle(world);
    for (int i = 0; i < 10; i++)
        later(world, 15000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK(world_calls(world, "destroy", id) > 0);
}

static enum kv_outcome set_epoch_rule(struct kv *kv, void *argument, struct error *err)
{
    struct look *look = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(look->leasing, kv, change, err);
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(&work, look->id, &sandbox))
        return KV_FAILED;
    sandbox.epoch = 7;
    store_put_sandbox(&work, &sandbox);
    return store_apply(&work);
}

static json_t *of_epoch(const char *id, int epoch)
{
    json_t *told = on_node(id, world_clock(), INT64_MAX / 2);
    json_object_set_new(told, "epoch", json_integer(epoch));
    return json_pack("[o]", told);
}

/* It was put back from a copy: the node knows of a higher epoch. The lower one of a node changes nothing. */
static void an_epoch_only_rises(struct world *world)
{
    struct error err = {0};
    struct look look = {.leasing = world->leasing};
    ask_id(world, (struct asked){.thread = "t"}, look.id);
    CHECK(ledger_run(world->ledger, set_epoch_rule, &look, &err));
    full_beat(world, of_epoch(look.id, 3));
    AUTO(question) *same = question_ask(world, QUESTION_SANDBOX, "ada", ROLE_USER, look.id);
    CHECK(same->sandbox.epoch == 7);
    delta_beat(world, of_epoch(look.id, 9));
    AUTO(question) *raised = question_ask(world, QUESTION_SANDBOX, "ada", ROLE_USER, look.id);
    CHECK(raised->sandbox.epoch == 9);
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t"});
    CHECK(n->claims.epoch == 9);
}

/* ---- the audit ---- */

/* What the ledger does not know is told of once and left alone: the ledger may be the wrong one. */
static void an_empty_ledger_destroys_nothing(struct world *world)
{
    static const char ID[] = "sbx_zzzzzzzzzzzzzzzzzzzz";
    ask_kind(world, (struct asked){.thread = "t"});
    for (int i = 0; i < 3; i++) {
        full_beat(world, holding(ID));
        delta_beat(world, holding(ID));
        later(world, 20000);
    }
    CHECK(world_calls(world, "destroy", ID) == 0);
    CHECK(audited(world, (struct audited){.action = "sandbox.unknown", .detail = "left alone"}) == 1);
    world->incarnation++;
    full_beat(world, holding(ID));
    CHECK(audited(world, (struct audited){.action = "sandbox.unknown"}) == 2);
    CHECK(world_calls(world, "destroy", ID) == 0);
}

/* A node that names ever other ids fills neither ledger nor log with them. */
static void invented_ids_are_told_of_in_bounds(struct world *world)
{
    ask_kind(world, (struct asked){.thread = "t"});
    for (int beat = 0; beat < 4; beat++) {
        json_t *list = json_array();
        for (int i = 0; i < 500; i++) {
            char id[RANDOM_ID_BYTES];
            CHECK(text_format(id, sizeof id, "sbx_%020d", beat * 500 + i));
            json_array_append_new(list, on_node(id, world_now, world_now + 60000));
        }
        full_beat(world, list);
    }
    size_t told = audited(world, (struct audited){.action = "sandbox.unknown"});
    CHECK(told >= 1024 && told < 1024 + 64); /* a round is looked at at once */
    CHECK(audited(world, (struct audited){.action = "sandbox.unknown", .detail = "more are not told"}) >= 1);
    later(world, 3600000);
    full_beat(world, holding("sbx_yyyyyyyyyyyyyyyyyyyy"));
    CHECK(audited(world, (struct audited){.action = "sandbox.unknown"}) == told + 1);
}

static enum kv_outcome move_rule(struct kv *kv, void *argument, struct error *err)
{
    struct look *look = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(look->leasing, kv, change, err);
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(&work, look->id, &sandbox))
        return KV_FAILED;
    CHECK(text_copy(sandbox.node, sizeof sandbox.node, "n2"));
    store_put_sandbox(&work, &sandbox);
    return store_apply(&work);
}

/* Nor what it has on another node: two of one id are for a human. */
static void one_that_is_elsewhere(struct world *world)
{
    struct error err = {0};
    struct look look = {.leasing = world->leasing};
    ask_id(world, (struct asked){.thread = "t"}, look.id);
    CHECK(ledger_run(world->ledger, move_rule, &look, &err));
    full_beat(world, holding(look.id));
    json_decref(
        heartbeat_of(world, false, json_array(), json_pack("[{s:s, s:s}]", "id", look.id, "reason", "oom"), NULL));
    char reason[SANDBOX_REASON_BYTES];
    CHECK(state_of(world, look.id, reason) == SANDBOX_ACTIVE);
    CHECK(world_calls(world, "destroy", NULL) == 0);
    CHECK(audited(world, (struct audited){.action = "sandbox.unknown", .detail = "on node n2"}) == 1);
}

static void strangers_are_summed(struct world *world)
{
    char remote[32];
    for (int i = 0; i < 1000; i++)
        leasing_stranger(world->leasing, "192.0.2.1");
    for (int i = 0; i < 1000; i++) {
        snprintf(remote, sizeof remote, "10.0.%d.%d", i / 250, i % 250);
        leasing_stranger(world->leasing, remote);
    }
    settle(world);
    CHECK(audited(world, (struct audited){.action = "authenticate", .status = 401}) == 0); /* its minute runs */
    later(world, 60000);
    CHECK(audited(world, (struct audited){.action = "authenticate", .status = 401}) == LEASING_STRANGERS_MAX + 1);
    CHECK(audited(world, (struct audited){
                             .action = "authenticate", .status = 401, .remote = "192.0.2.1", .detail = "1000 "}) == 1);
    CHECK(audited(world, (struct audited){.action = "authenticate", .status = 401, .remote = "", .detail = "937 "}) ==
          1);
    leasing_stranger(world->leasing, "192.0.2.1");
    world_now += 60000;
    leasing_stranger(world->leasing, "192.0.2.1"); /* the next minute's first one records the last minute's */
    leasing_stopping(world->leasing);              /* and so does the end */
    CHECK(audited(world, (struct audited){
                             .action = "authenticate", .status = 401, .remote = "192.0.2.1", .detail = "1 req"}) == 2);
}

static void deleting_twice_is_two_records(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    CHECK(audited(world, (struct audited){.action = "sandbox.delete", .status = 204}) == 2);
}

int main(void)
{
    in_both_worlds(a_node_that_never_returns);
    in_both_worlds(a_suspect_node);
    in_both_worlds(a_node_that_returns);
    in_both_worlds(many_at_once);
    in_both_worlds(a_clock_that_is_set_back_and_forth);
    in_both_worlds(a_damaged_row);
    in_both_worlds(a_failing_store);
    in_both_worlds(an_epoch_only_rises);
    in_both_worlds(an_empty_ledger_destroys_nothing);
    in_both_worlds(invented_ids_are_told_of_in_bounds);
    in_both_worlds(one_that_is_elsewhere);
    in_both_worlds(strangers_are_summed);
    in_both_worlds(deleting_twice_is_two_records);
    return check_done();
}
