/* Refreshing a token: rotation, lost replies, leaks, who may not; with a store that refuses what it compares at random.
 */
#include "tests/unit/negotiator/leasing/grants.h"

#define T1 ((struct asked){.thread = "t1"})

static void attenuate(const struct token *from, char to[static CAPABILITY_TEXT_BYTES])
{
    struct error err = {0};
    CHECK(capability_attenuate(to, from->text, &(struct capability_link){.note = "narrow"}, &err));
}

static void test_rotation(struct world *world)
{
    struct token a, b, c;
    get_token(world, T1, &a);
    world_now += 5000;
    refresh_token(world, T1, a.text, &b);
    CHECK_TEXT(b.claims.family, a.claims.jti);
    CHECK_TEXT(b.claims.lease, a.claims.lease);
    CHECK_TEXT(b.claims.sandbox_id, a.claims.sandbox_id);
    CHECK(strcmp(a.claims.jti, b.claims.jti) != 0);
    CHECK(b.claims.issued_at == world_now / 1000 && b.claims.expires_at == world_now / 1000 + 900);
    CHECK(scope_set_covers(&a.claims.scopes, &b.claims.scopes) && scope_set_covers(&b.claims.scopes, &a.claims.scopes));
    /* The old one is good for 30 s more, the new one is. */
    CHECK(!is_refused(world, &a.claims, world_now + 29999));
    CHECK(is_refused(world, &a.claims, world_now + 30000));
    CHECK(!is_refused(world, &b.claims, world_now + 30000));
    refresh_token(world, T1, b.text, &c);
    CHECK_TEXT(c.claims.family, a.claims.jti);
    CHECK(strcmp(c.claims.jti, b.claims.jti) != 0);
}

static void test_a_lost_reply(struct world *world)
{
    struct token a, b, again;
    get_token(world, T1, &a);
    refresh_token(world, T1, a.text, &b);
    for (int i = 0; i < 3; i++) { /* also when its 30 s are over, and whatever is asked for now */
        world_now += 20000;
        refresh_token(world, (struct asked){.thread = "t1", .wanted.ttl_s = 60}, a.text, &again);
        CHECK_TEXT(again.text, b.text);
    }
    world_restart(world);
    refresh_token(world, T1, a.text, &again);
    CHECK_TEXT(again.text, b.text);
    refresh_token(world, T1, b.text, &a);
    refresh_token(world, T1, b.text, &again);
    CHECK_TEXT(again.text, a.text);
}

static void test_a_leak(struct world *world)
{
    struct token a, b, c, other, fresh;
    get_token(world, T1, &a);
    get_token(world, T1, &other); /* the same thread, a family of its own */
    refresh_token(world, T1, a.text, &b);
    refresh_token(world, T1, b.text, &c);
    CHECK(!is_refused(world, &c.claims, world_now));
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_TOKEN_REUSED);
    CHECK(is_refused(world, &c.claims, world_now));
    CHECK(is_refused(world, &b.claims, world_now));
    CHECK(!is_refused(world, &other.claims, world_now));
    CHECK_KIND(refresh_kind(world, T1, c.text), ERROR_TOKEN_REVOKED);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_TOKEN_REVOKED);
    refresh_token(world, T1, other.text, &fresh);
    get_token(world, T1, &fresh);
    CHECK(!is_refused(world, &fresh.claims, world_now));
    CHECK_TEXT(fresh.claims.sandbox_id, a.claims.sandbox_id);
}

static void test_a_leak_outlives_a_restart(struct world *world)
{
    struct token a, b, c;
    get_token(world, T1, &a);
    refresh_token(world, T1, a.text, &b);
    refresh_token(world, T1, b.text, &c);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_TOKEN_REUSED);
    world_restart(world);
    CHECK(is_refused(world, &c.claims, world_now));
    CHECK_KIND(refresh_kind(world, T1, c.text), ERROR_TOKEN_REVOKED);
}

/* None of these revokes anything. */
static void test_who_may_not(struct world *world)
{
    struct token a, bobs, b;
    char narrow[CAPABILITY_TEXT_BYTES], forged[CAPABILITY_TEXT_BYTES];
    get_token(world, T1, &a);
    get_token(world, (struct asked){.who = "bob", .thread = "t1"}, &bobs);
    ask_kind(world, (struct asked){.thread = "t2"});
    attenuate(&a, narrow);
    memcpy(forged, a.text, sizeof forged);
    char *last = forged + strlen(forged) - 5;
    *last = *last == 'A' ? 'B' : 'A';
    CHECK_KIND(refresh_kind(world, (struct asked){.who = "bob", .thread = "t1"}, a.text), ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, (struct asked){.who = "root", .role = ROLE_ADMIN, .thread = "t1"}, a.text),
               ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, T1, bobs.text), ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, (struct asked){.thread = "t2"}, a.text), ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, (struct asked){.viewer = true, .thread = "t1"}, a.text), ERROR_FORBIDDEN);
    CHECK_KIND(refresh_kind(world, T1, narrow), ERROR_UNAUTHENTICATED);
    CHECK_KIND(refresh_kind(world, T1, forged), ERROR_UNAUTHENTICATED);
    CHECK_KIND(refresh_kind(world, T1, "no token"), ERROR_UNAUTHENTICATED);
    CHECK_KIND(refresh_kind(world, T1, "a.b.c"), ERROR_UNAUTHENTICATED);
    CHECK_KIND(refresh_kind(world, (struct asked){.thread = ".."}, a.text), ERROR_INVALID);
    CHECK_KIND(refresh_kind(world, (struct asked){.thread = "t1", .wanted.ttl_s = 59}, a.text), ERROR_INVALID);
    CHECK(!is_refused(world, &a.claims, world_now + 100000));
    refresh_token(world, T1, a.text, &b);
    refresh_token(world, (struct asked){.who = "bob", .thread = "t1"}, bobs.text, &b);
}

static void test_expired(struct world *world)
{
    struct token a, b;
    get_token(world, T1, &a);
    world_now = (a.claims.expires_at + 60) * 1000;
    refresh_token(world, T1, a.text, &b);
    CHECK(!is_refused(world, &a.claims, world_now + 60000)); /* it has run out: no mark is needed */
    world_now = (b.claims.expires_at + 61) * 1000;
    CHECK_KIND(refresh_kind(world, T1, b.text), ERROR_TOKEN_EXPIRED);
    get_token(world, T1, &a);
}

static void test_revoked(struct world *world)
{
    struct token a, b, c;
    get_token(world, T1, &a);
    refresh_token(world, T1, a.text, &b);
    CHECK_KIND(revoke_kind(world, (struct revoke){.who = "ada", .role = ROLE_USER, .value = b.claims.jti}), ERROR_NONE);
    CHECK_KIND(refresh_kind(world, T1, b.text), ERROR_TOKEN_REVOKED);
    refresh_token(world, T1, a.text, &c); /* its successor is unspent: the same, of no use now */
    CHECK_TEXT(c.text, b.text);
    /* A spent token that is revoked too has two marks; only one of them is the 30 s' one. */
    CHECK_KIND(revoke_kind(world, (struct revoke){.who = "ada", .role = ROLE_USER, .value = a.claims.jti}), ERROR_NONE);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_TOKEN_REVOKED);
}

static void test_a_new_epoch(struct world *world)
{
    struct token a, b;
    get_token(world, T1, &a);
    struct revoke sandbox = {.who = "ada", .role = ROLE_USER, .kind = MARK_SANDBOX, .value = a.claims.sandbox_id};
    CHECK_KIND(revoke_kind(world, sandbox), ERROR_NONE);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_TOKEN_REVOKED);
    get_token(world, T1, &b);
    CHECK(b.claims.epoch == a.claims.epoch + 1);
    CHECK(!is_refused(world, &b.claims, world_now) && is_refused(world, &a.claims, world_now));
    refresh_token(world, T1, b.text, &a);
    CHECK(a.claims.epoch == b.claims.epoch);
}

static struct scope_set scopes(const char *text)
{
    struct scope_set set = {.count = 0};
    struct error err = {0};
    CHECK(scope_parse(&set, text, strlen(text), SCOPE_UNKNOWN_REFUSED, &err));
    return set;
}

static void check_scopes(const struct token *token, const char *want)
{
    char text[SCOPE_TEXT_BYTES];
    scope_format(&token->claims.scopes, text);
    CHECK_TEXT(text, want);
}

static void test_scopes_only_narrow(struct world *world)
{
    struct token a, b, c;
    struct asked first = {.thread = "t1", .wanted = {.scopes_given = true, .scopes = scopes("fs:rw process")}};
    struct asked narrower = {.thread = "t1", .wanted = {.scopes_given = true, .scopes = scopes("fs:ro shell")}};
    get_token(world, first, &a);
    refresh_token(world, T1, a.text, &b);
    check_scopes(&b, "fs:rw process");
    refresh_token(world, narrower, b.text, &c);
    check_scopes(&c, "fs:ro");
    refresh_token(world, first, c.text, &a);
    check_scopes(&a, "");
    refresh_token(world, T1, a.text, &b);
    check_scopes(&b, "");
}

static void test_ttl(struct world *world)
{
    struct token a, b;
    struct asked brief = {.thread = "t1", .wanted = {.max_lifetime_s = 1000, .ttl_s = 600}};
    get_token(world, brief, &a);
    int64_t end = a.claims.issued_at + 1000;
    CHECK(a.claims.expires_at == a.claims.issued_at + 600);
    refresh_token(world, (struct asked){.thread = "t1", .wanted.ttl_s = 60}, a.text, &b);
    CHECK(b.claims.expires_at == b.claims.issued_at + 60);
    refresh_token(world, (struct asked){.thread = "t1", .wanted.ttl_s = 3600}, b.text, &a);
    CHECK(a.claims.expires_at == end);
    world_now = end * 1000; /* less than a second is left of the lease, or none */
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_NOT_FOUND);
}

/* A ledger that was put back from a copy: what it does not know is no leak. */
static void test_a_restored_ledger(struct world *world)
{
    struct token a, b, c;
    get_token(world, T1, &a);
    refresh_token(world, T1, a.text, &b);
    lose_row(world, "token", b.claims.jti);
    CHECK_KIND(refresh_kind(world, T1, b.text), ERROR_UNAUTHENTICATED);
    lose_row(world, "family", a.claims.family);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_UNAUTHENTICATED);
    CHECK(!is_refused(world, &b.claims, world_now));
    get_token(world, T1, &c);
    refresh_token(world, T1, c.text, &a);
}

/* A grant's first token has its family's id, and so no row of its own: it is found by the family's, also once spent. */
static void test_rows_of_a_grant(struct world *world)
{
    struct token a, b;
    get_token(world, (struct asked){.thread = "t1", .wanted = {.ttl_s = 600}}, &a);
    CHECK(has_row(world, "family", a.claims.jti) && !has_row(world, "token", a.claims.jti));
    refresh_token(world, (struct asked){.thread = "t1", .wanted = {.ttl_s = 3600}}, a.text, &b);
    CHECK(has_row(world, "token", b.claims.jti));
    struct revoke asked = {.who = "ada", .role = ROLE_USER, .value = a.claims.jti};
    AUTO(revoking) *r = revoke_it(world, asked);
    CHECK_TEXT(r->refusal.message, "");
    CHECK(r->list->usable_until == a.claims.expires_at); /* not the family's */
    CHECK(is_refused(world, &a.claims, world_now) && !is_refused(world, &b.claims, world_now));
}

static void test_the_lease_ends(struct world *world)
{
    struct token a, b;
    get_token(world, T1, &a);
    get_token(world, (struct asked){.thread = "t2"}, &b);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t1"), ERROR_NONE);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_NOT_FOUND);
    get_token(world, T1, &b); /* another lease of the same thread */
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_NOT_FOUND);
}

static void set_life(struct world *world, enum node_life life)
{
    pthread_mutex_lock(&world->mutex);
    world->life = life;
    pthread_mutex_unlock(&world->mutex);
}

static void test_the_node_is_lost(struct world *world)
{
    struct token a, b;
    get_token(world, T1, &a);
    set_life(world, NODE_LOST);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_NODE_UNREACHABLE);
    set_life(world, NODE_ALIVE);
    CHECK(!is_refused(world, &a.claims, world_now + 60000)); /* not spent */
    refresh_token(world, T1, a.text, &b);
}

static void test_a_refresh_is_a_sign_of_life(struct world *world)
{
    struct token a;
    get_token(world, (struct asked){.thread = "t1", .wanted = {.idle_timeout_s = 600}}, &a);
    world_now += 100000;
    AUTO(negotiation) *n = refresh(world, T1, a.text);
    CHECK(n->lease.expires_at == world_now + 600000);
}

static void test_signs_of_life(struct world *world)
{
    struct token a, bobs;
    char narrow[CAPABILITY_TEXT_BYTES];
    struct asked asked = {.thread = "t1", .wanted = {.idle_timeout_s = 600}}, other = {.thread = "t9"};
    asked.wanted.metadata = json_pack("{s:s}", "for", "her eyes");
    get_token(world, asked, &a);
    memcpy(other.wanted.hint, a.claims.sandbox_id, RANDOM_ID_BYTES);
    get_token(world, other, &bobs);
    get_token(world, (struct asked){.who = "bob", .thread = "t1"}, &bobs);
    attenuate(&a, narrow);
    world_now += 100000;
    AUTO(question) *q = sign(world, "ada", ROLE_USER, "t1", NULL);
    CHECK_TEXT(q->refusal.message, "");
    CHECK(q->lease.expires_at == world_now + 600000);
    CHECK_TEXT(q->sandbox.id, a.claims.sandbox_id);
    world_now += 100000;
    AUTO(question) *by_token = sign(world, "", ROLE_VIEWER, "t1", narrow);
    CHECK_TEXT(by_token->refusal.message, "");
    CHECK(by_token->lease.expires_at == world_now + 600000);
    CHECK_TEXT(by_token->lease.id, a.claims.lease);
    CHECK(json_array_size(q->sandbox.threads) == 2 && json_object_size(q->sandbox.metadata) == 1);
    CHECK(json_array_size(by_token->sandbox.threads) == 1 && json_object_size(by_token->sandbox.metadata) == 0);
    CHECK_TEXT(json_string_value(json_array_get(by_token->sandbox.threads, 0)), "t1");
    CHECK_KIND(sign_kind(world, "ada", ROLE_VIEWER, "t1", NULL), ERROR_FORBIDDEN);
    CHECK_KIND(sign_kind(world, "ada", ROLE_USER, "t2", NULL), ERROR_NOT_FOUND);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t2", a.text), ERROR_NOT_FOUND);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", "a.b.c"), ERROR_UNAUTHENTICATED);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", bobs.text), ERROR_NONE); /* bob's thread t1 */
    CHECK_KIND(revoke_kind(world, (struct revoke){.token = narrow}), ERROR_NONE);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", narrow), ERROR_TOKEN_REVOKED);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", a.text), ERROR_NONE);
    world_now = (a.claims.expires_at + CAPABILITY_LEEWAY_S) * 1000;
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", a.text), ERROR_TOKEN_EXPIRED);
}

/* Both in one batch: the mark is not durable yet when the refresh is decided, but comes before it. */
static void refresh_behind(struct world *world, struct revoke asked)
{
    struct token a;
    struct gate gate;
    struct revoke_attempt revoked;
    struct error err = {0};
    get_token(world, T1, &a);
    if (asked.kind == MARK_JTI)
        asked.value = a.claims.jti;
    if (asked.kind == MARK_FAMILY)
        asked.value = a.claims.family;
    struct attempt attempt = {.world = world};
    struct negotiation *n = make_negotiation(&attempt, &T1);
    n->current_token = memory_string(a.text);
    gate_shut(world, &gate);
    revoke_start(world, &revoked, asked);
    gate_step(world);
    CHECK(leasing_refresh(world->leasing, n, &err));
    gate_open(&gate);
    AUTO(negotiation) *answer = attempt_wait(&attempt);
    CHECK_KIND(answer->refusal.kind, ERROR_TOKEN_REVOKED);
    settle(world);
    later(world, REVOCATION_WAIT_MS);
    AUTO(revoking) *r = revoke_wait(&revoked);
    CHECK_TEXT(r->refusal.message, "");
}

static void test_behind_a_revocation(struct world *world)
{
    refresh_behind(world, (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_THREAD, .value = "t1"});
    refresh_behind(world, (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_PRINCIPAL, .value = "ada"});
    refresh_behind(world, (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_JTI});
    refresh_behind(world, (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_FAMILY});
}

/* A token that is issued behind a revocation in the same batch is not one of those that were revoked. */
static void test_issued_behind_a_revocation(struct world *world)
{
    struct token a, b;
    struct gate gate;
    struct revoke_attempt revoked;
    struct error err = {0};
    get_token(world, T1, &a);
    struct attempt attempt = {.world = world};
    struct negotiation *n = make_negotiation(&attempt, &T1);
    gate_shut(world, &gate);
    revoke_start(world, &revoked, (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_THREAD, .value = "t1"});
    CHECK(leasing_negotiate(world->leasing, n, &err));
    gate_open(&gate);
    AUTO(negotiation) *answer = attempt_wait(&attempt);
    mint(world, answer, &b);
    settle(world);
    CHECK(is_refused(world, &a.claims, world_now) && !is_refused(world, &b.claims, world_now));
    later(world, REVOCATION_WAIT_MS);
    AUTO(revoking) *r = revoke_wait(&revoked);
    CHECK_TEXT(r->refusal.message, "");
}

/* Every refresh leaves a mark on every node for as long as the old token would have lived. */
static void test_refreshes_without_end(struct world *world)
{
    enum { ENOUGH = 15000 };
    struct asked asked = {.thread = "t1", .wanted = {.ttl_s = 3600}};
    struct token token;
    get_token(world, asked, &token);
    int done = 0;
    for (enum error_kind kind = ERROR_NONE; kind == ERROR_NONE && done < ENOUGH; done++) {
        AUTO(negotiation) *n = refresh(world, asked, token.text);
        kind = n->refusal.kind;
        if (kind == ERROR_NONE)
            mint(world, n, &token);
        else
            CHECK_KIND(kind, ERROR_RATE_LIMITED);
    }
    CHECK(done > 1000 && done < ENOUGH);
    CHECK(!is_refused(world, &token.claims, world_now + 60000)); /* not spent */
    world_now += 600000;
    refresh_token(world, asked, token.text, &token);
}

int main(void)
{
    in_both_worlds(test_rotation);
    in_both_worlds(test_a_lost_reply);
    in_both_worlds(test_a_leak);
    in_both_worlds(test_a_leak_outlives_a_restart);
    in_both_worlds(test_who_may_not);
    in_both_worlds(test_expired);
    in_both_worlds(test_revoked);
    in_both_worlds(test_a_new_epoch);
    in_both_worlds(test_scopes_only_narrow);
    in_both_worlds(test_ttl);
    in_both_worlds(test_a_restored_ledger);
    in_both_worlds(test_rows_of_a_grant);
    in_both_worlds(test_the_lease_ends);
    in_both_worlds(test_the_node_is_lost);
    in_both_worlds(test_a_refresh_is_a_sign_of_life);
    in_both_worlds(test_signs_of_life);
    struct world *calm = world_new(0);
    test_refreshes_without_end(calm);
    world_free(calm);
    in_both_worlds(test_behind_a_revocation);
    in_both_worlds(test_issued_behind_a_revocation);
    return check_done();
}
