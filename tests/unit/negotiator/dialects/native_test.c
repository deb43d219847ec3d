/* Goal: over real HTTP, protocol.md 1 and 2 as they stand: who is asking, the reply's shape, errors by name, 423 for
 * those who do not wait, fifty clients and one sandbox, sealed heartbeats. */
#include "negotiator/ledger/audit.h"
#include "negotiator/ledger/kv_internal.h"
#include "tests/unit/negotiator/dialects/stage.h"

#include <time.h>

static void not_ready_without_a_node(void)
{
    AUTO_ANSWER health = http_do("GET", "/healthz", "", "");
    AUTO_ANSWER ready = http_do("GET", "/readyz", "", "");
    AUTO_ANSWER grant = as(stage.admin, "POST", "/threads/t/sandbox", "{}");
    CHECK(health.status == 200 && ready.status == 503 && grant.status == 503);
    CHECK_TEXT(told(&ready, "error.code"), "NODE_UNREACHABLE");
    CHECK_TEXT(told(&grant, "error.code"), "NODE_UNREACHABLE");
    CHECK(strstr(grant.head, "Retry-After:") != NULL);
}

static void heartbeats(void)
{
    struct error err = {0};
    json_t *reply =
        node_beat(json_array(), json_pack("[{s:s, s:s}]", "id", "sbx_aaaaaaaaaaaaaaaaaaaa", "reason", "oom"), &err);
    CHECK(json_is_true(json_object_get(reply, "ok")) && json_is_integer(json_object_get(reply, "time")));
    CHECK(json_array_size(json_object_get(reply, "ended_known")) == 1);
    json_decref(reply);
    AUTO_ANSWER ready = http_do("GET", "/readyz", "", "");
    CHECK(ready.status == 200);
    CHECK_TEXT(told(&ready, "status"), "ok");
    AUTO_ANSWER junk = http_do("POST", "/node/v1/message", "", "PL1 and so on");
    CHECK(junk.status == 401);
    CHECK_TEXT(told(&junk, "error.code"), "UNAUTHENTICATED");
}

static void who_is_asking(void)
{
    static const char *const NOBODY[] = {"", "Authorization: Bearer pk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n",
                                         "X-API-Key: x\r\n", "Authorization: Basic eDp5\r\n",
                                         "Authorization: Bearer\r\n"};
    for (size_t i = 0; i < sizeof NOBODY / sizeof *NOBODY; i++) {
        AUTO_ANSWER answer = http_do("POST", "/threads/t/sandbox", NOBODY[i], "{}");
        CHECK(answer.status == 401);
        CHECK_TEXT(told(&answer, "error.code"), "UNAUTHENTICATED");
    }
    AUTO_FREE char *by_header = memory_printf("X-API-Key: %s\r\n", stage.ada);
    AUTO_FREE char *by_scheme = memory_printf("Authorization: ApiKey %s\r\n", stage.ada);
    AUTO_ANSWER first = http_do("GET", "/sandboxes", by_header, "");
    AUTO_ANSWER second = http_do("GET", "/sandboxes", by_scheme, "");
    AUTO_ANSWER viewer = as(stage.viewer, "POST", "/threads/t/sandbox", "{}");
    AUTO_ANSWER looks = as(stage.viewer, "GET", "/sandboxes", "");
    AUTO_ANSWER others = as(stage.ada, "GET", "/threads/t/sandbox?principal=admin", "");
    CHECK(first.status == 200 && second.status == 200 && viewer.status == 403 && looks.status == 200 &&
          others.status == 404);
}

static void the_reply(void)
{
    AUTO_ANSWER made = as(stage.ada, "POST", "/threads/shape/sandbox",
                          "{\"name\":\"build-box\",\"actor\":{\"type\":\"agent\",\"id\":\"a1\"},"
                          "\"metadata\":{\"k\":\"v\"},\"ttl\":100,\"scopes\":[\"process\",\"fs:ro\",\"nonsense\"]}");
    CHECK(made.status == 201);
    CHECK(strstr(made.head, "no-store") != NULL);
    CHECK_TEXT(told(&made, "protocol_version"), "1.0");
    CHECK_TEXT(told(&made, "sandbox.name"), "build-box");
    CHECK_TEXT(told(&made, "sandbox.state"), "active");
    CHECK_TEXT(told(&made, "sandbox.isolation"), "namespaces");
    CHECK_TEXT(told(&made, "sandbox.node"), "n1");
    CHECK_TEXT(told(&made, "lease.thread_id"), "shape");
    CHECK_TEXT(told(&made, "token_type"), "Bearer");
    CHECK(json_object_get(made.json, "hint") == NULL);
    CHECK(json_array_size(json_object_get(made.json, "scopes")) == 2);
    CHECK(json_is_false(json_object_get(json_object_get(made.json, "sandbox"), "reused")));
    struct capability_claims claims;
    struct error err = {0};
    const char *token = told(&made, "token");
    CHECK(capability_decode(&claims, token, strlen(token), &err));
    CHECK_TEXT(claims.actor, "agent:a1");
    CHECK_TEXT(claims.principal, "ada");
    CHECK_TEXT(claims.jti, told(&made, "jti"));
    CHECK(claims.expires_at - claims.issued_at == 100);
    int64_t expires = 0, refresh = 0;
    CHECK(clock_parse(told(&made, "expires_at"), &expires) && clock_parse(told(&made, "refresh_before"), &refresh));
    CHECK(expires == claims.expires_at * 1000 && refresh == expires - 20000);
    AUTO_FREE char *base = memory_printf("http://127.0.0.1:%u/s/%s", http_server_port(stage.node), claims.sandbox_id);
    AUTO_FREE char *ws = memory_printf("ws%s/ws", base + 4);
    CHECK_TEXT(told(&made, "endpoints.http"), base);
    CHECK_TEXT(told(&made, "endpoints.ws"), ws);
    AUTO_ANSWER again =
        as(stage.ada, "POST", "/threads/shape/sandbox", "{\"sandbox\":\"nothing\",\"capability_url\":true}");
    CHECK(again.status == 200);
    CHECK_TEXT(told(&again, "sandbox.id"), told(&made, "sandbox.id"));
    CHECK_TEXT(told(&again, "hint.given"), "nothing");
    CHECK_TEXT(told(&again, "hint.reason"), "thread_has_sandbox");
    CHECK(strstr(told(&again, "endpoints.capability"), told(&again, "token")) != NULL);
    AUTO_ANSWER shown = as(stage.ada, "GET", "/threads/shape/sandbox", "");
    CHECK(shown.status == 200 && json_object_get(shown.json, "token") == NULL);
    CHECK_TEXT(told(&shown, "sandbox.metadata.k"), "v");
    CHECK_TEXT(told(&shown, "lease.id"), told(&made, "lease.id"));
    /* An admin reaches another's thread by saying whose. */
    AUTO_ANSWER admin = as(stage.admin, "POST", "/threads/shape/sandbox?principal=ada", "{}");
    CHECK_TEXT(told(&admin, "sandbox.id"), told(&made, "sandbox.id"));
}

static void bad_input_is_named(void)
{
    static const char *const WRONG[][2] = {
        {"{\"mod\":\"ensure\"}", "\"mod\""},
        {"{\"mode\":\"x\"}", "mode"},
        {"{\"mode\":1}", "mode"},
        {"{\"ttl\":0}", "ttl"},
        {"{\"ttl\":59}", "ttl"},
        {"{\"ttl\":\"900\"}", "ttl"},
        {"{\"ttl\":1e300}", "ttl"},
        {"{\"ttl\":-5}", "ttl"},
        {"{\"scopes\":\"process\"}", "scopes"},
        {"{\"scopes\":[1]}", "scopes"},
        {"{\"scopes\":[\"process shell\"]}", "scopes"},
        {"{\"scopes\":[\"fs:rw@/x\",\"process\"]}", "scopes"},
        {"{\"resources\":{\"cpus\":1}}", "cpus"},
        {"{\"resources\":[]}", "resources"},
        {"{\"resources\":{\"cpu\":1e99}}", "cpu"},
        {"{\"resources\":{\"memory_mb\":-1}}", "memory_mb"},
        {"{\"resources\":{\"memory_mb\":9223372036854775807}}", "memory_mb"},
        {"{\"name\":\"../x\"}", "name"},
        {"{\"sandbox\":\"\"}", "sandbox"},
        {"{\"sandbox\":\"a\",\"sandbox_id\":\"b\"}", "sandbox_id"},
        {"{\"hint_policy\":\"must\"}", "hint_policy"},
        {"{\"actor\":{\"type\":\"robot\"}}", "actor"},
        {"{\"actor\":{\"type\":\"agent\"}}", "actor"},
        {"{\"actor\":{\"type\":\"human\",\"name\":\"x\"}}", "actor"},
        {"{\"actor\":{\"type\":\"human\",\"id\":\"a b\"}}", "actor.id"},
        {"{\"metadata\":{\"a\":1}}", "metadata"},
        {"{\"idle_timeout\":10000000000}", "idle_timeout"},
        {"{\"wait\":301}", "wait"},
        {"{\"env\":{\"1A\":\"x\"}}", "env"},
        {"{\"network\":{\"egress\":\"all\"}}", "network.egress must be"},
        {"{\"network\":{\"ingress\":\"x\"}}", "ingress"},
        {"{\"network\":{\"egress\":\"allow\",\"allow\":[\"10.0.0.1\"]}}", "never reached"},
        {"{\"ports\":[0]}", "1 to 65535"},
        {"{\"ports\":80}", "ports"},
        {"{\"volumes\":{}}", "volumes must be a list"},
        {"{\"volumes\":[1]}", "\"name\" or \"host\""},
        {"{\"volumes\":[{\"path\":\"/x\"}]}", "\"name\" or \"host\""},
        {"{\"volumes\":[{\"name\":\"a\",\"host\":\"/b\",\"path\":\"/x\"}]}", "\"name\" or \"host\""},
        {"{\"volumes\":[{\"name\":\"a\"}]}", "path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"x\"}]}", "path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/\"}]}", "path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x/../y\"}]}", "path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x//y\"}]}", "path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x/\"}]}", "path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/proc/self\"}]}", "/proc"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/dev\"}]}", "/dev"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\\n\"}]}", "path"},
        {"{\"volumes\":[{\"name\":\"A\",\"path\":\"/x\"}]}", "name"},
        {"{\"volumes\":[{\"name\":\"a/b\",\"path\":\"/x\"}]}", "name"},
        {"{\"volumes\":[{\"name\":\"..\",\"path\":\"/x\"}]}", "name"},
        {"{\"volumes\":[{\"name\":\"aaaaaaaaaabbbbbbbbbbccccccccccd\",\"path\":\"/x\"}]}", "1 to 30"},
        {"{\"volumes\":[{\"host\":\"/a/../etc\",\"path\":\"/x\"}]}", "host"},
        {"{\"volumes\":[{\"host\":\"a/b\",\"path\":\"/x\"}]}", "host"},
        {"{\"volumes\":[{\"host\":\"/a\",\"path\":\"/x\",\"size_mb\":5}]}", "size_mb"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\",\"size_mb\":0}]}", "size_mb"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\",\"size_mb\":9000000000}]}", "size_mb"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\",\"read_only\":1}]}", "read_only"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\",\"sub_path\":\"/abs\"}]}", "sub_path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\",\"sub_path\":\"a/../..\"}]}", "sub_path"},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\",\"mode\":\"rw\"}]}", "\"mode\""},
        {"{\"volumes\":[{\"name\":\"a\",\"path\":\"/x\"},{\"name\":\"b\",\"path\":\"/x\"}]}", "two have the path /x"},
        {"{\"volumes\":[1,2,3,4,5,6,7,8,9]}", "volumes"},
        {"{\"entrypoint\":\"x\"}", "entrypoint"},
        {"{\"entrypoint\":[]}", "entrypoint"},
        {"{\"entrypoint\":[\"\"]}", "entrypoint"},
        {"{\"entrypoint\":[\"x\",1]}", "entrypoint"},
        {"{\"on_idle\":\"sleep\"}", "on_idle must be \"stop\" or \"pause\""},
        {"{\"on_idle\":1}", "on_idle must be \"stop\" or \"pause\""},
        {"{\"resources\":{\"open_files\":15}}", "resources.open_files must be 16 to 1048576"},
        {"{\"resources\":{\"processes\":1001}}", "resources.processes must be 1 to 1000"},
        {"{\"resources\":{\"output_mb\":0}}", "output_mb"},
        {"{\"template\":\"snapshot:\"}", "template"},
        {"{\"template\":\"snapshot:../x\"}", "template"},
        {"{\"template\":\"a b\"}", "template"},
        {"{", ""},
        {"[]", ""},
        {"{\"ttl\":900,\"ttl\":901}", ""},
        {"{\"a\":\"\\u0000\"}", ""},
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        AUTO_ANSWER answer = as(stage.ada, "POST", "/threads/bad/sandbox", WRONG[i][0]);
        CHECK(answer.status == 400);
        CHECK_TEXT(told(&answer, "error.code"), "INVALID_REQUEST");
        if (strstr(told(&answer, "error.message"), WRONG[i][1]) == NULL) {
            fprintf(stderr, "%s: %s\n", WRONG[i][0], told(&answer, "error.message"));
            check_failures++;
        }
    }
    static const char *const IDS[] = {"a%2Fb", "a%00b", "%ff", "a%20b", "caf%C3%A9"};
    for (size_t i = 0; i < sizeof IDS / sizeof *IDS; i++) {
        AUTO_FREE char *path = memory_printf("/threads/%s/sandbox", IDS[i]);
        AUTO_ANSWER answer = as(stage.ada, "POST", path, "{}");
        CHECK(answer.status == 400 || answer.status == 404);
    }
    AUTO_ANSWER nothing = as(stage.ada, "GET", "/threads/bad/sandbox", "");
    CHECK(nothing.status == 404); /* none of all that made anything */
    static const char *const QUERIES[] = {"limit=0",  "limit=201", "limit=x",      "state=dead",
                                          "cursor=x", "name=A",    "principal=a/b"};
    for (size_t i = 0; i < sizeof QUERIES / sizeof *QUERIES; i++) {
        AUTO_FREE char *path = memory_printf("/sandboxes?%s", QUERIES[i]);
        AUTO_ANSWER answer = as(stage.ada, "GET", path, "");
        CHECK(answer.status == 400);
    }
}

static void everything_said_is_accepted(void)
{
    AUTO_ANSWER answer = as(stage.ada, "POST", "/threads/all/sandbox",
                            "{\"mode\":\"create_only\",\"sandbox\":\"auto\",\"hint_policy\":\"prefer\",\"scopes\":[],"
                            "\"ttl\":60,\"idle_timeout\":60,\"max_lifetime\":600,\"template\":\"base\","
                            "\"isolation\":\"namespaces\",\"resources\":{\"cpu\":0.5,\"memory_mb\":64,\"disk_mb\":10,"
                            "\"pids\":32},\"network\":{\"egress\":\"allow\",\"allow\":[\"A.org\"]},\"env\":{\"A\":"
                            "\"1\"},\"ports\":[443,80,80],"
                            "\"volumes\":[],\"entrypoint\":null,\"on_idle\":\"stop\",\"name\":\"all\",\"metadata\":{},"
                            "\"actor\":{\"type\":\"human\"},\"wait\":5,\"capability_url\":false}");
    CHECK(answer.status == 201);
    CHECK(json_array_size(json_object_get(answer.json, "scopes")) == 0);
    AUTO_ANSWER named = as(stage.ada, "GET", "/sandboxes?name=all&state=active,idle&limit=1", "");
    const json_t *list = json_object_get(named.json, "sandboxes");
    CHECK(json_array_size(list) == 1);
    const json_t *cpu = json_object_get(json_object_get(json_array_get(list, 0), "resources"), "cpu");
    CHECK(json_number_value(cpu) > 0.49 && json_number_value(cpu) < 0.51);
    json_t *network = json_pack("{s:s, s:[s]}", "egress", "allow", "allow", "a.org"),
           *ports = json_pack("[i, i]", 80, 443);
    CHECK(json_equal(json_object_get(json_array_get(list, 0), "network"), network));
    CHECK(json_equal(json_object_get(json_array_get(list, 0), "ports"), ports));
    json_decref(network);
    json_decref(ports);
    const json_t *previews = json_object_get(json_object_get(answer.json, "endpoints"), "previews");
    const char *preview = json_string_value(json_object_get(previews, "443"));
    CHECK(json_object_size(previews) == 2 && preview && strstr(preview, "://443-sbx-") &&
          strstr(preview, ".localhost"));
}

static void idempotency_key(void)
{
    AUTO_FREE char *header = memory_printf("Authorization: Bearer %s\r\nIdempotency-Key: k-1\r\n", stage.ada);
    AUTO_ANSWER first = http_do("POST", "/threads/idem/sandbox", header, "{\"ttl\":300}");
    AUTO_ANSWER again = http_do("POST", "/threads/idem/sandbox", header, "{\"ttl\":300}");
    AUTO_ANSWER other = http_do("POST", "/threads/idem/sandbox", header, "{\"ttl\":301}");
    AUTO_ANSWER route = http_do("POST", "/threads/idem2/sandbox", header, "{\"ttl\":301}");
    CHECK(first.status == 201 && again.status == 200 && other.status == 409 && route.status == 201);
    CHECK_TEXT(told(&again, "sandbox.id"), told(&first, "sandbox.id"));
    CHECK(strcmp(told(&again, "token"), told(&first, "token")) != 0);
    AUTO_FREE char *path = memory_printf("/sandboxes/%s", told(&first, "sandbox.id"));
    AUTO_ANSWER deleted = as(stage.ada, "DELETE", path, "");
    AUTO_ANSWER gone = http_do("POST", "/threads/idem/sandbox", header, "{\"ttl\":300}");
    CHECK(deleted.status == 204 && gone.status == 410);
}

static void ends(void)
{
    struct error err = {0};
    AUTO_ANSWER made = as(stage.ada, "POST", "/threads/end/sandbox", "{}");
    AUTO_ANSWER strange = as(stage.ada, "DELETE", "/threads/no-such/sandbox", "");
    AUTO_ANSWER released = as(stage.ada, "DELETE", "/threads/end/sandbox", "");
    CHECK(made.status == 201 && strange.status == 404 && released.status == 204);
    AUTO_FREE char *path = memory_printf("/sandboxes/%s", told(&made, "sandbox.id"));
    AUTO_ANSWER ending = as(stage.ada, "GET", path, "");
    CHECK_TEXT(told(&ending, "state"), "terminating");
    json_decref(
        node_beat(json_array(), json_pack("[{s:s, s:s}]", "id", told(&made, "sandbox.id"), "reason", "deleted"), &err));
    AUTO_ANSWER ended = as(stage.ada, "GET", path, "");
    AUTO_ANSWER late = as(stage.ada, "DELETE", path, "");
    AUTO_ANSWER unknown = as(stage.ada, "GET", "/sandboxes/sbx_bbbbbbbbbbbbbbbbbbbb", "");
    AUTO_ANSWER odd = as(stage.ada, "GET", "/sandboxes/x", "");
    CHECK_TEXT(told(&ended, "state"), "terminated");
    CHECK_TEXT(told(&ended, "reason"), "released");
    CHECK(late.status == 410 && unknown.status == 404 && odd.status == 404);
}

static void changes(void)
{
    AUTO_ANSWER made = as(stage.ada, "POST", "/threads/change/sandbox",
                          "{\"on_idle\":\"pause\",\"entrypoint\":[\"sleep\",\"1\"],\"resources\":{\"open_files\":64}}");
    CHECK(made.status == 201);
    AUTO_FREE char *path = memory_printf("/sandboxes/%s", told(&made, "sandbox.id"));
    AUTO_FREE char *pause = memory_printf("%s/pause", path), *resume = memory_printf("%s/resume", path);
    AUTO_ANSWER paused = as(stage.ada, "POST", pause, "{}");
    CHECK(paused.status == 200);
    CHECK_TEXT(told(&paused, "sandbox.state"), "paused");
    CHECK_TEXT(told(&paused, "sandbox.on_idle"), "pause");
    AUTO_ANSWER resumed = as(stage.ada, "POST", resume, "");
    CHECK_TEXT(told(&resumed, "sandbox.state"), "active");
    AUTO_ANSWER other = as(stage.ada, "PATCH", path,
                           "{\"resources\":{\"memory_mb\":64},\"metadata\":{\"a\":\"b\"},\"name\":\"changed\"}");
    CHECK(other.status == 200);
    CHECK_TEXT(told(&other, "sandbox.name"), "changed");
    CHECK_TEXT(told(&other, "sandbox.metadata.a"), "b");
    const json_t *resources = json_object_get(json_object_get(other.json, "sandbox"), "resources");
    CHECK(json_integer_value(json_object_get(resources, "memory_mb")) == 64 &&
          json_integer_value(json_object_get(resources, "open_files")) == 64);
    static const char *const WRONG[] = {"{\"template\":\"x\"}",
                                        "{\"resources\":{\"memory_mb\":1}}",
                                        "{\"on_idle\":\"x\"}",
                                        "{\"name\":\"-\"}",
                                        "{",
                                        "[]"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        AUTO_ANSWER wrong = as(stage.ada, "PATCH", path, WRONG[i]);
        CHECK(wrong.status == 400);
    }
    AUTO_ANSWER body = as(stage.ada, "POST", pause, "{\"a\":1}"), viewer = as(stage.viewer, "POST", pause, "{}");
    AUTO_ANSWER odd = as(stage.ada, "POST", "/sandboxes/x/pause", "{}");
    CHECK(body.status == 400 && viewer.status == 403 && odd.status == 404);
}

static void snapshots(void)
{
    AUTO_ANSWER made = as(stage.ada, "POST", "/threads/keep/sandbox", "{}");
    AUTO_FREE char *path = memory_printf("/sandboxes/%s/snapshots", told(&made, "sandbox.id"));
    AUTO_ANSWER taken = as(stage.ada, "POST", path, "{\"name\":\"kept\"}");
    CHECK(taken.status == 201);
    CHECK_TEXT(told(&taken, "snapshot.name"), "kept");
    CHECK_TEXT(told(&taken, "snapshot.state"), "ready");
    CHECK_TEXT(told(&taken, "snapshot.owner"), "ada");
    CHECK(json_is_false(json_object_get(json_object_get(taken.json, "processes"), "included")));
    AUTO_ANSWER by_token = as(told(&made, "token"), "POST", path, "");
    CHECK(by_token.status == 201);
    AUTO_ANSWER again = as(stage.ada, "POST", path, "{\"name\":\"kept\"}"), nobody = http_do("POST", path, "", "{}");
    AUTO_ANSWER odd = as(stage.ada, "POST", path, "{\"name\":\"A\"}"), more = as(stage.ada, "POST", path, "{\"x\":1}");
    AUTO_ANSWER viewer = as(stage.viewer, "POST", path, "{}"), bad = as("x.y.z", "POST", path, "{}");
    CHECK(again.status == 409 && nobody.status == 401 && odd.status == 400 && more.status == 400);
    CHECK(viewer.status == 403 && bad.status == 401);
    AUTO_FREE char *one = memory_printf("/snapshots/%s", told(&taken, "snapshot.id"));
    AUTO_ANSWER shown = as(stage.viewer, "GET", one, ""), list = as(stage.ada, "GET", "/snapshots?limit=1", "");
    CHECK(shown.status == 200 && list.status == 200 && told(&list, "next_cursor")[0]);
    CHECK_TEXT(told(&shown, "snapshot.id"), told(&taken, "snapshot.id"));
    AUTO_ANSWER named = as(stage.ada, "GET", "/snapshots?name=kept", "");
    CHECK(json_array_size(json_object_get(named.json, "snapshots")) == 1);
    AUTO_ANSWER begun = as(stage.ada, "POST", "/threads/kept/sandbox", "{\"template\":\"snapshot:kept\"}");
    CHECK(begun.status == 201);
    CHECK_TEXT(told(&begun, "sandbox.snapshot"), told(&taken, "snapshot.id"));
    AUTO_ANSWER none = as(stage.ada, "POST", "/threads/kept2/sandbox", "{\"template\":\"snapshot:none\"}");
    CHECK(none.status == 404);
    AUTO_ANSWER dropped = as(stage.ada, "DELETE", one, ""), gone = as(stage.ada, "GET", one, "");
    AUTO_ANSWER wrong = as(stage.ada, "GET", "/snapshots/x", ""),
                query = as(stage.ada, "GET", "/snapshots?limit=0", "");
    CHECK(dropped.status == 204 && gone.status == 404 && wrong.status == 404 && query.status == 400);
}

static void volumes(void)
{
    AUTO_ANSWER made = as(stage.ada, "POST", "/threads/vol/sandbox",
                          "{\"volumes\":[{\"name\":\"cache\",\"path\":\"/data\",\"size_mb\":5},"
                          "{\"host\":\"/srv\",\"path\":\"/srv\",\"read_only\":true,\"sub_path\":\"a/b\"}]}");
    CHECK(made.status == 201);
    AUTO_ANSWER shown = as(stage.ada, "GET", "/threads/vol/sandbox", ""),
                list = as(stage.viewer, "GET", "/volumes", "");
    const json_t *told_volumes = json_object_get(json_object_get(shown.json, "sandbox"), "volumes");
    json_t *expected =
        json_pack("[{s:s, s:s, s:b, s:i}, {s:s, s:s, s:s, s:b}]", "name", "cache", "path", "/data", "read_only", 0,
                  "size_mb", 5, "host", "/srv", "path", "/srv", "sub_path", "a/b", "read_only", 1);
    CHECK(json_equal(told_volumes, expected));
    json_decref(expected);
    const json_t *first = json_array_get(json_object_get(list.json, "volumes"), 0);
    CHECK(list.status == 200 && json_integer_value(json_object_get(first, "size_bytes")) == 5 * 1024 * 1024);
    CHECK_TEXT(json_string_value(json_array_get(json_object_get(first, "sandboxes"), 0)), told(&made, "sandbox.id"));
    AUTO_ANSWER used = as(stage.ada, "DELETE", "/volumes/cache", ""), odd = as(stage.ada, "DELETE", "/volumes/A", "");
    AUTO_ANSWER viewer = as(stage.viewer, "DELETE", "/volumes/cache", "");
    CHECK(used.status == 409 && odd.status == 404 && viewer.status == 403);
}

/* Placed is what a node has; what it has it says. */
static void templates(void)
{
    struct error err = {0};
    AUTO_ANSWER before = as(stage.ada, "POST", "/threads/py/sandbox", "{\"template\":\"py\"}");
    CHECK(before.status == 400 && strstr(told(&before, "error.message"), "there are: base"));
    stage_templates = json_pack("[{s:s, s:s, s:i, s:I, s:s}, {s:s}]", "name", "py", "digest", "sha256:1", "size_bytes",
                                7, "created_at", (json_int_t)1700000000000, "source", "import", "name", "rust");
    json_decref(node_beat(json_array(), json_array(), &err));
    CHECK_TEXT(err.message, "");
    json_decref(node_beat(json_array(), json_array(), &err)); /* a difference that does not name them */
    AUTO_ANSWER list = as(stage.viewer, "GET", "/templates", "");
    const json_t *all = json_object_get(list.json, "templates");
    CHECK(list.status == 200 && json_array_size(all) == 2);
    const json_t *py = json_array_get(all, 0);
    CHECK_TEXT(json_string_value(json_object_get(py, "created_at")), "2023-11-14T22:13:20.000Z");
    CHECK_TEXT(json_string_value(json_array_get(json_object_get(py, "nodes"), 0)), "n1");
    CHECK(json_is_false(json_object_get(py, "allowed"))); /* to a viewer */
    AUTO_ANSWER after = as(stage.ada, "POST", "/threads/py/sandbox", "{\"template\":\"py\"}");
    CHECK(after.status == 201);
    AUTO_ANSWER other = as(stage.ada, "POST", "/threads/py2/sandbox", "{\"template\":\"perl\"}");
    CHECK(other.status == 400 && strstr(told(&other, "error.message"), "base, py, rust"));
    stage_templates = json_pack("[{s:s}]", "name", "../x");
    json_t *reply = node_beat(json_array(), json_array(), &err);
    CHECK(json_object_get(reply, "error") != NULL || reply == NULL);
    json_decref(reply);
}

/* ---- what is recorded ---- */

struct sought {
    const char *action, *thread;
    int status;
    size_t count;
};

static enum kv_outcome count_records(struct kv *kv, void *argument, struct error *err)
{
    struct sought *sought = argument;
    size_t i;
    json_t *each, *all = audit_list(kv, 0, 100000, err);
    sought->count = 0;
    json_array_foreach (all, i, each)
        sought->count += text_equal(json_string_value(json_object_get(each, "action")), sought->action) &&
                         text_equal(json_string_value(json_object_get(each, "thread_id")), sought->thread) &&
                         json_integer_value(json_object_get(each, "status")) == sought->status;
    json_decref(all);
    return KV_APPLIED;
}

static size_t records(const char *action, const char *thread, int status)
{
    struct error err = {0};
    struct sought sought = {action, thread, status, 0};
    CHECK(ledger_run(stage.ledger, count_records, &sought, &err));
    return sought.count;
}

static void refusals_are_recorded(void)
{
    AUTO_ANSWER wrong = as(stage.ada, "POST", "/threads/rec/sandbox", "{\"ttl\":1}");
    AUTO_ANSWER strange = as(stage.ada, "POST", "/threads/rec/sandbox", "{\"mod\":1}");
    AUTO_ANSWER broken = as(stage.ada, "POST", "/threads/rec/sandbox", "{");
    AUTO_ANSWER viewer = as(stage.viewer, "POST", "/threads/rec/sandbox", "{}");
    AUTO_ANSWER lets_go = as(stage.viewer, "DELETE", "/threads/rec/sandbox", "");
    AUTO_ANSWER deletes = as(stage.viewer, "DELETE", "/sandboxes/sbx_bbbbbbbbbbbbbbbbbbbb", "");
    CHECK(wrong.status == 400 && strange.status == 400 && broken.status == 400 && viewer.status == 403 &&
          lets_go.status == 403 && deletes.status == 403);
    CHECK(records("negotiate", "rec", 400) == 3);
    CHECK(records("negotiate", "rec", 403) == 1);
    CHECK(records("release", "rec", 403) == 1);
    CHECK(records("sandbox.delete", "", 403) == 1);
}

/* ---- how full the ledger is ---- */

static void not_ready_with_a_full_ledger(void)
{
    kv_memory_set_usage(stage.kv, 94);
    AUTO_ANSWER good = http_do("GET", "/readyz", "", "");
    kv_memory_set_usage(stage.kv, 95);
    AUTO_ANSWER full = http_do("GET", "/readyz", "", "");
    kv_memory_set_usage(stage.kv, 0);
    CHECK(good.status == 200 && full.status == 503);
    CHECK(strstr(told(&full, "error.message"), "map_mb") != NULL);
}

/* ---- waiting ---- */

static void *negotiate_race(void *argument)
{
    struct answer *answer = argument;
    *answer = as(stage.ada, "POST", "/threads/race/sandbox", "{}");
    return NULL;
}

static void fifty_clients_one_sandbox(void)
{
    enum { CLIENTS = 50 };
    pthread_t threads[CLIENTS];
    struct answer answers[CLIENTS];
    unsigned created = 0, before = node_prepares();
    for (size_t i = 0; i < CLIENTS; i++)
        CHECK(pthread_create(&threads[i], NULL, negotiate_race, &answers[i]) == 0);
    for (size_t i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < CLIENTS; i++) {
        created += answers[i].status == 201;
        CHECK(answers[i].status == 201 || answers[i].status == 200);
        CHECK_TEXT(told(&answers[i], "sandbox.id"), told(&answers[0], "sandbox.id"));
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(told(&answers[i], "jti"), told(&answers[j], "jti")) != 0);
    }
    CHECK(created == 1 && node_prepares() == before + 1);
    for (size_t i = 0; i < CLIENTS; i++)
        answer_done(&answers[i]);
}

static void those_who_do_not_wait(void)
{
    atomic_store(&stage.holds, true);
    AUTO_ANSWER first = as(stage.ada, "POST", "/threads/slow/sandbox", "{\"wait\":0}");
    AUTO_ANSWER second = as(stage.ada, "POST", "/threads/slow/sandbox", "{\"wait\":1}");
    CHECK(first.status == 423 && second.status == 423);
    CHECK_TEXT(told(&first, "error.code"), "STARTING");
    CHECK(strstr(first.head, "Retry-After:") != NULL);
    /* One leaves while it waits. */
    AUTO_FREE char *header = memory_printf("Authorization: Bearer %s\r\n", stage.ada);
    int fd = http_connect();
    http_send(fd, "POST", "/threads/slow/sandbox", header, "{}");
    struct timespec moment = {.tv_nsec = 50000000};
    nanosleep(&moment, NULL);
    close(fd);
    nanosleep(&moment, NULL);
    AUTO_ANSWER shown = as(stage.ada, "GET", "/threads/slow/sandbox", "");
    CHECK_TEXT(told(&shown, "sandbox.state"), "provisioning");
    node_release();
    AUTO_ANSWER third = as(stage.ada, "POST", "/threads/slow/sandbox", "{}");
    CHECK(third.status == 200);
    CHECK_TEXT(told(&third, "sandbox.id"), told(&shown, "sandbox.id"));
}

static void what_the_node_refuses(void)
{
    atomic_store(&stage.refuses, ERROR_INVALID);
    AUTO_ANSWER wrong = as(stage.ada, "POST", "/threads/refused/sandbox", "{\"template\":\"nope\"}");
    CHECK(wrong.status == 400 && strstr(told(&wrong, "error.message"), "template") != NULL);
    atomic_store(&stage.refuses, ERROR_NO_CAPACITY);
    AUTO_ANSWER full = as(stage.ada, "POST", "/threads/refused/sandbox", "{}");
    CHECK(full.status == 503);
    CHECK_TEXT(told(&full, "error.code"), "NO_CAPACITY");
    atomic_store(&stage.refuses, 0);
    AUTO_ANSWER good = as(stage.ada, "POST", "/threads/refused/sandbox", "{}");
    CHECK(good.status == 201);
}

static void a_client_waits_when_the_negotiator_stops(void)
{
    atomic_store(&stage.holds, true);
    AUTO_FREE char *header = memory_printf("Authorization: Bearer %s\r\n", stage.ada);
    int fd = http_connect();
    http_send(fd, "POST", "/threads/stop/sandbox", header, "{}");
    struct timespec moment = {.tv_nsec = 50000000};
    nanosleep(&moment, NULL); /* its node never answers: what was kept for it is freed all the same */
    leasing_stopping(stage.leasing);
    CHECK(records("authenticate", "", 401) >= 1); /* of who_is_asking: the sum so far */
    stage_close();
    close(fd);
}

int main(void)
{
    stage_open();
    not_ready_without_a_node();
    heartbeats();
    who_is_asking();
    the_reply();
    bad_input_is_named();
    everything_said_is_accepted();
    idempotency_key();
    ends();
    changes();
    snapshots();
    volumes();
    templates();
    refusals_are_recorded();
    not_ready_with_a_full_ledger();
    fifty_clients_one_sandbox();
    those_who_do_not_wait();
    what_the_node_refuses();
    a_client_waits_when_the_negotiator_stops();
    return check_done();
}
