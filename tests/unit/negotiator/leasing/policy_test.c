/* Goal: a document is taken whole or not at all, and then holds at once for negotiations, refreshes and changes; what
 * is said of agents holds where nothing more exact is said; what is refused and what is explained is the same. */
#include "negotiator/leasing/changing.h"

#include "tests/unit/negotiator/leasing/policies.h"

#include <string.h>

/* ---- the document ---- */

static void what_is_none(struct world *world)
{
    static const struct {
        const char *document, *why;
    } ROWS[] = {
        {"[]", "policy must be an object"},
        {"{'rules': {}}", "unknown field rules"},
        {"{'roles': []}", "roles must be an object"},
        {"{'roles': {'viewer': {}}}", "unknown field roles.viewer"},
        {"{'roles': {'user:robot': {}}}", "unknown field roles.user:robot"},
        {"{'roles': {'user': {'ttl': 60}}}", "unknown field roles.user.ttl"},
        {"{'roles': {'user': {'ttl_max': 59}}}", "roles.user.ttl_max must be 60 to 3600"},
        {"{'roles': {'user': {'ttl_max': 60.0}}}", "roles.user.ttl_max"},
        {"{'roles': {'user': {'scopes': ['fs:rw', 'everything']}}}", "roles.user.scopes"},
        {"{'roles': {'user': {'scopes': ['fs:rw shell']}}}", "roles.user.scopes"},
        {"{'roles': {'user': {'scopes': ['fs:ro@/a', 'process']}}}", "roles.user.scopes"},
        {"{'roles': {'user': {'isolation': []}}}", "roles.user.isolation"},
        {"{'roles': {'user': {'egress': 'all'}}}", "roles.user.egress must be"},
        {"{'roles': {'user': {'egress_hosts': ['10.0.0.0/8']}}}", "roles.user.egress_hosts"},
        {"{'roles': {'user': {'volumes': {'host': 1}}}}", "roles.user.volumes.host"},
        {"{'roles': {'user': {'volumes': {'size': 1}}}}", "unknown field roles.user.volumes.size"},
        {"{'roles': {'user': {'quota': {'sandboxes': -1}}}}", "roles.user.quota.sandboxes"},
        {"{'roles': {'user': {'quota': {'creates_per_minute': 6001}}}}", "roles.user.quota.creates_per_minute"},
        {"{'roles': {'user': {'quota': 5}}}", "roles.user.quota must be an object"},
        {"{'principals': {'a b': {}}}", "principals has a name that is none"},
        {"{'principals': {'ada': {'robot': {}}}}", "unknown field principals.ada.robot"},
        {"{'principals': {'ada': {'agent': {'ttl_max': 1}}}}", "principals.ada.agent.ttl_max"},
        {"{'deployment': {'ttl_max': 60}}", "unknown field deployment.ttl_max"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        AUTO(policy_question) *q = policy_put(world, ROWS[i].document, -1);
        CHECK_KIND(q->refusal.kind, ERROR_INVALID);
        if (strstr(q->refusal.message, ROWS[i].why) == NULL)
            CHECK_TEXT(q->refusal.message, ROWS[i].why);
    }
    AUTO(policy_question) *shown = policy_question_of(POLICY_SHOW, "root", ROLE_ADMIN);
    policy_ask(world, shown);
    CHECK(shown->document == NULL && shown->version == 0 && shown->settings != NULL);
    policy_set(world, "{}");
}

static void versions(struct world *world)
{
    AUTO(policy_question) *first = policy_put(world, "{'roles': {'user': {'ttl_max': 120}}}", 0);
    CHECK(first->refusal.kind == ERROR_NONE && first->version == 1);
    AUTO(policy_question) *stale = policy_put(world, "{'roles': {'user': {'ttl_max': 240}}}", 0);
    CHECK_KIND(stale->refusal.kind, ERROR_PRECONDITION);
    AUTO(policy_question) *second = policy_put(world, "{'roles': {'user': {'ttl_max': 180}}}", 1);
    CHECK(second->refusal.kind == ERROR_NONE && second->version == 2);
    CHECK(strcmp(first->digest, second->digest) != 0 && strlen(first->digest) == 64);
    world_restart(world);
    AUTO(policy_question) *shown = policy_question_of(POLICY_SHOW, "root", ROLE_ADMIN);
    policy_ask(world, shown);
    CHECK(shown->version == 2 && json_equal(shown->document, second->document));
    CHECK_TEXT(shown->set_by, "root");
    CHECK_TEXT(shown->digest, second->digest);
    struct token token;
    get_token(world, (struct asked){.thread = "t", .wanted = {.ttl_s = 900}}, &token);
    CHECK(token.claims.expires_at - token.claims.issued_at == 180);
}

/* ---- where it is looked for ---- */

static int64_t ttl_of(struct world *world, const char *who, enum role role, const char *actor)
{
    static unsigned number;
    char thread[32];
    struct token token;
    struct asked asked = {.who = who, .role = role, .thread = thread, .wanted = {.ttl_s = 3600}};
    CHECK(text_format(thread, sizeof thread, "t%u", number++) &&
          text_copy(asked.wanted.actor, sizeof asked.wanted.actor, actor));
    get_token(world, asked, &token);
    return token.claims.expires_at - token.claims.issued_at;
}

static void the_most_exact_holds(struct world *world)
{
    policy_set(world, "{'roles': {'user': {'ttl_max': 1000}, 'user:agent': {'ttl_max': 100}, 'admin:human': "
                      "{'ttl_max': 700}}, 'principals': {'bob': {'ttl_max': 2000}, 'eve': {'agent': {'ttl_max': "
                      "300}, 'ttl_max': 200}}}");
    CHECK(ttl_of(world, "ada", ROLE_USER, "human:ada") == 1000);
    CHECK(ttl_of(world, "ada", ROLE_USER, "agent:x") == 100);
    CHECK(ttl_of(world, "bob", ROLE_USER, "") == 2000);
    CHECK(ttl_of(world, "bob", ROLE_USER, "agent:x") == 100); /* an exception for a person is none for agents */
    CHECK(ttl_of(world, "eve", ROLE_USER, "") == 200);
    CHECK(ttl_of(world, "eve", ROLE_USER, "agent:x") == 300);
    CHECK(ttl_of(world, "root", ROLE_ADMIN, "human") == 700);
    CHECK(ttl_of(world, "root", ROLE_ADMIN, "agent:x") == 3600);
    world->leasing->options.limits.ttl_max_s = 600; /* a setting bounds every document */
    policies_take_settings(world->leasing->policies, &world->leasing->options);
    CHECK(ttl_of(world, "bob", ROLE_USER, "") == 600);
}

/* What a key pins holds, whatever is said. */
static void a_pinned_actor(struct world *world)
{
    struct caller caller = {.principal = {.name = "ada", .role = ROLE_USER, .actor = "agent:ci"}};
    struct policy_subject who = policy_subject(&caller, "human:ada");
    policy_set(world, "{'roles': {'user:agent': {'ttl_max': 100}}}");
    CHECK(policy_ttl_max(world->leasing, &who) == 100);
}

/* ---- what it does ---- */

static void tokens_are_cut(struct world *world)
{
    struct token token, successor;
    struct asked asked = {.thread = "t", .wanted = {.scopes_given = true, .ttl_s = 900}};
    struct error err = {0};
    CHECK(scope_parse(&asked.wanted.scopes, "shell fs:ro process", 19, SCOPE_UNKNOWN_REFUSED, &err));
    policy_set(world, "{'roles': {'user': {'scopes': ['fs:rw', 'process']}}}");
    get_token(world, asked, &token);
    CHECK(scope_allows(&token.claims.scopes, "process") && scope_allows(&token.claims.scopes, "fs:ro") &&
          !scope_allows(&token.claims.scopes, "shell:ro"));
    policy_set(world, "{'roles': {'user': {'scopes': ['fs:ro'], 'ttl_max': 60}}}");
    refresh_token(world, (struct asked){.thread = "t"}, token.text, &successor);
    CHECK(scope_allows(&successor.claims.scopes, "fs:ro") && !scope_allows(&successor.claims.scopes, "process"));
    CHECK(successor.claims.expires_at - successor.claims.issued_at == 60);
}

static struct wanted to_hosts(const char *host)
{
    return (struct wanted){.network = json_pack("{s:s, s:[s]}", "egress", "allow", "allow", host)};
}

static struct wanted with_volume(const char *kind, const char *source, int64_t size_mb)
{
    return (struct wanted){.volumes =
                               json_pack("[{s:s, s:s, s:s, s:s, s:b, s:I}]", "kind", kind, "source", source, "sub_path",
                                         "", "path", "/v", "read_only", 0, "size_mb", (json_int_t)size_mb)};
}

static struct wanted of_words(const char *template_name, const char *isolation)
{
    struct wanted wanted = {.ttl_s = 0};
    CHECK(text_copy(wanted.template_name, sizeof wanted.template_name, template_name) &&
          text_copy(wanted.isolation, sizeof wanted.isolation, isolation));
    return wanted;
}

static bool is_refused_by_why(struct world *world, const struct wanted *wanted, const char *rule)
{
    AUTO(policy_question) *q = policy_question_of(POLICY_WHY, "ada", ROLE_USER);
    size_t i;
    json_t *each;
    bool any = false;
    q->wanted = *wanted;
    json_incref(wanted->network);
    json_incref(wanted->volumes);
    policy_ask(world, q);
    CHECK_TEXT(q->refusal.message, "");
    json_array_foreach (q->findings, i, each) {
        if (text_equal(json_string_value(json_object_get(each, "verdict")), "no")) {
            CHECK_TEXT(json_string_value(json_object_get(each, "rule")), rule ? rule : "none");
            any = true;
        }
    }
    return any;
}

/* Each asked of the rules, and of why. */
static void sandboxes_are_refused(struct world *world)
{
    const struct {
        struct wanted wanted;
        const char *rule, *says; /* NULL: allowed */
    } rows[] = {
        {of_words("", ""), NULL, NULL},
        {of_words("py-3", ""), NULL, NULL},
        {of_words("node", ""), "templates", "may not use template node; allowed: base, py-*"},
        {of_words("", "microvm"), NULL, NULL},
        {of_words("", "namespaces"), "isolation", "roles.user.isolation"},
        {to_hosts("pypi.org"), NULL, NULL},
        {to_hosts("a.b.example.org"), NULL, NULL},
        {to_hosts("*.b.example.org"), NULL, NULL},
        {to_hosts("example.org"), "egress_hosts", "may not reach example.org"},
        {to_hosts("pypi.org:22"), "egress_hosts", "pypi.org:22"},
        {to_hosts("203.0.113.7:53/udp"), NULL, NULL},
        {to_hosts("203.0.112.0/23"), "egress_hosts", "203.0.112.0/23"},
        {{.network = json_pack("{s:s}", "egress", "public")}, "egress", "at most allow"},
        {with_volume("named", "data", 0), NULL, NULL},
        {with_volume("named", "data2", 100), NULL, NULL},
        {with_volume("named", "data3", 101), "volumes.max_mb", "at most 100"},
        {with_volume("host", "/srv/a", 0), NULL, NULL},
        {with_volume("host", "/srv/a/b", 0), "volumes.host", "may not mount the host's folder /srv/a/b"},
        {{.max_lifetime_s = 600}, NULL, NULL},
        {{.max_lifetime_s = 601}, "lifetime_max", "at most 600"},
        {{.idle_timeout_s = 61}, "idle_max", "at most 60"},
    };
    policy_set(world,
               "{'roles': {'user': {'templates': ['base', 'py-*'], 'isolation': ['gvisor', 'microvm'], 'egress': "
               "'allow', 'egress_hosts': ['pypi.org', '*.example.org', '203.0.113.0/24'], 'volumes': {'host': "
               "['/srv/*'], 'max_mb': 100}, 'lifetime_max': 600, 'idle_max': 60}}}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char thread[32];
        CHECK(text_format(thread, sizeof thread, "t%zu", i));
        CHECK(is_refused_by_why(world, &rows[i].wanted, rows[i].rule) == (rows[i].rule != NULL));
        AUTO(negotiation) *n = ask(world, (struct asked){.thread = thread, .wanted = rows[i].wanted});
        CHECK_KIND(n->refusal.kind, rows[i].rule ? ERROR_FORBIDDEN : ERROR_NONE);
        if (rows[i].says && strstr(n->refusal.message, rows[i].says) == NULL)
            CHECK_TEXT(n->refusal.message, rows[i].says);
        if (rows[i].rule == NULL) { /* what was not said is as it may be */
            CHECK(n->lease.idle_timeout_s == 60 && n->lease.max_expires_at - n->lease.created_at == 600000);
            CHECK_KIND(question_kind(world, QUESTION_DELETE, "ada", ROLE_USER, n->sandbox.id), ERROR_NONE);
        }
    }
}

static void what_was_not_said(struct world *world)
{
    policy_set(world,
               "{'roles': {'user': {'isolation': ['gvisor', 'microvm'], 'volumes': {'max_mb': 100}, 'root': true}}}");
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = with_volume("named", "data", 0)}), ERROR_NONE);
    json_t *call = world_last_call(world, "prepare"), *prepare = json_object_get(call, "sandbox");
    CHECK_TEXT(json_string_value(json_object_get(prepare, "isolation")), "gvisor");
    CHECK(json_is_true(json_object_get(prepare, "root")));
    const json_t *volume = json_array_get(json_object_get(prepare, "volumes"), 0);
    CHECK(json_integer_value(json_object_get(volume, "size_bytes")) == 100 * 1024 * 1024);
    json_decref(call);
    /* The same words again mean the same sandbox. */
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t", .wanted = with_volume("named", "data", 0)}), ERROR_NONE);
}

/* ---- who may ask ---- */

static enum error_kind why_kind(struct world *world, const char *who, enum role role, const char *owner, int of_role)
{
    AUTO(policy_question) *q = policy_question_of(POLICY_WHY, who, role);
    q->role_given = of_role >= 0;
    q->role = of_role >= 0 ? (enum role)of_role : ROLE_USER;
    CHECK(text_copy(q->caller.owner, PRINCIPAL_BYTES, owner));
    policy_ask(world, q);
    return q->refusal.kind;
}

static void of_whom(struct world *world)
{
    CHECK_KIND(why_kind(world, "ada", ROLE_USER, "", -1), ERROR_NONE);
    CHECK_KIND(why_kind(world, "ada", ROLE_USER, "ada", ROLE_USER), ERROR_NONE);
    CHECK_KIND(why_kind(world, "ada", ROLE_USER, "bob", -1), ERROR_NOT_FOUND);
    CHECK_KIND(why_kind(world, "ada", ROLE_USER, "", ROLE_ADMIN), ERROR_FORBIDDEN);
    CHECK_KIND(why_kind(world, "root", ROLE_ADMIN, "bob", ROLE_USER), ERROR_NONE);
}

int main(void)
{
    in_both_worlds(what_is_none);
    in_both_worlds(versions);
    in_both_worlds(the_most_exact_holds);
    in_both_worlds(a_pinned_actor);
    in_both_worlds(tokens_are_cut);
    in_both_worlds(sandboxes_are_refused);
    in_both_worlds(what_was_not_said);
    in_both_worlds(of_whom);
    return check_done();
}
