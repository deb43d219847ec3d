/* Marks: what each kind refuses, what JSON is taken, and the set against a list that is simply walked. */
#include "shared/capability/mark.h"

#include "shared/base/clock.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <inttypes.h>

static struct capability_claims claims_of_one(void)
{
    static const char SCOPES[] = "fs:rw@/srv port@80 shell:ro";
    struct capability_claims claims = {
        .sandbox_id = "sbx_1",
        .epoch = 3,
        .principal = "alice",
        .jti = "jti_1",
        .family = "fam_1",
        .issued_at = 1000,
        .expires_at = 2000,
        .thread_id = "t:1",
        .lease = "lea_1",
        .link_count = 2,
        .link_ids = {"lnk_aaaaaaaaaaaaaaaaaaaaaa", "lnk_bbbbbbbbbbbbbbbbbbbbbb"},
    };
    CHECK(scope_parse(&claims.root_scopes, SCOPES, strlen(SCOPES), SCOPE_UNKNOWN_REFUSED, NULL));
    return claims;
}

static struct mark mark_of(enum mark_kind kind, const char *value, const char *principal)
{
    struct mark mark = {.number = 1, .kind = kind, .before = MARK_ANY_TIME, .until = 5000};
    CHECK(text_copy(mark.value, sizeof mark.value, value));
    CHECK(text_copy(mark.principal, sizeof mark.principal, principal));
    return mark;
}

static void test_kind_names(void)
{
    static const char *const NAMES[] = {"jti",    "link",      "family", "lease", "sandbox",
                                        "thread", "principal", "scope",  "all"};
    CHECK(sizeof NAMES / sizeof *NAMES == MARK_KINDS);
    for (unsigned i = 0; i < MARK_KINDS; i++) {
        enum mark_kind kind = MARK_KINDS;
        CHECK_TEXT(mark_kind_name((enum mark_kind)i), NAMES[i]);
        CHECK(mark_kind_parse(NAMES[i], &kind) && kind == i);
    }
    enum mark_kind kind = MARK_LEASE;
    CHECK(!mark_kind_parse("", &kind) && !mark_kind_parse("JTI", &kind) && !mark_kind_parse("jtis", &kind));
    CHECK(kind == MARK_LEASE);
}

static void test_what_matches(void)
{
    static const struct {
        const char *value, *principal;
        enum mark_kind kind;
        bool matches;
    } ROWS[] = {
        {"jti_1", "", MARK_JTI, true},
        {"jti_2", "", MARK_JTI, false},
        {"jti_1", "alice", MARK_JTI, true},
        {"jti_1", "bob", MARK_JTI, false},
        {"fam_1", "", MARK_JTI, false},
        {"lnk_aaaaaaaaaaaaaaaaaaaaaa", "", MARK_LINK, true},
        {"lnk_bbbbbbbbbbbbbbbbbbbbbb", "", MARK_LINK, true},
        {"lnk_cccccccccccccccccccccc", "", MARK_LINK, false},
        {"lnk_bbbbbbbbbbbbbbbbbbbbbb", "bob", MARK_LINK, false},
        {"fam_1", "", MARK_FAMILY, true},
        {"jti_1", "", MARK_FAMILY, false},
        {"lea_1", "", MARK_LEASE, true},
        {"lea_2", "", MARK_LEASE, false},
        {"sbx_1", "", MARK_SANDBOX, true},
        {"sbx_2", "", MARK_SANDBOX, false},
        {"t:1", "alice", MARK_THREAD, true},
        {"t:1", "bob", MARK_THREAD, false},
        {"t:1", "", MARK_THREAD, false}, /* mark_check lets none be made */
        {"t:2", "alice", MARK_THREAD, false},
        {"alice", "", MARK_PRINCIPAL, true},
        {"alice", "alice", MARK_PRINCIPAL, true},
        {"bob", "", MARK_PRINCIPAL, false},
        {"fs:rw", "", MARK_SCOPE, true}, /* also a token that has it for one folder only */
        {"fs:ro", "", MARK_SCOPE, true},
        {"fs:ro@/srv/a", "", MARK_SCOPE, true},
        {"fs:rw@/other", "", MARK_SCOPE, false},
        {"shell", "", MARK_SCOPE, false},
        {"shell:ro", "bob", MARK_SCOPE, false},
        {"port@80", "alice", MARK_SCOPE, true},
        {"port@81", "", MARK_SCOPE, false},
        {"", "", MARK_ALL, true},
        {"", "alice", MARK_ALL, true},
        {"", "bob", MARK_ALL, false},
    };
    struct capability_claims claims = claims_of_one();
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct mark mark = mark_of(ROWS[i].kind, ROWS[i].value, ROWS[i].principal);
        AUTO(mark_set) *set = mark_set_new();
        mark_set_add(set, &mark);
        bool is_right = mark_matches(&mark, &claims) == ROWS[i].matches &&
                        mark_refuses(&mark, &claims, 0) == ROWS[i].matches &&
                        (mark_set_refuses(set, &claims, 0) != NULL) == ROWS[i].matches;
        CHECK(is_right);
        if (!is_right)
            printf("row %zu: %s %s\n", i, mark_kind_name(ROWS[i].kind), ROWS[i].value);
    }
}

/* A link's scope does not matter, the root's does; and a link beyond link_count is none. */
static void test_roots_scope(void)
{
    struct capability_claims claims = claims_of_one();
    claims.scopes.count = 0;
    struct mark scope = mark_of(MARK_SCOPE, "fs:rw", "");
    CHECK(mark_refuses(&scope, &claims, 0));
    struct mark link = mark_of(MARK_LINK, "lnk_bbbbbbbbbbbbbbbbbbbbbb", "");
    claims.link_count = 1;
    CHECK(!mark_refuses(&link, &claims, 0));
}

static void test_times_and_epoch(void)
{
    struct capability_claims claims = claims_of_one();
    struct mark mark = mark_of(MARK_PRINCIPAL, "alice", "");
    mark.before = 1000;
    CHECK(mark_refuses(&mark, &claims, 0));
    CHECK(mark_refuses(&mark, &claims, INT64_MAX)); /* until is for forgetting only */
    mark.before = 999;
    CHECK(!mark_refuses(&mark, &claims, 0));
    mark.before = 1000;
    mark.from_ms = 50000;
    CHECK(!mark_refuses(&mark, &claims, 49999));
    CHECK(mark_refuses(&mark, &claims, 50000));
    struct mark sandbox = mark_of(MARK_SANDBOX, "sbx_1", "");
    sandbox.before = 10;
    sandbox.epoch = 3;
    CHECK(!mark_refuses(&sandbox, &claims, 0));
    sandbox.epoch = 4;
    CHECK(mark_refuses(&sandbox, &claims, 0));
    claims.epoch = 4;
    CHECK(!mark_refuses(&sandbox, &claims, 0));
}

static bool is_equal(const struct mark *a, const struct mark *b)
{
    return a->number == b->number && a->kind == b->kind && strcmp(a->value, b->value) == 0 &&
           strcmp(a->principal, b->principal) == 0 && a->before == b->before && a->from_ms == b->from_ms &&
           a->until == b->until && a->epoch == b->epoch;
}

/* The text is JSON with single quotes. */
static bool parses(const char *text, struct mark *mark)
{
    char quoted[1024];
    CHECK(text_copy(quoted, sizeof quoted, text));
    for (size_t i = 0; quoted[i]; i++) {
        if (quoted[i] == '\'')
            quoted[i] = '"';
    }
    json_t *json = json_loads(quoted, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    CHECK(json != NULL);
    struct error err = {0};
    bool is_parsed = mark_parse(mark, json, &err);
    CHECK(is_parsed ? err.kind == ERROR_NONE : err.kind == ERROR_INVALID && err.message[0] != '\0');
    json_decref(json);
    return is_parsed;
}

static void test_json_taken(void)
{
    static const char *const TAKEN[] = {
        "{'n':1,'kind':'jti','value':'j','until':0}",
        "{'n':9223372036854775807,'kind':'jti','value':'j','until':253402300799,'before':253402300799}",
        "{'n':1,'kind':'jti','value':'j','until':9,'from':253402300799000,'before':0}",
        "{'n':2,'n':1,'kind':'all','kind':'jti','value':'j','until':9}", /* twice: the last is taken */
        "{'n':1,'kind':'link','value':'lnk_0123456789abcdefgHI_-x','until':9}",
        "{'n':1,'kind':'family','value':'f','until':9,'principal':'a b'}",
        "{'n':1,'kind':'lease','value':'-_','until':9,'principal':''}",
        "{'n':1,'kind':'sandbox','value':'s','until':9,'epoch':4294967295}",
        "{'n':1,'kind':'thread','value':'a.:b','principal':'p','until':9}",
        "{'n':1,'kind':'principal','value':'p~ /','until':9}",
        "{'n':1,'kind':'scope','value':'fs:rw@/a%20b','until':9}",
        "{'n':1,'kind':'all','value':'','until':9,'epoch':0}",
        "{'n':1,'kind':'all','until':9}",
    };
    for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++) {
        struct mark mark, again;
        CHECK(parses(TAKEN[i], &mark));
        json_t *json = mark_format(&mark);
        memset(&again, 0x55, sizeof again);
        CHECK(json && mark_parse(&again, json, NULL));
        CHECK(is_equal(&again, &mark));
        json_decref(json);
    }
    struct mark mark;
    CHECK(parses(TAKEN[0], &mark) && mark.before == MARK_ANY_TIME && mark.number == 1 && mark.from_ms == 0);
    CHECK(parses(TAKEN[3], &mark) && mark.kind == MARK_JTI && mark.number == 1);
    CHECK(parses(TAKEN[7], &mark) && mark.epoch == UINT32_MAX && mark.kind == MARK_SANDBOX);
}

static void test_json_text(void)
{
    struct mark mark = mark_of(MARK_SANDBOX, "sbx_1", "alice");
    mark.before = 7;
    mark.from_ms = 8;
    mark.epoch = 9;
    json_t *json = mark_format(&mark);
    AUTO_FREE char *full = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    CHECK_TEXT(full, "{\"before\":7,\"epoch\":9,\"from\":8,\"kind\":\"sandbox\",\"n\":1,\"principal\":\"alice\","
                     "\"until\":5000,\"value\":\"sbx_1\"}");
    mark = mark_of(MARK_ALL, "", "");
    json = mark_format(&mark);
    AUTO_FREE char *bare = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    CHECK_TEXT(bare, "{\"kind\":\"all\",\"n\":1,\"until\":5000,\"value\":\"\"}");
}

static void test_json_refused(void)
{
    static const char *const REFUSED[] = {
        "null",
        "[]",
        "'x'",
        "1",
        "{}",
        "{'kind':'jti','value':'j','until':9}",
        "{'n':0,'kind':'jti','value':'j','until':9}",
        "{'n':-1,'kind':'jti','value':'j','until':9}",
        "{'n':1.0,'kind':'jti','value':'j','until':9}",
        "{'n':'1','kind':'jti','value':'j','until':9}",
        "{'n':true,'kind':'jti','value':'j','until':9}",
        "{'n':1,'value':'j','until':9}",
        "{'n':1,'kind':'','value':'j','until':9}",
        "{'n':1,'kind':7,'value':'j','until':9}",
        "{'n':1,'kind':'jtis','value':'j','until':9}",
        "{'n':1,'kind':'a very long kind that is none','value':'j','until':9}",
        "{'n':1,'kind':'jti\\u0000','value':'j','until':9}",
        "{'n':1,'kind':'jti','until':9}",
        "{'n':1,'kind':'jti','value':null,'until':9}",
        "{'n':1,'kind':'jti','value':['j'],'until':9}",
        "{'n':1,'kind':'jti','value':'','until':9}",
        "{'n':1,'kind':'jti','value':'a.b','until':9}",
        "{'n':1,'kind':'jti','value':'j\\u0000','until':9}",
        "{'n':1,'kind':'jti','value':'j\\u0000k','until':9}",
        "{'n':1,'kind':'jti','value':'\\u00e4','until':9}",
        "{'n':1,'kind':'jti','value':'j'}",
        "{'n':1,'kind':'jti','value':'j','until':null}",
        "{'n':1,'kind':'jti','value':'j','until':-1}",
        "{'n':1,'kind':'jti','value':'j','until':253402300800}",
        "{'n':1,'kind':'jti','value':'j','until':9,'before':-1}",
        "{'n':1,'kind':'jti','value':'j','until':9,'before':9223372036854775807}",
        "{'n':1,'kind':'jti','value':'j','until':9,'before':null}",
        "{'n':1,'kind':'jti','value':'j','until':9,'before':1e3}",
        "{'n':1,'kind':'jti','value':'j','until':9,'from':-1}",
        "{'n':1,'kind':'jti','value':'j','until':9,'from':253402300799001}",
        "{'n':1,'kind':'jti','value':'j','until':9,'from':'0'}",
        "{'n':1,'kind':'jti','value':'j','until':9,'epoch':1}",
        "{'n':1,'kind':'sandbox','value':'s','until':9,'epoch':-1}",
        "{'n':1,'kind':'sandbox','value':'s','until':9,'epoch':4294967296}",
        "{'n':1,'kind':'sandbox','value':'s','until':9,'epoch':{}}",
        "{'n':1,'kind':'sandbox','value':'s/t','until':9}",
        "{'n':1,'kind':'jti','value':'j','until':9,'principal':7}",
        "{'n':1,'kind':'jti','value':'j','until':9,'principal':'a\\\\b'}",
        "{'n':1,'kind':'jti','value':'j','until':9,'principal':'a\\n'}",
        "{'n':1,'kind':'jti','value':'j','until':9,'principal':'\\u0000'}",
        "{'n':1,'kind':'jti','value':'j','until':9,'note':''}",
        "{'n':1,'kind':'link','value':'lnk_','until':9}",
        "{'n':1,'kind':'link','value':'lnk_0123456789abcdefgHI_-','until':9}",
        "{'n':1,'kind':'link','value':'lnk_0123456789abcdefgHI_-xy','until':9}",
        "{'n':1,'kind':'link','value':'lnx_0123456789abcdefgHI_-x','until':9}",
        "{'n':1,'kind':'link','value':'lnk_0123456789abcdefgHI_+x','until':9}",
        "{'n':1,'kind':'thread','value':'t','until':9}",
        "{'n':1,'kind':'thread','value':'t','principal':'','until':9}",
        "{'n':1,'kind':'thread','value':'..','principal':'p','until':9}",
        "{'n':1,'kind':'thread','value':'a/b','principal':'p','until':9}",
        "{'n':1,'kind':'principal','value':'','until':9}",
        "{'n':1,'kind':'principal','value':'\\u007f','until':9}",
        "{'n':1,'kind':'scope','value':'','until':9}",
        "{'n':1,'kind':'scope','value':'root','until':9}",
        "{'n':1,'kind':'scope','value':'shell code','until':9}",
        "{'n':1,'kind':'scope','value':' shell','until':9}",
        "{'n':1,'kind':'scope','value':'shell ','until':9}",
        "{'n':1,'kind':'scope','value':'fs:rw@/a/../b','until':9}",
        "{'n':1,'kind':'all','value':'x','until':9}",
    };
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct mark mark = mark_of(MARK_SCOPE, "untouched", "p"), before = mark;
        bool is_refused = !parses(REFUSED[i], &mark);
        CHECK(is_refused);
        CHECK(is_equal(&mark, &before));
        if (!is_refused)
            printf("taken: %s\n", REFUSED[i]);
    }
    struct mark mark;
    CHECK(!mark_parse(&mark, NULL, NULL));
}

/* The longest of each, and one byte more. */
static void test_lengths(void)
{
    static const struct {
        const char *kind, *start;
        size_t longest;
    } ROWS[] = {{"jti", "", 63},     {"family", "", 63},     {"lease", "", 63},        {"sandbox", "", 63},
                {"thread", "", 128}, {"principal", "", 128}, {"scope", "fs:ro@/", 191}};
    char text[512], value[1024], long_text[300];
    memset(long_text, 'x', sizeof long_text);
    struct mark mark;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        for (size_t length = ROWS[i].longest; length <= ROWS[i].longest + 1; length++) {
            CHECK(text_format(value, sizeof value, "%s%.*s", ROWS[i].start, (int)(length - strlen(ROWS[i].start)),
                              long_text));
            CHECK(text_format(text, sizeof text, "{'n':1,'kind':'%s','value':'%s','until':9,'principal':'p'}",
                              ROWS[i].kind, value));
            CHECK(parses(text, &mark) == (length == ROWS[i].longest));
        }
    }
    for (int length = 128; length <= 129; length++) {
        CHECK(text_format(text, sizeof text, "{'n':1,'kind':'all','until':9,'principal':'%.*s'}", length, long_text));
        CHECK(parses(text, &mark) == (length == 128));
    }
    CHECK(strlen(mark.principal) == 128);
}

static void test_check(void)
{
    struct error err = {0};
    struct mark mark = mark_of(MARK_JTI, "j", "");
    mark.number = 0; /* not its matter: numbers come later */
    CHECK(mark_check(&mark, &err));
    mark.kind = MARK_KINDS;
    CHECK(!mark_check(&mark, &err) && err.kind == ERROR_INVALID);
    CHECK(!mark_matches(&mark, &(struct capability_claims){0}));
}

/* The model: a list, walked. */
#define MODEL_MAX 4000
static struct mark model[MODEL_MAX];
static size_t model_count;

static uint32_t random_state = 12345;
static uint32_t below(uint32_t bound)
{
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)(((uint64_t)random_state * bound) >> 32);
}

static void random_value(char *to, enum mark_kind kind)
{
    static const char *const SCOPES[] = {"fs:rw", "fs:ro@/a", "process", "code", "port@80", "shell"};
    bool fits = true;
    if (kind == MARK_SCOPE)
        fits = text_copy(to, MARK_VALUE_BYTES, SCOPES[below(6)]);
    else if (kind == MARK_LINK)
        fits = text_format(to, MARK_VALUE_BYTES, "lnk_%022u", below(40));
    else if (kind == MARK_PRINCIPAL)
        fits = text_format(to, MARK_VALUE_BYTES, "p%u", below(6));
    else if (kind == MARK_ALL)
        to[0] = '\0';
    else
        fits = text_format(to, MARK_VALUE_BYTES, "id%u", below(30)); /* the same ids for every kind */
    CHECK(fits);
}

/* Mostly of kinds that match few, so that not everything is refused. */
static struct mark random_mark(uint64_t number, uint32_t now)
{
    struct mark mark = {.number = number, .kind = (enum mark_kind)below(below(60) == 0 ? MARK_KINDS : MARK_PRINCIPAL)};
    random_value(mark.value, mark.kind);
    if (mark.kind == MARK_THREAD || mark.kind >= MARK_SCOPE || below(3) == 0)
        CHECK(text_format(mark.principal, sizeof mark.principal, "p%u", below(6)));
    mark.before = below(4) == 0 ? MARK_ANY_TIME : now - below(300);
    mark.from_ms = below(3) == 0 ? ((int64_t)now + below(100) - 50) * 1000 : 0;
    mark.until = now + below(300);
    mark.epoch = mark.kind == MARK_SANDBOX && below(2) == 0 ? below(4) : 0;
    CHECK(mark_check(&mark, NULL));
    return mark;
}

static void random_claims(struct capability_claims *claims, uint32_t now)
{
    static const char *const SCOPES[] = {"", "fs:rw", "fs:rw@/a port@80", "process shell", "code", "shell:ro"};
    CHECK(text_format(claims->principal, sizeof claims->principal, "p%u", below(6)));
    CHECK(text_format(claims->jti, sizeof claims->jti, "id%u", below(300)));
    CHECK(text_format(claims->family, sizeof claims->family, "id%u", below(300)));
    CHECK(text_format(claims->lease, sizeof claims->lease, "id%u", below(300)));
    CHECK(text_format(claims->sandbox_id, sizeof claims->sandbox_id, "id%u", below(300)));
    CHECK(text_format(claims->thread_id, sizeof claims->thread_id, "id%u", below(300)));
    const char *scopes = SCOPES[below(6)];
    CHECK(scope_parse(&claims->root_scopes, scopes, strlen(scopes), SCOPE_UNKNOWN_REFUSED, NULL));
    claims->link_count = below(3) == 0 ? below(CAPABILITY_LINKS_MAX + 1) : 0;
    for (size_t i = 0; i < claims->link_count; i++)
        CHECK(text_format(claims->link_ids[i], sizeof claims->link_ids[i], "lnk_%022u", below(200)));
    claims->issued_at = now - below(300);
    claims->epoch = 2 + below(2);
}

static size_t model_forget(int64_t now_ms)
{
    size_t kept = 0, before = model_count;
    for (size_t i = 0; i < before; i++) {
        if ((model[i].until + 60) * 1000 > now_ms)
            model[kept++] = model[i];
    }
    model_count = kept;
    return before - kept;
}

static unsigned compare_answers(const struct mark_set *set, uint32_t now)
{
    static struct capability_claims claims;
    random_claims(&claims, now);
    const int64_t now_ms = (int64_t)now * 1000 + below(1000);
    bool is_refused = false;
    int64_t newest = 0;
    for (size_t i = 0; i < model_count; i++) {
        is_refused |= mark_refuses(&model[i], &claims, now_ms);
        if (mark_matches(&model[i], &claims) && model[i].before != MARK_ANY_TIME && model[i].before > newest)
            newest = model[i].before;
    }
    const struct mark *by = mark_set_refuses(set, &claims, now_ms);
    CHECK((by != NULL) == is_refused);
    CHECK(!by || mark_refuses(by, &claims, now_ms));
    CHECK(mark_set_newest_before(set, &claims) == newest);
    return is_refused;
}

struct walk {
    uint64_t after, last;
    size_t seen, limit;
};

static bool walk_on(void *cookie, const struct mark *mark)
{
    struct walk *walk = cookie;
    CHECK(mark->number > walk->after && mark->number >= walk->last);
    bool is_there = false;
    for (size_t i = 0; i < model_count && !is_there; i++)
        is_there = is_equal(&model[i], mark);
    CHECK(is_there);
    walk->last = mark->number;
    return ++walk->seen < walk->limit;
}

static void compare_order(const struct mark_set *set, uint64_t largest)
{
    struct walk walk = {.after = below((uint32_t)largest + 2), .limit = below(2) ? SIZE_MAX : 7};
    size_t wanted = 0;
    for (size_t i = 0; i < model_count; i++)
        wanted += model[i].number > walk.after;
    mark_set_each(set, walk.after, walk_on, &walk);
    CHECK(walk.seen == (wanted < walk.limit ? wanted : walk.limit));
}

static void test_against_model(bool is_ascending)
{
    AUTO(mark_set) *set = mark_set_new();
    uint64_t largest = 0;
    unsigned refused = 0, asked = 0;
    model_count = 0;
    for (uint32_t round = 0; round < 6000; round++) {
        uint32_t now = 10000 + round / 4;
        if (below(3) != 0 && model_count < MODEL_MAX) {
            uint64_t number = is_ascending ? largest + 1 : 1 + below(2000);
            largest = number > largest ? number : largest;
            model[model_count] = random_mark(number, now);
            mark_set_add(set, &model[model_count++]);
        }
        refused += compare_answers(set, now);
        asked++;
        if (below(40) == 0) {
            int64_t now_ms = (int64_t)now * 1000 + below(1000);
            size_t forgotten = mark_set_forget(set, now_ms);
            CHECK(forgotten == model_forget(now_ms));
        }
        CHECK(mark_set_count(set) == model_count);
        if (below(60) == 0)
            compare_order(set, largest);
    }
    printf("%u of %u refused\n", refused, asked);
    CHECK(refused > asked / 20 && refused < asked - asked / 20); /* both answers were put to the test */
    size_t left = model_count;
    CHECK(left > 100 && mark_set_forget(set, INT64_MAX) == left);
    CHECK(mark_set_count(set) == 0 && mark_set_forget(set, INT64_MAX) == 0);
    model_count = 0;
    CHECK(compare_answers(set, 20000) == 0);
}

static void test_forgetting_bounds(void)
{
    AUTO(mark_set) *set = mark_set_new();
    struct mark mark = mark_of(MARK_JTI, "jti_1", "");
    mark_set_add(set, &mark);
    CHECK(mark_set_forget(set, 0) == 0 && mark_set_forget(set, INT64_MIN) == 0);
    CHECK(mark_set_forget(set, INT64_C(5060000) - 1) == 0 && mark_set_count(set) == 1);
    CHECK(mark_set_forget(set, INT64_C(5060000)) == 1 && mark_set_count(set) == 0);
    mark_set_free(NULL);
}

/* One that stands for another must not outlive its duty, and a mark for any time hides no `before`. */
static void test_covered(void)
{
    struct capability_claims claims = claims_of_one();
    AUTO(mark_set) *set = mark_set_new();
    struct mark mark = mark_of(MARK_LEASE, "lea_1", "");
    mark.before = 1500;
    mark_set_add(set, &mark);
    mark.before = MARK_ANY_TIME;
    mark_set_add(set, &mark);
    CHECK(mark_set_newest_before(set, &claims) == 1500);
    mark.before = 2500; /* more, but for a shorter time */
    mark.until = 100;
    mark_set_add(set, &mark);
    CHECK(mark_set_newest_before(set, &claims) == 2500);
    CHECK(mark_set_forget(set, INT64_C(200000)) == 1 && mark_set_count(set) == 2);
    CHECK(mark_set_newest_before(set, &claims) == 1500 && mark_set_refuses(set, &claims, 0));
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(clock_monotonic_ns() - start_ns) / 1e9;
}

static bool count_on(void *cookie, const struct mark *mark)
{
    uint64_t *next = cookie;
    CHECK(mark->number == *next);
    ++*next;
    return true;
}

/* Each step walked linearly would take minutes; the limit is far above what the set needs, also on a busy machine. */
static void test_many(void)
{
    const uint32_t many = 100000;
    struct capability_claims claims = claims_of_one();
    AUTO(mark_set) *set = mark_set_new();
    uint64_t start = clock_monotonic_ns();
    for (uint32_t i = 0; i < many; i++) {
        struct mark mark = mark_of(i % 2 ? MARK_JTI : MARK_FAMILY, "", "");
        mark.number = i + 1;
        mark.until = 1000 + i;
        CHECK(text_format(mark.value, sizeof mark.value, "id_%u", i));
        mark_set_add(set, &mark);
    }
    CHECK(mark_set_count(set) == many);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 2 * many; i++) {
        CHECK(text_format(claims.jti, sizeof claims.jti, "id_%u", i));
        refused += mark_set_refuses(set, &claims, 0) != NULL;
    }
    CHECK(refused == many / 2);
    for (uint32_t i = 0; i < many; i++) /* one a second, as spent tokens go */
        CHECK(mark_set_forget(set, (1060 + (int64_t)i / 2) * 1000) == 1 - i % 2);
    CHECK(mark_set_count(set) == many / 2);
    uint64_t next = many / 2 + 1;
    mark_set_each(set, 0, count_on, &next);
    CHECK(next == many + 1);
    for (uint32_t i = 0; i < many; i++) { /* one selector, again and again */
        struct mark mark = mark_of(MARK_PRINCIPAL, "alice", "");
        mark.before = mark.until = 900 + i;
        mark.number = many + 1 + i;
        mark_set_add(set, &mark);
        CHECK((mark_set_refuses(set, &claims, 0) != NULL) == (i >= 100));
    }
    CHECK(mark_set_newest_before(set, &claims) == 900 + many - 1);
    double seconds = seconds_since(start);
    CHECK(seconds < 20);
    printf("%u marks: %.2f s\n", many, seconds);
}

int main(void)
{
    test_kind_names();
    test_what_matches();
    test_roots_scope();
    test_times_and_epoch();
    test_json_taken();
    test_json_text();
    test_json_refused();
    test_lengths();
    test_check();
    test_against_model(true);
    test_against_model(false);
    test_forgetting_bounds();
    test_covered();
    test_many();
    return check_done();
}
