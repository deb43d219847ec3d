/* Goal: a thread gets one sandbox whatever the race; modes, hints and conflicts as protocol.md 2 says; a token never
 * says more than was granted; others' things are not there. */
#include "tests/unit/negotiator/leasing/world.h"

#include <string.h>

/* ---- modes, hints, policies ---- */

enum held { HOLDS_NOTHING, HOLDS_ONE };
enum hinted { HINT_NONE, HINT_OWN, HINT_OTHER_LIVE, HINT_MISSING, HINT_FOREIGN, HINT_ENDED };

static const struct row {
    enum wanted_mode mode;
    enum held held;
    enum hinted hint;
    bool require;
    enum error_kind kind;
    bool created;
    const char *reason; /* "" honored (or no hint) */
} ROWS[] = {
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_NONE, false, ERROR_NONE, true, ""},
    {WANTED_ENSURE, HOLDS_ONE, HINT_NONE, false, ERROR_NONE, false, ""},
    {WANTED_ATTACH_ONLY, HOLDS_NOTHING, HINT_NONE, false, ERROR_NOT_FOUND, false, ""},
    {WANTED_ATTACH_ONLY, HOLDS_ONE, HINT_NONE, false, ERROR_NONE, false, ""},
    {WANTED_CREATE_ONLY, HOLDS_NOTHING, HINT_NONE, false, ERROR_NONE, true, ""},
    {WANTED_CREATE_ONLY, HOLDS_ONE, HINT_NONE, false, ERROR_CONFLICT, false, ""},
    {WANTED_ENSURE, HOLDS_ONE, HINT_OWN, false, ERROR_NONE, false, ""},
    {WANTED_ENSURE, HOLDS_ONE, HINT_OWN, true, ERROR_NONE, false, ""},
    {WANTED_ENSURE, HOLDS_ONE, HINT_OTHER_LIVE, false, ERROR_NONE, false, "thread_has_sandbox"},
    {WANTED_ENSURE, HOLDS_ONE, HINT_OTHER_LIVE, true, ERROR_CONFLICT, false, "thread_has_sandbox"},
    {WANTED_ENSURE, HOLDS_ONE, HINT_MISSING, false, ERROR_NONE, false, "thread_has_sandbox"},
    {WANTED_ENSURE, HOLDS_ONE, HINT_MISSING, true, ERROR_CONFLICT, false, "thread_has_sandbox"},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_OTHER_LIVE, false, ERROR_NONE, false, ""},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_OTHER_LIVE, true, ERROR_NONE, false, ""},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_MISSING, false, ERROR_NONE, true, "not_found"},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_MISSING, true, ERROR_NOT_FOUND, false, "not_found"},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_FOREIGN, false, ERROR_NONE, true, "not_found"},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_FOREIGN, true, ERROR_NOT_FOUND, false, "not_found"},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_ENDED, false, ERROR_NONE, true, "ended"},
    {WANTED_ENSURE, HOLDS_NOTHING, HINT_ENDED, true, ERROR_NOT_FOUND, false, "ended"},
    {WANTED_ATTACH_ONLY, HOLDS_NOTHING, HINT_OTHER_LIVE, false, ERROR_NONE, false, ""},
    {WANTED_ATTACH_ONLY, HOLDS_NOTHING, HINT_MISSING, false, ERROR_NOT_FOUND, false, "not_found"},
    {WANTED_CREATE_ONLY, HOLDS_NOTHING, HINT_OTHER_LIVE, false, ERROR_NONE, true, "create_only"},
    {WANTED_CREATE_ONLY, HOLDS_NOTHING, HINT_OTHER_LIVE, true, ERROR_CONFLICT, false, "create_only"},
    {WANTED_CREATE_ONLY, HOLDS_NOTHING, HINT_MISSING, false, ERROR_NONE, true, "not_found"},
};

static void check_row(struct world *world, const struct row *row, size_t number)
{
    char own[RANDOM_ID_BYTES] = "", other[RANDOM_ID_BYTES], foreign[RANDOM_ID_BYTES], ended[RANDOM_ID_BYTES];
    char thread[32], who[32], stranger[32];
    snprintf(thread, sizeof thread, "t%zu", number);
    snprintf(who, sizeof who, "p%zu", number);
    snprintf(stranger, sizeof stranger, "s%zu", number);
    ask_id(world, (struct asked){.who = who, .thread = "other"}, other);
    ask_id(world, (struct asked){.who = stranger, .thread = "x"}, foreign);
    ask_id(world, (struct asked){.who = who, .thread = "gone"}, ended);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, who, ROLE_USER, ended), ERROR_NONE);
    if (row->held == HOLDS_ONE)
        ask_id(world, (struct asked){.who = who, .thread = thread}, own);
    const char *const hints[] = {"", own, other, "nobody-has-this", foreign, ended};
    struct wanted wanted = {.mode = row->mode, .hint_required = row->require};
    CHECK(text_copy(wanted.hint, sizeof wanted.hint, hints[row->hint]));
    AUTO(negotiation) *n = ask(world, (struct asked){.who = who, .thread = thread, .wanted = wanted});
    if (n->refusal.kind != row->kind || n->created != row->created ||
        strcmp(n->hint.reason ? n->hint.reason : "", row->reason) != 0) {
        fprintf(stderr, "row %zu: kind %d created %d reason %s: %s\n", number, (int)n->refusal.kind, n->created,
                n->hint.reason, n->refusal.message);
        check_failures++;
    }
    if (row->kind == ERROR_NONE && row->hint != HINT_NONE)
        CHECK(n->hint.honored == (row->reason[0] == '\0'));
    if (row->kind == ERROR_NONE && !row->created)
        CHECK_TEXT(n->sandbox.id, row->held == HOLDS_ONE ? own : other);
}

static void modes_and_hints(struct world *world)
{
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        check_row(world, &ROWS[i], i);
}

static void hints_by_name(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t1", .wanted = {.name = "build-box"}}, id);
    AUTO(negotiation) *joined = ask(world, (struct asked){.thread = "t2", .wanted = {.hint = "build-box"}});
    CHECK_TEXT(joined->sandbox.id, id);
    CHECK(joined->hint.honored && !joined->created);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t3", .wanted = {.name = "build-box"}}), ERROR_CONFLICT);
    /* Another principal's names are its own. */
    CHECK_KIND(ask_kind(world, (struct asked){.who = "bob", .thread = "t3", .wanted = {.name = "build-box"}}),
               ERROR_NONE);
    /* A name is free again when its sandbox ends. */
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t3", .wanted = {.name = "build-box"}}), ERROR_NONE);
}

/* ---- races ---- */

enum { RACERS = 50 };

static void check_race(struct attempt *attempts)
{
    size_t created = 0;
    struct negotiation *answers[RACERS];
    for (size_t i = 0; i < RACERS; i++) {
        answers[i] = attempt_wait(&attempts[i]);
        CHECK_TEXT(answers[i]->refusal.message, "");
        CHECK_TEXT(answers[i]->sandbox.id, answers[0]->sandbox.id);
        CHECK_TEXT(answers[i]->lease.id, answers[0]->lease.id);
        created += answers[i]->created;
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(answers[i]->claims.jti, answers[j]->claims.jti) != 0);
    }
    CHECK(created == 1);
    for (size_t i = 0; i < RACERS; i++)
        negotiation_free(answers[i]);
}

static void fifty_wait_for_one(struct world *world)
{
    struct attempt attempts[RACERS];
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    for (size_t i = 0; i < RACERS; i++)
        attempt_start(world, &attempts[i], (struct asked){.thread = "race"});
    for (size_t i = 0; i < RACERS; i++)
        attempt_wait_started(&attempts[i]);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    check_race(attempts);
    CHECK(world_calls(world, "prepare", NULL) == 1);
}

struct racer {
    struct world *world;
    struct attempt *attempt;
};

static void *run_racer(void *argument)
{
    struct racer *racer = argument;
    attempt_start(racer->world, racer->attempt, (struct asked){.thread = "race"});
    return NULL;
}

static void fifty_threads_get_one(struct world *world)
{
    struct attempt attempts[RACERS];
    struct racer racers[RACERS];
    pthread_t threads[RACERS];
    for (size_t i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){world, &attempts[i]};
        CHECK(pthread_create(&threads[i], NULL, run_racer, &racers[i]) == 0);
    }
    for (size_t i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    check_race(attempts);
}

static void one_created_when_all_want_to_create(struct world *world)
{
    struct attempt attempts[RACERS];
    size_t created = 0;
    for (size_t i = 0; i < RACERS; i++)
        attempt_start(world, &attempts[i], (struct asked){.thread = "race", .wanted = {.mode = WANTED_CREATE_ONLY}});
    for (size_t i = 0; i < RACERS; i++) {
        AUTO(negotiation) *n = attempt_wait(&attempts[i]);
        created += n->refusal.kind == ERROR_NONE;
        CHECK(n->refusal.kind == ERROR_NONE || n->refusal.kind == ERROR_CONFLICT);
    }
    CHECK(created == 1);
}

static void nobody_is_answered_who_left(struct world *world)
{
    struct attempt creator, waiter;
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "t"});
    attempt_start(world, &waiter, (struct asked){.thread = "t"});
    attempt_wait_started(&waiter);
    pthread_mutex_lock(&world->mutex);
    waiter.abandoned = true;
    pthread_mutex_unlock(&world->mutex);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *first = attempt_wait(&creator);
    AUTO(negotiation) *second = attempt_wait(&waiter);
    CHECK(first->refusal.kind == ERROR_NONE && second->refusal.kind == ERROR_STARTING);
}

/* ---- Idempotency-Key ---- */

static void idempotency(struct world *world)
{
    struct asked asked = {.thread = "t", .once = "k1", .body = "b1"};
    AUTO(negotiation) *first = ask(world, asked);
    AUTO(negotiation) *again = ask(world, asked);
    CHECK(first->created && !again->created);
    CHECK_TEXT(again->sandbox.id, first->sandbox.id);
    CHECK(strcmp(first->claims.jti, again->claims.jti) != 0);
    struct asked other_body = asked;
    other_body.body = "b2";
    CHECK_KIND(ask_kind(world, other_body), ERROR_CONFLICT);
    /* create_only, asked again: the same answer, not 409. */
    struct asked only = {.thread = "u", .once = "k2", .body = "b1", .wanted = {.mode = WANTED_CREATE_ONLY}};
    CHECK_KIND(ask_kind(world, only), ERROR_NONE);
    CHECK_KIND(ask_kind(world, only), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, first->sandbox.id), ERROR_NONE);
    AUTO(negotiation) *late = ask(world, asked);
    CHECK_KIND(late->refusal.kind, ERROR_GONE);
    CHECK(strstr(late->refusal.message, "deleted") != NULL);
    /* The lease was let go, the sandbox lives on by another thread. */
    char id[RANDOM_ID_BYTES];
    struct asked shared = {.thread = "v", .once = "k3", .body = "b1"};
    ask_id(world, shared, id);
    struct asked join = {.thread = "w"};
    memcpy(join.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, join), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "v"), ERROR_NONE);
    CHECK_KIND(ask_kind(world, shared), ERROR_GONE);
    /* After a day it is forgotten. */
    world_now += 86400000 + 1000;
    full_beat(world, json_array());
    CHECK_KIND(ask_kind(world, other_body), ERROR_NONE);
}

/* ---- who may ---- */

static void ownership(struct world *world)
{
    char ada[RANDOM_ID_BYTES], bob[RANDOM_ID_BYTES], same[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.who = "ada", .thread = "t"}, ada);
    ask_id(world, (struct asked){.who = "bob", .thread = "t"}, bob);
    CHECK(strcmp(ada, bob) != 0);
    CHECK_KIND(ask_kind(world, (struct asked){.viewer = true, .thread = "t"}), ERROR_FORBIDDEN);
    CHECK_KIND(ask_kind(world, (struct asked){.who = "bob", .owner = "ada", .thread = "t"}), ERROR_NOT_FOUND);
    ask_id(world, (struct asked){.who = "root", .role = ROLE_ADMIN, .owner = "ada", .thread = "t"}, same);
    CHECK_TEXT(same, ada);
    static const enum question_verb VERBS[] = {QUESTION_SANDBOX, QUESTION_DELETE};
    for (size_t i = 0; i < 2; i++)
        CHECK_KIND(question_kind(world, VERBS[i], "bob", ROLE_USER, ada), ERROR_NOT_FOUND);
    CHECK_KIND(question_kind(world, QUESTION_SANDBOX, "ada", ROLE_VIEWER, ada), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_VIEWER, ada), ERROR_FORBIDDEN);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_VIEWER, "t"), ERROR_FORBIDDEN);
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "carol", ROLE_USER, "t"), ERROR_NOT_FOUND);
    CHECK_KIND(question_kind(world, QUESTION_SANDBOX, "root", ROLE_ADMIN, ada), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "root", ROLE_ADMIN, ada), ERROR_NONE);
}

/* ---- what was asked for ---- */

static void conflicts_name_the_fields(struct world *world)
{
    json_t *env = json_pack("{s:s}", "A", "1");
    struct wanted made = {.resources = {.memory_mb = 256}, .env = json_incref(env)};
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = made}), ERROR_NONE);
    made.env = json_incref(env);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = made}), ERROR_NONE);
    struct wanted other = {.resources = {.memory_mb = 300, .pids = 256, .cpu_milli = 2000},
                           .template_name = "special",
                           .isolation = "gvisor",
                           .env = json_pack("{s:s}", "A", "2")};
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t", .wanted = other});
    CHECK_KIND(n->refusal.kind, ERROR_CONFLICT);
    CHECK(strstr(n->refusal.message, "template, isolation, resources.cpu, resources.memory_mb, env") != NULL);
    CHECK(strstr(n->refusal.message, "pids") == NULL);
    json_decref(env);
}

static void bounds_are_checked(struct world *world)
{
    static const struct {
        struct wanted wanted;
        const char *names;
    } WRONG[] = {
        {{.ttl_s = 59}, "ttl"},
        {{.ttl_s = 3601}, "ttl"},
        {{.idle_timeout_s = LIFE_NUMBER_MAX_S + 1}, "idle_timeout"},
        {{.max_lifetime_s = 86401}, "max_lifetime"},
        {{.resources = {.cpu_milli = 49}}, "resources.cpu"},
        {{.resources = {.memory_mb = 15}}, "memory_mb"},
        {{.resources = {.pids = 15}}, "pids"},
        {{.name = "Upper"}, "name"},
        {{.name = "-x"}, "name"},
        {{.name = "auto"}, "name"},
        {{.template_name = "a/b"}, "template"},
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t", .wanted = WRONG[i].wanted});
        CHECK_KIND(n->refusal.kind, ERROR_INVALID);
        CHECK(strstr(n->refusal.message, WRONG[i].names) != NULL);
    }
    CHECK_KIND(ask_kind(world, (struct asked){.thread = ".."}), ERROR_INVALID);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "a/b"}), ERROR_INVALID);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "a:b._-Z9"}), ERROR_NONE);
}

static void verify_token(struct world *world, const struct negotiation *n)
{
    char token[CAPABILITY_TEXT_BYTES];
    struct error err = {0};
    struct key node, root;
    struct capability_claims claims;
    key_node(&node, &world->master, "n1", 1);
    key_sandbox_root(&root, &node, n->sandbox.id);
    struct capability_expectation expected = {
        .issuer = "dep_aaaaaaaaaaaaaaaaaaaa", .sandbox_id = n->sandbox.id, .root = &root, .epoch = 1};
    CHECK(leasing_mint(world->leasing, n, token, &err));
    CHECK(capability_verify(&claims, &expected, token, strlen(token), world_clock() / 1000, &err) == CAPABILITY_OK);
    CHECK_TEXT(claims.jti, n->claims.jti);
    CHECK_TEXT(claims.family, n->claims.jti);
    CHECK_TEXT(claims.thread_id, n->thread_id);
    CHECK_TEXT(claims.lease, n->lease.id);
    CHECK_TEXT(claims.principal, "ada");
}

static struct wanted with_scopes(const char *text)
{
    struct wanted wanted = {.scopes_given = true};
    CHECK(scope_parse(&wanted.scopes, text, strlen(text), SCOPE_UNKNOWN_DROPPED, NULL));
    return wanted;
}

static void scopes_and_times(struct world *world)
{
    static const struct {
        const char *asked, *granted;
    } ROWS_OF_SCOPES[] = {{"process fs:ro", "process fs:ro"},
                          {"", ""},
                          {"root process", "process"},
                          {"port@3000 shell:ro", "port@3000 shell:ro"}};
    char text[SCOPE_TEXT_BYTES];
    AUTO(negotiation) *all = ask(world, (struct asked){.thread = "t"});
    scope_format(&all->claims.scopes, text);
    CHECK_TEXT(text, "fs:rw shell process code port snapshot");
    verify_token(world, all);
    for (size_t i = 0; i < sizeof ROWS_OF_SCOPES / sizeof *ROWS_OF_SCOPES; i++) {
        AUTO(negotiation) *n =
            ask(world, (struct asked){.thread = "t", .wanted = with_scopes(ROWS_OF_SCOPES[i].asked)});
        scope_format(&n->claims.scopes, text);
        CHECK_TEXT(text, ROWS_OF_SCOPES[i].granted);
        verify_token(world, n);
    }
    CHECK(all->claims.expires_at == world_clock() / 1000 + 900);
    CHECK(all->lease.expires_at == world_clock() + 3600000);
    CHECK(all->lease.max_expires_at == world_clock() + 28800000);
    /* A token ends with its lease, and asking again never shortens or moves the end. */
    AUTO(negotiation) *brief = ask(world, (struct asked){.thread = "brief", .wanted = {.max_lifetime_s = 100}});
    CHECK(brief->claims.expires_at == world_clock() / 1000 + 100);
    world_now += 50000;
    AUTO(negotiation) *again =
        ask(world, (struct asked){.thread = "t", .wanted = {.idle_timeout_s = 5, .max_lifetime_s = 10}});
    CHECK(again->lease.max_expires_at == all->lease.max_expires_at);
    CHECK(again->lease.expires_at == all->lease.expires_at + 50000);
    AUTO(negotiation) *longer = ask(world, (struct asked){.thread = "t", .wanted = {.idle_timeout_s = 7200}});
    CHECK(longer->lease.expires_at == world_clock() + 7200000 && longer->lease.idle_timeout_s == 7200);
}

/* ---- those who wait ---- */

/* Nobody waits for a node that does not answer. */
static void a_lost_node_is_told_while_it_makes_one(struct world *world)
{
    struct attempt creator;
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "t"});
    attempt_wait_started(&creator);
    pthread_mutex_lock(&world->mutex);
    world->life = NODE_LOST;
    pthread_mutex_unlock(&world->mutex);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NODE_UNREACHABLE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *n = attempt_wait(&creator);
    CHECK_TEXT(n->refusal.message, "");
}

static void who_waits_is_bounded(struct world *world)
{
    enum { MOST = 256, LEAVE = 10 };
    struct attempt creator, waiters[MOST], leavers[LEAVE];
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "t"});
    attempt_wait_started(&creator);
    for (int i = 0; i < LEAVE; i++) {
        attempt_start(world, &leavers[i], (struct asked){.thread = "t"});
        attempt_wait_started(&leavers[i]);
    }
    pthread_mutex_lock(&world->mutex);
    for (int i = 0; i < LEAVE; i++)
        leavers[i].abandoned = true;
    pthread_mutex_unlock(&world->mutex);
    for (int i = 0; i < MOST; i++) {
        attempt_start(world, &waiters[i], (struct asked){.thread = "t"});
        attempt_wait_started(&waiters[i]);
        CHECK(!waiters[i].done);
    }
    /* Answered, that is freed, while the sandbox is still being made. */
    for (int i = 0; i < LEAVE; i++)
        negotiation_free(attempt_wait(&leavers[i]));
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_RATE_LIMITED);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    for (int i = 0; i < MOST; i++) {
        AUTO(negotiation) *n = attempt_wait(&waiters[i]);
        CHECK_TEXT(n->refusal.message, "");
    }
    negotiation_free(attempt_wait(&creator));
}

static void a_place_is_asked_for_once(struct world *world)
{
    char thread[16];
    for (int i = 0; i < 20; i++) {
        snprintf(thread, sizeof thread, "t%d", i);
        CHECK_KIND(ask_kind(world, (struct asked){.thread = thread}), ERROR_NONE);
    }
    CHECK(world->places == 20);
}

/* What passes the bounds can be stored, however its JSON grows. */
static void the_largest_texts_fit(struct world *world)
{
    char value[4096], key[65];
    struct wanted wanted = {.env = json_object(), .metadata = json_object()};
    memset(value, 1, sizeof value);
    value[WANTED_ENV_BYTES - 3] = '\0';
    json_object_set_new(wanted.env, "A", json_string(value));
    value[512] = '\0';
    for (int i = 0; i < WANTED_METADATA_MAX; i++) {
        memset(key, 2, 64);
        key[0] = (char)('A' + i);
        key[64] = '\0';
        json_object_set_new(wanted.metadata, key, json_string(value));
    }
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = wanted}), ERROR_NONE);
    wanted = (struct wanted){.env = json_object()};
    memset(value, 1, sizeof value);
    value[WANTED_ENV_BYTES - 2] = '\0';
    json_object_set_new(wanted.env, "A", json_string(value));
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "u", .wanted = wanted});
    CHECK_KIND(n->refusal.kind, ERROR_INVALID);
    CHECK(strstr(n->refusal.message, "env has more than") != NULL);
}

int main(void)
{
    in_both_worlds(modes_and_hints);
    in_both_worlds(hints_by_name);
    in_both_worlds(fifty_wait_for_one);
    in_both_worlds(fifty_threads_get_one);
    in_both_worlds(one_created_when_all_want_to_create);
    in_both_worlds(nobody_is_answered_who_left);
    in_both_worlds(idempotency);
    in_both_worlds(ownership);
    in_both_worlds(conflicts_name_the_fields);
    in_both_worlds(bounds_are_checked);
    in_both_worlds(scopes_and_times);
    in_both_worlds(a_lost_node_is_told_while_it_makes_one);
    in_both_worlds(who_waits_is_bounded);
    in_both_worlds(a_place_is_asked_for_once);
    in_both_worlds(the_largest_texts_fit);
    return check_done();
}
