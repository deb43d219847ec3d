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
    /* Another process on the same store: what the first one knew by heart is gone. */
    struct leasing *before = world->leasing;
    world->leasing = world_leasing(world);
    attempt_start(world, &waiter, (struct asked){.thread = "t"});
    attempt_wait_started(&waiter);
    json_decref(heartbeat(world, 0, json_array(), json_array()));
    json_decref(heartbeat(world, 0, json_array(), json_array()));
    CHECK(world_calls(world, "prepare", NULL) == 2); /* once each process, whatever the heartbeats */
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *n = attempt_wait(&waiter);
    CHECK_TEXT(n->refusal.message, "");
    CHECK(!n->created && n->sandbox.state == SANDBOX_ACTIVE);
    AUTO(negotiation) *old = attempt_wait(&lost); /* the first one's node call ends too */
    (void)old->refusal.kind;
    leasing_free(before);
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
    json_t *known = heartbeat(world, world_clock() + 1, json_array(),
                              json_pack("[{s:s, s:s, s:I}]", "id", id, "reason", "killed", "at", (json_int_t)1));
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
        json_t *known = heartbeat(world, 0, json_array(),
                                  json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s}]", "id", id, "reason", "oom", "id",
                                            "sbx_zzzzzzzzzzzzzzzzzzzz", "reason", "?", "id", "../x"));
        CHECK(json_array_size(known) == 2); /* the unknown one too, or it would be told for ever */
        json_decref(known);
    }
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "oom");
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t", .wanted = {.name = "box"}});
    CHECK(n->created);
    /* Remembered for a day, then not at all. */
    world_now += 86400000 - 1000;
    json_decref(
        heartbeat(world, 0, json_pack("[o]", on_node(n->sandbox.id, world_clock(), INT64_MAX / 2)), json_array()));
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    world_now += 2000;
    json_decref(heartbeat(world, 0, json_array(), json_array()));
    CHECK(state_of(world, id, reason) == SANDBOX_STATES);
}

static void lost_by_the_node(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    int64_t made = world_clock();
    json_decref(heartbeat(world, 0, json_array(), json_array())); /* the first of an incarnation proves nothing */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    json_decref(heartbeat(world, made, json_array(), json_array())); /* may have crossed the answer to prepare */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    json_decref(heartbeat(world, made + 1, json_pack("[o]", on_node(id, made, INT64_MAX / 2)), json_array()));
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    json_decref(heartbeat(world, made + 1, json_array(), json_array()));
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "t"), ERROR_NOT_FOUND);
    /* It comes back with it after all: its row is its tombstone. */
    json_decref(heartbeat(world, made + 1, json_pack("[o]", on_node(id, made, INT64_MAX / 2)), json_array()));
    CHECK(world_calls(world, "destroy", id) == 1);
}

static void beat_with(struct world *world, const char *id, int64_t active_at)
{
    json_decref(
        heartbeat(world, world_clock() - 2000, json_pack("[o]", on_node(id, active_at, INT64_MAX / 2)), json_array()));
}

/* A start of the node begins with what it took over: what it does not name then is gone, at its first heartbeat. */
static void lost_by_a_restart_of_the_node(struct world *world)
{
    char id[RANDOM_ID_BYTES], kept[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    world->incarnation = 5;
    ask_id(world, (struct asked){.thread = "t"}, id);
    ask_id(world, (struct asked){.thread = "kept"}, kept);
    json_decref(heartbeat(world, 0, json_array(), json_array())); /* crossed the answer to prepare */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    world->incarnation = 6;
    json_decref(heartbeat(world, 0, json_pack("[o]", on_node(kept, world_clock(), INT64_MAX / 2)), json_array()));
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, "node_lost");
    CHECK(state_of(world, kept, reason) == SANDBOX_ACTIVE);
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t"});
    CHECK(n->created && strcmp(n->sandbox.id, id) != 0);
}

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
    world_now += 1000;
    beat_with(world, id, world_clock());
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "released");
    CHECK(world_calls(world, "destroy", id) == 1);
}

static void deadlines_are_pushed(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "a", .wanted = {.max_lifetime_s = 100}}, id);
    int64_t first = world_clock() + 100000;
    json_decref(heartbeat(world, 0, json_pack("[o]", on_node(id, world_clock(), first)), json_array()));
    CHECK(world_calls(world, "deadline", id) == 0);
    struct asked join = {.thread = "b", .wanted = {.max_lifetime_s = 1000}};
    memcpy(join.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, join), ERROR_NONE);
    json_decref(heartbeat(world, 0, json_pack("[o]", on_node(id, world_clock(), first)), json_array()));
    CHECK(world_calls(world, "deadline", id) == 1);
    json_decref(heartbeat(world, 0, json_pack("[o]", on_node(id, world_clock(), first + 900000)), json_array()));
    CHECK(world_calls(world, "deadline", id) == 1);
}

static void idle_leases_end(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "t", .wanted = {.idle_timeout_s = 60}}, id);
    int64_t start = world_clock();
    world_now += 59000;
    beat_with(world, id, start);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    world_now += 30000;
    beat_with(world, id, start + 50000); /* used meanwhile */
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, "t");
    CHECK(q->lease.expires_at == start + 110000);
    world_now += 30000;
    beat_with(world, id, start + 50000);
    CHECK(state_of(world, id, reason) == SANDBOX_TERMINATING);
    CHECK_TEXT(reason, "idle_timeout");
    CHECK(world_calls(world, "destroy", id) == 1);
    /* Told again while the node still has it, but not with each heartbeat. */
    beat_with(world, id, start);
    CHECK(world_calls(world, "destroy", id) == 1);
    world_now += 16000;
    beat_with(world, id, start);
    CHECK(world_calls(world, "destroy", id) == 2);
}

static void one_of_two_leases_ends(struct world *world)
{
    char id[RANDOM_ID_BYTES], reason[SANDBOX_REASON_BYTES];
    ask_id(world, (struct asked){.thread = "a", .wanted = {.max_lifetime_s = 100}}, id);
    struct asked join = {.thread = "b"};
    memcpy(join.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, join), ERROR_NONE);
    world_now += 101000;
    beat_with(world, id, world_clock()); /* in use, and all the same */
    beat_with(world, id, world_clock());
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "a"), ERROR_NOT_FOUND);
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "ada", ROLE_USER, "b"), ERROR_NONE);
    CHECK(state_of(world, id, reason) == SANDBOX_ACTIVE);
}

/* ---- lists ---- */

static size_t list_all(struct world *world, const char *who, enum role role, size_t page)
{
    struct questioning questioning = {.world = world};
    char cursor[RANDOM_ID_BYTES] = "";
    size_t seen = 0;
    for (int pages = 0; pages < 20; pages++) {
        AUTO(question) *q = question_new();
        questioning.done = false;
        q->verb = QUESTION_LIST;
        q->limit = page;
        q->caller.principal.role = role;
        q->answered = question_answered;
        q->cookie = &questioning;
        memcpy(q->cursor, cursor, sizeof cursor);
        CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who));
        leasing_ask(world->leasing, q);
        pthread_mutex_lock(&world->mutex);
        while (!questioning.done)
            pthread_cond_wait(&world->changed, &world->mutex);
        pthread_mutex_unlock(&world->mutex);
        CHECK(q->count <= page);
        for (size_t i = 0; i < q->count; i++)
            CHECK(strcmp(q->list[i].id, cursor) > 0);
        seen += q->count;
        memcpy(cursor, q->next, sizeof cursor);
        if (cursor[0] == '\0')
            break;
    }
    return seen;
}

static void lists(struct world *world)
{
    char thread[16], last[RANDOM_ID_BYTES];
    for (int i = 0; i < 7; i++) {
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, (struct asked){.thread = thread}, last);
    }
    ask_id(world, (struct asked){.who = "adam", .thread = "t"}, last);
    CHECK(list_all(world, "ada", ROLE_USER, 3) == 7);
    CHECK(list_all(world, "ada", ROLE_USER, 7) == 7);
    CHECK(list_all(world, "ad", ROLE_USER, 7) == 0);
    CHECK(list_all(world, "root", ROLE_ADMIN, 3) == 8);
}

static void lists_are_bounded(struct world *world)
{
    enum { ROWS = 210 };
    char thread[16], id[RANDOM_ID_BYTES];
    struct questioning questioning = {.world = world};
    for (int i = 0; i < ROWS; i++) {
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, (struct asked){.thread = thread}, id);
    }
    AUTO(question) *q = question_new();
    q->verb = QUESTION_LIST;
    q->states = 1U << SANDBOX_FAILED; /* none is: all rows are looked at */
    q->caller.principal.role = ROLE_USER;
    q->answered = question_answered;
    q->cookie = &questioning;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, "ada"));
    leasing_ask(world->leasing, q);
    pthread_mutex_lock(&world->mutex);
    while (!questioning.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    CHECK(q->count == 0 && q->next[0] != '\0');
    CHECK(list_all(world, "ada", ROLE_USER, 200) == ROWS);
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
    in_both_worlds(lost_by_the_node);
    in_both_worlds(lost_by_a_restart_of_the_node);
    in_both_worlds(nobody_holds_it);
    in_both_worlds(lists_are_bounded);
    in_both_worlds(deadlines_are_pushed);
    in_both_worlds(idle_leases_end);
    in_both_worlds(one_of_two_leases_ends);
    in_both_worlds(lists);
    return check_done();
}
