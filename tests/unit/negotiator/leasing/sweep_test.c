/* Goal: what no heartbeat brings about happens all the same: a lost node's sandboxes end, what is old is forgotten; and
 * refusals are recorded without a stranger filling the ledger. */
#include "tests/unit/negotiator/leasing/world.h"

#include <string.h>

static enum kv_outcome sweep_rule(struct kv *kv, void *argument, struct error *err)
{
    return leasing_sweep_rule(kv, argument, err);
}

static void sweep_done(void *argument, const struct error *err)
{
    CHECK_TEXT(err->message, "");
    leasing_sweep_act(argument);
}

static void sweep(struct world *world)
{
    struct error err = {0};
    struct leasing_sweep sweep = {.leasing = world->leasing};
    ledger_submit(world->ledger, sweep_rule, sweep_done, &sweep);
    CHECK(ledger_run(world->ledger, nothing_rule, NULL, &err));
    CHECK(ledger_run(world->ledger, nothing_rule, NULL, &err));
    leasing_sweep_done(&sweep);
}

static void set_life(struct world *world, enum node_life life)
{
    pthread_mutex_lock(&world->mutex);
    world->life = life;
    pthread_mutex_unlock(&world->mutex);
}

static void a_node_that_never_returns(struct world *world)
{
    struct attempt creator;
    char id[RANDOM_ID_BYTES], longer[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 100}}, id);
    ask_id(world, (struct asked){.thread = "longer", .wanted = {.max_lifetime_s = 1000}}, longer);
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "made", .wanted = {.max_lifetime_s = 100}});
    attempt_wait_started(&creator);
    world_now += 219000;
    set_life(world, NODE_LOST);
    sweep(world);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    world_now += 2000;
    set_life(world, NODE_SUSPECT); /* it may come: its heartbeat says what is left */
    sweep(world);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    set_life(world, NODE_LOST);
    sweep(world);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    CHECK(state_of(world, longer, reason) == SANDBOX_ACTIVE);
    AUTO(negotiation) *n = attempt_wait(&creator);
    CHECK_KIND(n->refusal.kind, ERROR_NODE_UNREACHABLE);
    set_life(world, NODE_ALIVE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NONE);
    world_now += 86401000; /* no heartbeat needs to come for the forgetting */
    set_life(world, NODE_LOST);
    sweep(world);
    CHECK(state_of(world, id, reason) == SANDBOX_STATES);
    CHECK(state_of(world, longer, reason) == SANDBOX_TERMINATED);
}

/* More rows than one round looks at: the next ones go on where it ended, and begin anew. */
static void sweeps_go_round(struct world *world)
{
    enum { ROWS = 600 };
    char ids[ROWS][RANDOM_ID_BYTES], thread[16], reason[SANDBOX_REASON_BYTES];
    for (int i = 0; i < ROWS; i++) {
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, (struct asked){.thread = thread, .wanted = {.max_lifetime_s = i % 16 ? 10000 : 100}}, ids[i]);
    }
    world_now += 300000;
    set_life(world, NODE_LOST);
    for (int rounds = 0; rounds < 3; rounds++)
        sweep(world);
    for (int i = 0; i < ROWS; i++)
        CHECK(state_of(world, ids[i], reason) == (i % 16 ? SANDBOX_ACTIVE : SANDBOX_TERMINATED));
}

/* ---- the audit ---- */

struct audited {
    const char *action, *remote, *detail;
    int status;
    size_t count;
};

static enum kv_outcome audited_rule(struct kv *kv, void *argument, struct error *err)
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

static size_t audited(struct world *world, struct audited sought)
{
    struct error err = {0};
    CHECK(ledger_run(world->ledger, audited_rule, &sought, &err));
    return sought.count;
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
    sweep(world);
    CHECK(audited(world, (struct audited){.action = "authenticate", .status = 401}) == 0); /* its minute runs */
    world_now += 60000;
    sweep(world);
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
    in_both_worlds(sweeps_go_round);
    in_both_worlds(strangers_are_summed);
    in_both_worlds(deleting_twice_is_two_records);
    return check_done();
}
