/* Sharing a thread's sandbox: who may, what the token says, who can refresh it and how long, what ends it and what does
 * not; with a store that refuses what it compares at random. */
#include "tests/unit/negotiator/leasing/grants.h"

#define T1  ((struct asked){.thread = "t1"})
#define BOB ((struct asked){.who = "bob", .thread = "t1"})

static struct negotiation *share_new(struct attempt *attempt, struct asked asked, const char *principal,
                                     const char *scopes)
{
    struct negotiation *n = make_negotiation(attempt, &asked);
    n->wanted.scopes_given = scopes != NULL;
    if (scopes)
        CHECK(scope_parse(&n->wanted.scopes, scopes, strlen(scopes), SCOPE_UNKNOWN_DROPPED, NULL));
    CHECK(text_copy(n->share.principal, PRINCIPAL_BYTES, principal));
    return n;
}

static struct negotiation *share_it(struct world *world, struct attempt *attempt, struct negotiation *n)
{
    struct error err = {0};
    attempt->world = world;
    if (!leasing_share(world->leasing, n, &err)) {
        n->refusal = err;
        attempt_answered(attempt, n);
    }
    return attempt_wait(attempt);
}

static enum error_kind share_kind(struct world *world, struct asked asked, const char *principal, const char *scopes)
{
    struct attempt attempt = {.world = world};
    AUTO(negotiation) *n = share_it(world, &attempt, share_new(&attempt, asked, principal, scopes));
    return n->refusal.kind;
}

static void share_token(struct world *world, struct asked asked, const char *principal, const char *scopes,
                        int64_t until_ms, struct token *token)
{
    struct attempt attempt = {.world = world};
    struct negotiation *wish = share_new(&attempt, asked, principal, scopes);
    wish->share.until_ms = until_ms;
    AUTO(negotiation) *n = share_it(world, &attempt, wish);
    mint(world, n, token);
    CHECK(n->created && n->share_until >= token->claims.expires_at);
}

static size_t count_shares(struct world *world, const char *who, const char *thread)
{
    AUTO(question) *q = question_ask(world, QUESTION_SHARES, who, ROLE_USER, thread);
    return q->refusal.kind == ERROR_NONE ? q->share_count : 999;
}

static enum error_kind end_kind(struct world *world, const char *who, enum role role, const char *thread,
                                const char *id)
{
    struct revoke_attempt attempt = {.world = world};
    struct revoking *r = revoking_new();
    r->verb = REVOKING_MAKE;
    r->kind = MARK_FAMILY;
    r->caller.principal.role = role;
    CHECK(text_copy(r->caller.principal.name, PRINCIPAL_BYTES, who) &&
          text_copy(r->share_thread, sizeof r->share_thread, thread) && text_copy(r->value, sizeof r->value, id) &&
          text_copy(r->reason, sizeof r->reason, "a test"));
    r->answered = revoke_answered;
    r->cookie = &attempt;
    leasing_revoke(world->leasing, r);
    settle(world);
    if (!revoke_is_done(&attempt))
        later(world, REVOCATION_WAIT_MS);
    AUTO(revoking) *answer = revoke_wait(&attempt);
    return answer->refusal.kind;
}

static void test_what_it_says(struct world *world)
{
    struct token own, link, bobs;
    char scope[SCOPE_TEXT_BYTES];
    get_token(world, T1, &own);
    share_token(world, T1, "", "shell:ro", 0, &link);
    share_token(world, T1, "bob", "process fs:ro", 0, &bobs);
    CHECK_TEXT(link.claims.family, link.claims.jti);
    CHECK(strncmp(link.claims.principal, "share:", 6) == 0);
    CHECK_TEXT(link.claims.principal + 6, link.claims.jti);
    CHECK_TEXT(bobs.claims.principal, "bob");
    scope_format(&link.claims.scopes, scope);
    CHECK_TEXT(scope, "shell:ro");
    CHECK_TEXT(link.claims.sandbox_id, own.claims.sandbox_id);
    CHECK_TEXT(link.claims.lease, own.claims.lease);
    CHECK_TEXT(link.claims.thread_id, "t1");
    CHECK(link.claims.expires_at == world_now / 1000 + 900);
    CHECK(count_shares(world, "ada", "t1") == 2);
    AUTO_FREE char *where = memory_printf("shareto/bob/%s", own.claims.sandbox_id);
    CHECK(has_row(world, where, bobs.claims.jti));
    CHECK(audited(world, (struct audited){.action = "share", .status = 201}) == 2);
}

static void test_who_may(struct world *world)
{
    struct token own, token;
    const struct asked admin = {.who = "root", .role = ROLE_ADMIN, .thread = "t1", .owner = "ada"};
    CHECK_KIND(share_kind(world, T1, "bob", "shell:ro"), ERROR_NOT_FOUND); /* there is nothing yet */
    get_token(world, T1, &own);
    CHECK_KIND(share_kind(world, BOB, "eve", "shell:ro"), ERROR_NOT_FOUND);
    CHECK_KIND(share_kind(world, (struct asked){.who = "bob", .owner = "ada", .thread = "t1"}, "bob", "shell:ro"),
               ERROR_NOT_FOUND);
    CHECK_KIND(share_kind(world, (struct asked){.viewer = true, .thread = "t1"}, "bob", "shell:ro"), ERROR_FORBIDDEN);
    share_token(world, admin, "bob", "shell:ro", 0, &token);
    CHECK(count_shares(world, "ada", "t1") == 1);
    CHECK_KIND(share_kind(world, T1, "ada", "shell:ro"), ERROR_INVALID);
    CHECK_KIND(share_kind(world, T1, "no name!", "shell:ro"), ERROR_INVALID);
    CHECK_KIND(share_kind(world, T1, "share:tok_x", "shell:ro"), ERROR_INVALID);
    CHECK_KIND(share_kind(world, T1, "bob", NULL), ERROR_INVALID);
    CHECK_KIND(share_kind(world, T1, "bob", ""), ERROR_INVALID);
    CHECK_KIND(share_kind(world, T1, "bob", "root"), ERROR_INVALID);
    /* Whom it is shared with shares nothing on, finds no thread, ends no share. */
    CHECK_KIND(share_kind(world, BOB, "eve", "shell:ro"), ERROR_NOT_FOUND);
    CHECK_KIND(question_kind(world, QUESTION_THREAD, "bob", ROLE_USER, "t1"), ERROR_NOT_FOUND);
    CHECK_KIND(question_kind(world, QUESTION_SANDBOX, "bob", ROLE_USER, own.claims.sandbox_id), ERROR_NOT_FOUND);
    CHECK(count_shares(world, "bob", "t1") == 999);
    CHECK_KIND(end_kind(world, "bob", ROLE_USER, "t1", token.claims.jti), ERROR_NOT_FOUND);
}

/* No hint leads to what was shared. */
static void test_no_hint(struct world *world)
{
    struct token own, token;
    get_token(world, T1, &own);
    share_token(world, T1, "bob", "process", 0, &token);
    struct asked hinted = {.who = "bob", .thread = "t9", .wanted.mode = WANTED_ATTACH_ONLY};
    memcpy(hinted.wanted.hint, own.claims.sandbox_id, RANDOM_ID_BYTES);
    CHECK_KIND(ask_kind(world, hinted), ERROR_NOT_FOUND);
    hinted.wanted.hint_required = true;
    CHECK_KIND(ask_kind(world, hinted), ERROR_NOT_FOUND);
}

static void test_refresh(struct world *world)
{
    struct token own, a, b, again, bobs_own;
    get_token(world, T1, &own);
    get_token(world, BOB, &bobs_own); /* an equal thread id of his own says nothing */
    share_token(world, T1, "bob", "process", 0, &a);
    CHECK_KIND(refresh_kind(world, T1, a.text), ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, (struct asked){.who = "eve", .thread = "t1"}, a.text), ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, (struct asked){.who = "bob", .thread = "t2"}, a.text), ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, (struct asked){.who = "bob", .viewer = true, .thread = "t1"}, a.text),
               ERROR_FORBIDDEN);
    world_now += 5000;
    refresh_token(world, BOB, a.text, &b);
    CHECK_TEXT(b.claims.principal, "bob");
    CHECK_TEXT(b.claims.family, a.claims.jti);
    CHECK_TEXT(b.claims.lease, own.claims.lease);
    CHECK_TEXT(b.claims.sandbox_id, own.claims.sandbox_id);
    CHECK(scope_set_covers(&a.claims.scopes, &b.claims.scopes));
    refresh_token(world, BOB, a.text, &again); /* a lost reply */
    CHECK_TEXT(again.text, b.text);
    refresh_token(world, BOB, b.text, &again);
    CHECK(count_shares(world, "ada", "t1") == 1);
    CHECK_KIND(refresh_kind(world, BOB, a.text), ERROR_TOKEN_REUSED); /* a leak ends the share, and nothing else */
    CHECK(is_refused(world, &again.claims, world_now) && !is_refused(world, &own.claims, world_now));
    CHECK(!is_refused(world, &bobs_own.claims, world_now));
    CHECK(count_shares(world, "ada", "t1") == 0);
}

static void test_a_link_is_not_refreshed(struct world *world)
{
    struct token own, link;
    get_token(world, T1, &own);
    share_token(world, T1, "", "shell:ro", 0, &link);
    CHECK_KIND(refresh_kind(world, T1, link.text), ERROR_NOT_FOUND);
    CHECK_KIND(refresh_kind(world, BOB, link.text), ERROR_NOT_FOUND);
    struct asked itself = {.who = link.claims.principal, .thread = "t1"}; /* whatever his name */
    CHECK_KIND(refresh_kind(world, itself, link.text), ERROR_NOT_FOUND);
    struct attempt attempt = {.world = world};
    struct negotiation *wish = share_new(&attempt, T1, "", "shell:ro");
    wish->share.until_ms = world_now + 600000;
    AUTO(negotiation) *n = share_it(world, &attempt, wish);
    CHECK_KIND(n->refusal.kind, ERROR_INVALID);
    world_now = (link.claims.expires_at + 61) * 1000;
    CHECK(count_shares(world, "ada", "t1") == 0);
}

static void test_until(struct world *world)
{
    struct token own, a, b;
    get_token(world, T1, &own);
    share_token(world, T1, "bob", "process", world_now + 1000000, &a);
    int64_t until_s = (world_now + 1000000) / 1000;
    world_now += 800000;
    refresh_token(world, BOB, a.text, &b);
    CHECK(b.claims.expires_at == until_s);
    world_now = until_s * 1000;
    CHECK(refresh_kind(world, BOB, b.text) != ERROR_NONE);
    CHECK(count_shares(world, "ada", "t1") == 0);
    struct attempt attempt = {.world = world};
    struct negotiation *wish = share_new(&attempt, T1, "bob", "process");
    wish->share.until_ms = world_now - 1;
    AUTO(negotiation) *n = share_it(world, &attempt, wish);
    CHECK_KIND(n->refusal.kind, ERROR_INVALID);
}

static void test_an_end(struct world *world)
{
    struct token own, link, bobs, eves;
    get_token(world, T1, &own);
    share_token(world, T1, "", "shell:ro", 0, &link);
    share_token(world, T1, "bob", "process", 0, &bobs);
    share_token(world, T1, "eve", "process", 0, &eves);
    refresh_token(world, BOB, bobs.text, &bobs);
    CHECK_KIND(end_kind(world, "eve", ROLE_USER, "t1", eves.claims.family), ERROR_NOT_FOUND);
    CHECK_KIND(end_kind(world, "ada", ROLE_USER, "t2", bobs.claims.family), ERROR_NOT_FOUND);
    CHECK_KIND(end_kind(world, "ada", ROLE_USER, "t1", own.claims.family), ERROR_NOT_FOUND);
    CHECK_KIND(end_kind(world, "ada", ROLE_USER, "t1", bobs.claims.family), ERROR_NONE);
    CHECK(is_refused(world, &bobs.claims, world_now));
    CHECK_KIND(refresh_kind(world, BOB, bobs.text), ERROR_TOKEN_REVOKED);
    CHECK(!is_refused(world, &link.claims, world_now) && !is_refused(world, &eves.claims, world_now));
    CHECK(!is_refused(world, &own.claims, world_now));
    CHECK(count_shares(world, "ada", "t1") == 2);
    CHECK_KIND(
        revoke_kind(world,
                    (struct revoke){.who = "ada", .role = ROLE_USER, .kind = MARK_FAMILY, .value = eves.claims.family}),
        ERROR_NONE);
    CHECK(is_refused(world, &eves.claims, world_now) && !is_refused(world, &own.claims, world_now));
    CHECK_KIND(end_kind(world, "ada", ROLE_USER, "t1", link.claims.family), ERROR_NONE);
    CHECK(is_refused(world, &link.claims, world_now));
    CHECK(count_shares(world, "ada", "t1") == 0);
    CHECK(audited(world, (struct audited){.action = "share.end", .status = 200}) == 2);
}

/* What is taken from who shared is taken from those that it was shared with, and what from them from no one else. */
static void test_revocations_of_the_owner(struct world *world)
{
    const struct revoke asked[] = {{.who = "ada", .role = ROLE_USER, .kind = MARK_THREAD, .value = "t1"},
                                   {.who = "root", .role = ROLE_ADMIN, .kind = MARK_PRINCIPAL, .value = "ada"},
                                   {.who = "ada", .role = ROLE_USER, .kind = MARK_SCOPE, .value = "process"},
                                   {.who = "ada", .role = ROLE_USER, .kind = MARK_LEASE}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct token own, bobs, bobs_own;
        struct revoke revoke = asked[i];
        world_now += 5000;
        get_token(world, T1, &own);
        get_token(world, BOB, &bobs_own);
        share_token(world, T1, "bob", "process", 0, &bobs);
        if (revoke.kind == MARK_LEASE)
            revoke.value = own.claims.lease;
        CHECK_KIND(revoke_kind(world, revoke), ERROR_NONE);
        CHECK(is_refused(world, &own.claims, world_now) && is_refused(world, &bobs.claims, world_now));
        CHECK(!is_refused(world, &bobs_own.claims, world_now));
        CHECK(count_shares(world, "ada", "t1") == 0);
        CHECK_KIND(refresh_kind(world, BOB, bobs.text),
                   revoke.kind == MARK_LEASE ? ERROR_NOT_FOUND : ERROR_TOKEN_REVOKED);
    }
    struct token own, bobs;
    world_now += 5000;
    get_token(world, T1, &own);
    share_token(world, T1, "bob", "process", 0, &bobs);
    CHECK_KIND(
        revoke_kind(world, (struct revoke){.who = "bob", .role = ROLE_USER, .kind = MARK_PRINCIPAL, .value = "bob"}),
        ERROR_NONE);
    CHECK(is_refused(world, &bobs.claims, world_now) && !is_refused(world, &own.claims, world_now));
}

/* Bob's tokens of others' sandboxes are on their nodes. */
static void test_where_it_is_in_force(struct world *world)
{
    struct token own, bobs;
    get_token(world, T1, &own);
    share_token(world, T1, "bob", "process", 0, &bobs);
    AUTO(revoking) *r =
        revoke_it(world, (struct revoke){.who = "root", .role = ROLE_ADMIN, .kind = MARK_PRINCIPAL, .value = "bob"});
    CHECK_TEXT(r->refusal.message, "");
    CHECK(r->list->missing_count == 1 && !r->list->in_force); /* no node acknowledges here */
    CHECK_TEXT(r->list->missing[0], "n1");
}

static void test_the_lease_ends(struct world *world)
{
    struct token own, other, bobs;
    get_token(world, T1, &own);
    struct asked t2 = {.thread = "t2"};
    memcpy(t2.wanted.hint, own.claims.sandbox_id, RANDOM_ID_BYTES);
    get_token(world, t2, &other); /* so that the sandbox goes on */
    CHECK_TEXT(other.claims.sandbox_id, own.claims.sandbox_id);
    share_token(world, T1, "bob", "process", 0, &bobs);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t1"), ERROR_NONE);
    CHECK(is_refused(world, &bobs.claims, world_now) && !is_refused(world, &other.claims, world_now));
    CHECK(refresh_kind(world, BOB, bobs.text) != ERROR_NONE);
    world_now += 1000;
    get_token(world, T1, &own);
    CHECK(count_shares(world, "ada", "t1") == 0); /* of the lease before */
}

static void test_signs(struct world *world)
{
    struct token own, link;
    get_token(world, T1, &own);
    share_token(world, T1, "", "shell:ro", 0, &link);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", link.text), ERROR_NONE);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t2", link.text), ERROR_NOT_FOUND);
    AUTO(question) *q = sign(world, "", ROLE_VIEWER, "t1", link.text);
    CHECK(q->sandbox.metadata == NULL && json_array_size(q->sandbox.threads) == 1);
}

static void test_how_many(struct world *world)
{
    struct token own, token;
    get_token(world, T1, &own);
    for (int i = 0; i < SHARES_MAX; i++)
        share_token(world, T1, "", "shell:ro", 0, &token);
    CHECK_KIND(share_kind(world, T1, "", "shell:ro"), ERROR_QUOTA);
    CHECK_KIND(end_kind(world, "ada", ROLE_USER, "t1", token.claims.family), ERROR_NONE);
    share_token(world, T1, "", "shell:ro", 0, &token);
    CHECK_KIND(share_kind(world, T1, "", "shell:ro"), ERROR_QUOTA);
    world_now = (token.claims.expires_at + 61) * 1000;
    share_token(world, T1, "", "shell:ro", 0, &token);
    CHECK(count_shares(world, "ada", "t1") == 1);
}

static void test_a_restart(struct world *world)
{
    struct token own, a, b;
    get_token(world, T1, &own);
    share_token(world, T1, "bob", "process", 0, &a);
    world_restart(world);
    CHECK(count_shares(world, "ada", "t1") == 1);
    refresh_token(world, BOB, a.text, &b);
    CHECK_KIND(end_kind(world, "ada", ROLE_USER, "t1", a.claims.family), ERROR_NONE);
    CHECK(is_refused(world, &b.claims, world_now));
}

int main(void)
{
    in_both_worlds(test_what_it_says);
    in_both_worlds(test_who_may);
    in_both_worlds(test_no_hint);
    in_both_worlds(test_refresh);
    in_both_worlds(test_a_link_is_not_refreshed);
    in_both_worlds(test_until);
    in_both_worlds(test_an_end);
    in_both_worlds(test_revocations_of_the_owner);
    in_both_worlds(test_where_it_is_in_force);
    in_both_worlds(test_the_lease_ends);
    in_both_worlds(test_signs);
    in_both_worlds(test_how_many);
    in_both_worlds(test_a_restart);
    return check_done();
}
