/* Goal: what fails frees everything it held; what was left half-made is finished after a restart; leases and sandboxes
 * end when they should, with the reason, and are forgotten a day later. */
#include "tests/unit/negotiator/leasing/world.h"

#include <string.h>

/* ---- a failed prepare ---- */

static void failing_frees_everything(struct world *world)
{
    struct attempt creator, waiter;
    struct asked asked = {.thread = "t", .once = "k", .body = "b", .wanted = {.name = "build-box"}};
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, asked);
    attempt_start(world, &waiter, (struct asked){.thread = "t"});
    attempt_wait_started(&waiter);
    world_set_mode(world, FAKE_REFUSES, ERROR_NO_CAPACITY);
    AUTO(negotiation) *first = attempt_wait(&creator);
    AUTO(negotiation) *second = attempt_wait(&waiter);
    CHECK_KIND(first->refusal.kind, ERROR_NO_CAPACITY);
    CHECK_KIND(second->refusal.kind, ERROR_NO_CAPACITY);
    char reason[SANDBOX_REASON_BYTES];
    CHECK(state_of(world, first->sandbox.id, reason) == SANDBOX_FAILED);
    CHECK_TEXT(reason, "failed: as told");
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "t"), ERROR_NOT_FOUND);
    CHECK(world_calls(world, "destroy", first->sandbox.id) == 1); /* only its answer may have been lost */
    /* Thread, name and key are as if nothing had been. */
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *third = ask(world, asked);
    CHECK_TEXT(third->refusal.message, "");
    CHECK(third->created);
    CHECK_TEXT(third->sandbox.name, "build-box");
}

static void what_a_node_says_reaches_the_client_only_when_it_is_about_the_request(struct world *world)
{
    static const enum error_kind KINDS[][2] = {{ERROR_INVALID, ERROR_INVALID},
                                               {ERROR_DISK_FULL, ERROR_DISK_FULL},
                                               {ERROR_NODE_UNREACHABLE, ERROR_NODE_UNREACHABLE},
                                               {ERROR_UNAUTHENTICATED, ERROR_NODE_UNREACHABLE},
                                               {ERROR_TIMEOUT, ERROR_NODE_UNREACHABLE},
                                               {ERROR_NOT_FOUND, ERROR_NODE_UNREACHABLE}};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        world_set_mode(world, FAKE_REFUSES, KINDS[i][0]);
        CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), KINDS[i][1]);
    }
}

static void without_a_place_nothing_is_written(struct world *world)
{
    error_set(&world->no_place, ERROR_NO_CAPACITY, "full");
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = {.name = "box"}}), ERROR_NO_CAPACITY);
    AUTO(question) *q = question_ask(world, QUESTION_LIST, "ada", ROLE_USER, NULL);
    CHECK(q->count == 0);
    world->no_place = (struct error){0};
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = {.name = "box"}}), ERROR_NONE);
}

static void a_lost_commit_is_no_answer(struct world *world)
{
    kv_memory_fail_ends(world->kv, 1);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_DISK_FULL);
    CHECK(world_calls(world, "prepare", NULL) == 0);
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "t"), ERROR_NOT_FOUND);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NONE);
}

static void deleted_while_it_is_made(struct world *world)
{
    struct attempt creator;
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "t"});
    attempt_wait_started(&creator);
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    CHECK(q->sandbox.state == SANDBOX_PROVISIONING);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, q->sandbox.id), ERROR_NONE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *n = attempt_wait(&creator);
    CHECK_KIND(n->refusal.kind, ERROR_GONE);
    CHECK(strstr(n->refusal.message, "deleted") != NULL);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NONE);
    CHECK(world_calls(world, "destroy", q->sandbox.id) == 2); /* before it was made, and after */
}

/* ---- restart ---- */

static void provisioning_is_finished_after_a_restart(struct world *world)
{
    struct attempt lost, waiter;
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &lost, (struct asked){.thread = "t"});
    attempt_wait_started(&lost);
    world_restart(world);
    attempt_start(world, &waiter, (struct asked){.thread = "t"});
    attempt_wait_started(&waiter);
    full_beat(world, json_array());
    full_beat(world, json_array());
    later(world, 16000);
    delta_beat(world, json_array());
    CHECK(world_calls(world, "prepare", NULL) == 2); /* once each process, whatever is heard and whenever it is due */
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *n = attempt_wait(&waiter);
    CHECK_TEXT(n->refusal.message, "");
    CHECK(!n->created && n->sandbox.state == SANDBOX_ACTIVE);
    AUTO(negotiation) *old = attempt_wait(&lost); /* the first one's node call ends too */
    (void)old->refusal.kind;
}

/* No node is heard of: what is due says it. */
static void provisioning_is_finished_when_it_is_due(struct world *world)
{
    struct attempt lost;
    char reason[SANDBOX_REASON_BYTES];
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &lost, (struct asked){.thread = "t"});
    attempt_wait_started(&lost);
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    world_restart(world);
    settle(world);
    CHECK(world_calls(world, "prepare", q->sandbox.id) == 1);
    later(world, 16000);
    CHECK(world_calls(world, "prepare", q->sandbox.id) == 2);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *old = attempt_wait(&lost);
    (void)old->refusal.kind;
    settle(world);
    CHECK(state_of(world, q->sandbox.id, reason) == SANDBOX_ACTIVE);
}

static void a_node_that_is_away(struct world *world)
{
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NONE);
    pthread_mutex_lock(&world->mutex);
    world->life = NODE_LOST;
    pthread_mutex_unlock(&world->mutex);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NODE_UNREACHABLE);
    pthread_mutex_lock(&world->mutex);
    world->life = NODE_SUSPECT;
    pthread_mutex_unlock(&world->mutex);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NONE);
}

/* ---- ends ---- */

static void release_and_delete(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "a"}, id);
    struct asked join = {.thread = "b"};
    memcpy(join.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, join), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "a"), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "a"), ERROR_NOT_FOUND);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "b"), ERROR_NONE);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "released");
    CHECK(world_calls(world, "destroy", id) == 1);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE); /* already ending */
    /* The node's own word for the end is not the reason: ours is. */
    json_t *ended = json_pack("[{s:s, s:s, s:I}]", "id", id, "reason", "killed", "at", (json_int_t)1);
    json_t *known = heartbeat_of(world, false, json_array(), ended, NULL);
    CHECK(json_array_size(known) == 1);
    json_decref(known);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "released");
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_GONE);
}

static void the_node_tells_ends(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.name = "box"}}, id);
    for (int again = 0; again < 2; again++) {
        json_t *ended = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s}]", "id", id, "reason", "oom", "id",
                                  "sbx_zzzzzzzzzzzzzzzzzzzz", "reason", "?", "id", "../x");
        json_t *known = heartbeat_of(world, false, json_array(), ended, NULL);
        CHECK(json_array_size(known) == 2); /* the unknown one too, or it would be told for ever */
        json_decref(known);
    }
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "oom");
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t", .wanted = {.name = "box"}});
    CHECK(n->created);
    /* Remembered for a day, then not at all. */
    later(world, 86400000 - 1000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    later(world, 2000);
    CHECK(state_of(world, id, reason) == SANDBOX_STATES);
}

static void reasons_are_those_that_are_known(struct world *world)
{
    static const char *const TOLD[][2] = {{"max_lifetime", "max_lifetime"},
                                          {"node_lost", "node_lost"},
                                          {"crashed", "failed: crashed"},
                                          {"failed: no memory", "failed: no memory"},
                                          {"", "failed: no reason was told"}};
    for (size_t i = 0; i < sizeof TOLD / sizeof *TOLD; i++) {
        char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
        ask_id(world, (struct asked){.thread = "t"}, id);
        json_t *ended = json_pack("[{s:s, s:s}]", "id", id, "reason", TOLD[i][0]);
        json_decref(heartbeat_of(world, false, json_array(), ended, NULL));
        CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
        CHECK_TEXT(reason, TOLD[i][1]);
    }
    char long_one[400], reason[SANDBOX_REASON_BYTES];
    memset(long_one, 'x', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = '\0';
    ending_reason(reason, long_one);
    CHECK(strlen(reason) == SANDBOX_REASON_BYTES - 1 && text_starts_with(reason, "failed: xxx"));
    ending_reason(reason, NULL);
    CHECK_TEXT(reason, "failed: no reason was told");
}

/* ---- what a node names, and what it does not ---- */

static json_t *holding(const char *id)
{
    return json_pack("[o]", on_node(id, world_clock(), INT64_MAX / 2));
}

static void lost_by_the_node(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    full_beat(world, json_array());
    world_now += 1000;
    ask_id(world, (struct asked){.thread = "t"}, id);
    world_now += 1000;
    full_beat(world, json_array()); /* may have crossed the answer to prepare */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    world_now += 2000;
    full_beat(world, json_array());
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "t"), ERROR_NOT_FOUND);
    /* It comes back with it after all: its row is its tombstone, until it is gone there. */
    delta_beat(world, holding(id));
    CHECK(world_calls(world, "destroy", id) == 1);
    delta_beat(world, json_array());
    later(world, 16000);
    CHECK(world_calls(world, "destroy", id) == 2);
    json_t *ended = json_pack("[{s:s, s:s}]", "id", id, "reason", "node_lost");
    json_decref(heartbeat_of(world, false, json_array(), ended, NULL));
    later(world, 60000);
    CHECK(world_calls(world, "destroy", id) == 2);
    CHECK_TEXT(reason, "node_lost");
}

/* Who holds heartbeats back on the network makes no sandbox seem lost that was made since they were. */
static void held_back_on_the_network(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    full_beat(world, json_array());
    world_now += 7000;
    ask_id(world, (struct asked){.thread = "t"}, id);
    world_delay = 6000;
    for (int i = 0; i < 4; i++) {
        world_now += 1000;
        full_beat(world, json_array());
        CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    }
    world_delay = 0;
    world_now += 10000;
    full_beat(world, json_array());
    world_now += 1000;
    full_beat(world, json_array());
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
}

/* What a difference does not name is as it was. */
static void unnamed_is_unchanged(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    full_beat(world, holding(id));
    for (int i = 0; i < 5; i++) {
        world_now += 2000;
        delta_beat(world, json_array());
    }
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    full_beat(world, json_array());
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
}

static void a_full_list_is_asked_for(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    bool wanted = false;
    ask_id(world, (struct asked){.thread = "t", .wanted = {.idle_timeout_s = 60}}, id);
    json_decref(heartbeat_of(world, false, json_array(), json_array(), &wanted));
    CHECK(wanted);
    later(world, 120000); /* a difference alone proves nothing, and does not end what may be used */
    delta_beat(world, json_array());
    delta_beat(world, json_array());
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    json_decref(heartbeat_of(world, true, holding(id), json_array(), &wanted));
    CHECK(!wanted);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    json_decref(heartbeat_of(world, false, json_array(), json_array(), &wanted));
    CHECK(!wanted);
    world->incarnation++;
    json_decref(heartbeat_of(world, false, json_array(), json_array(), &wanted));
    CHECK(wanted);
    json_decref(heartbeat_of(world, true, holding(id), json_array(), &wanted));
    CHECK(!wanted);
    world_restart(world);
    json_decref(heartbeat_of(world, false, json_array(), json_array(), &wanted));
    CHECK(wanted);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
}

/* A start of the node begins with what it took over: what it does not name then is gone, at its first heartbeat. */
static void lost_by_a_restart_of_the_node(struct world *world)
{
    char id[RANDOM_ID_BYTES], kept[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    world->incarnation = 5;
    ask_id(world, (struct asked){.thread = "t"}, id);
    ask_id(world, (struct asked){.thread = "kept"}, kept);
    full_beat(world, json_array()); /* crossed the answer to prepare */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    world->incarnation = 6;
    full_beat(world, holding(kept));
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    CHECK(state_of(world, kept, reason) == SANDBOX_ACTIVE);
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t"});
    CHECK(n->created && strcmp(n->sandbox.id, id) != 0);
}

/* ---- leases ---- */

/* Its thread got another one in the last second of its lease: nobody holds it. */
static void nobody_holds_it(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    struct asked join = {.thread = "b", .wanted = {.max_lifetime_s = 1000}};
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 100}}, id);
    memcpy(join.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, join), ERROR_NONE); /* lifts the deadline */
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "b"), ERROR_NONE);
    world_now += 99500;
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t"});
    CHECK(n->created);
    later(world, 1000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "released");
    CHECK(world_calls(world, "destroy", id) == 1);
}

static void deadlines_are_pushed(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "a", .wanted = {.max_lifetime_s = 100}}, id);
    int64_t first = world_clock() + 100000;
    full_beat(world, json_pack("[o]", on_node(id, world_clock(), first)));
    CHECK(world_calls(world, "deadline", id) == 0);
    struct asked join = {.thread = "b", .wanted = {.max_lifetime_s = 1000}};
    memcpy(join.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, join), ERROR_NONE);
    settle(world);
    CHECK(world_calls(world, "deadline", id) == 1); /* at once */
    later(world, 3000);
    CHECK(world_calls(world, "deadline", id) == 2); /* and until the node says that it has it */
    delta_beat(world, json_pack("[o]", on_node(id, world_clock(), first + 900000)));
    later(world, 60000);
    CHECK(world_calls(world, "deadline", id) == 2);
    delta_beat(world, json_pack("[o]", on_node(id, world_clock(), first))); /* it has lost it again */
    CHECK(world_calls(world, "deadline", id) == 3);
}

static void idle_leases_end(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.idle_timeout_s = 60}}, id);
    int64_t start = world_clock();
    full_beat(world, json_pack("[o]", on_node(id, start, INT64_MAX / 2)));
    later(world, 50000);
    delta_beat(world, json_pack("[o]", on_node(id, start + 50000, INT64_MAX / 2)));
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    CHECK(q->lease.expires_at == start + 110000);
    later(world, 59000);
    delta_beat(world, json_array());
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    later(world, 1000); /* it may have been used in the last second: the node did not speak since */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    delta_beat(world, json_array());
    later(world, 3000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "idle_timeout");
    CHECK(world_calls(world, "destroy", id) == 1);
    /* Told again while the node still has it, but not with each heartbeat. */
    delta_beat(world, json_pack("[o]", on_node(id, start + 60000, INT64_MAX / 2)));
    CHECK(world_calls(world, "destroy", id) == 1);
    later(world, 16000);
    CHECK(world_calls(world, "destroy", id) == 2);
    json_decref(
        heartbeat_of(world, false, json_array(), json_pack("[{s:s, s:s}]", "id", id, "reason", "idle_timeout"), NULL));
    later(world, 16000);
    CHECK(world_calls(world, "destroy", id) == 2);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "idle_timeout");
}

static void used_in_the_last_second(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.idle_timeout_s = 60}}, id);
    int64_t start = world_clock();
    full_beat(world, json_pack("[o]", on_node(id, start, INT64_MAX / 2)));
    later(world, 60000);
    delta_beat(world, json_pack("[o]", on_node(id, start + 59900, INT64_MAX / 2)));
    later(world, 3000);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    later(world, 60000);
    delta_beat(world, json_array());
    later(world, 3000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
}

static size_t marks_of(struct world *world, const char *kind, const char *value)
{
    size_t i, count = 0;
    json_t *mark, *page = marks_page(world->leasing, "n1");
    json_array_foreach (json_object_get(page, "marks"), i, mark)
        count += text_equal(json_string_value(json_object_get(mark, "kind")), kind) &&
                 text_equal(json_string_value(json_object_get(mark, "value")), value);
    json_decref(page);
    return count;
}

static void one_of_two_leases_ends(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    AUTO(negotiation) *first = ask(world, (struct asked){.thread = "a", .wanted = {.max_lifetime_s = 100}});
    memcpy(id, first->sandbox.id, sizeof id);
    struct asked join = {.thread = "b"};
    memcpy(join.wanted.hint, id, sizeof id);
    AUTO(negotiation) *second = ask(world, join);
    memcpy(join.wanted.hint, id, sizeof id);
    join.thread = "c";
    AUTO(negotiation) *third = ask(world, join);
    CHECK_KIND(second->refusal.kind, ERROR_NONE);
    full_beat(world, holding(id));
    CHECK(marks_of(world, "lease", first->lease.id) == 0);
    later(world, 101000);
    delta_beat(world, holding(id)); /* in use, and all the same */
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "a"), ERROR_NOT_FOUND);
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "b"), ERROR_NONE);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    CHECK(marks_of(world, "lease", first->lease.id) == 1); /* its tokens are refused on what goes on */
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "b"), ERROR_NONE);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    CHECK(marks_of(world, "lease", second->lease.id) == 1);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "c"), ERROR_NONE);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK(marks_of(world, "lease", third->lease.id) == 0); /* nothing is left that would take one */
}

int main(void)
{
    in_both_worlds(failing_frees_everything);
    in_both_worlds(what_a_node_says_reaches_the_client_only_when_it_is_about_the_request);
    in_both_worlds(without_a_place_nothing_is_written);
    in_both_worlds(a_lost_commit_is_no_answer);
    in_both_worlds(deleted_while_it_is_made);
    in_both_worlds(provisioning_is_finished_after_a_restart);
    in_both_worlds(a_node_that_is_away);
    in_both_worlds(release_and_delete);
    in_both_worlds(the_node_tells_ends);
    in_both_worlds(provisioning_is_finished_when_it_is_due);
    in_both_worlds(reasons_are_those_that_are_known);
    in_both_worlds(lost_by_the_node);
    in_both_worlds(held_back_on_the_network);
    in_both_worlds(unnamed_is_unchanged);
    in_both_worlds(a_full_list_is_asked_for);
    in_both_worlds(used_in_the_last_second);
    in_both_worlds(lost_by_a_restart_of_the_node);
    in_both_worlds(nobody_holds_it);
    in_both_worlds(deadlines_are_pushed);
    in_both_worlds(idle_leases_end);
    in_both_worlds(one_of_two_leases_ends);
    return check_done();
}
