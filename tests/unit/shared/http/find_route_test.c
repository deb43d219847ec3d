/* find_route_test.c - rows that are found by an alias, a header or a host; the carriers of foreign clients, and what of
 * them goes on to an app; streams of blank lines; empty replies. */
#include "proxy_fixture.h"

static char reply[1 << 16];

static void answer_own(struct http_request *request)
{
    http_reply_json(
        request, 200,
        json_pack("{s:s, s:s}", "path", http_request_path(request), "row", http_request_route(request)->path));
}

static void answer_accepted(struct http_request *request)
{
    http_reply_empty(request, 202);
}

static void answer_events(struct http_request *request)
{
    static const struct http_stream_events NO_EVENTS = {0};
    http_stream_start_json(request, 200, HTTP_BLANK_LINE, &NO_EVENTS, NULL);
    http_stream_send_json(request, HTTP_BLANK_LINE, "init", json_pack("{s:s}", "type", "init"));
    http_stream_send_json(request, HTTP_BLANK_LINE, NULL, json_pack("{s:s}", "type", "ping"));
    http_stream_end(request);
}

static bool move_reserved(const char *label, struct text *path)
{
    if (strcmp(label, "sbx-1-44772") != 0)
        return false;
    text_append_string(path, "/s/sbx_1/port/44772");
    return true;
}

#define OF_PORTS (HTTP_BEARER | HTTP_PATH | HTTP_EXECD)
#define OF_KEYS  (HTTP_BEARER | HTTP_API_KEY | HTTP_OPENSANDBOX)

static const struct http_route HOSTS = {"*", "(hosts)", 0, NULL, 0, answer_own};

static const struct http_route ROWS[] = {
    {"GET", "/s/{sandbox}/port/44772/command/{x}", OF_PORTS, "process", 0, answer_mirror},
    {"*", "/s/{sandbox}/port/44772/{rest...}", 0, NULL, 0, answer_own},
    {"GET", "/s/{sandbox}/port/18080/policy", OF_PORTS | HTTP_EGRESS_AUTH, "process", 0, answer_mirror},
    {"*", "/s/{sandbox}/port/{port}/{rest...}", OF_PORTS | HTTP_POURS | HTTP_PROXIES, "port", 1 << 20, pass_on},
    {"GET", "/v1/sandboxes/{x}", OF_KEYS, "user", 0, answer_mirror},
    {"*", "/v1/sandboxes/{x}/proxy/{port}/{rest...}", OF_KEYS | HTTP_EXECD | HTTP_POURS | HTTP_PROXIES, "user", 1 << 20,
     pass_on},
    {"GET", "/v1", 0, NULL, 0, answer_own},
    {"GET", "/own/{x}", OF_KEYS, "user", 0, answer_mirror},
    {"POST", "/accepted", 0, NULL, 0, answer_accepted},
    {"GET", "/events", 0, NULL, 0, answer_events},
};

static struct http_server_options make_options(void)
{
    return (struct http_server_options){.host = "127.0.0.1",
                                        .tls = tls_fixture(),
                                        .name = "find",
                                        .loops = 1,
                                        .routes = ROWS,
                                        .route_count = sizeof ROWS / sizeof ROWS[0],
                                        .host_rule = {"preview.test", &HOSTS, move_reserved},
                                        .prefix_alias = {"/sandboxes/", "/s/"},
                                        .header_prefix = {"open-sandbox-api-key", "/v1"},
                                        .authorize = fixture_authorize};
}

static int ask(const char *target, const char *headers)
{
    AUTO_FREE char *request = memory_printf("GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target, headers);
    return client_ask(request, reply, sizeof reply);
}

static void test_alias(void)
{
    CHECK(ask("/sandboxes/sbx_1/port/44772/command/c1", "X-EXECD-ACCESS-TOKEN: t1\r\n") == 200);
    CHECK(strstr(reply, "\"sandbox\":\"sbx_1\"") != NULL && strstr(reply, "\"x\":\"c1\"") != NULL);
    CHECK(strstr(reply, "\"credential\":\"t1\"") != NULL);
    CHECK(ask("/sandboxes/sbx_1/port/44772/nothing", "") == 200); /* the row behind the others */
    CHECK(strstr(reply, "\"path\":\"/s/sbx_1/port/44772/nothing\"") != NULL);
    static const char *const NONE[] = {"/sandboxes//port/44772/x",
                                       "/sandboxes",
                                       "/sandboxes/",
                                       "//sandboxes/sbx_1/port/1/",
                                       "/sandboxes/sandboxes/sbx_1/port/1/",
                                       "/Sandboxes/sbx_1/port/44772/x",
                                       "/%73andboxes/sbx_1/port/44772/x",
                                       "/sandboxes%2Fsbx_1/port/44772/x"};
    for (size_t i = 0; i < sizeof NONE / sizeof NONE[0]; i++)
        CHECK(ask(NONE[i], "X-EXECD-ACCESS-TOKEN: t1\r\n") == 404);
    static const char *const BROKEN[] = {"/sandboxes/../s/sbx_1/port/44772/x", "/sandboxes/%2e%2e/port/44772/x",
                                         "/sandboxes/sbx_1/port/%2e/x", "/sandboxes/sbx%2f1/port/44772/x"};
    for (size_t i = 0; i < sizeof BROKEN / sizeof BROKEN[0]; i++)
        CHECK(ask(BROKEN[i], "X-EXECD-ACCESS-TOKEN: t1\r\n") == 400);
}

static void test_header_prefix(void)
{
    CHECK(ask("/sandboxes/a", "Open-Sandbox-Api-Key: pk_k\r\n") == 200); /* the header's rule comes before the alias */
    CHECK(strstr(reply, "\"credential\":\"pk_k\"") != NULL && strstr(reply, "\"x\":\"a\"") != NULL);
    CHECK(strstr(reply, "Cache-Control: no-store") != NULL);
    CHECK(ask("/v1/sandboxes/a", "Open-Sandbox-Api-Key: pk_k\r\n") == 200);
    CHECK(ask("/v1/sandboxes/a", "X-API-Key: pk_k\r\n") == 200);
    CHECK(ask("/v1/sandboxes/a", "Authorization: Bearer pk_k\r\n") == 200);
    CHECK(ask("/v1/sandboxes/a", "Open-Sandbox-Api-Key: pk_k\r\nX-API-Key: pk_other\r\n") == 400);
    CHECK(ask("/v1/sandboxes/a", "Open-Sandbox-Api-Key: \r\n") == 401);
    CHECK(ask("/v1/sandboxes/a", "") == 401);
    CHECK(ask("/own/a", "Open-Sandbox-Api-Key: pk_k\r\n") == 404); /* and not the native row of the same path */
    CHECK(ask("/v1", "Open-Sandbox-Api-Key: pk_k\r\n") == 200);
    CHECK(ask("/v1x", "Open-Sandbox-Api-Key: pk_k\r\n") == 404);
    CHECK(ask("/own/a", "Open-Sandbox-Api-Key: a\r\nOpen-Sandbox-Api-Key: b\r\n") == 400);
}

static void test_host(void)
{
    CHECK(client_ask("GET /command/c2 HTTP/1.1\r\nHost: SBX-1-44772.Preview.Test.:80\r\n"
                     "X-EXECD-ACCESS-TOKEN: t1\r\n\r\n",
                     reply, sizeof reply) == 200);
    CHECK(strstr(reply, "\"sandbox\":\"sbx_1\"") != NULL && strstr(reply, "\"x\":\"c2\"") != NULL);
    CHECK(client_ask("GET /s/x HTTP/1.1\r\nHost: sbx-1-44772.preview.test\r\n\r\n", reply, sizeof reply) == 200);
    CHECK(strstr(reply, "\"path\":\"/s/sbx_1/port/44772/s/x\"") != NULL);
    CHECK(client_ask("GET /sandboxes/x HTTP/1.1\r\nHost: sbx-1-3000.preview.test\r\nOpen-Sandbox-Api-Key: k\r\n\r\n",
                     reply, sizeof reply) == 200);
    CHECK(strstr(reply, "\"path\":\"/sandboxes/x\"") != NULL && strstr(reply, "\"row\":\"(hosts)\"") != NULL);
}

static void test_carriers(void)
{
    static const char POLICY[] = "/s/sbx_1/port/18080/policy";
    CHECK(ask(POLICY, "OPENSANDBOX-EGRESS-AUTH: t1\r\n") == 200);
    CHECK(ask(POLICY, "OPENSANDBOX-EGRESS-AUTH: t1\r\nX-EXECD-ACCESS-TOKEN: t1\r\n") == 200);
    CHECK(ask(POLICY, "OPENSANDBOX-EGRESS-AUTH: t1\r\nX-EXECD-ACCESS-TOKEN: t2\r\n") == 400);
    CHECK(ask(POLICY, "OPENSANDBOX-EGRESS-AUTH: pk_k\r\n") == 401);
    CHECK(ask("/s/sbx_1/port/44772/command/c", "OPENSANDBOX-EGRESS-AUTH: t1\r\n") == 401); /* not this row's */
    CHECK(ask("/s/sbx_1/port/44772/command/c", "X-EXECD-ACCESS-TOKEN: t1\r\nAuthorization: Bearer t2\r\n") == 400);
    CHECK(ask("/c/t3/port/44772/command/c", "") == 200);
    CHECK(strstr(reply, "\"credential\":\"t3\"") != NULL);
}

/* What the app behind a row sees. */
static const char *pass(const char *target, const char *headers)
{
    AUTO_FREE char *request = memory_printf("GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target, headers);
    int client = client_open();
    client_say(client, request);
    int upstream = upstream_accept();
    CHECK(upstream_read(upstream, "\r\n\r\n"));
    client_say(upstream, "HTTP/1.1 204 No Content\r\n\r\n");
    client_read_reply(client, reply, sizeof reply);
    close(upstream);
    close(client);
    return seen;
}

static void test_passed_on(void)
{
    static const char OWN[] = "Authorization: Bearer of-the-app\r\nOPEN-SANDBOX-API-KEY: pk_secret\r\n"
                              "OPENSANDBOX-EGRESS-AUTH: other\r\nX-API-Key: of-the-app\r\nX-Kept: 1\r\n";
    AUTO_FREE char *headers = memory_printf("X-EXECD-ACCESS-TOKEN: t1\r\n%s", OWN);
    const char *got = pass("/v1/sandboxes/a/proxy/80/in//side?x=%zz", headers);
    CHECK(strstr(got, "GET /in//side?x=%zz HTTP/1.1") != NULL);
    CHECK(strcasestr(got, "x-execd") == NULL && strcasestr(got, "sandbox-") == NULL &&
          strstr(got, "pk_secret") == NULL);
    CHECK(strstr(got, "authorization: Bearer of-the-app") != NULL && strstr(got, "x-api-key: of-the-app") != NULL);
    got = pass("/v1/sandboxes/a/proxy/80/", "OPEN-SANDBOX-API-KEY: pk_k\r\nAuthorization: Basic of-the-app\r\n");
    CHECK(strstr(got, "pk_k") == NULL && strstr(got, "authorization: Basic of-the-app") != NULL);
    got = pass("/v1/sandboxes/a/proxy/80/", "Authorization: Bearer t9\r\n");
    CHECK(strstr(got, "t9") == NULL);
    got = pass("/c/t4/port/3000/deep/%2ee%20er", "Authorization: Bearer of-the-app\r\nX-API-Key: pk_secret\r\n");
    CHECK(strstr(got, "GET /deep/%2ee%20er HTTP/1.1") != NULL && strstr(got, "pk_secret") == NULL);
    CHECK(strstr(got, "authorization: Bearer of-the-app") != NULL);
}

static void test_replies(void)
{
    CHECK(client_ask("POST /accepted HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 202);
    CHECK(strcasestr(reply, "content-length: 0\r\n") != NULL && strcasestr(reply, "transfer-encoding") == NULL);
    int client = client_open();
    client_say(client, "GET /events HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    client_read_all(client, reply, sizeof reply, 5000);
    close(client);
    CHECK(strstr(reply, "{\"type\":\"init\"}\n\n") != NULL && strstr(reply, "{\"type\":\"ping\"}\n\n") != NULL);
    CHECK(strcasestr(reply, "content-type: text/event-stream\r\n") != NULL);
    CHECK(strcasestr(reply, "cache-control: no-cache\r\n") != NULL);
    CHECK(strcasestr(reply, "x-accel-buffering: no\r\n") != NULL);
    CHECK(strcasestr(reply, "data:") == NULL && strcasestr(reply, "event:") == NULL);
}

static void test_options(void)
{
    static const struct http_prefix_alias ALIASES[] = {
        {"/v1/", "/s/"}, {"/s/", "/sandboxes/"}, {"/x", "/s/"}, {"/", "/"}};
    for (size_t i = 0; i < sizeof ALIASES / sizeof ALIASES[0]; i++) {
        struct http_server_options options = make_options();
        struct error err = {0};
        options.prefix_alias = ALIASES[i];
        CHECK(http_server_start(&options, &err) == NULL && err.kind == ERROR_INVALID);
    }
    struct http_server_options options = make_options();
    struct error err = {0};
    options.header_prefix.prefix = "/v1/";
    CHECK(http_server_start(&options, &err) == NULL && err.kind == ERROR_INVALID);
}

int main(void)
{
    proxy_start();
    fixture_stop(0);
    struct http_server_options options = make_options();
    struct error err = {0};
    fixture = http_server_start(&options, &err);
    CHECK(fixture != NULL);
    client_port = http_server_port(fixture);
    test_alias();
    test_header_prefix();
    test_host();
    test_carriers();
    test_passed_on();
    test_replies();
    test_options();
    fixture_stop(0);
    return check_done();
}
