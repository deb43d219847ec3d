/* Goal: a life without end is one, and ends all the same so long after the negotiator's last word; a renewal moves
 * every end there is, both ways, and the node's before it is answered; a long token outlives nothing that it hangs on,
 * for all the time that it could be valid; who knows an id gets a token, if it is his; pages by offset count right. */
#include "negotiator/leasing/changing.h"

#include "tests/unit/negotiator/leasing/policies.h"

#include <string.h>

enum { HOUR_MS = 3600000, DAY_MS = 24 * HOUR_MS };
static const struct wanted ENDLESS = {.max_lifetime_s = LIFE_ENDLESS_S, .idle_timeout_s = LIFE_ENDLESS_S};
static const struct wanted NEVER_IDLE = {.max_lifetime_s = 10000, .idle_timeout_s = LIFE_ENDLESS_S};

static void bound(struct world *world, int64_t most_s)
{
    world->leasing->options.limits.max_lifetime_max_s = most_s;
    policies_take_settings(world->leasing->policies, &world->leasing->options);
}

/* ---- changes ---- */

struct change {
    struct world *world;
    bool done;
};

static void change_answered(void *cookie, struct changing *changing UNUSED)
{
    struct change *change = cookie;
    pthread_mutex_lock(&change->world->mutex);
    change->done = true;
    pthread_cond_broadcast(&change->world->changed);
    pthread_mutex_unlock(&change->world->mutex);
}

static void change_start(struct world *world, struct change *change, struct changing *changing, const char *who,
                         const char *id)
{
    *change = (struct change){.world = world};
    changing->caller.principal.role = text_equal(who, "root") ? ROLE_ADMIN : ROLE_USER;
    CHECK(text_copy(changing->caller.principal.name, PRINCIPAL_BYTES, who) &&
          text_copy(changing->sandbox_id, sizeof changing->sandbox_id, id));
    changing->answered = change_answered;
    changing->cookie = change;
    if (!leasing_change(world->leasing, changing, &changing->refusal))
        change->done = true;
}

static bool change_is_done(struct change *change)
{
    pthread_mutex_lock(&change->world->mutex);
    bool done = change->done;
    pthread_mutex_unlock(&change->world->mutex);
    return done;
}

static void change_wait(struct change *change)
{
    pthread_mutex_lock(&change->world->mutex);
    while (!change->done)
        pthread_cond_wait(&change->world->changed, &change->world->mutex);
    pthread_mutex_unlock(&change->world->mutex);
}

static enum error_kind renew(struct world *world, const char *who, const char *id, int64_t at)
{
    struct change change;
    AUTO(changing) *changing = changing_new();
    changing->verb = CHANGING_RENEW;
    changing->expires_at = at;
    change_start(world, &change, changing, who, id);
    change_wait(&change);
    return changing->refusal.kind;
}

static enum error_kind strictly(struct world *world, enum changing_verb verb, const char *id)
{
    struct change change;
    AUTO(changing) *changing = changing_new();
    changing->verb = verb;
    changing->is_strict = true;
    change_start(world, &change, changing, "ada", id);
    change_wait(&change);
    return changing->refusal.kind;
}

static enum error_kind patch(struct world *world, const char *id, json_t *pairs)
{
    struct change change;
    AUTO(changing) *changing = changing_new();
    changing->verb = CHANGING_UPDATE;
    changing->metadata_patch = pairs;
    change_start(world, &change, changing, "ada", id);
    change_wait(&change);
    return changing->refusal.kind;
}

/* ---- what is there ---- */

static void read_sandbox(struct world *world, const char *id, struct sandbox *to)
{
    AUTO(question) *q = question_ask(world, QUESTION_SANDBOX, "root", ROLE_ADMIN, id);
    CHECK_TEXT(q->refusal.message, "");
    *to = q->sandbox;
    q->sandbox = (struct sandbox){0};
}

static struct lease lease_of(struct world *world, const char *thread)
{
    AUTO(question) *q = question_ask(world, QUESTION_THREAD, "ada", ROLE_USER, thread);
    return q->lease;
}

static bool lives(struct world *world, const char *id)
{
    char reason[SANDBOX_REASON_BYTES];
    return state_of(world, id, reason) == SANDBOX_ACTIVE;
}

static void check_reason(struct world *world, const char *id, const char *want)
{
    char reason[SANDBOX_REASON_BYTES];
    enum sandbox_state state = state_of(world, id, reason);
    CHECK(state == SANDBOX_TERMINATING || state == SANDBOX_TERMINATED);
    CHECK_TEXT(reason, want);
}

/* What the node was told last, in ms: it does what it is told. */
static int64_t told_deadline(struct world *world)
{
    json_t *call = world_last_call(world, "deadline"), *prepare = world_last_call(world, "prepare");
    const json_t *first = json_object_get(json_object_get(prepare, "sandbox"), "deadline");
    int64_t at = json_integer_value(call ? json_object_get(call, "deadline") : first);
    json_decref(call);
    json_decref(prepare);
    return at;
}

static void beat(struct world *world, const char *id)
{
    full_beat(world, json_pack("[o]", on_node(id, 0, told_deadline(world))));
}

/* ---- without end ---- */

static void one_lives_on(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    AUTO_SANDBOX sandbox = {0};
    bound(world, 0);
    ask_id(world, (struct asked){.thread = "t", .wanted = ENDLESS}, id);
    CHECK(told_deadline(world) == world_now + DAY_MS);
    read_sandbox(world, id, &sandbox);
    CHECK(life_is_endless(sandbox.deadline) && sandbox.node_deadline == world_now + DAY_MS);
    struct lease lease = lease_of(world, "t");
    CHECK(life_is_endless(lease.max_expires_at) && life_is_endless(lease.expires_at));
    for (int hour = 0; hour < 30 * 24; hour++) {
        later(world, HOUR_MS);
        beat(world, id);
        CHECK(told_deadline(world) >= world_now + 17 * (int64_t)HOUR_MS);
        CHECK(told_deadline(world) <= world_now + DAY_MS);
    }
    CHECK(lives(world, id));
    size_t calls = world_calls(world, "deadline", id);
    CHECK(calls >= 30 * 4 - 4 && calls <= 2 * 30 * 4); /* a quarter of a day is one */
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t"}), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t"), ERROR_NONE);
    check_reason(world, id, "released");
}

/* A heartbeat that names it with the deadline it was told reads and writes nothing. */
static void a_number_of_days(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    bound(world, 0);
    ask_id(world,
           (struct asked){.thread = "t",
                          .wanted = {.max_lifetime_s = 5 * WANTED_DAY_S, .idle_timeout_s = 9 * WANTED_DAY_S}},
           id);
    for (int hour = 0; hour < 5 * 24; hour++) {
        CHECK(lives(world, id));
        beat(world, id);
        later(world, HOUR_MS);
    }
    check_reason(world, id, "max_lifetime");
    CHECK(told_deadline(world) <= world_now);
}

static void a_lost_node(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    bound(world, 0);
    ask_id(world, (struct asked){.thread = "t", .wanted = ENDLESS}, id);
    beat(world, id);
    later(world, 7 * (int64_t)HOUR_MS);
    beat(world, id);
    int64_t told = told_deadline(world);
    world->life = NODE_LOST;
    later(world, 60000);
    world_restart(world); /* nothing was heard in this life: the row knows what the node was told */
    settle(world);
    later(world, told + 60000 - world_now);
    CHECK(lives(world, id));
    later(world, 120000);
    check_reason(world, id, "node_lost");
    world->life = NODE_ALIVE;
}

static void bounds(struct world *world)
{
    struct asked asked = {.thread = "t", .wanted = ENDLESS};
    AUTO(negotiation) *n = ask(world, asked);
    CHECK_KIND(n->refusal.kind, ERROR_INVALID);
    CHECK(strstr(n->refusal.message, "max_lifetime must be 1 to 86400; no end (null) is not allowed here") != NULL);
    bound(world, 0);
    policy_set(world, "{'roles': {'user': {'lifetime_max': 3600, 'long': false}, 'user:agent': {'lifetime_max': 3600, "
                      "'idle_max': 60}, 'admin': {'lifetime_max': null}}}");
    AUTO(negotiation) *forbidden = ask(world, asked);
    CHECK_KIND(forbidden->refusal.kind, ERROR_FORBIDDEN);
    CHECK(strstr(forbidden->refusal.message, "max_lifetime no end; allowed: at most 3600 (roles.user.lifetime_max)"));
    asked.wanted.max_lifetime_s = 3601;
    CHECK_KIND(ask_kind(world, asked), ERROR_FORBIDDEN);
    asked.wanted.is_long = true;
    asked.wanted.max_lifetime_s = 3600;
    CHECK_KIND(ask_kind(world, asked), ERROR_FORBIDDEN);
    asked.wanted.is_long = false;
    CHECK_KIND(ask_kind(world, asked), ERROR_NONE);
    asked.wanted.is_long = true; /* nor later */
    CHECK_KIND(ask_kind(world, asked), ERROR_FORBIDDEN);
    asked = (struct asked){.thread = "u", .wanted = ENDLESS};
    asked.wanted.max_lifetime_s = 60;
    CHECK(text_copy(asked.wanted.actor, sizeof asked.wanted.actor, "agent:x"));
    CHECK_KIND(ask_kind(world, asked), ERROR_FORBIDDEN); /* never idle */
    asked.wanted.idle_timeout_s = 60;
    CHECK_KIND(ask_kind(world, asked), ERROR_NONE);
    CHECK_KIND(ask_kind(world, (struct asked){.who = "root", .role = ROLE_ADMIN, .thread = "t", .wanted = ENDLESS}),
               ERROR_NONE);
    bound(world, 7200); /* a setting bounds every document */
    AUTO(negotiation) *cut = ask(world, (struct asked){.who = "root", .role = ROLE_ADMIN, .thread = "v"});
    CHECK(cut->lease.max_expires_at == world_now + 7200000);
}

/* ---- renewals ---- */

static void longer(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    AUTO_SANDBOX sandbox = {0};
    bound(world, 0);
    ask_id(world, (struct asked){.thread = "t", .wanted = {.max_lifetime_s = 1000, .idle_timeout_s = 900}}, id);
    struct asked second = {.thread = "u", .wanted = {.max_lifetime_s = 500}};
    memcpy(second.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, second), ERROR_NONE);
    int64_t first = world_now, end = world_now + 3 * (int64_t)DAY_MS;
    beat(world, id);
    later(world, 400000);
    CHECK_KIND(renew(world, "ada", id, end), ERROR_NONE);
    settle(world);
    CHECK(lease_of(world, "t").max_expires_at == end && lease_of(world, "u").max_expires_at == end);
    CHECK(lease_of(world, "t").expires_at == first + 400000 + 900000); /* it was a sign of life */
    CHECK(told_deadline(world) == world_now + DAY_MS);                 /* at once */
    read_sandbox(world, id, &sandbox);
    CHECK(sandbox.deadline == end);
    CHECK(audited(world, (struct audited){.action = "sandbox.renew", .status = 200, .detail = "until 20"}) == 1);
    beat(world, id);
    later(world, 700000); /* both old ends are over */
    CHECK(lives(world, id));
    char lease[RANDOM_ID_BYTES];
    memcpy(lease, lease_of(world, "t").id, sizeof lease);
    CHECK(has_row(world, "lease", lease));
    while (world_now < end) {
        beat(world, id);
        CHECK_KIND(sign_kind(world, "ada", ROLE_USER, "t", NULL), ERROR_NONE);
        CHECK(has_row(world, "lease", lease));
        later(world, 800000);
    }
    check_reason(world, id, "max_lifetime");
    later(world, 2 * (int64_t)DAY_MS);
    CHECK(!has_row(world, "lease", lease));
}

/* A node that does not hear of it has the sandbox for longer than was said: so nobody is told that before. */
static void shorter(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    struct change change;
    ask_id(world, (struct asked){.thread = "t", .wanted = NEVER_IDLE}, id);
    beat(world, id);
    int64_t end = world_now + 60000, before = lease_of(world, "t").max_expires_at;
    world_set_mode_of(world, "deadline", FAKE_REFUSES, ERROR_INTERNAL);
    CHECK_KIND(renew(world, "ada", id, end), ERROR_INTERNAL);
    CHECK(lease_of(world, "t").max_expires_at == before);
    world_set_mode_of(world, "deadline", FAKE_HOLDS, ERROR_NONE);
    AUTO(changing) *changing = changing_new();
    changing->verb = CHANGING_RENEW;
    changing->expires_at = end;
    change_start(world, &change, changing, "ada", id);
    settle_ledger(world);
    CHECK(!change_is_done(&change));
    CHECK(lease_of(world, "t").max_expires_at == before);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    change_wait(&change);
    CHECK_TEXT(changing->refusal.message, "");
    CHECK(told_deadline(world) == end);
    CHECK(lease_of(world, "t").max_expires_at == end);
    beat(world, id);
    later(world, 61000);
    check_reason(world, id, "max_lifetime");
}

static void who_may_renew(struct world *world)
{
    char id[RANDOM_ID_BYTES], endless[RANDOM_ID_BYTES];
    bound(world, 0);
    ask_id(world, (struct asked){.thread = "t", .wanted = NEVER_IDLE}, id);
    ask_id(world, (struct asked){.thread = "e", .wanted = ENDLESS}, endless);
    int64_t end = world_now + 100000;
    CHECK_KIND(renew(world, "bob", id, end), ERROR_NOT_FOUND);
    CHECK_KIND(renew(world, "ada", endless, end), ERROR_CONFLICT);
    CHECK_KIND(renew(world, "ada", id, world_now), ERROR_INVALID);
    CHECK_KIND(renew(world, "ada", id, world_now + 999), ERROR_INVALID);
    CHECK_KIND(renew(world, "ada", id, world_now - DAY_MS), ERROR_INVALID);
    CHECK_KIND(renew(world, "ada", id, LIFE_ENDLESS_MS), ERROR_INVALID);
    CHECK_KIND(renew(world, "ada", id, INT64_MAX), ERROR_INVALID);
    CHECK_KIND(renew(world, "ada", id, INT64_MIN / 2), ERROR_INVALID);
    CHECK_KIND(renew(world, "root", id, end), ERROR_NONE);
    policy_set(world, "{'roles': {'user': {'lifetime_max': 3600}}}");
    CHECK_KIND(renew(world, "ada", id, world_now + 3700000), ERROR_FORBIDDEN);
    CHECK_KIND(renew(world, "ada", id, world_now + 3600000), ERROR_NONE);
    beat(world, id);
    later(world, 3000000);
    CHECK_KIND(renew(world, "ada", id, world_now + 3600000), ERROR_NONE); /* counted from now */
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    CHECK_KIND(renew(world, "ada", id, world_now + 3600000), ERROR_GONE);
    CHECK(audited(world, (struct audited){.action = "sandbox.renew", .status = 404}) == 1);
}

/* ---- long tokens ---- */

static void a_long_token(struct world *world)
{
    struct token token, plain, other, renewed;
    bound(world, 0);
    struct asked asked = {.thread = "t", .wanted = NEVER_IDLE}, joined = {.thread = "u", .wanted = ENDLESS};
    asked.wanted.is_long = true;
    asked.wanted.ttl_s = 60; /* says nothing of it */
    get_token(world, asked, &token);
    CHECK(token.claims.long_lived && token.claims.expires_at == token.claims.issued_at + 7 * WANTED_DAY_S);
    CHECK(token.claims.expires_at * 1000 > lease_of(world, "t").max_expires_at);
    memcpy(joined.wanted.hint, token.claims.sandbox_id, RANDOM_ID_BYTES);
    get_token(world, joined, &other);
    CHECK(!other.claims.long_lived);
    get_token(world, (struct asked){.thread = "t"}, &plain);
    CHECK(!plain.claims.long_lived);
    refresh_token(world, (struct asked){.thread = "t"}, token.text, &renewed);
    CHECK(renewed.claims.long_lived && renewed.claims.expires_at == token.claims.expires_at);
    asked.wanted.expires_at_s = world_now / 1000 + 5000;
    get_token(world, asked, &token);
    CHECK(token.claims.expires_at == asked.wanted.expires_at_s);
    asked.wanted.expires_at_s = world_now / 1000;
    CHECK_KIND(ask_kind(world, asked), ERROR_INVALID);
    asked.wanted = (struct wanted){.expires_at_s = world_now / 1000 + 100000}; /* of others, what they may have */
    get_token(world, asked, &plain);
    CHECK(plain.claims.expires_at == plain.claims.issued_at + 900);
}

/* Its lease ends, its sandbox lives on for another: for as long as it could be valid a mark refuses it, on every node.
 */
static void its_lease_ends(struct world *world)
{
    struct token token, other;
    bound(world, 0);
    struct asked asked = {.thread = "t", .wanted = {.max_lifetime_s = 1000, .is_long = true}},
                 joined = {.thread = "u", .wanted = ENDLESS};
    get_token(world, asked, &token);
    memcpy(joined.wanted.hint, token.claims.sandbox_id, RANDOM_ID_BYTES);
    joined.wanted.is_long = true;
    get_token(world, joined, &other);
    beat(world, token.claims.sandbox_id);
    CHECK(!is_refused(world, &token.claims, world_now));
    later(world, 1001000);
    for (int day = 0; day < 7; day++) {
        CHECK(is_refused(world, &token.claims, world_now) && !is_refused(world, &other.claims, world_now));
        beat(world, token.claims.sandbox_id);
        later(world, DAY_MS - 200000);
        if (day == 3)
            world_restart(world);
    }
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "u"), ERROR_NONE);
    check_reason(world, token.claims.sandbox_id, "released"); /* and all its tokens with it */
}

static void it_is_revoked(struct world *world)
{
    struct token first, second, third;
    bound(world, 0);
    struct asked asked = {.thread = "t", .wanted = ENDLESS};
    asked.wanted.is_long = true;
    get_token(world, asked, &first);
    CHECK_KIND(
        revoke_kind(
            world,
            (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_SANDBOX, .value = first.claims.sandbox_id}),
        ERROR_NONE);
    get_token(world, asked, &second);
    CHECK(is_refused(world, &first.claims, world_now) && !is_refused(world, &second.claims, world_now));
    CHECK_KIND(revoke_kind(world, (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_ALL}), ERROR_NONE);
    get_token(world, asked, &third);
    for (int day = 0; day < 6; day++) {
        beat(world, first.claims.sandbox_id);
        later(world, DAY_MS);
        CHECK(is_refused(world, &first.claims, world_now) && is_refused(world, &second.claims, world_now) &&
              !is_refused(world, &third.claims, world_now));
    }
    later(world, DAY_MS - 10000);
    CHECK(is_refused(world, &second.claims, world_now));
    /* A setting that is lowered shortens no mark about those that were issued before. */
    get_token(world, asked, &third);
    world->long_ttl_max_s = 3600;
    world_restart(world);
    AUTO(revoking) *r =
        revoke_it(world, (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_PRINCIPAL, .value = "ada"});
    CHECK(r->list->mark.until >= third.claims.expires_at);
}

/* ---- a token for an id ---- */

static struct negotiation *grant(struct world *world, const char *who, const char *id, struct wanted wanted)
{
    static struct attempt attempt;
    struct error err = {0};
    struct asked asked = {
        .who = who, .role = text_equal(who, "root") ? ROLE_ADMIN : ROLE_USER, .thread = "", .wanted = wanted};
    attempt = (struct attempt){.world = world};
    struct negotiation *n = make_negotiation(&attempt, &asked);
    CHECK(text_copy(n->sandbox_id, sizeof n->sandbox_id, id));
    if (!leasing_grant(world->leasing, n, &err)) {
        n->refusal = err;
        attempt_answered(&attempt, n);
    }
    return attempt_wait(&attempt);
}

static enum error_kind grant_kind(struct world *world, const char *who, const char *id)
{
    AUTO(negotiation) *n = grant(world, who, id, (struct wanted){.ttl_s = 0});
    return n->refusal.kind;
}

static void by_id(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    struct token token;
    ask_id(world, (struct asked){.thread = "t"}, id);
    struct asked second = {.thread = "u"};
    memcpy(second.wanted.hint, id, sizeof id);
    CHECK_KIND(ask_kind(world, second), ERROR_NONE);
    AUTO(negotiation) *n = grant(world, "ada", id, (struct wanted){.ttl_s = 60});
    mint(world, n, &token);
    CHECK_TEXT(n->thread_id, "t");
    CHECK_TEXT(token.claims.sandbox_id, id);
    CHECK(!n->created && token.claims.expires_at == token.claims.issued_at + 60);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t"), ERROR_NONE);
    AUTO(negotiation) *later_one = grant(world, "root", id, (struct wanted){.ttl_s = 0});
    mint(world, later_one, &token);
    CHECK_TEXT(later_one->thread_id, "u"); /* the owner's, whoever asks */
    CHECK_TEXT(token.claims.principal, "ada");
    CHECK_KIND(grant_kind(world, "bob", id), ERROR_NOT_FOUND);
    CHECK_KIND(grant_kind(world, "ada", "sbx_00000000000000000000"), ERROR_NOT_FOUND);
    CHECK_KIND(grant_kind(world, "ada", "sbx_"), ERROR_NOT_FOUND);
    CHECK(world_calls(world, "prepare", NULL) == 1);
    CHECK_KIND(strictly(world, CHANGING_PAUSE, id), ERROR_NONE);
    CHECK_KIND(grant_kind(world, "ada", id), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, id), ERROR_NONE);
    CHECK_KIND(grant_kind(world, "ada", id), ERROR_GONE);
}

static bool has_scope(struct world *world, struct wanted wanted, const char *scope)
{
    AUTO(negotiation) *n = ask(world, (struct asked){.thread = "t", .wanted = wanted});
    CHECK_TEXT(n->refusal.message, "");
    return scope_allows(&n->claims.scopes, scope);
}

/* Who may widen what a sandbox reaches is not who was given "everything". */
static void the_network_is_asked_for(struct world *world)
{
    struct wanted wanted = {.scopes_given = true};
    CHECK(scope_parse(&wanted.scopes, "network process", 15, SCOPE_UNKNOWN_REFUSED, NULL));
    CHECK(!has_scope(world, (struct wanted){.ttl_s = 0}, "network"));
    CHECK(has_scope(world, (struct wanted){.ttl_s = 0}, "snapshot"));
    CHECK(has_scope(world, wanted, "network"));
    policy_set(world, "{'roles': {'user': {'scopes': ['process']}}}");
    CHECK(!has_scope(world, wanted, "network") && has_scope(world, wanted, "process"));
}

/* ---- strictly, and merged ---- */

static void strict_ones(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, id);
    CHECK_KIND(strictly(world, CHANGING_RESUME, id), ERROR_CONFLICT);
    CHECK_KIND(strictly(world, CHANGING_PAUSE, id), ERROR_NONE);
    CHECK_KIND(strictly(world, CHANGING_PAUSE, id), ERROR_CONFLICT);
    CHECK_KIND(strictly(world, CHANGING_RESUME, id), ERROR_NONE);
    CHECK(world_calls(world, "pause", id) == 1 && world_calls(world, "resume", id) == 1);
}

static void merges(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    AUTO_SANDBOX sandbox = {0};
    struct wanted wanted = {.metadata = json_pack("{s:s, s:s}", "a", "1", "b", "2")};
    ask_id(world, (struct asked){.thread = "t", .wanted = wanted}, id);
    CHECK_KIND(patch(world, id, json_pack("{s:n, s:s, s:n}", "a", "c", "3", "none")), ERROR_NONE);
    read_sandbox(world, id, &sandbox);
    json_t *want = json_pack("{s:s, s:s}", "b", "2", "c", "3");
    CHECK(json_equal(sandbox.metadata, want));
    json_decref(want);
    CHECK_KIND(patch(world, id, json_pack("{s:i}", "d", 1)), ERROR_INVALID);
    json_t *many = json_object();
    for (int i = 0; i < 31; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        json_object_set_new(many, name, json_string(""));
    }
    CHECK_KIND(patch(world, id, many), ERROR_INVALID); /* 33 of 32 */
}

/* ---- pages ---- */

static struct question *page(struct world *world, const char *who, size_t offset, size_t limit, unsigned states,
                             json_t *metadata)
{
    struct question *q = question_new();
    q->verb = QUESTION_PAGE;
    q->caller.principal.role = text_equal(who, "root") ? ROLE_ADMIN : ROLE_USER;
    q->offset = offset;
    q->limit = limit;
    q->states = states;
    q->metadata = metadata;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who));
    return question_wait(world, q);
}

static void pages(struct world *world)
{
    enum { MADE = 230 };
    char ids[MADE][RANDOM_ID_BYTES];
    for (int i = 0; i < MADE; i++) {
        char thread[16];
        snprintf(thread, sizeof thread, "t%d", i);
        json_t *metadata = json_pack("{s:s, s:s}", "parity", i % 2 ? "odd" : "even", "ten", i % 10 ? "no" : "yes");
        ask_id(world, (struct asked){.thread = thread, .wanted = {.metadata = metadata}}, ids[i]);
        world_now += 10;
    }
    CHECK_KIND(ask_kind(world, (struct asked){.who = "bob", .thread = "t"}), ERROR_NONE);
    AUTO(question) *first = page(world, "ada", 0, 20, 0, NULL);
    CHECK(first->count == 20 && first->total == MADE && !first->is_cut);
    CHECK_TEXT(first->list[0].id, ids[MADE - 1]);
    CHECK_TEXT(first->list[19].id, ids[MADE - 20]);
    AUTO(question) *last = page(world, "ada", 220, 20, 0, NULL);
    CHECK(last->count == 10 && last->total == MADE);
    CHECK_TEXT(last->list[9].id, ids[0]);
    AUTO(question) *beyond = page(world, "ada", MADE, 20, 0, NULL);
    CHECK(beyond->count == 0 && beyond->total == MADE);
    AUTO(question) *tens = page(world, "ada", 0, 200, 0, json_pack("{s:s, s:s}", "parity", "even", "ten", "yes"));
    CHECK(tens->count == MADE / 10 && tens->total == MADE / 10);
    CHECK_TEXT(tens->list[0].id, ids[220]);
    AUTO(question) *none = page(world, "ada", 0, 200, 0, json_pack("{s:s, s:s}", "parity", "odd", "ten", "yes"));
    CHECK(none->count == 0 && none->total == 0);
    CHECK_KIND(strictly(world, CHANGING_PAUSE, ids[7]), ERROR_NONE);
    CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, ids[9]), ERROR_NONE);
    AUTO(question) *some = page(world, "ada", 0, 5, 1U << SANDBOX_PAUSED | 1U << SANDBOX_TERMINATING, NULL);
    CHECK(some->total == 2);
    CHECK_TEXT(some->list[0].id, ids[9]);
    AUTO(question) *roots = page(world, "root", 0, 5, 0, NULL); /* an admin's own, or whose he says */
    CHECK(roots->total == 0);
}

int main(void)
{
    in_both_worlds(one_lives_on);
    in_both_worlds(a_number_of_days);
    in_both_worlds(a_lost_node);
    in_both_worlds(bounds);
    in_both_worlds(longer);
    in_both_worlds(shorter);
    in_both_worlds(who_may_renew);
    in_both_worlds(a_long_token);
    in_both_worlds(its_lease_ends);
    in_both_worlds(it_is_revoked);
    in_both_worlds(by_id);
    in_both_worlds(the_network_is_asked_for);
    in_both_worlds(strict_ones);
    in_both_worlds(merges);
    in_both_worlds(pages);
    return check_done();
}
