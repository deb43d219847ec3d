/* limits_test.c - over sockets: who is limited, what never is, Retry-After, and credentials that prove nothing. */
#include "tests/unit/shared/http/client.h"

#include "tests/unit/shared/http/fixture.h"

static char reply[65536];

static int ask(const char *path, const char *headers)
{
    char request[1024];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", path, headers);
    return client_ask(request, reply, sizeof reply);
}

static int ask_from(const char *forwarded, const char *credential)
{
    char headers[512];
    snprintf(headers, sizeof headers, "X-Forwarded-For: %s\r\nAuthorization: Bearer %s\r\n", forwarded, credential);
    return ask("/keys", headers);
}

static bool says(const char *text)
{
    return strstr(reply, text) != NULL;
}

/* The default: a client on this machine is not counted, whatever it says about itself. */
static void test_loopback(void)
{
    fixture_start((struct http_server_options){.limits = {.per_minute = 2}});
    for (int i = 0; i < 10; i++)
        CHECK(ask("/keys", "Authorization: Bearer a\r\n") == 200 && says("\"remote\":\"127.0.0.1\""));
    /* Through a proxy here that nobody has named: all who come that way are one. */
    CHECK(ask_from("192.0.2.1", "a") == 200 && says("\"remote\":\"127.0.0.1\""));
    CHECK(ask_from("192.0.2.2", "a") == 200 && ask_from("192.0.2.3", "a") == 429);
    CHECK(ask("/keys", "Authorization: Bearer a\r\n") == 200);
    fixture_stop(0);
    fixture_start((struct http_server_options){.limits = {.per_minute = 2, .loopback = true}});
    CHECK(ask_from("192.0.2.1", "a") == 200 && ask_from("192.0.2.2", "a") == 200);
    unsigned before = atomic_load(&authorized);
    CHECK(ask_from("192.0.2.3", "a") == 429 && says("\"code\":\"RATE_LIMITED\"") && says("\r\nRetry-After: 30\r\n"));
    CHECK(!says("Retry-After: 1\r\n") && says("\"retryable\":true"));
    CHECK(ask("/keys", "") == 429 && atomic_load(&authorized) == before); /* nobody was judged */
    for (int i = 0; i < 10; i++)
        CHECK(ask("/hello", "") == 200); /* needs nothing: health, metrics, the nodes' link */
    CHECK(client_ask("POST /s/x/exec HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\nContent-Length: 9\r\n\r\n",
                     reply, sizeof reply) == 429); /* before its body */
    fixture_stop(0);
}

static void test_proxies(void)
{
    fixture_start(
        (struct http_server_options){.limits = {.per_minute = 2, .trusted_proxies = "127.0.0.0/8, 10.0.0.0/8"}});
    CHECK(ask_from("192.0.2.1", "a") == 200 && says("\"remote\":\"192.0.2.1\""));
    CHECK(ask_from("198.51.100.1, 192.0.2.1", "a") == 200 && says("\"remote\":\"192.0.2.1\"")); /* a lie before it */
    CHECK(ask_from("198.51.100.2, 192.0.2.1, 10.0.0.7", "a") == 429);
    CHECK(ask_from("192.0.2.1\r\nX-Forwarded-For: 192.0.2.2", "a") == 200 && says("\"remote\":\"192.0.2.2\""));
    CHECK(ask_from("192.0.2.99, junk", "a") == 200 && says("\"remote\":\"127.0.0.1\""));
    /* Whoever a header names is not of this machine, nor is who came through a proxy with a broken one, as just now. */
    CHECK(ask_from("127.0.0.1", "a") == 200 && ask_from("127.0.0.1", "a") == 429);
    for (int i = 0; i < 5; i++)
        CHECK(ask("/keys", "Authorization: Bearer a\r\n") == 200); /* the proxy itself: on loopback, and no header */
    fixture_stop(0);
}

static void test_what_is_dear(void)
{
    fixture_start((struct http_server_options){.limits = {.per_minute = 2, .loopback = true}});
    for (int i = 0; i < 5; i++)
        CHECK(ask("/dear", "Authorization: Bearer a\r\n") == 200);
    CHECK(ask("/dear?q=1", "Authorization: Bearer a\r\n") == 200 && ask("/keys", "Authorization: Bearer a\r\n") == 200);
    CHECK(ask("/dear?q=1", "Authorization: Bearer a\r\n") == 429 && says("\r\nRetry-After: 30\r\n"));
    CHECK(ask("/dear", "Authorization: Bearer a\r\n") == 200);
    fixture_stop(0);
}

/* A body that comes later has its request judged twice, and counted once. */
static void test_counted_once(void)
{
    fixture_start((struct http_server_options){.limits = {.per_minute = 2, .loopback = true}});
    for (int i = 0; i < 2; i++) {
        int fd = client_open();
        client_say(fd, "POST /s/x/exec HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\nContent-Length: 2\r\n"
                       "Expect: 100-continue\r\n\r\n");
        char some[64];
        CHECK(recv(fd, some, sizeof some, 0) > 0 && strncmp(some, "HTTP/1.1 100 ", 13) == 0);
        client_say(fd, "ab");
        CHECK(client_read_reply(fd, reply, sizeof reply) > 0 && strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
        close(fd);
    }
    CHECK(ask_from("", "a") == 429);
    fixture_stop(0);
}

static void test_failures(void)
{
    fixture_start((struct http_server_options){.limits = {.failures_per_minute = 3, .trusted_proxies = "127.0.0.1"}});
    for (int i = 0; i < 5; i++)
        CHECK(ask("/keys", "X-Forwarded-For: 192.0.2.1\r\n") == 401); /* shows none: no attempt */
    for (int i = 0; i < 5; i++)
        CHECK(ask_from("192.0.2.1", "good") == 200);
    for (int i = 0; i < 3; i++)
        CHECK(ask_from("192.0.2.1", "bad") == 401);
    unsigned before = atomic_load(&authorized);
    CHECK(ask_from("192.0.2.1", "bad") == 429 && says("\r\nRetry-After: 20\r\n"));
    CHECK(ask_from("192.0.2.1", "good") == 429); /* or one would learn which it is */
    CHECK(atomic_load(&authorized) == before);
    CHECK(ask_from("192.0.2.2", "bad") == 401 && ask_from("192.0.2.2", "good") == 200);
    CHECK(ask("/hello", "X-Forwarded-For: 192.0.2.1\r\n") == 200);
    for (int i = 0; i < 3; i++)
        CHECK(ask("/keys", "Authorization: Bearer bad\r\n") == 401);
    CHECK(ask("/keys", "Authorization: Bearer bad\r\n") == 429); /* from loopback too */
    fixture_stop(0);
}

static void test_bad_proxies(void)
{
    struct error err = {0};
    AUTO(http_server) *server =
        http_server_start(&(struct http_server_options){.loops = 1, .limits = {.trusted_proxies = "10.0.0.1/8"}}, &err);
    CHECK(server == NULL && err.kind == ERROR_INVALID && strstr(err.message, "trusted_proxies: ") == err.message);
}

int main(void)
{
    test_loopback();
    test_proxies();
    test_what_is_dear();
    test_counted_once();
    test_failures();
    test_bad_proxies();
    return check_done();
}
