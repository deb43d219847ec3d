/* server_test.c - requests and replies over a real socket: routes, carriers, headers, keep-alive, pipelining, HEAD. */
#include "fixture.h"

#include <netinet/tcp.h>

static char reply[1 << 16];

static void test_plain(void)
{
    CHECK(client_ask("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 200);
    CHECK_TEXT(client_body(reply), "{\"hello\":\"world\"}");
    CHECK(strstr(reply, "X-Request-ID: req_") != NULL);
    CHECK(strstr(reply, "Content-Type: application/json\r\n") != NULL);
    CHECK(strstr(reply, "Cache-Control") == NULL);
    CHECK(client_ask("GET /hello HTTP/1.1\r\nHost: h\r\nX-Request-ID: my-own.id_1\r\n\r\n", reply, sizeof reply) ==
          200);
    CHECK(strstr(reply, "X-Request-ID: my-own.id_1\r\n") != NULL);
    CHECK(client_ask("GET /hello HTTP/1.1\r\nHost: h\r\nX-Request-ID: not sane\r\n\r\n", reply, sizeof reply) == 200);
    CHECK(strstr(reply, "X-Request-ID: req_") != NULL);
}

static void test_not_found_and_method(void)
{
    CHECK(client_ask("GET /nowhere HTTP/1.1\r\nHost: h\r\nX-Request-ID: r1\r\n\r\n", reply, sizeof reply) == 404);
    CHECK_TEXT(client_body(reply),
               "{\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"no such path\",\"retryable\":false,"
               "\"request_id\":\"r1\"}}");
    CHECK(strstr(reply, "X-Request-ID: r1\r\n") != NULL);
    CHECK(client_ask("DELETE /hello HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 405);
    CHECK(strstr(reply, "Allow: GET, HEAD\r\n") != NULL);
    CHECK(client_ask("DELETE /s/sbx_1/files/a HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 405);
    CHECK(strstr(reply, "Allow: GET, HEAD, PUT\r\n") != NULL);
    CHECK(client_ask("GET /limited HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 429);
    CHECK(strstr(reply, "Retry-After: 1\r\n") != NULL);
}

static void test_parameters(void)
{
    CHECK(client_ask("GET /mirror/a%20b%C3%A9?q=1%2B1+2 HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 200);
    CHECK(strstr(reply, "\"x\":\"a b\u00e9\"") != NULL);
    CHECK(strstr(reply, "\"q\":\"1+1 2\"") != NULL);
    CHECK(strstr(reply, "\"remote\":\"127.0.0.1\"") != NULL);
    CHECK(strstr(reply, "X-Own: 1\r\n") != NULL);
    CHECK(strstr(reply, "Injected") == NULL);
    const char *const bad[] = {"/mirror/a%2Fb",     "/mirror/a%00b",  "/mirror/%2e%2e",    "/mirror/.",
                               "/mirror/%zz",       "/mirror/%f",     "/mirror/%ff",       "/mirror/a?q=%",
                               "/mirror/a?q=1&q=2", "/mirror/a?q=%0", "/s/x/files/a/../b", "/s/x/files/a%2F..%2Fb",
                               "/s/x/files/./a",    "/mirror/a#b",    "http://h/mirror/a", "*"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", bad[i]);
        int status = client_ask(request, reply, sizeof reply);
        if (status != 400)
            fprintf(stderr, "%s: %d\n", bad[i], status);
        CHECK(status == 400);
        CHECK(strstr(reply, "\"code\":\"INVALID_REQUEST\"") != NULL && strstr(reply, "X-Request-ID: ") != NULL);
    }
}

static void test_smuggling(void)
{
    const char *const bad[] = {
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /hello HTTP/1.1\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
        "GET /hello HTTP/1.1\nHost: h\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n",
        "GET  /hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /hello HTTP/2.0\r\nHost: h\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\n\r\n",
        "GET /keys HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\nAuthorization: Bearer a\r\n\r\n",
        "GET /keys HTTP/1.1\r\nHost: h\r\nX-API-Key: a\r\nX-API-Key: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"a\"\r\nIf-None-Match: *\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nIf-Range: \"a\"\r\nIf-Range: \"b\"\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Type: a\r\nContent-Type: b\r\nContent-Length: 0\r\n\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = client_open();
        client_say(fd, bad[i]);
        client_read_all(fd, reply, sizeof reply, 3000);
        if (strncmp(reply, "HTTP/1.1 400 ", 13) != 0)
            fprintf(stderr, "case %zu: %s\n", i, reply);
        CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0);
        CHECK(strstr(reply, "Connection: close\r\n") != NULL); /* and it was: read_all came to the end */
        CHECK(strstr(reply, "}HTTP/1.1") == NULL);
        close(fd);
    }
}

/* Chunks of a body that is held, which libh2o's own reader would take in part. Each carries "two", and a request behind
 * it that nobody may see as one. */
static void test_chunk_shapes(void)
{
    static const char HEAD[] = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char BEHIND[] = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";
    const char *const bad[] = {"0x3\r\ntwo\r\n0\r\n\r\n",
                               "+3\r\ntwo\r\n0\r\n\r\n",
                               "-1\r\ntwo\r\n0\r\n\r\n",
                               "\r\ntwo\r\n0\r\n\r\n",
                               " 3\r\ntwo\r\n0\r\n\r\n",
                               "3junk\r\ntwo\r\n0\r\n\r\n",
                               "3\ntwo\r\n0\r\n\r\n",
                               "3\r\ntwo\n0\r\n\r\n",
                               "3\r\ntwo\r\n0\n\r\n",
                               "3\r\ntwo\r\n0\r\n\n",
                               "3\r\r\ntwo\r\n0\r\n\r\n",
                               "3\r\ntwo0\r\n\r\n",
                               "3\r\ntwox\r\n0\r\n\r\n",
                               "3;a\nb\r\ntwo\r\n0\r\n\r\n",
                               "3;a\rb\r\ntwo\r\n0\r\n\r\n",
                               "3\r\ntwo\r\n0\r\nX\r: y\r\n\r\n",
                               "ffffffffffffffff\r\ntwo\r\n0\r\n\r\n",
                               "10000000000000003\r\ntwo\r\n0\r\n\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (int in_pieces = 0; in_pieces < 2; in_pieces++) {
            int fd = client_open();
            client_say(fd, HEAD);
            for (const char *at = bad[i]; in_pieces && *at != '\0'; at++) {
                char piece[] = {*at, '\0'};
                client_say(fd, piece);
            }
            if (!in_pieces)
                client_say(fd, bad[i]);
            client_say(fd, BEHIND);
            client_read_all(fd, reply, sizeof reply, 3000);
            bool ok = strncmp(reply, "HTTP/1.1 400 ", 13) == 0 && strstr(reply, "}HTTP/1.1") == NULL;
            if (!ok)
                fprintf(stderr, "case %zu: %s\n", i, reply);
            CHECK(ok);
            close(fd);
        }
    }
    const char *const good[] = {"3;a=b;c=\"d\"\r\ntwo\r\n0\r\nX: y\r\n\r\n", "1 \r\nt\r\n2\r\nwo\r\n000\r\n\r\n"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int fd = client_open();
        client_say(fd, HEAD);
        client_say(fd, good[i]);
        client_read_reply(fd, reply, sizeof reply);
        CHECK_TEXT(client_body(reply), "two");
        client_say(fd, BEHIND);
        client_read_reply(fd, reply, sizeof reply);
        CHECK(strncmp(reply, "HTTP/1.1 200", 12) == 0);
        close(fd);
    }
}

static void check_credential(const char *target, const char *headers, int status, const char *credential)
{
    char request[512], wanted[128];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target, headers);
    snprintf(wanted, sizeof wanted, "\"credential\":\"%s\"", credential);
    int got = client_ask(request, reply, sizeof reply);
    bool ok = got == status && (status != 200 || strstr(reply, wanted) != NULL);
    if (!ok)
        fprintf(stderr, "%s %s: %d %s\n", target, headers, got, reply);
    CHECK(ok);
    if (status == 200)
        CHECK(strstr(reply, "Cache-Control: no-store\r\n") != NULL &&
              strstr(reply, "Referrer-Policy: no-referrer\r\n") != NULL);
}

static void test_carriers(void)
{
    check_credential("/s/sbx_1/info", "Authorization: Bearer tok\r\n", 200, "tok");
    check_credential("/s/sbx_1/info", "authorization: bearer  tok\r\n", 200, "tok");
    check_credential("/c/tok/info", "", 200, "tok");
    CHECK(strstr(reply, "\"sandbox\":null") != NULL);
    check_credential("/c/tok/info", "Authorization: Bearer tok\r\n", 200, "tok");
    check_credential("/c/tok/info", "Authorization: Bearer other\r\n", 400, "");
    check_credential("/c/tok/info", "Authorization: Bearer pk_key\r\n", 200, "tok");
    check_credential("/c/tok/info", "X-API-Key: pk_key\r\n", 200, "tok");
    check_credential("/s/sbx_1/info", "Authorization: Bearer pk_key\r\n", 401, "");
    check_credential("/s/sbx_1/info", "X-API-Key: k\r\n", 401, "");
    check_credential("/s/sbx_1/info", "Authorization: Bearer \r\n", 401, "");
    check_credential("/s/sbx_1/info", "Authorization: Basic abc\r\n", 401, "");
    check_credential("/s/sbx_1/info?token=tok", "", 401, "");
    check_credential("/preview?token=tok", "", 200, "tok");
    check_credential("/preview?token=tok", "Authorization: Bearer tik\r\n", 400, "");
    check_credential("/preview?token=", "", 401, "");
    check_credential("/keys", "Authorization: Bearer pk_key\r\n", 200, "pk_key");
    check_credential("/keys", "Authorization: ApiKey pk_key\r\n", 200, "pk_key");
    check_credential("/keys", "X-API-Key: pk_key\r\n", 200, "pk_key");
    check_credential("/keys", "X-API-Key: pk_key\r\nAuthorization: Bearer tok\r\n", 200, "tok");
    check_credential("/keys", "X-API-Key: pk_one\r\nAuthorization: ApiKey pk_two\r\n", 400, "");
    check_credential("/s/sbx_1/files/a/b%20c", "Authorization: Bearer tok\r\n", 200, "tok");
    CHECK(strstr(reply, "\"path\":\"a/b c\"") != NULL && strstr(reply, "\"sandbox\":\"sbx_1\"") != NULL);
    CHECK(client_ask("GET /s/sbx_1/info HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 401);
    CHECK(strstr(reply, "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n") != NULL);
    CHECK(client_ask("GET /c/tok/nowhere HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 404);
    CHECK(strstr(reply, "Cache-Control: no-store\r\n") != NULL);
}

static void test_once_authorized(void)
{
    atomic_store(&authorized, 0);
    client_ask("GET /c/tok/info HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply);
    CHECK(atomic_load(&authorized) == 1);
    client_ask("POST /c/tok/exec HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi", reply, sizeof reply);
    CHECK_TEXT(client_body(reply), "hi");
    CHECK(atomic_load(&authorized) == 2);
    CHECK(atomic_load(&freed_identities) > 0);
}

static void test_keep_alive_and_pipelining(void)
{
    int fd = client_open();
    for (int i = 0; i < 5; i++) {
        client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
        client_read_reply(fd, reply, sizeof reply);
        CHECK(strncmp(reply, "HTTP/1.1 200", 12) == 0);
    }
    /* Refused, with its body here already: the connection stays. */
    client_say(fd, "POST /s/x/exec HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 401", 12) == 0);
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 200", 12) == 0);
    /* Many at once, the third deferred, one chunked, the last in two pieces. */
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\none"
                   "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"
                   "GET /slow?ms=30 HTTP/1.1\r\nHost: h\r\n\r\n"
                   "\r\nPOST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nfour"
                   "GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n"
                   "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Le");
    sleep_ms(20);
    client_say(fd, "ngth: 4\r\n\r\nlast");
    const char *const wanted[] = {"one", "two", "{\"late\":true}", "four", NULL, "last"};
    for (size_t i = 0; i < 6; i++) {
        client_read_reply(fd, reply, sizeof reply);
        if (wanted[i] != NULL)
            CHECK_TEXT(client_body(reply), wanted[i]);
        else
            CHECK(strncmp(reply, "HTTP/1.1 404", 12) == 0);
    }
    close(fd);
}

static void test_head_and_old(void)
{
    int fd = client_open();
    client_say(fd,
               "HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\nHEAD /lines HTTP/1.1\r\nHost: h\r\n\r\n"
               "HEAD /nowhere HTTP/1.1\r\nHost: h\r\n\r\nGET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 3000);
    close(fd);
    const char *second = strstr(reply + 1, "HTTP/1.1 201");
    CHECK(second != NULL && strstr(reply, "Content-Length: 17\r\n") < second);
    CHECK(strstr(reply, "\r\n\r\nHTTP/1.1 404") != NULL);
    CHECK(strstr(reply, "\"error\"") == NULL);
    CHECK(strstr(reply, "{\"hello\":\"world\"}") != NULL);
    fd = client_open();
    client_say(fd, "GET /lines HTTP/1.0\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK_TEXT(client_body(reply), "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n");
    close(fd);
}

static void test_json(void)
{
    static const struct {
        const char *body;
        int status;
    } CASES[] = {{"", 200},
                 {"{\"a\":1}", 200},
                 {"{\"a\":1,\"a\":2}", 400},
                 {"[]", 400},
                 {"{\"a\":\"\\u0000\"}", 400},
                 {"{\"a\":1} x", 400},
                 {"{\"a\":\"\xff\"}", 400},
                 {"{\"a\":1e999}", 400},
                 {"{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"}", 200},
                 {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", 200},
                 {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", 400}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char request[512];
        snprintf(request, sizeof request, "POST /json HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(CASES[i].body), CASES[i].body);
        CHECK(client_ask(request, reply, sizeof reply) == CASES[i].status);
    }
}

/* What is small as text and large when it was read. */
static void test_many_values(void)
{
    enum { VALUES = 100000, ROOM = VALUES * 2 + 256 };
    AUTO_FREE char *request = memory_new(ROOM);
    for (int more = 0; more <= 1; more++) {
        size_t size = strlen("{\"a\":[0]}") + (VALUES - 2 + (size_t)more) * 2; /* the braces count, too */
        int at =
            snprintf(request, ROOM, "POST /json HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n{\"a\":[0", size);
        for (int i = 0; i < VALUES - 2 + more; i++)
            at += snprintf(request + at, (size_t)(ROOM - at), ",0");
        snprintf(request + at, (size_t)(ROOM - at), "]}");
        CHECK(client_ask(request, reply, sizeof reply) == (more ? 413 : 200));
    }
}

static void test_conflict(void)
{
    struct http_server_options options = {
        .host = "127.0.0.1", .port = client_port, .loops = 1, .name = "second", .routes = ROUTES, .route_count = 1};
    struct error err = {0};
    CHECK(http_server_start(&options, &err) == NULL);
    CHECK(err.kind == ERROR_CONFLICT);
    options.port = 0;
    options.loops = 0;
    CHECK(http_server_start(&options, &err) == NULL && err.kind == ERROR_INVALID);
}

/* The server's end of a connection whose other end is `client`; -1 when there is none. */
static int server_end(int client)
{
    struct sockaddr_in own, peer;
    socklen_t size = sizeof own;
    CHECK(getsockname(client, (struct sockaddr *)&own, &size) == 0);
    for (int fd = 3; fd < 256; fd++) {
        size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sin_port == own.sin_port)
            return fd;
    }
    return -1;
}

static int tcp_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

/* A client whose machine is gone is noticed within two minutes also where nothing is sent. */
static void test_kept_alive(void)
{
    int client = client_open();
    client_say(client, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(client_read_reply(client, reply, sizeof reply) > 0);
    int fd = server_end(client);
    if (client_is_tls()) { /* the end of a pair: what it has is the socket's outside */
        close(client);
        return;
    }
    CHECK(tcp_option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(tcp_option(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
              tcp_option(fd, IPPROTO_TCP, TCP_KEEPINTVL) * tcp_option(fd, IPPROTO_TCP, TCP_KEEPCNT) ==
          120);
    close(client);
}

int main(void)
{
    fixture_start((struct http_server_options){0});
    test_kept_alive();
    CHECK(http_server_loop_count(fixture) == 2 && loop_index(http_server_loop(fixture, 1)) == 1);
    test_plain();
    test_not_found_and_method();
    test_parameters();
    test_smuggling();
    test_chunk_shapes();
    test_carriers();
    test_once_authorized();
    test_keep_alive_and_pipelining();
    test_head_and_old();
    test_json();
    test_many_values();
    CHECK(client_ask("GET /thread HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 200);
    test_conflict();
    fixture_stop(1000);
    return check_done();
}
