/* Goal: a snapshot is there whole or not at all, whatever fails and whoever dies in between; it is its owner's alone,
 * outlives its sandbox, is begun with on its node only, and its end reaches a node that was away. */
#include "negotiator/leasing/keeping/keeping.h"

#include "tests/unit/negotiator/leasing/grants.h"

#include <string.h>

struct keep {
    struct world *world;
    bool done;
    struct keeping *keeping;
};

static void keep_answered(void *cookie, struct keeping *keeping)
{
    struct keep *keep = cookie;
    pthread_mutex_lock(&keep->world->mutex);
    keep->keeping = keeping;
    keep->done = true;
    pthread_cond_broadcast(&keep->world->changed);
    pthread_mutex_unlock(&keep->world->mutex);
}

struct asking {
    enum keeping_verb verb;
    const char *who; /* NULL: ada */
    enum role role;  /* 0: user; see viewer */
    bool viewer;
    const char *owner, *sandbox, *snapshot, *name, *token, *cursor;
    size_t limit, offset;
    unsigned states;
};

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static void keep_start(struct world *world, struct keep *keep, struct asking asking)
{
    *keep = (struct keep){.world = world};
    struct keeping *k = keeping_new();
    k->verb = asking.verb;
    k->caller.principal.role = asking.viewer ? ROLE_VIEWER : asking.role ? asking.role : ROLE_USER;
    k->limit = asking.limit;
    k->offset = asking.offset;
    k->states = asking.states;
    k->token = memory_string(asking.token);
    const char *who = asking.token ? "" : asking.who ? asking.who : "ada";
    CHECK(text_copy(k->caller.principal.name, PRINCIPAL_BYTES, who) &&
          text_copy(k->caller.owner, PRINCIPAL_BYTES, or_empty(asking.owner)) &&
          text_copy(k->sandbox_id, sizeof k->sandbox_id, or_empty(asking.sandbox)) &&
          text_copy(k->snapshot_id, sizeof k->snapshot_id, or_empty(asking.snapshot)) &&
          text_copy(k->name, sizeof k->name, or_empty(asking.name)) &&
          text_copy(k->cursor, sizeof k->cursor, or_empty(asking.cursor)));
    k->answered = keep_answered;
    k->cookie = keep;
    leasing_keep(world->leasing, k);
}

static struct keeping *keep_wait(struct keep *keep)
{
    pthread_mutex_lock(&keep->world->mutex);
    while (!keep->done)
        pthread_cond_wait(&keep->world->changed, &keep->world->mutex);
    pthread_mutex_unlock(&keep->world->mutex);
    return keep->keeping;
}

static struct keeping *keep(struct world *world, struct asking asking)
{
    struct keep it;
    keep_start(world, &it, asking);
    return keep_wait(&it);
}

static enum error_kind keep_kind(struct world *world, struct asking asking)
{
    AUTO(keeping) *k = keep(world, asking);
    return k->refusal.kind;
}

/* Takes one of the sandbox; its id. */
static void take(struct world *world, const char *sandbox, const char *name, char id[static RANDOM_ID_BYTES])
{
    AUTO(keeping) *k = keep(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .name = name});
    CHECK_TEXT(k->refusal.message, "");
    memcpy(id, k->snapshot.id, RANDOM_ID_BYTES);
}

static size_t count_of(struct world *world, const char *who, enum role role)
{
    AUTO(keeping) *k = keep(world, (struct asking){.verb = KEEPING_LIST, .who = who, .role = role});
    CHECK_KIND(k->refusal.kind, ERROR_NONE);
    return k->count;
}

static bool count_one(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

struct counting {
    const char *table;
    size_t count;
};

static enum kv_outcome count_rule(struct kv *kv, void *argument, struct error *err)
{
    struct counting *counting = argument;
    counting->count = 0;
    return kv_range(kv, counting->table, NULL, 0, count_one, &counting->count, err) ? KV_APPLIED : KV_FAILED;
}

static size_t count_rows(struct world *world, const char *table)
{
    struct error err = {0};
    struct counting counting = {.table = table};
    CHECK(ledger_run(world->ledger, count_rule, &counting, &err));
    return counting.count;
}

/* Nothing of any snapshot is left. */
static bool is_clean(struct world *world)
{
    return count_rows(world, "snapshot/") == 0 && count_rows(world, "snapname/") == 0 &&
           count_rows(world, "snapowned/") == 0;
}

/* ---- taking ---- */

static void one_is_taken(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES], id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    AUTO(keeping) *k = keep(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .name = "before-lunch"});
    CHECK_TEXT(k->refusal.message, "");
    CHECK(k->snapshot.state == SNAPSHOT_READY && k->snapshot.size_bytes == 4096 && k->running == 3);
    CHECK_TEXT(k->snapshot.name, "before-lunch");
    CHECK_TEXT(k->snapshot.principal, "ada");
    CHECK_TEXT(k->snapshot.node, "n1");
    CHECK_TEXT(k->snapshot.template_name, "py");
    CHECK_TEXT(k->snapshot.storage, "btrfs");
    json_t *call = world_last_call(world, "snapshot");
    CHECK_TEXT(json_string_value(json_object_get(call, "id")), sandbox);
    CHECK_TEXT(json_string_value(json_object_get(call, "snapshot")), k->snapshot.id);
    json_decref(call);
    take(world, sandbox, NULL, id); /* a name is found for it */
    AUTO(keeping) *found = keep(world, (struct asking){.verb = KEEPING_FIND, .snapshot = id});
    CHECK(found->snapshot.name[0] && found->snapshot.state == SNAPSHOT_READY);
    CHECK(count_of(world, "ada", ROLE_USER) == 2);
    CHECK(audited(world, (struct audited){.action = "snapshot.create", .status = 201}) == 2);
    later(world, 1000000); /* nothing is due any more */
    CHECK(count_of(world, "ada", ROLE_USER) == 2 && world_calls(world, "snapshot_drop", NULL) == 0);
}

static void whose_they_are(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES], id[RANDOM_ID_BYTES], other[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    ask_id(world, (struct asked){.thread = "t", .who = "bob"}, other);
    take(world, sandbox, "mine", id);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .who = "bob", .sandbox = sandbox}),
               ERROR_NOT_FOUND);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_FIND, .who = "bob", .snapshot = id}), ERROR_NOT_FOUND);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .who = "bob", .snapshot = id}), ERROR_NOT_FOUND);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_FIND, .who = "bob", .owner = "ada", .snapshot = id}),
               ERROR_NOT_FOUND);
    CHECK_KIND(ask_kind(world, (struct asked){.who = "bob", .thread = "u", .wanted = {.snapshot = "mine"}}),
               ERROR_NOT_FOUND);
    struct wanted by_id = {.ttl_s = 0};
    memcpy(by_id.snapshot, id, sizeof id);
    CHECK_KIND(ask_kind(world, (struct asked){.who = "bob", .thread = "u", .wanted = by_id}), ERROR_NOT_FOUND);
    CHECK(count_of(world, "bob", ROLE_USER) == 0 && count_of(world, "root", ROLE_ADMIN) == 1);
    /* Names are each owner's own. */
    AUTO(keeping) *same =
        keep(world, (struct asking){.verb = KEEPING_TAKE, .who = "bob", .sandbox = other, .name = "mine"});
    CHECK_KIND(same->refusal.kind, ERROR_NONE);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .name = "mine"}),
               ERROR_CONFLICT);
    /* A viewer looks only; an admin may all, and what he takes is its sandbox's owner's. */
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_FIND, .viewer = true, .snapshot = id}), ERROR_NONE);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .viewer = true, .sandbox = sandbox}),
               ERROR_FORBIDDEN);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .viewer = true, .snapshot = id}),
               ERROR_FORBIDDEN);
    AUTO(keeping) *admin =
        keep(world, (struct asking){.verb = KEEPING_TAKE, .who = "root", .role = ROLE_ADMIN, .sandbox = sandbox});
    CHECK_TEXT(admin->snapshot.principal, "ada");
    CHECK_KIND(
        keep_kind(world, (struct asking){.verb = KEEPING_DROP, .who = "root", .role = ROLE_ADMIN, .snapshot = id}),
        ERROR_NONE);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_FIND, .snapshot = id}), ERROR_NOT_FOUND);
    CHECK(audited(world, (struct audited){.action = "snapshot.create", .status = 404}) == 1);
    CHECK(audited(world, (struct audited){.action = "snapshot.delete", .status = 404}) == 1);
}

/* A capability of that sandbox with scope snapshot, and no other. */
static void by_capability(struct world *world)
{
    struct token token, narrow, other;
    get_token(world, (struct asked){.thread = "t"}, &token);
    get_token(world, (struct asked){.thread = "u"}, &other);
    const char *sandbox = token.claims.sandbox_id;
    struct asked asked = {.thread = "v", .wanted = {.scopes_given = true}};
    memcpy(asked.wanted.hint, sandbox, RANDOM_ID_BYTES);
    CHECK(scope_parse(&asked.wanted.scopes, "process", 7, SCOPE_UNKNOWN_REFUSED, NULL));
    get_token(world, asked, &narrow);
    AUTO(keeping) *k = keep(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .token = token.text});
    CHECK_TEXT(k->refusal.message, "");
    CHECK_TEXT(k->snapshot.principal, "ada");
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .token = narrow.text}),
               ERROR_CAPABILITY_DENIED);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .token = other.text}),
               ERROR_NOT_FOUND);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .token = "x.y.z"}),
               ERROR_UNAUTHENTICATED);
    CHECK(audited(world, (struct audited){.action = "snapshot.create", .status = 403}) == 1);
    CHECK(audited(world, (struct audited){.action = "snapshot.create", .status = 401}) == 0); /* summed */
    CHECK_KIND(
        revoke_kind(world,
                    (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_JTI, .value = token.claims.jti}),
        ERROR_NONE);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .token = token.text}),
               ERROR_TOKEN_REVOKED);
    later(world, 1000000);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .token = narrow.text}),
               ERROR_TOKEN_EXPIRED);
}

static void only_of_living_ones(struct world *world)
{
    struct attempt creator;
    char sandbox[RANDOM_ID_BYTES];
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = "sbx_zzzzzzzzzzzzzzzzzzzz"}),
               ERROR_NOT_FOUND);
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    world->life = NODE_LOST;
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox}), ERROR_NODE_UNREACHABLE);
    world->life = NODE_ALIVE;
    question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, sandbox);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox}), ERROR_GONE);
    world_set_mode(world, FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &creator, (struct asked){.thread = "u"});
    attempt_wait_started(&creator);
    settle(world);
    json_t *prepare = world_last_call(world, "prepare");
    const char *id = json_string_value(json_object_get(json_object_get(prepare, "sandbox"), "id"));
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = id}), ERROR_STARTING);
    json_decref(prepare);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    negotiation_free(attempt_wait(&creator));
    CHECK(is_clean(world));
}

static void there_is_a_most(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES], id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    for (int i = 0; i < 5; i++)
        take(world, sandbox, NULL, id);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox}), ERROR_QUOTA);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .snapshot = id}), ERROR_NONE);
    take(world, sandbox, NULL, id);
    AUTO(keeping) *page = keep(world, (struct asking){.verb = KEEPING_LIST, .limit = 2});
    CHECK(page->count == 2 && page->next[0]);
    AUTO(keeping) *rest = keep(world, (struct asking){.verb = KEEPING_LIST, .cursor = page->next});
    CHECK(rest->count == 3 && rest->next[0] == '\0' && strcmp(rest->list[0].id, page->list[1].id) > 0);
    AUTO(keeping) *of = keep(world, (struct asking){.verb = KEEPING_LIST, .sandbox = "sbx_zzzzzzzzzzzzzzzzzzzz"});
    CHECK(of->count == 0);
    AUTO(keeping) *named = keep(world, (struct asking){.verb = KEEPING_LIST, .name = page->list[0].name});
    CHECK(named->count == 1);
}

/* Newest first, each once, however the pages are cut; of others none, and none that is going. */
static void pages_by_offset(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES], id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    for (int i = 0; i < 5; i++)
        take(world, sandbox, NULL, id);
    AUTO(keeping) *all = keep(world, (struct asking){.verb = KEEPING_PAGE});
    CHECK(all->total == 5 && all->count == 5 && !all->is_cut);
    for (size_t i = 0; i + 1 < all->count; i++)
        CHECK(all->list[i].created_at >= all->list[i + 1].created_at);
    for (size_t offset = 0; offset < 6; offset += 2) {
        AUTO(keeping) *page = keep(world, (struct asking){.verb = KEEPING_PAGE, .limit = 2, .offset = offset});
        CHECK(page->total == 5 && page->count == (offset == 4 ? 1 : 2));
        for (size_t i = 0; i < page->count; i++)
            CHECK_TEXT(page->list[i].id, all->list[offset + i].id);
    }
    AUTO(keeping) *behind = keep(world, (struct asking){.verb = KEEPING_PAGE, .offset = 7});
    CHECK(behind->total == 5 && behind->count == 0);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .snapshot = all->list[0].id}), ERROR_NONE);
    AUTO(keeping) *ready = keep(world, (struct asking){.verb = KEEPING_PAGE, .states = 1U << SNAPSHOT_READY});
    CHECK(ready->total == 4);
    AUTO(keeping) *creating = keep(world, (struct asking){.verb = KEEPING_PAGE, .states = 1U << SNAPSHOT_CREATING});
    CHECK(creating->total == 0);
    AUTO(keeping) *of = keep(world, (struct asking){.verb = KEEPING_PAGE, .sandbox = "sbx_zzzzzzzzzzzzzzzzzzzz"});
    CHECK(of->total == 0);
    AUTO(keeping) *named = keep(world, (struct asking){.verb = KEEPING_PAGE, .name = all->list[1].name});
    CHECK(named->total == 1 && named->count == 1);
    AUTO(keeping) *others = keep(world, (struct asking){.verb = KEEPING_PAGE, .who = "bob"});
    CHECK(others->total == 0);
    AUTO(keeping) *admins = keep(world, (struct asking){.verb = KEEPING_PAGE, .who = "root", .role = ROLE_ADMIN});
    CHECK(admins->total == 0); /* one's own, whoever one is */
    AUTO(keeping) *for_ada =
        keep(world, (struct asking){.verb = KEEPING_PAGE, .who = "root", .role = ROLE_ADMIN, .owner = "ada"});
    CHECK(for_ada->total == 4);
}

/* A node makes a few at a time, of each sandbox one. */
static void turns(struct world *world)
{
    char first[RANDOM_ID_BYTES], second[RANDOM_ID_BYTES], third[RANDOM_ID_BYTES];
    struct keep keeps[4];
    ask_id(world, (struct asked){.thread = "t"}, first);
    ask_id(world, (struct asked){.thread = "u"}, second);
    ask_id(world, (struct asked){.thread = "v"}, third);
    const char *of[4] = {first, first, second, third};
    world_set_mode_of(world, "snapshot", FAKE_HOLDS, ERROR_NONE);
    for (int i = 0; i < 4; i++) {
        keep_start(world, &keeps[i], (struct asking){.verb = KEEPING_TAKE, .sandbox = of[i]});
        settle(world);
    }
    CHECK(world_calls(world, "snapshot", NULL) == 2 && world_calls(world, "snapshot", first) == 1 &&
          world_calls(world, "snapshot", second) == 1);
    AUTO(keeping) *seen = keep(world, (struct asking){.verb = KEEPING_LIST});
    CHECK(seen->count == 4 && seen->list[0].state == SNAPSHOT_CREATING);
    AUTO(keeping) *found = keep(world, (struct asking){.verb = KEEPING_FIND, .snapshot = seen->list[0].id});
    CHECK_KIND(found->refusal.kind, ERROR_NONE);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .snapshot = seen->list[0].id}), ERROR_STARTING);
    struct wanted wanted = {.ttl_s = 0};
    memcpy(wanted.snapshot, seen->list[0].id, RANDOM_ID_BYTES);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "w", .wanted = wanted}), ERROR_STARTING);
    later(world, 3600000); /* however long it takes: nobody takes it for half-made */
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    for (int i = 0; i < 4; i++) {
        AUTO(keeping) *k = keep_wait(&keeps[i]);
        CHECK_TEXT(k->refusal.message, "");
    }
    CHECK(world_calls(world, "snapshot", NULL) == 4 && count_of(world, "ada", ROLE_USER) == 4);
    CHECK(world_calls(world, "snapshot_drop", NULL) == 0);
}

/* Where the n-th call of `snapshot` went. */
static bool went_to(struct world *world, size_t n, const char *sandbox)
{
    size_t i;
    json_t *each;
    bool did = false;
    pthread_mutex_lock(&world->mutex);
    json_array_foreach (world->log, i, each) {
        if (text_equal(json_string_value(json_object_get(each, "call")), "snapshot") && n-- == 0)
            did = text_equal(json_string_value(json_object_get(each, "id")), sandbox);
    }
    pthread_mutex_unlock(&world->mutex);
    return did;
}

/* Who asks for many does not keep others from their one. */
static void others_get_their_turn(struct world *world)
{
    static const char *const THREADS[] = {"t", "u", "v", "w"};
    char of[4][RANDOM_ID_BYTES];
    struct keep keeps[4];
    for (int i = 0; i < 4; i++)
        ask_id(world, (struct asked){.thread = THREADS[i], .who = i == 3 ? "bob" : NULL}, of[i]);
    world_set_mode_of(world, "snapshot", FAKE_HOLDS, ERROR_NONE);
    for (int i = 0; i < 4; i++) {
        const char *who = i == 3 ? "bob" : NULL;
        keep_start(world, &keeps[i], (struct asking){.verb = KEEPING_TAKE, .sandbox = of[i], .who = who});
        settle(world);
    }
    CHECK(world_calls(world, "snapshot", NULL) == 2);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    for (int i = 0; i < 4; i++) {
        AUTO(keeping) *k = keep_wait(&keeps[i]);
        CHECK_TEXT(k->refusal.message, "");
    }
    CHECK(went_to(world, 2, of[3]) && went_to(world, 3, of[2]));
}

static void one_does_not_fill_the_queue(struct world *world)
{
    enum { MINE = 1 + KEEPING_WAITERS_OF_ONE };
    static struct keep keeps[MINE + 1];
    char hers[RANDOM_ID_BYTES], his[RANDOM_ID_BYTES];
    world->leasing->options.policy.snapshots_max = 2 * MINE;
    ask_id(world, (struct asked){.thread = "t"}, hers);
    ask_id(world, (struct asked){.thread = "t", .who = "bob"}, his);
    world_set_mode_of(world, "snapshot", FAKE_HOLDS, ERROR_NONE);
    for (int i = 0; i < MINE; i++) /* one of them is asked for, the others wait for that */
        keep_start(world, &keeps[i], (struct asking){.verb = KEEPING_TAKE, .sandbox = hers});
    settle(world);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = hers}), ERROR_RATE_LIMITED);
    keep_start(world, &keeps[MINE], (struct asking){.verb = KEEPING_TAKE, .sandbox = his, .who = "bob"});
    settle(world);
    CHECK(world_calls(world, "snapshot", his) == 1);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    for (int i = 0; i <= MINE; i++) {
        AUTO(keeping) *k = keep_wait(&keeps[i]);
        CHECK_TEXT(k->refusal.message, "");
    }
}

/* ---- what goes wrong ---- */

static void a_node_that_fails(struct world *world)
{
    static const struct {
        enum error_kind of_node, answer;
    } CASES[] = {{ERROR_NODE_UNREACHABLE, ERROR_NODE_UNREACHABLE},
                 {ERROR_NOT_FOUND, ERROR_GONE},
                 {ERROR_DISK_FULL, ERROR_DISK_FULL},
                 {ERROR_CONFLICT, ERROR_CONFLICT},
                 {ERROR_TIMEOUT, ERROR_NODE_UNREACHABLE},
                 {ERROR_INTERNAL, ERROR_INTERNAL}};
    char sandbox[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        world_set_mode_of(world, "snapshot", FAKE_REFUSES, CASES[i].of_node);
        CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .name = "same"}),
                   CASES[i].answer);
        settle(world);
        CHECK(count_of(world, "ada", ROLE_USER) == 0);
        CHECK(world_calls(world, "snapshot_drop", NULL) == i + 1); /* only its answer may have been lost */
    }
    later(world, 3600000);
    CHECK(is_clean(world));
}

/* kill -9 of the negotiator while its node makes one: the next start deletes what is there of it. */
static void a_start_in_between(struct world *world)
{
    struct keep it;
    char sandbox[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    world_set_mode_of(world, "snapshot", FAKE_HOLDS, ERROR_NONE);
    keep_start(world, &it, (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox, .name = "half"});
    settle(world);
    CHECK(world_calls(world, "snapshot", NULL) == 1 && count_rows(world, "snapshot/") == 1);
    world_restart(world);
    for (int i = 0; i < 14; i++)
        later(world, 60000);
    CHECK(world_calls(world, "snapshot_drop", NULL) >= 1 && is_clean(world));
    CHECK(audited(world, (struct audited){.action = "snapshot.create", .detail = "half-made"}) == 1);
    /* What comes of the old process's call changes nothing any more. */
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(keeping) *k = keep_wait(&it);
    CHECK(k->refusal.kind != ERROR_NONE && is_clean(world));
}

static void a_stop(struct world *world)
{
    static struct keep keeps[3];
    char sandbox[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    world_set_mode_of(world, "snapshot", FAKE_HOLDS, ERROR_NONE);
    for (int i = 0; i < 3; i++)
        keep_start(world, &keeps[i], (struct asking){.verb = KEEPING_TAKE, .sandbox = sandbox});
    settle(world);
    leasing_stopping(world->leasing);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(keeping) *first = keep_wait(&keeps[0]);
    CHECK_KIND(first->refusal.kind, ERROR_NONE);
    settle(world);
    keeping_done(world->leasing);
    for (int i = 1; i < 3; i++) {
        AUTO(keeping) *k = keep_wait(&keeps[i]);
        CHECK_KIND(k->refusal.kind, ERROR_STARTING);
    }
}

/* ---- its end ---- */

static void an_end(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES], id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    take(world, sandbox, "x", id);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, sandbox), ERROR_NONE);
    later(world, 90000000);
    CHECK(count_of(world, "ada", ROLE_USER) == 1); /* long after its sandbox was forgotten */
    world->life = NODE_LOST;                       /* away: nobody sees it any more, and it is told when it is back */
    world_set_mode_of(world, "snapshot_drop", FAKE_REFUSES, ERROR_NODE_UNREACHABLE);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .snapshot = id}), ERROR_NONE);
    settle(world);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_FIND, .snapshot = id}), ERROR_NOT_FOUND);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .snapshot = id}), ERROR_NOT_FOUND);
    CHECK(count_of(world, "ada", ROLE_USER) == 0 && count_rows(world, "snapshot/") == 1);
    size_t before = world_calls(world, "snapshot_drop", NULL);
    for (int i = 0; i < 20; i++)
        later(world, 60000);
    CHECK(world_calls(world, "snapshot_drop", NULL) == before); /* not while it is away */
    world_restart(world);
    world->life = NODE_ALIVE;
    for (int i = 0; i < 12; i++)
        later(world, 60000);
    CHECK(world_calls(world, "snapshot_drop", NULL) > before && count_rows(world, "snapshot/") == 1);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    for (int i = 0; i < 12; i++)
        later(world, 60000);
    CHECK(is_clean(world));
    size_t calls = world_calls(world, "snapshot_drop", NULL);
    later(world, 10000000);
    CHECK(world_calls(world, "snapshot_drop", NULL) == calls);
    CHECK(audited(world, (struct audited){.action = "snapshot.delete", .status = 204}) == 1);
}

/* ---- beginning with one ---- */

static void beginning_with_one(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES], id[RANDOM_ID_BYTES], second[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    take(world, sandbox, "base-camp", id);
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "u", .wanted = {.snapshot = "base-camp"}});
    CHECK_TEXT(n->refusal.message, "");
    CHECK(n->created && strcmp(n->sandbox.id, sandbox) != 0);
    CHECK_TEXT(n->sandbox.snapshot, id);
    CHECK_TEXT(n->sandbox.template_name, "py");
    CHECK_TEXT(n->sandbox.node, "n1");
    json_t *prepare = world_last_call(world, "prepare");
    const json_t *told = json_object_get(prepare, "sandbox");
    CHECK_TEXT(json_string_value(json_object_get(told, "snapshot")), id);
    json_decref(prepare);
    CHECK_TEXT(world->asked_node, "n1");
    CHECK_TEXT(world->asked_template, "");
    CHECK(audited(world, (struct audited){.action = "negotiate", .status = 201, .detail = id}) == 1);
    /* Attaching: by name or id it is the same, another one is a difference. */
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "u", .wanted = {.snapshot = "base-camp"}}), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "u", .wanted = {.template_name = "py"}}), ERROR_NONE);
    take(world, sandbox, "other", second);
    AUTO(negotiation) *other = ask(world, (struct asked){.thread = "u", .wanted = {.snapshot = "other"}});
    CHECK_KIND(other->refusal.kind, ERROR_CONFLICT);
    CHECK(strstr(other->refusal.message, "template") != NULL);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "w", .wanted = {.snapshot = "no-such"}}), ERROR_NOT_FOUND);
    /* Its node is away: said as it is. */
    error_set(&world->no_place, ERROR_NODE_UNREACHABLE, "node n1 does not answer");
    AUTO(negotiation) *away = ask(world, (struct asked){.thread = "w", .wanted = {.snapshot = "other"}});
    CHECK_KIND(away->refusal.kind, ERROR_NODE_UNREACHABLE);
    CHECK(strstr(away->refusal.message, "other") && strstr(away->refusal.message, "n1 does not answer"));
    world->no_place = (struct error){0};
    /* It went while the sandbox was made. */
    world_set_mode_of(world, "prepare", FAKE_REFUSES, ERROR_NOT_FOUND);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "w", .wanted = {.snapshot = "other"}}), ERROR_NOT_FOUND);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    CHECK_KIND(keep_kind(world, (struct asking){.verb = KEEPING_DROP, .snapshot = id}), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "u", .wanted = {.snapshot = "base-camp"}}), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "x", .wanted = {.snapshot = "base-camp"}}), ERROR_NOT_FOUND);
}

/* ---- what roles may ---- */

static void templates_and_roles(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES], id[RANDOM_ID_BYTES];
    struct leasing_policy *policy = &world->leasing->options.policy;
    policy->templates_user = "base, py-*";
    policies_take_settings(world->leasing->policies, &world->leasing->options);
    AUTO(negotiation) *no = ask(world, (struct asked){.thread = "t", .wanted = {.template_name = "node"}});
    CHECK_KIND(no->refusal.kind, ERROR_FORBIDDEN);
    CHECK(strstr(no->refusal.message, "role user") && strstr(no->refusal.message, "base, py-*"));
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = {.template_name = "py-3.11"}}), ERROR_NONE);
    json_t *prepare = world_last_call(world, "prepare");
    CHECK(json_is_false(json_object_get(json_object_get(prepare, "sandbox"), "root")));
    json_decref(prepare);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "u"}), ERROR_NONE);
    struct asked admin = {.who = "root", .role = ROLE_ADMIN, .thread = "t", .wanted = {.template_name = "node"}};
    ask_id(world, admin, sandbox);
    prepare = world_last_call(world, "prepare");
    CHECK(json_is_true(json_object_get(json_object_get(prepare, "sandbox"), "root")));
    json_decref(prepare);
    CHECK(audited(world, (struct audited){.action = "negotiate", .status = 403}) == 1);
    /* What was allowed when a snapshot was taken need not be any more. The node said "py". */
    ask_id(world, (struct asked){.thread = "v"}, sandbox);
    take(world, sandbox, "of-py", id);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "w", .wanted = {.snapshot = "of-py"}}), ERROR_FORBIDDEN);
    policy->templates_user = "";
    policies_take_settings(world->leasing->policies, &world->leasing->options);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "x"}), ERROR_FORBIDDEN);
    policy->root_roles = "user,admin";
    policy->templates_user = "*";
    policies_take_settings(world->leasing->policies, &world->leasing->options);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "y"}), ERROR_NONE);
    prepare = world_last_call(world, "prepare");
    CHECK(json_is_true(json_object_get(json_object_get(prepare, "sandbox"), "root")));
    json_decref(prepare);
    CHECK(!leasing_allows_template(world->leasing, ROLE_VIEWER, "ada", "base"));
}

int main(void)
{
    in_both_worlds(one_is_taken);
    in_both_worlds(whose_they_are);
    in_both_worlds(by_capability);
    in_both_worlds(only_of_living_ones);
    in_both_worlds(there_is_a_most);
    in_both_worlds(pages_by_offset);
    in_both_worlds(turns);
    in_both_worlds(others_get_their_turn);
    in_both_worlds(one_does_not_fill_the_queue);
    in_both_worlds(a_node_that_fails);
    in_both_worlds(a_start_in_between);
    in_both_worlds(a_stop);
    in_both_worlds(an_end);
    in_both_worlds(beginning_with_one);
    in_both_worlds(templates_and_roles);
    return check_done();
}
