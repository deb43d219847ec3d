/* Goal: a node that is given up keeps nothing: all its sandboxes end, however many, who waits is told, threads get new
 * ones; a living node cannot be given up; one that comes back is told to destroy what it still has. */
#include "negotiator/leasing/lost.h"
#include "tests/unit/negotiator/leasing/world.h"

#include <string.h>

static void set_life(struct world *world, enum node_life life)
{
    pthread_mutex_lock(&world->mutex);
    world->life = life;
    pthread_mutex_unlock(&world->mutex);
}

static void answered(void *cookie)
{
    struct questioning *questioning = cookie;
    pthread_mutex_lock(&questioning->world->mutex);
    questioning->done = true;
    pthread_cond_broadcast(&questioning->world->changed);
    pthread_mutex_unlock(&questioning->world->mutex);
}

static enum error_kind lose(struct world *world, const char *node, size_t *ended)
{
    struct questioning questioning = {.world = world};
    struct losing losing = {.answered = answered, .cookie = &questioning};
    CHECK(text_copy(losing.node, sizeof losing.node, node) &&
          text_copy(losing.caller.principal.name, PRINCIPAL_BYTES, "root"));
    losing.caller.principal.role = ROLE_ADMIN;
    leasing_lose(world->leasing, &losing);
    pthread_mutex_lock(&world->mutex);
    while (!questioning.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    *ended = losing.ended;
    return losing.refusal.kind;
}

/* What the fake nodes are called is what a sandbox of theirs says. */
static void node_of(struct world *world, const char *id, char node[static SANDBOX_NODE_BYTES])
{
    AUTO(question) *q = question_ask(world, QUESTION_SANDBOX, "root", ROLE_ADMIN, id);
    memcpy(node, q->sandbox.node, SANDBOX_NODE_BYTES);
}

static void all_of_it_ends(struct world *world)
{
    enum { MANY = 2 * LOSING_AT_ONCE + 3 };
    static char ids[MANY][RANDOM_ID_BYTES];
    char node[SANDBOX_NODE_BYTES], reason[SANDBOX_REASON_BYTES], again[RANDOM_ID_BYTES];
    size_t ended = 9;
    for (int i = 0; i < MANY; i++) {
        char thread[16];
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, (struct asked){.thread = thread}, ids[i]);
    }
    node_of(world, ids[0], node);
    CHECK_KIND(lose(world, node, &ended), ERROR_CONFLICT); /* it is alive */
    CHECK(ended == 0 && state_of(world, ids[0], reason) == SANDBOX_ACTIVE);
    struct attempt waiting;
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &waiting, (struct asked){.thread = "waits"});
    attempt_wait_started(&waiting);
    set_life(world, NODE_SUSPECT);
    CHECK_KIND(lose(world, node, &ended), ERROR_NONE);
    CHECK(ended == MANY + 1);
    for (int i = 0; i < MANY; i++) {
        CHECK(state_of(world, ids[i], reason) == SANDBOX_TERMINATED);
        CHECK_TEXT(reason, "node_lost");
    }
    AUTO(negotiation) *n = attempt_wait(&waiting);
    CHECK_KIND(n->refusal.kind, ERROR_NODE_UNREACHABLE);
    CHECK_KIND(lose(world, node, &ended), ERROR_NONE); /* there is nothing left */
    CHECK(ended == 0);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    set_life(world, NODE_ALIVE);
    ask_id(world, (struct asked){.thread = "t0"}, again);
    CHECK(strcmp(again, ids[0]) != 0);
    /* It comes back with one of them. */
    size_t before = world_calls(world, "destroy", ids[5]);
    full_beat(world, json_pack("[o, o]", on_node(ids[5], world_clock(), INT64_MAX / 2),
                               on_node(again, world_clock(), INT64_MAX / 2)));
    settle(world);
    CHECK(world_calls(world, "destroy", ids[5]) == before + 1 && world_calls(world, "destroy", again) == 0);
}

static void one_that_nobody_knows(struct world *world)
{
    size_t ended = 9;
    set_life(world, NODE_UNKNOWN);
    CHECK_KIND(lose(world, "nobody", &ended), ERROR_NOT_FOUND);
    CHECK(ended == 0);
}

int main(void)
{
    keys_start();
    in_both_worlds(all_of_it_ends);
    in_both_worlds(one_that_nobody_knows);
    return check_done();
}
