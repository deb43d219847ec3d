/* audit_test.c - over real HTTP: who sees which records, pages, filters, the head, the proof; what is refused, and how.
 */
#include "negotiator/ledger/audit_internal.h"
#include "negotiator/ledger/kv_internal.h"
#include "tests/unit/negotiator/dialects/stage.h"

#include <inttypes.h>

static struct key audit_key;

/* One story of ada's, one of bob's that speaks of it, and one of nobody's. */
static enum kv_outcome tell_rule(struct kv *kv, void *argument UNUSED, struct error *err)
{
    static const struct audit_record RECORDS[] = {
        {.action = "negotiate", .principal = "ada", .thread_id = "t1", .sandbox_id = "sbx_1", .jti = "tok_1"},
        {.action = "exec", .principal = "ada", .sandbox_id = "sbx_1", .jti = "tok_1", .links = "lnk_a lnk_b"},
        {.action = "exec", .principal = "bob", .sandbox_id = "sbx_2", .jti = "tok_2", .detail = "ada tok_1 lnk_a"},
        {.action = "authenticate", .detail = "\"principal\":\"ada\""},
        {.action = "exec.end", .principal = "ada", .sandbox_id = "sbx_1", .jti = "tok_1", .links = "lnk_a lnk_b"}};
    AUTO(kv_change) *change = kv_change_new();
    for (size_t i = 0; i < sizeof RECORDS / sizeof *RECORDS; i++) {
        struct audit_record record = RECORDS[i];
        record.time_ms = 1795309323004 + (int64_t)i * 1000;
        record.plane = "sandboxd";
        if (!audit_append(kv, change, &audit_key, &record, err))
            return KV_FAILED;
    }
    return kv_apply(kv, change, err);
}

/* "1 2 5" of the answer. */
static void check_records(const char *key, const char *query, const char *want)
{
    AUTO_FREE char *path = memory_printf("/audit%s", query);
    AUTO_ANSWER answer = as(key, "GET", path, "");
    AUTO_TEXT found = {0};
    size_t i;
    const json_t *record;
    text_append_string(&found, "");
    json_array_foreach (json_object_get(answer.json, "records"), i, record)
        text_append_format(&found, "%s%" JSON_INTEGER_FORMAT, i ? " " : "",
                           json_integer_value(json_object_get(record, "seq")));
    if (answer.status != 200 || strcmp(found.data, want) != 0)
        fprintf(stderr, "%s: %d\n", path, answer.status);
    CHECK(answer.status == 200);
    CHECK_TEXT(found.data, want);
}

static void check_refused(const char *key, const char *method, const char *path, const char *body, int status)
{
    AUTO_ANSWER answer = as(key, method, path, body);
    if (answer.status != status)
        fprintf(stderr, "%s: %d\n", path, answer.status);
    CHECK(answer.status == status);
    CHECK(json_object_get(answer.json, "records") == NULL);
}

static void who_sees_what(void)
{
    check_records(stage.ada, "", "1 2 5");
    check_records(stage.viewer, "", "1 2 5"); /* of the same principal */
    check_records(stage.ada, "?principal=ada", "1 2 5");
    check_records(stage.ada, "?jti=tok_2", "");
    check_records(stage.ada, "?sandbox=sbx_2", "");
    check_records(stage.ada, "?action=authenticate", "");
    check_records(stage.admin, "", "");
    check_records(stage.admin, "?principal=bob", "3");
    check_records(stage.admin, "?all=1", "1 2 3 4 5");
    check_records(stage.admin, "?all=1&principal=ada", "1 2 5");
    check_refused(stage.ada, "GET", "/audit?principal=bob", "", 404);
    check_refused(stage.ada, "GET", "/audit?principal=bob&principal=ada", "", 400);
    check_refused("pk_x", "GET", "/audit", "", 401);

    AUTO_ANSWER own = as(stage.ada, "GET", "/audit", "");
    const json_t *record = json_array_get(json_object_get(own.json, "records"), 0);
    CHECK(json_object_size(record) == 19 && json_is_null(json_object_get(own.json, "next")));
    AUTO_ANSWER all = as(stage.admin, "GET", "/audit?all=1", "");
    record = json_array_get(json_object_get(all.json, "records"), 0);
    CHECK(json_object_size(record) == 21);
}

static void filters(void)
{
    check_records(stage.ada, "?jti=tok_1", "1 2 5"); /* the issuance, its use, its end */
    check_records(stage.ada, "?link=lnk_b", "2 5");
    check_records(stage.ada, "?link=lnk_", "");
    check_records(stage.ada, "?thread=t1", "1");
    check_records(stage.ada, "?action=exec", "2");
    check_records(stage.ada, "?since=2026-11-22T01:02:04.004Z&until=2026-11-22T01:02:07.004Z", "2");
    check_records(stage.ada, "?after=1&limit=1", "2");
    check_records(stage.ada, "?last=2", "2 5");
    AUTO_ANSWER page = as(stage.ada, "GET", "/audit?limit=1", "");
    CHECK(json_integer_value(json_object_get(page.json, "next")) == 1);
    static const char *const WRONG[] = {"?limit=0",        "?limit=1001",
                                        "?limit=x",        "?last=0",
                                        "?last=1&after=1", "?last=1&limit=1",
                                        "?after=-1",       "?jti=a%22b",
                                        "?link=a%20b",     "?since=yesterday",
                                        "?all=2",          "?principal=a%00b",
                                        "?thread=",        "?after=9223372036854775808"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        AUTO_FREE char *path = memory_printf("/audit%s", WRONG[i]);
        check_refused(stage.admin, "GET", path, "", 400);
    }
}

static void *search_aside(void *argument UNUSED)
{
    for (int i = 0; i < 10; i++) {
        check_records(stage.ada, "", "1 2 5");
        check_records(stage.admin, "?all=1&link=lnk_b", "2 5");
    }
    return NULL;
}

/* Their steps take turns: each gets its own answer. */
static void many_search_at_once(void)
{
    pthread_t threads[16];
    for (size_t i = 0; i < 16; i++)
        CHECK(pthread_create(&threads[i], NULL, search_aside, NULL) == 0);
    for (size_t i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
}

static void the_head(void)
{
    AUTO_ANSWER head = as(stage.viewer, "GET", "/audit/head", "");
    CHECK(head.status == 200 && json_integer_value(json_object_get(head.json, "seq")) == 5);
    CHECK(strlen(told(&head, "hash")) == 64 && strlen(told(&head, "time")) == 24);
}

static struct answer prove(const char *body, int status)
{
    struct answer answer = as(stage.admin, "POST", "/audit/verify", body);
    CHECK(answer.status == status);
    return answer;
}

static enum kv_outcome tamper_rule(struct kv *kv, void *argument UNUSED, struct error *err)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, "audit/00000000000000000003", &value, err))
        return KV_FAILED;
    AUTO(kv_change) *change = kv_change_new();
    char *bob = strstr(value.data, "\"bob\"");
    CHECK(bob != NULL);
    if (bob)
        memcpy(bob, "\"ada\"", 5);
    kv_change_put(change, "audit/00000000000000000003", value.data, value.size);
    return kv_apply(kv, change, err);
}

static void the_proof(void)
{
    struct error err = {0};
    AUTO_ANSWER head = as(stage.admin, "GET", "/audit/head", "");
    AUTO_ANSWER whole = prove("", 200);
    CHECK(json_is_true(json_object_get(whole.json, "ok")));
    CHECK(json_integer_value(json_object_get(whole.json, "records")) ==
          json_integer_value(json_object_get(whole.json, "last")));
    CHECK(json_integer_value(json_object_get(whole.json, "first")) == 1);
    CHECK_TEXT(told(&whole, "hash"), told(&head, "hash"));
    AUTO_FREE char *kept = memory_printf("{\"seq\":%" JSON_INTEGER_FORMAT ",\"hash\":\"%s\"}",
                                         json_integer_value(json_object_get(head.json, "seq")), told(&head, "hash"));
    AUTO_ANSWER again = prove(kept, 200);
    CHECK(json_is_true(json_object_get(again.json, "ok")));
    AUTO_FREE char *cut = memory_printf("{\"seq\":5000,\"hash\":\"%s\"}", told(&head, "hash"));
    AUTO_ANSWER missing = prove(cut, 200);
    CHECK(json_is_false(json_object_get(missing.json, "ok")));
    CHECK(json_integer_value(json_object_get(missing.json, "at")) == 5000);
    static const char *const WRONG[] = {"{\"seq\":1}", "[]", "{\"seq\":1,\"hash\":\"00\"}",
                                        "{\"seq\":1,\"hash\":\"00\",\"x\":1}", "{\"x\":1}"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        check_refused(stage.admin, "POST", "/audit/verify", WRONG[i], 400);
    check_refused(stage.ada, "POST", "/audit/verify", "{}", 403);

    CHECK(ledger_run(stage.ledger, tamper_rule, NULL, &err));
    AUTO_ANSWER broken = prove("{}", 200);
    CHECK(json_is_false(json_object_get(broken.json, "ok")));
    CHECK(json_integer_value(json_object_get(broken.json, "at")) == 3);
    CHECK_TEXT(told(&broken, "error"), "audit record 3 was changed");
}

/* What is refused before any rule is a record of its own. */
static void refusals_are_records(void)
{
    check_refused(stage.ada, "GET", "/audit?all=1", "", 403);
    AUTO_ANSWER last = as(stage.admin, "GET", "/audit?all=1&last=1", "");
    const json_t *record = json_array_get(json_object_get(last.json, "records"), 0);
    CHECK_TEXT(json_string_value(json_object_get(record, "outcome")), "refused");
    CHECK_TEXT(json_string_value(json_object_get(record, "principal")), "ada");
}

int main(void)
{
    struct error err = {0};
    stage_open();
    key_derive(&audit_key, &stage.master, "parley/audit/1");
    CHECK(ledger_run(stage.ledger, tell_rule, NULL, &err));
    the_head();
    who_sees_what();
    filters();
    many_search_at_once();
    refusals_are_records();
    the_proof();
    stage_close();
    return check_done();
}
