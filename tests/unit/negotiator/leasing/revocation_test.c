/* Revocations: what each selector reaches and who may, marks on their way to nodes that are late or never answer, a
 * start anew; with a store that refuses what it compares at random. */
#include "tests/unit/negotiator/leasing/grants.h"

#define T1   ((struct asked){.thread = "t1"})
#define ADA  .who = "ada", .role = ROLE_USER
#define ROOT .who = "root", .role = ROLE_ADMIN

/* ---- two nodes that take marks as sandboxd does, when they are told to ---- */

enum { NODES = 2 };

struct fake_push {
    struct fake_push *next;
    int node;
    json_t *page;
    void (*done)(void *cookie, const json_t *reply, const struct error *err);
    void *cookie;
};

static struct {
    pthread_mutex_t mutex;
    bool holds[NODES]; /* it does not answer for now */
    char ledger_id[NODES][RANDOM_ID_BYTES];
    uint64_t cursor[NODES], marks[NODES];
    struct fake_push *held;
    size_t pushes;
    const char *place; /* of the next sandbox */
} nodes = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int node_number(const char *name)
{
    CHECK(strcmp(name, "n1") == 0 || strcmp(name, "n2") == 0);
    return name[1] - '1';
}

/* As sandboxd/journal/marks.h says. */
static void take_page(int node, const json_t *page)
{
    const char *ledger_id = json_string_value(json_object_get(page, "ledger_id"));
    uint64_t after = (uint64_t)json_integer_value(json_object_get(page, "after"));
    uint64_t upto = (uint64_t)json_integer_value(json_object_get(page, "upto"));
    const json_t *list = json_object_get(page, "marks");
    bool is_ours = strcmp(nodes.ledger_id[node], ledger_id) == 0;
    CHECK(json_array_size(list) <= MARKS_PAGE_MAX && after <= upto);
    if (is_ours ? after > nodes.cursor[node] : after > 0)
        return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct mark mark;
        CHECK(mark_parse(&mark, json_array_get(list, i), NULL));
        CHECK(mark.number > after && mark.number <= upto);
        nodes.marks[node] += !is_ours || mark.number > nodes.cursor[node];
        after = mark.number;
    }
    CHECK(text_copy(nodes.ledger_id[node], RANDOM_ID_BYTES, ledger_id));
    nodes.cursor[node] = upto;
}

static void answer_push(struct fake_push *push)
{
    struct error none = {0};
    take_page(push->node, push->page);
    json_t *reply = json_pack("{s:b, s:s, s:I}", "ok", 1, "ledger_id", nodes.ledger_id[push->node], "cursor",
                              (json_int_t)nodes.cursor[push->node]);
    push->done(push->cookie, reply, &none);
    json_decref(reply);
    json_decref(push->page);
    free(push);
}

static void push_call(void *context, const char *node, json_t *message,
                      void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie)
{
    if (strcmp(json_string_value(json_object_get(message, "call")), "marks") != 0) {
        fake_call(context, "n1", message, done, cookie);
        return;
    }
    struct fake_push *push = memory_new(sizeof *push);
    *push = (struct fake_push){.node = node_number(node), .page = message, .done = done, .cookie = cookie};
    pthread_mutex_lock(&nodes.mutex);
    nodes.pushes++;
    if (nodes.holds[push->node]) {
        push->next = nodes.held;
        nodes.held = push;
    } else {
        answer_push(push);
    }
    pthread_mutex_unlock(&nodes.mutex);
}

static bool choose_place(void *context UNUSED, const struct placement *placement UNUSED,
                         char node[static SANDBOX_NODE_BYTES], uint32_t *epoch, struct error *err UNUSED)
{
    *epoch = 1;
    return text_copy(node, SANDBOX_NODE_BYTES, nodes.place);
}

static void hold(const char *node, bool holds)
{
    pthread_mutex_lock(&nodes.mutex);
    nodes.holds[node_number(node)] = holds;
    pthread_mutex_unlock(&nodes.mutex);
}

/* What was held back is answered now: as a failure, or taken. */
static void let_go(struct world *world, bool taken)
{
    struct error away = {0};
    error_set(&away, ERROR_NODE_UNREACHABLE, "no answer");
    pthread_mutex_lock(&nodes.mutex);
    struct fake_push *held = TAKE(nodes.held);
    for (struct fake_push *next; held; held = next) {
        next = held->next;
        if (taken) {
            answer_push(held);
            continue;
        }
        held->done(held->cookie, NULL, &away);
        json_decref(held->page);
        free(held);
    }
    pthread_mutex_unlock(&nodes.mutex);
    settle(world);
}

/* A heartbeat, and what follows from the page in its reply. */
static void beat(struct world *world, const char *name)
{
    int node = node_number(name);
    for (;;) {
        json_t *page = hear(world, name, nodes.ledger_id[node], nodes.cursor[node]);
        if (page == NULL)
            break;
        pthread_mutex_lock(&nodes.mutex);
        take_page(node, page);
        pthread_mutex_unlock(&nodes.mutex);
        json_decref(page);
    }
    settle(world);
}

static void use_nodes(struct world *world)
{
    world->leasing->options.nodes.call = push_call;
    world->leasing->options.nodes.place = choose_place;
}

static void in_worlds(void (*scenario)(struct world *world))
{
    for (unsigned percent = 0; percent <= 40; percent += 40) {
        struct world *world = world_new(percent);
        memset(nodes.cursor, 0, sizeof nodes.cursor);
        memset(nodes.marks, 0, sizeof nodes.marks);
        memset(nodes.ledger_id, 0, sizeof nodes.ledger_id);
        nodes.holds[0] = nodes.holds[1] = false;
        nodes.place = "n1";
        use_nodes(world);
        beat(world, "n1");
        beat(world, "n2");
        scenario(world);
        let_go(world, false);
        world_free(world);
    }
}

/* ---- what is reached, and by whom ---- */

/* ada's t1 and t2 on one sandbox, bob's t1 on another. */
struct scene {
    struct token a1, a2, b1;
};

static void set_scene(struct world *world, struct scene *scene)
{
    get_token(world, T1, &scene->a1);
    struct asked second = {.thread = "t2"};
    memcpy(second.wanted.hint, scene->a1.claims.sandbox_id, RANDOM_ID_BYTES);
    get_token(world, second, &scene->a2);
    get_token(world, (struct asked){.who = "bob", .thread = "t1"}, &scene->b1);
    CHECK_TEXT(scene->a2.claims.sandbox_id, scene->a1.claims.sandbox_id);
}

/* Which are refused now, as letters. */
static void check_refused(struct world *world, const struct scene *scene, const char *want)
{
    char got[4] = "";
    size_t length = 0;
    if (is_refused(world, &scene->a1.claims, world_now))
        got[length++] = '1';
    if (is_refused(world, &scene->a2.claims, world_now))
        got[length++] = '2';
    if (is_refused(world, &scene->b1.claims, world_now))
        got[length++] = 'b';
    CHECK_TEXT(got, want);
}

static void reach(struct world *world, struct revoke asked, const struct scene *scene, const char *want)
{
    AUTO(revoking) *r = revoke_it(world, asked);
    CHECK_TEXT(r->refusal.message, "");
    CHECK(r->count == 1 && r->list->in_force);
    check_refused(world, scene, want);
}

static void test_a_token(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    reach(world, (struct revoke){ADA, .kind = MARK_JTI, .value = scene.b1.claims.jti}, &scene, "");
    reach(world, (struct revoke){ADA, .kind = MARK_JTI, .value = scene.a2.claims.jti}, &scene, "2");
    reach(world, (struct revoke){ROOT, .kind = MARK_JTI, .value = scene.b1.claims.jti}, &scene, "2b");
    get_token(world, T1, &scene.a2);
    CHECK(!is_refused(world, &scene.a2.claims, world_now));
}

static void test_a_family(struct world *world)
{
    struct scene scene;
    struct token next;
    set_scene(world, &scene);
    refresh_token(world, T1, scene.a1.text, &next);
    reach(world, (struct revoke){ADA, .kind = MARK_FAMILY, .value = scene.b1.claims.family}, &scene, "");
    reach(world, (struct revoke){ADA, .kind = MARK_FAMILY, .value = scene.a1.claims.family}, &scene, "1");
    CHECK(is_refused(world, &next.claims, world_now));
    CHECK_KIND(refresh_kind(world, T1, next.text), ERROR_TOKEN_REVOKED);
    reach(world, (struct revoke){ROOT, .kind = MARK_FAMILY, .value = scene.b1.claims.family}, &scene, "1b");
}

static void test_a_lease(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_LEASE, .value = scene.b1.claims.lease}),
               ERROR_NOT_FOUND);
    CHECK_KIND(revoke_kind(world, (struct revoke){ROOT, .kind = MARK_LEASE, .value = "lse_none"}), ERROR_NOT_FOUND);
    reach(world, (struct revoke){ADA, .kind = MARK_LEASE, .value = scene.a1.claims.lease}, &scene, "1");
    CHECK_KIND(refresh_kind(world, T1, scene.a1.text), ERROR_NOT_FOUND);
    get_token(world, T1, &scene.a1); /* the thread keeps its sandbox, under another lease id */
    CHECK_TEXT(scene.a1.claims.sandbox_id, scene.a2.claims.sandbox_id);
    check_refused(world, &scene, "");
    reach(world, (struct revoke){ROOT, .kind = MARK_LEASE, .value = scene.b1.claims.lease}, &scene, "b");
}

static void test_a_sandbox(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    const char *id = scene.a1.claims.sandbox_id;
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_SANDBOX, .value = scene.b1.claims.sandbox_id}),
               ERROR_NOT_FOUND);
    CHECK_KIND(revoke_kind(world, (struct revoke){ROOT, .kind = MARK_SANDBOX, .value = "sbx_none"}), ERROR_NOT_FOUND);
    AUTO(revoking) *r = revoke_it(world, (struct revoke){ADA, .kind = MARK_SANDBOX, .value = id});
    CHECK(r->list->mark.epoch == scene.a1.claims.epoch + 1);
    check_refused(world, &scene, "12");
    get_token(world, T1, &scene.a1);
    CHECK(scene.a1.claims.epoch == r->list->mark.epoch);
    check_refused(world, &scene, "2");
}

static void test_a_thread(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_THREAD, .value = "t3"}), ERROR_NOT_FOUND);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .owner = "bob", .kind = MARK_THREAD, .value = "t1"}),
               ERROR_NOT_FOUND);
    reach(world, (struct revoke){ADA, .kind = MARK_THREAD, .value = "t1"}, &scene, "1");
    reach(world, (struct revoke){ROOT, .owner = "bob", .kind = MARK_THREAD, .value = "t1"}, &scene, "1b");
}

static void test_a_principal(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_PRINCIPAL, .value = "bob"}), ERROR_FORBIDDEN);
    reach(world, (struct revoke){ADA, .kind = MARK_PRINCIPAL, .value = "ada"}, &scene, "12");
    reach(world, (struct revoke){ROOT, .kind = MARK_PRINCIPAL, .value = "bob"}, &scene, "12b");
}

static void test_scope_and_all(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_SCOPE, .value = "process shell"}), ERROR_INVALID);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_SCOPE, .value = "nonsense"}), ERROR_INVALID);
    reach(world, (struct revoke){ADA, .kind = MARK_SCOPE, .value = "process"}, &scene, "12");
    reach(world, (struct revoke){ROOT, .kind = MARK_SCOPE, .value = "process"}, &scene, "12b");
    world_now += 2000;
    set_scene(world, &scene);
    reach(world, (struct revoke){ADA, .kind = MARK_ALL}, &scene, "12");
    reach(world, (struct revoke){ROOT, .kind = MARK_ALL}, &scene, "12b");
    world_now += 2000;
    set_scene(world, &scene);
    reach(world, (struct revoke){ROOT, .owner = "ada", .kind = MARK_ALL}, &scene, "12");
}

static void test_by_any_holder(struct world *world)
{
    struct scene scene;
    char narrow[CAPABILITY_TEXT_BYTES], narrower[CAPABILITY_TEXT_BYTES], forged[CAPABILITY_TEXT_BYTES];
    struct error err = {0};
    set_scene(world, &scene);
    CHECK(capability_attenuate(narrow, scene.a1.text, &(struct capability_link){.note = "one"}, &err));
    CHECK(capability_attenuate(narrower, narrow, &(struct capability_link){.note = "two"}, &err));
    memcpy(forged, scene.a1.text, sizeof forged);
    forged[strlen(forged) - 5] ^= 1;
    CHECK_KIND(revoke_kind(world, (struct revoke){.token = forged}), ERROR_UNAUTHENTICATED);
    CHECK_KIND(revoke_kind(world, (struct revoke){.token = ""}), ERROR_UNAUTHENTICATED);
    CHECK_KIND(revoke_kind(world, (struct revoke){.value = scene.a1.claims.jti}), ERROR_FORBIDDEN);
    reach(world, (struct revoke){.token = narrow}, &scene, ""); /* the link alone */
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", narrow), ERROR_TOKEN_REVOKED);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", narrower), ERROR_TOKEN_REVOKED);
    CHECK_KIND(sign_kind(world, "", ROLE_VIEWER, "t1", scene.a1.text), ERROR_NONE);
    reach(world, (struct revoke){.token = scene.a1.text}, &scene, "1");
    CHECK_KIND(revoke_kind(world, (struct revoke){.token = narrower}), ERROR_TOKEN_REVOKED);
    CHECK_KIND(revoke_kind(world, (struct revoke){.token = scene.a1.text}), ERROR_TOKEN_REVOKED);
    reach(world, (struct revoke){.who = "eve", .role = ROLE_VIEWER, .token = scene.b1.text}, &scene, "1b");
    world_now = (scene.a2.claims.expires_at + 600) * 1000; /* also one that is over */
    AUTO(revoking) *r = revoke_it(world, (struct revoke){.token = scene.a2.text});
    CHECK_TEXT(r->refusal.message, "");
    CHECK(r->list->in_force && r->list->usable_until == 0);
}

/* Of one token any number of links can be made: who holds it must not fill ledger and nodes with them. */
static void test_links_without_end(struct world *world)
{
    enum { ENOUGH = 100 };
    struct scene scene;
    char link[CAPABILITY_TEXT_BYTES];
    struct error err = {0};
    int done = 0;
    set_scene(world, &scene);
    enum error_kind kind = ERROR_NONE;
    for (int i = 0; i < ENOUGH && kind == ERROR_NONE; i++, done++) {
        char note[16];
        snprintf(note, sizeof note, "link %d", i);
        CHECK(capability_attenuate(link, scene.a1.text, &(struct capability_link){.note = note}, &err));
        kind = revoke_kind(world, (struct revoke){.token = link});
    }
    CHECK_KIND(kind, ERROR_RATE_LIMITED);
    CHECK(done > 30);
    size_t marks = nodes.marks[0];
    CHECK_KIND(revoke_kind(world, (struct revoke){.token = link}), ERROR_RATE_LIMITED);
    CHECK_KIND(revoke_kind(world, (struct revoke){.token = scene.a2.text}), ERROR_NONE); /* another family */
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .token = scene.a1.text}), ERROR_NONE);
    check_refused(world, &scene, "12");
    CHECK(nodes.marks[0] == marks + 2);
}

/* With an API key too: every node keeps every mark. */
static void test_marks_without_end(struct world *world)
{
    enum { ENOUGH = 300 };
    char value[32];
    for (unsigned kind = 0; kind < 2; kind++) {
        enum error_kind answer = ERROR_NONE;
        int done = 0;
        for (; done < ENOUGH && answer == ERROR_NONE; done++) {
            snprintf(value, sizeof value, kind ? "port@%d" : "tok_%d", done + 1);
            answer = revoke_kind(world, (struct revoke){ADA, .kind = kind ? MARK_SCOPE : MARK_JTI, .value = value});
        }
        CHECK_KIND(answer, ERROR_RATE_LIMITED);
        CHECK(kind ? done > 30 : done > 150);
    }
    CHECK_KIND(revoke_kind(world, (struct revoke){.who = "bob", .role = ROLE_USER, .value = value}), ERROR_INVALID);
    CHECK_KIND(revoke_kind(world, (struct revoke){.who = "bob", .role = ROLE_USER, .kind = MARK_ALL}), ERROR_NONE);
    CHECK_KIND(revoke_kind(world, (struct revoke){ROOT, .value = "tok_any"}), ERROR_NONE);
    later(world, 3600000);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .value = "tok_any"}), ERROR_NONE);
}

/* A thread that joins a sandbox and lets go leaves a mark that lives as long as its tokens: long ones are dear. */
static void test_releases_without_end(struct world *world)
{
    enum { ENOUGH = 1000 };
    struct token token;
    get_token(world, T1, &token);
    struct asked second = {.thread = "t2"};
    memcpy(second.wanted.hint, token.claims.sandbox_id, RANDOM_ID_BYTES);
    enum error_kind answer = ERROR_NONE;
    for (int i = 0; i < 100; i++) {
        get_token(world, second, &token);
        CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t2"), ERROR_NONE);
    }
    second.wanted.is_long = true;
    int done = 0;
    for (; done < ENOUGH && answer == ERROR_NONE; done++) {
        get_token(world, second, &token);
        answer = question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t2");
    }
    CHECK_KIND(answer, ERROR_RATE_LIMITED);
    CHECK(done > 10);
    CHECK(!is_refused(world, &token.claims, world_now)); /* a no ends nothing */
    later(world, 600000);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t2"), ERROR_NONE);
}

static void test_who_may_not(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    struct revoke asked = {.who = "ada", .role = ROLE_VIEWER, .kind = MARK_JTI, .value = scene.a1.claims.jti};
    CHECK_KIND(revoke_kind(world, asked), ERROR_FORBIDDEN);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_JTI, .value = "a/b"}), ERROR_INVALID);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_LINK, .value = "lnk_short"}), ERROR_INVALID);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .value = scene.a1.claims.jti, .before_ms = 1000}),
               ERROR_INVALID);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_ALL, .before_ms = world_now + 1}), ERROR_INVALID);
    CHECK_KIND(revoke_kind(world, (struct revoke){ROOT, .owner = "bob", .kind = MARK_PRINCIPAL, .value = "bob"}),
               ERROR_INVALID);
    check_refused(world, &scene, "");
}

/* What is not in the ledger may still be in use; nobody learns whether another one's token exists. */
static void test_unknown_ids(struct world *world)
{
    struct scene scene;
    AUTO(revoking) *idle = revoke_it(world, (struct revoke){ADA, .value = "tok_unknown"});
    CHECK(idle->list->in_force && idle->list->usable_until == 0); /* she has no sandbox */
    set_scene(world, &scene);
    AUTO(revoking) *unknown = revoke_it(world, (struct revoke){ADA, .value = "tok_unknown"});
    AUTO(revoking) *bobs = revoke_it(world, (struct revoke){ADA, .value = scene.b1.claims.jti});
    CHECK(unknown->list->usable_until > world_now / 1000 + 3600); /* it may be a long one */
    CHECK(unknown->list->usable_until == bobs->list->usable_until);
    CHECK_TEXT(bobs->list->mark.principal, "ada");
    CHECK_KIND(revoke_kind(world, (struct revoke){ROOT, .value = "tok_unknown"}), ERROR_NONE);
    CHECK_KIND(revoke_kind(world, (struct revoke){ROOT, .kind = MARK_FAMILY, .value = "tok_unknown"}), ERROR_NONE);
    struct revoke link = {ROOT, .kind = MARK_LINK, .value = "lnk_0123456789012345678901"};
    CHECK_KIND(revoke_kind(world, link), ERROR_NONE);
    check_refused(world, &scene, "");
}

/* ---- times ---- */

/* However often within one second: what was issued before is refused, what is issued later is not. */
static void test_within_one_second(struct world *world)
{
    struct token token[5];
    get_token(world, T1, &token[0]);
    for (int i = 1; i <= MARKS_AHEAD_MAX_S; i++) {
        CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_THREAD, .value = "t1"}), ERROR_NONE);
        CHECK(is_refused(world, &token[i - 1].claims, world_now));
        get_token(world, T1, &token[i]);
        CHECK(!is_refused(world, &token[i].claims, world_now));
        CHECK(token[i].claims.issued_at == world_now / 1000 + i);
    }
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_THREAD, .value = "t1"}), ERROR_NONE);
    CHECK(is_refused(world, &token[MARKS_AHEAD_MAX_S].claims, world_now));
    /* The next one waits for the clock; others do not. */
    struct attempt held;
    attempt_start(world, &held, T1);
    settle(world);
    get_token(world, (struct asked){.thread = "t2"}, &token[0]);
    CHECK(token[0].claims.issued_at == world_now / 1000);
    pthread_mutex_lock(&world->mutex);
    CHECK(!held.done && !held.started);
    pthread_mutex_unlock(&world->mutex);
    later(world, 1000);
    AUTO(negotiation) *n = attempt_wait(&held);
    mint(world, n, &token[4]);
    CHECK(!is_refused(world, &token[4].claims, world_now));
    CHECK(token[4].claims.issued_at <= world_now / 1000 + MARKS_AHEAD_MAX_S);
}

/* Who was held back too often is told to come back. */
static void test_held_too_long(struct world *world)
{
    struct token token;
    struct attempt held;
    get_token(world, T1, &token);
    for (int i = 0; i <= MARKS_AHEAD_MAX_S; i++) {
        CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_THREAD, .value = "t1"}), ERROR_NONE);
        if (i < MARKS_AHEAD_MAX_S)
            get_token(world, T1, &token);
    }
    struct error err = {0};
    held = (struct attempt){.world = world};
    struct negotiation *asked = make_negotiation(&held, &T1);
    asked->holds = 1000;
    CHECK(leasing_negotiate(world->leasing, asked, &err));
    AUTO(negotiation) *n = attempt_wait(&held);
    CHECK_KIND(n->refusal.kind, ERROR_RATE_LIMITED);
}

/* The next start knows that a token was issued ahead of the clock. */
static void test_ahead_over_a_restart(struct world *world)
{
    struct token ahead;
    get_token(world, T1, &ahead);
    CHECK_KIND(revoke_kind(world, (struct revoke){ADA, .kind = MARK_THREAD, .value = "t1"}), ERROR_NONE);
    get_token(world, T1, &ahead);
    CHECK(ahead.claims.issued_at == world_now / 1000 + 1);
    world_restart(world);
    use_nodes(world);
    CHECK_KIND(revoke_kind(world, (struct revoke){ROOT, .kind = MARK_ALL}), ERROR_NONE);
    CHECK(is_refused(world, &ahead.claims, world_now));
}

static void test_before(struct world *world)
{
    struct token old, young;
    get_token(world, T1, &old);
    world_now += 10000;
    get_token(world, T1, &young);
    struct revoke asked = {ADA, .kind = MARK_THREAD, .value = "t1", .before_ms = world_now - 5000};
    CHECK_KIND(revoke_kind(world, asked), ERROR_NONE);
    CHECK(is_refused(world, &old.claims, world_now) && !is_refused(world, &young.claims, world_now));
    struct token next;
    refresh_token(world, T1, young.text, &next);
    CHECK(next.claims.issued_at == world_now / 1000);
    /* A refresh is issued behind the marks too. */
    CHECK_KIND(
        revoke_kind(world, (struct revoke){ROOT, .kind = MARK_SCOPE, .value = "snapshot", .before_ms = world_now}),
        ERROR_NONE);
    get_token(world, T1, &young);
    CHECK(young.claims.issued_at == world_now / 1000 + 1);
}

/* ---- nodes ---- */

static void test_pending_then_in_force(struct world *world)
{
    struct token token;
    struct revoke_attempt attempt;
    nodes.place = "n2";
    get_token(world, T1, &token);
    hold("n2", true);
    revoke_start(world, &attempt, (struct revoke){ADA, .value = token.claims.jti});
    settle(world);
    CHECK(!revoke_is_done(&attempt)); /* n1 has it, but the sandbox is on n2 */
    CHECK(nodes.marks[0] == 1 && nodes.marks[1] == 0);
    let_go(world, true);
    AUTO(revoking) *r = revoke_wait(&attempt);
    CHECK(r->list->in_force && r->list->missing_count == 0);
    CHECK(r->list->usable_until == token.claims.expires_at);
}

static void test_one_that_does_not_answer(struct world *world)
{
    struct token token;
    nodes.place = "n2";
    get_token(world, T1, &token);
    hold("n2", true);
    AUTO(revoking) *r = revoke_it(world, (struct revoke){ADA, .value = token.claims.jti});
    CHECK(!r->list->in_force && r->list->missing_count == 1);
    CHECK_TEXT(r->list->missing[0], "n2");
    CHECK(r->list->usable_until == token.claims.expires_at);
    AUTO(revoking) *seen = look(world, REVOKING_FIND, "ada", ROLE_VIEWER, r->list->id, 0, false);
    CHECK(seen->count == 1 && !seen->list->in_force && seen->list->missing_count == 1);
    CHECK_TEXT(seen->list->reason, "a test");
    CHECK_TEXT(seen->list->by, "ada");
    AUTO(revoking) *bobs = look(world, REVOKING_FIND, "bob", ROLE_USER, r->list->id, 0, false);
    CHECK_KIND(bobs->refusal.kind, ERROR_NOT_FOUND);
    world_restart(world); /* and a start anew does not know more, until the node is heard of */
    use_nodes(world);
    AUTO(revoking) *again = look(world, REVOKING_FIND, "ada", ROLE_USER, r->list->id, 0, false);
    CHECK(!again->list->in_force);
    hold("n2", false);
    let_go(world, false); /* the push failed: a heartbeat brings it */
    beat(world, "n2");
    AUTO(revoking) *now = look(world, REVOKING_FIND, "root", ROLE_ADMIN, r->list->id, 0, false);
    CHECK(now->list->in_force && now->list->missing_count == 0);
    CHECK(!has_row(world, "unheard", r->list->id)); /* so that the start after that knows it too */
}

/* When its tokens are over, nothing is missing any more. */
static void test_one_that_never_answers(struct world *world)
{
    struct token token;
    get_token(world, T1, &token);
    hold("n1", true);
    AUTO(revoking) *r = revoke_it(world, (struct revoke){ADA, .value = token.claims.jti});
    CHECK(!r->list->in_force);
    later(world, 900000);
    AUTO(revoking) *now = look(world, REVOKING_FIND, "ada", ROLE_USER, r->list->id, 0, false);
    CHECK(now->count == 1 && now->list->in_force);
}

static void test_many_at_once(struct world *world)
{
    enum { MANY = 40 };
    struct revoke_attempt attempts[MANY];
    struct token token;
    get_token(world, T1, &token);
    hold("n1", true);
    for (size_t i = 0; i < MANY; i++)
        revoke_start(world, &attempts[i], (struct revoke){ADA, .kind = MARK_THREAD, .value = "t1"});
    settle(world);
    size_t pushes = nodes.pushes;
    hold("n1", false);
    let_go(world, true);
    for (size_t i = 0; i < MANY; i++) {
        AUTO(revoking) *r = revoke_wait(&attempts[i]);
        CHECK(r->list->in_force);
    }
    CHECK(nodes.pushes <= pushes + 1); /* one in flight, the rest in one page */
    CHECK(nodes.cursor[0] == nodes.cursor[1] && nodes.marks[0] >= MANY);
}

/* A ledger that starts anew gives all, from the beginning, page by page. */
static void test_pages(struct world *world)
{
    enum { MANY = MARKS_PAGE_MAX + 50 };
    struct revoke_attempt *attempts = memory_array(MANY, sizeof *attempts);
    for (size_t i = 0; i < MANY; i++)
        revoke_start(world, &attempts[i], (struct revoke){ROOT, .kind = MARK_THREAD, .value = "t9", .owner = "ada"});
    for (size_t i = 0; i < MANY; i++)
        CHECK_KIND(revoke_wait(&attempts[i])->refusal.kind, ERROR_NOT_FOUND);
    for (size_t i = 0; i < MANY; i++)
        revoking_free(attempts[i].r);
    for (size_t i = 0; i < MANY; i++)
        revoke_start(world, &attempts[i], (struct revoke){ROOT, .kind = MARK_ALL});
    for (size_t i = 0; i < MANY; i++) {
        CHECK(revoke_wait(&attempts[i])->list->in_force); /* nobody has a sandbox */
        revoking_free(attempts[i].r);
    }
    free(attempts);
    settle(world);
    CHECK(nodes.marks[0] == MANY && nodes.marks[1] == MANY);
    char first[RANDOM_ID_BYTES];
    memcpy(first, nodes.ledger_id[0], sizeof first);
    world_restart(world);
    use_nodes(world);
    json_t *page = hear(world, "n1", nodes.ledger_id[0], nodes.cursor[0]);
    CHECK(json_integer_value(json_object_get(page, "after")) == 0);
    CHECK(json_array_size(json_object_get(page, "marks")) == MARKS_PAGE_MAX);
    json_decref(page);
    beat(world, "n1");
    CHECK(strcmp(first, nodes.ledger_id[0]) != 0 && nodes.marks[0] == 2 * MANY);
    page = hear(world, "n1", nodes.ledger_id[0], nodes.cursor[0]);
    CHECK(page == NULL);
    json_decref(page);
}

/* Two threads of one sandbox, one let go: its tokens are refused on the node at once. */
static void test_a_release_is_a_mark(struct world *world)
{
    struct scene scene;
    set_scene(world, &scene);
    CHECK_KIND(question_kind(world, QUESTION_RELEASE, "ada", ROLE_USER, "t1"), ERROR_NONE);
    settle(world);
    check_refused(world, &scene, "1");
    CHECK(nodes.marks[0] == 1);
}

/* ---- looking ---- */

static void test_lists(struct world *world)
{
    char ids[5][RANDOM_ID_BYTES];
    for (size_t i = 0; i < 5; i++) {
        AUTO(revoking) *r =
            revoke_it(world, i == 2 ? (struct revoke){ROOT, .kind = MARK_ALL} : (struct revoke){ADA, .kind = MARK_ALL});
        memcpy(ids[i], r->list->id, RANDOM_ID_BYTES);
    }
    AUTO(revoking) *own = look(world, REVOKING_LIST, "ada", ROLE_VIEWER, "", 3, false);
    CHECK(own->count == 3);
    CHECK_TEXT(own->list[0].id, ids[4]);
    CHECK_TEXT(own->list[1].id, ids[3]);
    CHECK_TEXT(own->list[2].id, ids[1]);
    AUTO(revoking) *rest = look(world, REVOKING_LIST, "ada", ROLE_VIEWER, own->next, 3, false);
    CHECK(rest->count == 1 && rest->next[0] == '\0');
    CHECK_TEXT(rest->list[0].id, ids[0]);
    AUTO(revoking) *all = look(world, REVOKING_LIST, "root", ROLE_ADMIN, "", 200, true);
    CHECK(all->count == 5 && all->next[0] == '\0');
    AUTO(revoking) *none = look(world, REVOKING_LIST, "bob", ROLE_USER, "", 0, false);
    CHECK(none->count == 0);
    AUTO(revoking) *forbidden = look(world, REVOKING_LIST, "bob", ROLE_USER, "", 0, true);
    CHECK_KIND(forbidden->refusal.kind, ERROR_FORBIDDEN);
    AUTO(revoking) *lost = look(world, REVOKING_LIST, "bob", ROLE_USER, "rev_00000000000000000000", 0, false);
    CHECK_KIND(lost->refusal.kind, ERROR_INVALID);
    /* 24 h after the last token that could be meant, a long one, they are forgotten. */
    later(world, (int64_t)8 * 86400 * 1000 + 120000);
    settle(world);
    AUTO(revoking) *gone = look(world, REVOKING_LIST, "root", ROLE_ADMIN, "", 200, true);
    CHECK(gone->count == 0);
}

int main(void)
{
    in_worlds(test_a_token);
    in_worlds(test_a_family);
    in_worlds(test_a_lease);
    in_worlds(test_a_sandbox);
    in_worlds(test_a_thread);
    in_worlds(test_a_principal);
    in_worlds(test_scope_and_all);
    in_worlds(test_by_any_holder);
    in_worlds(test_links_without_end);
    in_worlds(test_marks_without_end);
    in_worlds(test_releases_without_end);
    in_worlds(test_who_may_not);
    in_worlds(test_unknown_ids);
    in_worlds(test_within_one_second);
    in_worlds(test_held_too_long);
    in_worlds(test_ahead_over_a_restart);
    in_worlds(test_before);
    in_worlds(test_pending_then_in_force);
    in_worlds(test_one_that_does_not_answer);
    in_worlds(test_one_that_never_answers);
    in_worlds(test_many_at_once);
    in_worlds(test_pages);
    in_worlds(test_a_release_is_a_mark);
    in_worlds(test_lists);
    return check_done();
}
