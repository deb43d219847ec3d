/* Goal: a volume is its principal's alone and lies on one node; who wants it is placed there; it goes only when no
 * sandbox has it, and one that was never made leaves nothing. */
#include "negotiator/leasing/keeping/volumes.h"

#include "tests/unit/negotiator/leasing/grants.h"

#include <string.h>

struct inquiry {
    struct world *world;
    bool done;
    struct volumes_question *q;
};

static void inquiry_answered(void *cookie, struct volumes_question *q)
{
    struct inquiry *inquiry = cookie;
    pthread_mutex_lock(&inquiry->world->mutex);
    inquiry->q = q;
    inquiry->done = true;
    pthread_cond_broadcast(&inquiry->world->changed);
    pthread_mutex_unlock(&inquiry->world->mutex);
}

static void inquire_start(struct world *world, struct inquiry *inquiry, enum volumes_verb verb, const char *who,
                          enum role role, const char *name)
{
    *inquiry = (struct inquiry){.world = world};
    struct volumes_question *q = volumes_question_new();
    q->verb = verb;
    q->caller.principal.role = role;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who) && text_copy(q->name, sizeof q->name, name));
    q->answered = inquiry_answered;
    q->cookie = inquiry;
    leasing_ask_volumes(world->leasing, q);
}

static struct volumes_question *inquire_wait(struct inquiry *inquiry)
{
    pthread_mutex_lock(&inquiry->world->mutex);
    while (!inquiry->done)
        pthread_cond_wait(&inquiry->world->changed, &inquiry->world->mutex);
    pthread_mutex_unlock(&inquiry->world->mutex);
    return inquiry->q;
}

static struct volumes_question *list(struct world *world, const char *who)
{
    struct inquiry inquiry;
    inquire_start(world, &inquiry, VOLUMES_LIST, who, ROLE_USER, "");
    return inquire_wait(&inquiry);
}

static enum error_kind drop_as(struct world *world, const char *who, enum role role, const char *name)
{
    struct inquiry inquiry;
    inquire_start(world, &inquiry, VOLUMES_DROP, who, role, name);
    AUTO(volumes_question) *q = inquire_wait(&inquiry);
    return q->refusal.kind;
}

static enum error_kind drop(struct world *world, const char *name)
{
    return drop_as(world, "ada", ROLE_USER, name);
}

static size_t count_of(struct world *world, const char *who)
{
    AUTO(volumes_question) *q = list(world, who);
    return q->count;
}

static json_t *named(const char *name, const char *path, int size_mb)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:i}", "kind", "named", "source", name, "sub_path", "", "path", path,
                     "read_only", 0, "size_mb", size_mb);
}

/* With one volume of that name. */
static struct asked with(const char *thread, const char *name)
{
    return (struct asked){.thread = thread, .wanted = {.volumes = json_pack("[o]", named(name, "/data", 0))}};
}

static void one_is_made_and_shared(struct world *world)
{
    char id[RANDOM_ID_BYTES], second[RANDOM_ID_BYTES];
    json_t *both =
        json_pack("[o, o, {s:s, s:s, s:s, s:s, s:b, s:i}]", named("cache", "/a", 7), named("cache", "/b", 7), "kind",
                  "host", "source", "/srv/x", "sub_path", "y", "path", "/c", "read_only", 1, "size_mb", 0);
    ask_id(world, (struct asked){.thread = "t", .wanted = {.volumes = both}}, id);
    json_t *prepare = world_last_call(world, "prepare");
    const json_t *told = json_object_get(json_object_get(prepare, "sandbox"), "volumes");
    const char *owner = json_string_value(json_object_get(json_array_get(told, 0), "owner"));
    CHECK(json_array_size(told) == 3 && strlen(owner) == 32 && strspn(owner, "0123456789abcdef") == 32);
    CHECK(strstr(owner, "ada") == NULL);
    CHECK(json_integer_value(json_object_get(json_array_get(told, 0), "size_bytes")) == 7 * 1024 * 1024);
    CHECK_TEXT(json_string_value(json_object_get(json_array_get(told, 2), "owner")), "");
    CHECK_TEXT(json_string_value(json_object_get(json_array_get(told, 2), "source")), "/srv/x");
    CHECK(json_is_true(json_object_get(json_array_get(told, 2), "read_only")));
    char ours[40];
    CHECK(text_copy(ours, sizeof ours, owner));
    json_decref(prepare);
    CHECK_TEXT(world->asked_node, ""); /* the first one is made anywhere */
    AUTO(volumes_question) *q = list(world, "ada");
    CHECK(q->count == 1 && q->list[0].size_mb == 7 && q->list[0].made_by[0] == '\0');
    CHECK_TEXT(q->list[0].node, "n1");
    ask_id(world, with("u", "cache"), second);
    CHECK_TEXT(world->asked_node, "n1"); /* and who wants it goes there */
    AUTO(volumes_question) *shared = list(world, "ada");
    CHECK(shared->count == 1 && json_array_size(shared->list[0].used_by) == 2);
    /* Another principal's of that name is another one. */
    struct asked bobs = with("t", "cache");
    bobs.who = "bob";
    ask_id(world, bobs, second);
    prepare = world_last_call(world, "prepare");
    told = json_object_get(json_object_get(prepare, "sandbox"), "volumes");
    CHECK(strcmp(json_string_value(json_object_get(json_array_get(told, 0), "owner")), ours) != 0);
    json_decref(prepare);
    CHECK(count_of(world, "bob") == 1 && count_of(world, "eve") == 0);
    /* Attaching: the same list is no difference, another one is. */
    CHECK_KIND(ask_kind(world, with("u", "cache")), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "u"}), ERROR_NONE);
    CHECK_KIND(ask_kind(world, with("u", "other")), ERROR_CONFLICT);
}

static void an_end(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, with("t", "cache"), id);
    CHECK_KIND(drop(world, "none"), ERROR_NOT_FOUND);
    CHECK_KIND(drop_as(world, "bob", ROLE_USER, "cache"), ERROR_NOT_FOUND);
    CHECK_KIND(drop_as(world, "ada", ROLE_VIEWER, "cache"), ERROR_FORBIDDEN);
    CHECK_KIND(drop(world, "cache"), ERROR_CONFLICT);
    CHECK(world_calls(world, "volume_drop", NULL) == 0);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    CHECK_KIND(drop(world, "cache"), ERROR_CONFLICT); /* not while its processes may live */
    json_decref(
        heartbeat_of(world, false, json_array(), json_pack("[{s:s, s:s}]", "id", id, "reason", "deleted"), NULL));
    world->life = NODE_LOST;
    CHECK_KIND(drop(world, "cache"), ERROR_NODE_UNREACHABLE);
    world->life = NODE_ALIVE;
    static const enum error_kind CASES[][2] = {{ERROR_CONFLICT, ERROR_CONFLICT},
                                               {ERROR_NODE_UNREACHABLE, ERROR_NODE_UNREACHABLE},
                                               {ERROR_INTERNAL, ERROR_INTERNAL}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        world_set_mode(world, FAKE_REFUSES, CASES[i][0]);
        CHECK_KIND(drop(world, "cache"), CASES[i][1]);
        CHECK(count_of(world, "ada") == 1);
    }
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    CHECK_KIND(drop(world, "cache"), ERROR_NONE);
    CHECK(count_of(world, "ada") == 0);
    CHECK_KIND(drop(world, "cache"), ERROR_NOT_FOUND);
    CHECK(audited(world, (struct audited){.action = "volume.delete", .status = 204}) == 1);
    CHECK(audited(world, (struct audited){.action = "volume.delete", .status = 409}) == 3);
}

/* While its node deletes it nobody gets it, and nobody deletes it twice. */
static void one_that_is_being_deleted(struct world *world)
{
    struct inquiry first;
    char id[RANDOM_ID_BYTES];
    ask_id(world, with("t", "cache"), id);
    question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id);
    json_decref(
        heartbeat_of(world, false, json_array(), json_pack("[{s:s, s:s}]", "id", id, "reason", "deleted"), NULL));
    world_set_mode_of(world, "volume_drop", FAKE_HOLDS, ERROR_NONE);
    inquire_start(world, &first, VOLUMES_DROP, "ada", ROLE_USER, "cache");
    settle(world);
    CHECK_KIND(ask_kind(world, with("u", "cache")), ERROR_CONFLICT);
    CHECK_KIND(drop(world, "cache"), ERROR_CONFLICT);
    CHECK_KIND(ask_kind(world, with("v", "another")), ERROR_NONE);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(volumes_question) *q = inquire_wait(&first);
    CHECK_KIND(q->refusal.kind, ERROR_NONE);
    CHECK_KIND(ask_kind(world, with("u", "cache")), ERROR_NONE);
}

/* Asked for in one batch with a deletion: one of them comes first, and no sandbox loses its volume. */
static void in_one_batch(struct world *world)
{
    struct inquiry dropping;
    struct attempt attempt;
    struct gate gate;
    char id[RANDOM_ID_BYTES];
    ask_id(world, with("t", "cache"), id);
    question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id);
    json_decref(
        heartbeat_of(world, false, json_array(), json_pack("[{s:s, s:s}]", "id", id, "reason", "deleted"), NULL));
    gate_shut(world, &gate);
    inquire_start(world, &dropping, VOLUMES_DROP, "ada", ROLE_USER, "cache");
    attempt_start(world, &attempt, with("u", "cache"));
    gate_open(&gate);
    AUTO(negotiation) *n = attempt_wait(&attempt);
    AUTO(volumes_question) *q = inquire_wait(&dropping);
    CHECK_KIND(n->refusal.kind, ERROR_NONE);
    CHECK_KIND(q->refusal.kind, ERROR_CONFLICT);
    CHECK(world_calls(world, "volume_drop", NULL) == 0 && count_of(world, "ada") == 1);
}

/* Whose sandbox was never made, his volumes were not; those of others stay. */
static void one_that_was_never_made(struct world *world)
{
    struct attempt creator, other;
    char id[RANDOM_ID_BYTES];
    ask_id(world, with("t", "there"), id);
    world_set_mode(world, FAKE_REFUSES, ERROR_NO_CAPACITY);
    struct asked asked = with("u", "there");
    json_array_append_new(asked.wanted.volumes, named("new", "/new", 0));
    CHECK_KIND(ask_kind(world, asked), ERROR_NO_CAPACITY);
    settle(world);
    CHECK(count_of(world, "ada") == 1 && world_calls(world, "volume_drop", NULL) == 0); /* see volumes_unmake */
    AUTO(volumes_question) *q = list(world, "ada");
    CHECK(json_array_size(q->list[0].used_by) == 1);
    CHECK_TEXT(q->list[0].name, "there");
    /* Two want it before either is made; one fails: the other one's it is. */
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, with("v", "both"));
    attempt_wait_started(&creator);
    attempt_start(world, &other, with("w", "both"));
    attempt_wait_started(&other);
    world_set_mode(world, FAKE_REFUSES, ERROR_NO_CAPACITY);
    negotiation_free(attempt_wait(&creator));
    negotiation_free(attempt_wait(&other));
    CHECK(count_of(world, "ada") == 2);
}

static void nodes_and_bounds(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, with("t", "a"), id);
    for (int i = 0; i < 2; i++) {
        char name[8], thread[8];
        snprintf(name, sizeof name, "n%d", i);
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, with(thread, name), id);
    }
    CHECK_KIND(ask_kind(world, with("more", "d")), ERROR_QUOTA); /* at most 3 */
    CHECK_KIND(ask_kind(world, with("more", "a")), ERROR_NONE);
    error_set(&world->no_place, ERROR_NODE_UNREACHABLE, "node n1 does not answer");
    AUTO(negotiation) *away = ask(world, with("away", "a"));
    CHECK_KIND(away->refusal.kind, ERROR_NODE_UNREACHABLE);
    CHECK(strstr(away->refusal.message, "volume") != NULL);
    world->no_place = (struct error){0};
    json_t *bad[] = {named("A", "/x", 0),     named("a", "x", 0),   named("a", "/proc", 0), named("a", "/x/..", 0),
                     named("a", "/sys/y", 0), named("a", "/x/", 0), named("", "/x", 0),     named("a", "/", 0)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_KIND(ask_kind(world, (struct asked){.thread = "bad", .wanted = {.volumes = json_pack("[o]", bad[i])}}),
                   ERROR_INVALID);
    json_t *twice = json_pack("[o, o]", named("a", "/x", 0), named("n0", "/x", 0));
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "bad", .wanted = {.volumes = twice}}), ERROR_INVALID);
}

static bool other_place(void *context UNUSED, const struct placement *placement, char node[static SANDBOX_NODE_BYTES],
                        uint32_t *epoch, struct error *err UNUSED)
{
    *epoch = 1;
    return text_copy(node, SANDBOX_NODE_BYTES, placement->node ? placement->node : "n2");
}

static void other_call(void *context, const char *node UNUSED, json_t *message,
                       void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie)
{
    fake_call(context, "n1", message, done, cookie);
}

static void two_nodes(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, with("t", "on-one"), id);
    world->leasing->options.nodes.place = other_place;
    world->leasing->options.nodes.call = other_call;
    ask_id(world, with("u", "on-two"), id);
    json_t *both = json_pack("[o, o]", named("on-one", "/a", 0), named("on-two", "/b", 0));
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "v", .wanted = {.volumes = both}});
    CHECK_KIND(n->refusal.kind, ERROR_CONFLICT);
    CHECK(strstr(n->refusal.message, "n1") && strstr(n->refusal.message, "n2"));
    AUTO(negotiation) *there = ask(world, with("w", "on-one"));
    CHECK_TEXT(there->sandbox.node, "n1");
}

int main(void)
{
    in_both_worlds(one_is_made_and_shared);
    in_both_worlds(an_end);
    in_both_worlds(one_that_is_being_deleted);
    in_both_worlds(in_one_batch);
    in_both_worlds(one_that_was_never_made);
    in_both_worlds(nodes_and_bounds);
    in_both_worlds(two_nodes);
    return check_done();
}
