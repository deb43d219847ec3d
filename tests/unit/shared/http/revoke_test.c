/* revoke_test.c - requests whose credential holds no more: their bodies, answers and streams end at once, each in its
 * own way; idle connections and later requests live on. */
#include "fixture.h"

static char reply[1 << 16];
static atomic_uint visited, walked;

static void revoke_one(void *cookie UNUSED, struct http_request *request)
{
    struct error err = {0};
    error_set(&err, ERROR_TOKEN_REVOKED, "revoked by the test");
    CHECK(http_request_route(request) != NULL);
    atomic_fetch_add(&visited, 1);
    http_request_revoke(request, &err);
}

static void revoke_all(void *cookie)
{
    http_requests_each(cookie, revoke_one, NULL);
    atomic_fetch_add(&walked, 1);
}

/* On every loop; how many there were. */
static unsigned revoke_everything(void)
{
    atomic_store(&visited, 0);
    atomic_store(&walked, 0);
    unsigned loops = http_server_loop_count(fixture);
    for (unsigned i = 0; i < loops; i++)
        loop_post(http_server_loop(fixture, i), revoke_all, http_server_loop(fixture, i));
    CHECK(wait_for(&walked, loops, 2000));
    return atomic_load(&visited);
}

static void reset(void)
{
    atomic_store(&handled, 0);
    atomic_store(&gone, 0);
    atomic_store(&freed_identities, 0);
}

static int begin(const char *request)
{
    int fd = client_open();
    client_say(fd, request);
    return fd;
}

static void test_nothing_to_visit(void)
{
    reset();
    int fresh = client_open(), idle = begin("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(client_read_reply(idle, reply, sizeof reply) > 0);
    int half = begin("GET /hello HTTP/1.1\r\nHo");
    sleep_ms(50);
    CHECK(revoke_everything() == 0);
    client_say(idle, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_say(half, "st: h\r\n\r\n");
    CHECK(client_read_reply(idle, reply, sizeof reply) > 0 && strstr(reply, "200 OK"));
    CHECK(client_read_reply(half, reply, sizeof reply) > 0 && strstr(reply, "200 OK"));
    close(fresh);
    close(idle);
    close(half);
}

static void test_body(const char *head)
{
    reset();
    int fd = begin(head);
    sleep_ms(50);
    CHECK(revoke_everything() == 1);
    client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(strncmp(reply, "HTTP/1.1 401 ", 13) == 0 && strstr(reply, "\"TOKEN_REVOKED\"") != NULL);
    CHECK(strstr(reply, "WWW-Authenticate: Bearer error=\"invalid_token\"") != NULL);
    CHECK(atomic_load(&handled) == 0);
    CHECK(wait_for(&freed_identities, 1, 1000));
    close(fd);
}

static void test_unanswered(void)
{
    reset();
    int fd = begin("GET /never HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(wait_for(&handled, 1, 1000));
    CHECK(revoke_everything() == 1);
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 401 ", 13) == 0 && strstr(reply, "revoked by the test") != NULL);
    CHECK(atomic_load(&gone) == 0); /* told while it could still be found */
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(client_read_reply(fd, reply, sizeof reply) > 0 && strstr(reply, "200 OK"));
    close(fd);
}

static void test_late_answer(void)
{
    reset();
    int fd = begin("GET /slow?ms=200 HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(wait_for(&handled, 1, 1000));
    CHECK(revoke_everything() == 1);
    client_read_all(fd, reply, sizeof reply, 400);
    CHECK(strstr(reply, "401") != NULL && strstr(reply, "late") == NULL);
    close(fd);
}

static void test_stream(const char *request, bool has_word)
{
    reset();
    int fd = begin(request);
    CHECK(wait_for(&handled, 1, 1000));
    sleep_ms(50);
    double began = seconds_now();
    CHECK(revoke_everything() == 1);
    client_read_all(fd, reply, sizeof reply, 2000);
    CHECK(seconds_now() - began < 0.9); /* broken off, not given up */
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
    CHECK((strstr(reply, "{\"last\":\"TOKEN_REVOKED\"}\n") != NULL) == has_word);
    CHECK(strstr(reply, "\r\n0\r\n\r\n") == NULL);
    CHECK(client_is_closed(fd, 100));
    close(fd);
}

static void test_slow_reader(const char *request)
{
    reset();
    int fd = client_open_small(4096);
    client_say(fd, request);
    sleep_ms(300); /* buffers are full */
    double began = seconds_now();
    CHECK(revoke_everything() == 1);
    sleep_ms(1300);
    CHECK(revoke_everything() == 0);
    size_t total = 0, got;
    while ((got = client_read_all(fd, reply, sizeof reply, 300)) == sizeof reply - 1)
        total += got;
    CHECK(total < 8u << 20);
    CHECK(seconds_now() - began < 5);
    close(fd);
}

static void test_fast_reader(void)
{
    reset();
    int fd = begin("GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
    size_t total = client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(revoke_everything() == 1);
    size_t got;
    while ((got = client_read_all(fd, reply, sizeof reply, 1000)) == sizeof reply - 1)
        total += got;
    CHECK(total < 32u << 20);
    CHECK(wait_for(&gone, 1, 1000));
    close(fd);
}

/* Many at once, so that one visit follows another. */
static void test_many(void)
{
    enum { COUNT = 200 };
    reset();
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++)
        fds[i] = begin(i % 3 == 0   ? "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"
                       : i % 3 == 1 ? "GET /wordy HTTP/1.0\r\nHost: h\r\n\r\n"
                                    : "PUT /large HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n1234");
    CHECK(wait_for(&handled, (COUNT + 2) / 3 + COUNT / 3, 5000));
    sleep_ms(100);
    CHECK(revoke_everything() == COUNT);
    for (int i = 0; i < COUNT; i++) {
        client_read_all(fds[i], reply, sizeof reply, i % 3 == 0 && !client_is_tls() ? 20 : 1000);
        CHECK(strstr(reply, "TOKEN_REVOKED") != NULL);
        close(fds[i]);
    }
    CHECK(revoke_everything() == 0);
}

int main(void)
{
    fixture_start((struct http_server_options){.loops = 2});
    test_nothing_to_visit();
    test_body("PUT /s/a/files/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Length: 5000\r\n\r\nabc");
    test_body("PUT /s/a/files/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nTransfer-Encoding: chunked\r\n\r\n"
              "3\r\nabc\r\n");
    test_unanswered();
    test_late_answer();
    test_stream("GET /idle?first=1 HTTP/1.1\r\nHost: h\r\n\r\n", false);
    test_stream("GET /wordy HTTP/1.1\r\nHost: h\r\n\r\n", true);
    test_stream("GET /wordy HTTP/1.0\r\nHost: h\r\n\r\n", true);
    test_stream("GET /idle HTTP/1.0\r\nHost: h\r\n\r\n", false);
    test_slow_reader("GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
    test_slow_reader("GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    test_fast_reader();
    test_many();
    fixture_stop(1000);
    return check_done();
}
