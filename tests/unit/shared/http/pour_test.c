/* pour_test.c - bodies that go through a pipe: whole and by chunks, with slow readers and slow clients, limits, clients
 * and readers that leave, replies before the end, what stands behind a body, revocation; and that nothing of them is
 * held. */
#include "client.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/server.h"
#include "tests/unit/check.h"
#include "tls_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

enum { LIMIT_BYTES = 400 << 20, BLOCK_BYTES = 1 << 16 };

static struct http_server *server;
static atomic_uint handled, authorized, gone, ends, failures, freed, walked, visited;
static atomic_size_t last_size;
static atomic_int last_kind;
static atomic_bool may_read;
static char reply[1 << 16], block[BLOCK_BYTES], spool_folder[] = "/tmp/pour_test_XXXXXX";

static bool wait_for(atomic_uint *counter, unsigned value, unsigned ms)
{
    double until = seconds_now() + ms / 1e3;
    while (atomic_load(counter) < value && seconds_now() < until)
        sleep_ms(2);
    return atomic_load(counter) >= value;
}

static void reset(void)
{
    atomic_store(&handled, 0);
    atomic_store(&authorized, 0);
    atomic_store(&gone, 0);
    atomic_store(&ends, 0);
    atomic_store(&failures, 0);
    atomic_store(&freed, 0);
    atomic_store(&last_size, 0);
    atomic_store(&last_kind, -1);
}

/* One request that pours: a thread reads the pipe, and the loop answers when both have ended. */
struct sink {
    struct loop *loop;
    uint64_t number;
    int pipe;
    size_t size; /* that came out */
    uint32_t sum;
    size_t stop_after; /* the reader leaves then */
    bool is_read, is_poured, is_gone;
    struct error err;
};

static uint32_t add(uint32_t sum, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + (unsigned char)data[i];
    return sum;
}

static void settle(struct sink *sink)
{
    if (!sink->is_read || !(sink->is_poured || sink->is_gone))
        return;
    struct http_request *request = http_request_find(sink->loop, sink->number);
    if (request != NULL && sink->err.kind != ERROR_NONE)
        http_reply_error(request, &sink->err);
    else if (request != NULL)
        http_reply_json(request, 200,
                        json_pack("{s:I, s:I}", "size", (json_int_t)sink->size, "sum", (json_int_t)sink->sum));
    free(sink);
    atomic_fetch_add(&freed, 1);
}

static void on_read(void *cookie)
{
    struct sink *sink = cookie;
    sink->is_read = true;
    settle(sink);
}

static void *read_pipe(void *cookie)
{
    struct sink *sink = cookie;
    static __thread char data[1 << 16];
    while (!atomic_load(&may_read))
        sleep_ms(5);
    for (;;) {
        ssize_t got = sink->size < sink->stop_after ? read(sink->pipe, data, sizeof data) : 0;
        if (got <= 0)
            break;
        sink->size += (size_t)got;
        sink->sum = add(sink->sum, data, (size_t)got);
    }
    close(sink->pipe);
    atomic_fetch_add(&ends, 1);
    loop_post(sink->loop, on_read, sink);
    return NULL;
}

static void on_poured(void *cookie, uint64_t size, const struct error *err)
{
    struct sink *sink = cookie;
    CHECK(!sink->is_poured && !sink->is_gone && loop_current() == sink->loop);
    sink->is_poured = true;
    atomic_store(&last_size, (size_t)size);
    atomic_store(&last_kind, err != NULL ? (int)err->kind : 0);
    if (err != NULL) {
        atomic_fetch_add(&failures, 1);
        sink->err = *err;
    }
    settle(sink);
}

static void on_gone(void *cookie)
{
    struct sink *sink = cookie;
    sink->is_gone = true;
    atomic_fetch_add(&gone, 1);
    settle(sink);
}

static void start(struct http_request *request, struct sink *sink)
{
    int ends_of_pipe[2];
    CHECK(pipe2(ends_of_pipe, O_CLOEXEC) == 0);
    fcntl(ends_of_pipe[1], F_SETFL, O_NONBLOCK);
    if (!atomic_load(&may_read))
        CHECK(fcntl(ends_of_pipe[1], F_SETPIPE_SZ, 4096) >= 4096); /* a slow reader's is soon full */
    sink->pipe = ends_of_pipe[0];
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, read_pipe, sink) == 0);
    pthread_detach(thread);
    http_body_pour(request, ends_of_pipe[1], on_poured, sink);
}

static struct sink *new_sink(struct http_request *request, size_t stop_after)
{
    atomic_fetch_add(&handled, 1);
    struct sink *sink = memory_new(sizeof *sink);
    sink->loop = http_request_loop(request);
    sink->number = http_request_number(request);
    sink->stop_after = stop_after;
    http_request_when_gone(request, on_gone, sink);
    return sink;
}

static void take_all(struct http_request *request)
{
    size_t size = 1;
    CHECK(http_request_body(request, &size) != NULL && size == 0);
    bool is_chunked = http_request_header(request, "transfer-encoding") != NULL;
    CHECK((http_body_length(request) == UINT64_MAX) == is_chunked);
    start(request, new_sink(request, SIZE_MAX));
}

static void take_some(struct http_request *request)
{
    start(request, new_sink(request, 100000));
}

static void begin_late(void *cookie)
{
    struct sink *sink = cookie;
    struct http_request *request = http_request_find(sink->loop, sink->number);
    if (request != NULL)
        start(request, sink);
}

static void take_late(struct http_request *request)
{
    struct sink *sink = new_sink(request, SIZE_MAX);
    loop_timer_start(sink->loop, clock_boot_ns() + 200000000, begin_late, sink);
}

static void refuse(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    struct error err;
    error_set(&err, ERROR_RANGE, "not here");
    http_reply_header(request, "Content-Range", "bytes */7");
    http_reply_error(request, &err);
}

/* Answers while the body is on its way: its sink gets an end, and no word. */
static void answer_early(void *cookie)
{
    struct sink *sink = cookie;
    struct http_request *request = http_request_find(sink->loop, sink->number);
    if (request != NULL)
        http_reply_json(request, 200, json_pack("{s:b}", "early", true));
    sink->is_gone = true;
    settle(sink);
}

static void take_briefly(struct http_request *request)
{
    struct sink *sink = new_sink(request, SIZE_MAX);
    http_request_when_gone(request, NULL, NULL);
    start(request, sink);
    loop_timer_start(sink->loop, clock_boot_ns() + 100000000, answer_early, sink);
}

static void hello(struct http_request *request)
{
    http_reply_json(request, 200, json_pack("{s:s}", "hello", "world"));
}

static bool authorize(struct http_request *request, const struct http_route *route, struct error *err)
{
    (void)route;
    atomic_fetch_add(&authorized, 1);
    return http_request_credential(request) != NULL || error_set(err, ERROR_UNAUTHENTICATED, "no credential");
}

static const struct http_route ROUTES[] = {
    {"PUT", "/all", HTTP_POURS, NULL, LIMIT_BYTES, take_all},
    {"PUT", "/small", HTTP_POURS, NULL, 1000, take_all},
    {"PUT", "/some", HTTP_POURS, NULL, LIMIT_BYTES, take_some},
    {"PUT", "/late", HTTP_POURS, NULL, LIMIT_BYTES, take_late},
    {"PUT", "/refuse", HTTP_POURS, NULL, LIMIT_BYTES, refuse},
    {"PUT", "/brief", HTTP_POURS, NULL, LIMIT_BYTES, take_briefly},
    {"PUT", "/s/{sandbox}/files/{path...}", HTTP_POURS | HTTP_BEARER, "fs", LIMIT_BYTES, take_all},
    {"GET", "/hello", 0, NULL, 0, hello},
};

static void start_server(void)
{
    CHECK(mkdtemp(spool_folder) != NULL);
    struct http_server_options options = {.host = "127.0.0.1",
                                          .tls = tls_fixture(),
                                          .loops = 2,
                                          .name = "pour",
                                          .routes = ROUTES,
                                          .route_count = sizeof ROUTES / sizeof ROUTES[0],
                                          .authorize = authorize,
                                          .spool_folder = spool_folder,
                                          .body_grace_ms = 1000,
                                          .body_min_rate = 100000};
    struct error err = {0};
    server = http_server_start(&options, &err);
    if (server == NULL) {
        fprintf(stderr, "no server: %s\n", err.message);
        exit(1);
    }
    client_port = http_server_port(server);
}

static void stop_server(void)
{
    http_server_stop(server, 1000);
    http_server_free(server);
    CHECK(rmdir(spool_folder) == 0); /* nothing is in it */
}

/* "size":N of the last reply, when it is 200. */
static size_t told_size(void)
{
    const char *at = strstr(reply, "\"size\":");
    return strncmp(reply, "HTTP/1.1 200 ", 13) == 0 && at != NULL ? strtoul(at + 7, NULL, 10) : SIZE_MAX;
}

static uint32_t told_sum(void)
{
    const char *at = strstr(reply, "\"sum\":");
    return at != NULL ? (uint32_t)strtoul(at + 6, NULL, 10) : 0;
}

static bool is_alive(int fd)
{
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    return client_read_reply(fd, reply, sizeof reply) > 0 && strstr(reply, "world") != NULL;
}

static void test_length(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 5 && told_sum() == add(0, "hello", 5) && atomic_load(&last_size) == 5);
    CHECK(strstr(reply, "keep-alive") != NULL);
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 0);
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 0);
    /* More than the pipe holds, in pieces, and late. */
    client_say(fd, "PUT /late HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    uint32_t sum = 0;
    for (size_t sent = 0; sent < 1000000;) {
        size_t size = 1000000 - sent < 9973 ? 1000000 - sent : 9973;
        client_send(fd, block, size);
        sum = add(sum, block, size);
        sent += size;
    }
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 1000000 && told_sum() == sum);
    CHECK(is_alive(fd));
    CHECK(atomic_load(&handled) == 4 && wait_for(&freed, 4, 1000) && atomic_load(&failures) == 0);
    close(fd);
}

static void test_chunked(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 5 && told_sum() == add(0, "hello", 5));
    /* Byte by byte, with extensions, trailers and sizes in both cases. */
    const char *text = "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "5;a=\"b\"\r\nhello\r\n000A ;x\r\n0123456789\r\nB\r\nhello world\r\n0\r\nX-T: 1\r\nY:\r\n\r\n";
    for (const char *at = text; *at != '\0'; at++)
        client_send(fd, at, 1);
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 26 && told_sum() == add(0, "hello0123456789hello world", 26));
    CHECK(is_alive(fd));
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    uint32_t sum = 0;
    size_t total = 0;
    for (size_t i = 1; i < 200; i++) { /* from one byte up to more than the buffers */
        char head[32];
        size_t size = i * i + (i % 3 == 0 ? 20000 : 0);
        snprintf(head, sizeof head, "%zx\r\n", size);
        client_say(fd, head);
        client_send(fd, block, size);
        client_say(fd, "\r\n");
        sum = add(sum, block, size);
        total += size;
    }
    client_say(fd, "0\r\n\r\nGET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == total && told_sum() == sum);
    CHECK(client_read_reply(fd, reply, sizeof reply) > 0 && strstr(reply, "world") != NULL);
    /* Far more chunks at once than one turn takes, and nothing behind them. */
    size_t used = 0;
    static char many[16000];
    for (int i = 0; i < 2000; i++)
        used += (size_t)snprintf(many + used, sizeof many - used, "1\r\n%c\r\n", block[i] % 26 + 'a');
    used += (size_t)snprintf(many + used, sizeof many - used, "0\r\n\r\n");
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client_send(fd, many, used);
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 2000);
    close(fd);
}

static void test_broken_chunks(void)
{
    static const char *const BODIES[] = {
        "x\r\n",          "5\nhello\r\n0\r\n\r\n",     "\r\n",    "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0",  "FFFFFFFFFFFFFFFFF\r\n",     "-1\r\n",  "5\x01\r\nhello",
        "0\r\nX\x01\r\n", "8000000000000000\r\nhello", "0\r\n\n", "5 5;\x7f\r\n"};
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        reset();
        int fd = client_open();
        client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        client_say(fd, BODIES[i]);
        client_read_all(fd, reply, sizeof reply, 1000);
        bool is_refused = strncmp(reply, "HTTP/1.1 400 ", 13) == 0;
        if (!is_refused)
            fprintf(stderr, "taken: %s -> %s\n", BODIES[i], reply);
        CHECK(is_refused && atomic_load(&last_kind) == ERROR_INVALID && strstr(reply, "Connection: close") != NULL);
        CHECK(client_is_closed(fd, 3000));
        close(fd);
    }
}

static void test_pipelined(void)
{
    reset();
    int fd = client_open();
    client_say(fd,
               "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
               "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
               "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyzGET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_sum() == add(0, "hello", 5));
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_sum() == add(0, "abc", 3));
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_sum() == add(0, "xyz", 3));
    CHECK(client_read_reply(fd, reply, sizeof reply) > 0 && strstr(reply, "world") != NULL);
    close(fd);
}

static void test_limits(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /small HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 413 ", 13) == 0 && atomic_load(&handled) == 0);
    close(fd);
    fd = client_open();
    client_say(fd, "PUT /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n");
    client_send(fd, block, 1000);
    client_say(fd, "\r\n1\r\n");
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 413 ", 13) == 0 && atomic_load(&last_kind) == ERROR_TOO_LARGE);
    CHECK(atomic_load(&last_size) == 1000);
    close(fd);
    fd = client_open();
    client_say(fd, "PUT /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n");
    client_send(fd, block, 1000);
    client_say(fd, "\r\n0\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 1000);
    close(fd);
}

static void test_authorized_once(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /s/a/files/x HTTP/1.1\r\nHost: h\r\nContent-Length: 50000000\r\nExpect: 100-continue\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 401 ", 13) == 0 && atomic_load(&handled) == 0 && atomic_load(&authorized) == 1);
    close(fd);
    fd = client_open();
    client_say(fd, "PUT /s/a/files/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Length: 5\r\n\r\nhe");
    sleep_ms(50);
    client_say(fd, "llo");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 5 && atomic_load(&authorized) == 2);
    /* Names of whatever bytes, escaped or not. */
    client_say(
        fd, "PUT /s/a/files/%FF/\xFE\x80 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Length: 1\r\n\r\nx");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 1);
    close(fd);
}

static void test_continue(void)
{
    reset();
    int fd = client_open();
    double began = seconds_now();
    client_say(fd, "PUT /late HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    size_t got = client_read_all(fd, reply, 26, 2000);
    CHECK(got == 25 && strcmp(reply, "HTTP/1.1 100 Continue\r\n\r\n") == 0);
    CHECK(seconds_now() - began > 0.15); /* not before the handler pours */
    client_say(fd, "hello");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 5 && is_alive(fd));
    /* Nobody asked to send has to be told to, and a body that is there needs no leave. */
    client_say(fd, "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 416 ", 13) == 0 && strstr(reply, "Content-Range: bytes */7\r\n") != NULL);
    CHECK(strstr(reply, "Connection: close\r\n") != NULL && client_is_closed(fd, 500));
    close(fd);
    fd = client_open();
    client_say(fd, "PUT /late HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == 5);
    close(fd);
}

/* The reply must arrive although the client goes on sending for a while. */
static void test_reply_before_end(const char *request, const char *status)
{
    reset();
    int fd = client_open();
    client_say(fd, request);
    for (int i = 0; i < 16; i++)
        client_send(fd, block, sizeof block);
    sleep_ms(200);
    client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(strncmp(reply, status, strlen(status)) == 0 && strstr(reply, "Connection: close\r\n") != NULL);
    CHECK(client_body(reply) != NULL && strchr(client_body(reply), '}') != NULL);
    CHECK(client_send(fd, block, 1000) && client_send(fd, block, 1000)); /* no reset yet */
    CHECK(client_is_closed(fd, 3000));
    close(fd);
}

static void test_early(void)
{
    test_reply_before_end("PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n", "HTTP/1.1 416 ");
    test_reply_before_end(
        "PUT /refuse HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nF00000\r\n",
        "HTTP/1.1 416 ");
    test_reply_before_end("PUT /brief HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n", "HTTP/1.1 200 ");
    CHECK(wait_for(&freed, 1, 1000) && atomic_load(&last_kind) == -1); /* the answerer is told nothing more */
}

static void test_reader_leaves(void)
{
    test_reply_before_end("PUT /some HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n", "HTTP/1.1 409 ");
    CHECK(atomic_load(&last_kind) == ERROR_CONFLICT && wait_for(&freed, 1, 1000));
    /* Also while the client sends nothing. */
    reset();
    int fd = client_open();
    client_say(fd, "PUT /some HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n");
    client_send(fd, block, sizeof block);
    client_send(fd, block, 40000);
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 409 ", 13) == 0);
    close(fd);
}

static void test_client_leaves(bool is_reset, bool is_chunked)
{
    reset();
    int fd = client_open();
    client_say(fd, is_chunked ? "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFF\r\n"
                              : "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    client_send(fd, block, 50000);
    CHECK(wait_for(&handled, 1, 1000));
    sleep_ms(20);
    struct linger at_once = {.l_onoff = 1};
    if (is_reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    CHECK(wait_for(&gone, 1, 1000) && wait_for(&ends, 1, 1000) && wait_for(&freed, 1, 1000));
    CHECK(atomic_load(&last_kind) == -1);
}

static void test_client_leaves_full_pipe(void)
{
    reset();
    atomic_store(&may_read, false);
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 10; i++) { /* more than the pipe takes, and less than would keep its FIN back */
        client_send(fd, block, 8000);
        sleep_ms(2);
    }
    CHECK(wait_for(&handled, 1, 1000));
    sleep_ms(50);
    close(fd);
    CHECK(wait_for(&gone, 1, 2000));
    atomic_store(&may_read, true);
    CHECK(wait_for(&freed, 1, 1000));
}

/* A client that shuts down its side behind the whole body still gets its reply. */
static void test_half_closed(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /late HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    shutdown(fd, SHUT_WR);
    client_read_all(fd, reply, sizeof reply, 2000);
    CHECK(strstr(reply, "\"size\":5") != NULL);
    close(fd);
}

/* One that does so before the end of its body has nothing to wait for. */
static void test_half_sent(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nhello");
    CHECK(wait_for(&handled, 1, 1000));
    shutdown(fd, SHUT_WR);
    CHECK(client_is_closed(fd, 500) && wait_for(&freed, 1, 1000) && atomic_load(&gone) == 1);
    close(fd);
}

static void test_slow_client(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
    double began = seconds_now();
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 408 ", 13) == 0 && atomic_load(&last_kind) == ERROR_TIMEOUT);
    CHECK(seconds_now() - began < 4 && atomic_load(&last_size) == 3);
    CHECK(wait_for(&freed, 1, 1000));
    close(fd);
}

static struct http_server *start_impatient(void)
{
    struct http_server_options options = {.host = "127.0.0.1",
                                          .tls = tls_fixture(),
                                          .loops = 1,
                                          .routes = ROUTES,
                                          .route_count = sizeof ROUTES / sizeof ROUTES[0],
                                          .authorize = authorize,
                                          .body_grace_ms = 100,
                                          .body_min_rate = 1000};
    struct error err = {0};
    struct http_server *impatient = http_server_start(&options, &err);
    CHECK(impatient != NULL);
    client_port = http_server_port(impatient);
    return impatient;
}

/* What came fast pays for a pause, but not for one without end. Nor may who reads the pipe pause without end. */
static void test_stalled(bool is_read, const char *status)
{
    uint16_t port = client_port;
    AUTO(http_server) *impatient = start_impatient();
    reset();
    atomic_store(&may_read, is_read);
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    CHECK(client_send(fd, block, sizeof block)); /* a minute's worth of bytes */
    double began = seconds_now();
    CHECK(wait_for(&failures, 1, 4000) && atomic_load(&last_kind) == ERROR_TIMEOUT);
    CHECK(seconds_now() - began > 0.5);
    atomic_store(&may_read, true);
    client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(strncmp(reply, status, strlen(status)) == 0);
    CHECK(wait_for(&freed, 1, 1000));
    close(fd);
    client_port = port;
}

/* While the reader takes its time the client is not blamed, and nothing spins. */
static void test_slow_reader(void)
{
    const size_t size = 32 << 20;
    reset();
    atomic_store(&may_read, false);
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 33554432\r\n\r\n");
    size_t sent = 0;
    for (int i = 0; i < 20; i++) { /* until both kernels' buffers are full */
        ssize_t got;
        while ((got = send(fd, block, sizeof block, MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
            sent += (size_t)got;
        sleep_ms(10);
    }
    CHECK(sent < size);
    clock_t before = clock();
    sleep_ms(2300);
    CHECK(clock() - before < CLOCKS_PER_SEC / 4); /* the reader looks now and then */
    CHECK(atomic_load(&handled) == 1 && atomic_load(&last_kind) == -1);
    atomic_store(&may_read, true);
    while (sent < size) {
        size_t left = size - sent < sizeof block ? size - sent : sizeof block;
        CHECK(client_send(fd, block, left));
        sent += left;
    }
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == size);
    close(fd);
}

static void revoke_one(void *cookie, struct http_request *request)
{
    (void)cookie;
    atomic_fetch_add(&visited, 1);
    struct error err;
    error_set(&err, ERROR_TOKEN_REVOKED, "revoked by the test");
    http_request_revoke(request, &err);
}

static void revoke_all(void *cookie)
{
    http_requests_each(cookie, revoke_one, NULL);
    atomic_fetch_add(&walked, 1);
}

static void test_revoked(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
    CHECK(wait_for(&handled, 1, 1000));
    for (unsigned i = 0; i < 2; i++)
        loop_post(http_server_loop(server, i), revoke_all, http_server_loop(server, i));
    CHECK(wait_for(&walked, 2, 1000) && atomic_load(&visited) == 1);
    client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(strncmp(reply, "HTTP/1.1 401 ", 13) == 0 && strstr(reply, "TOKEN_REVOKED") != NULL);
    CHECK(atomic_load(&gone) == 1 && wait_for(&freed, 1, 1000) && client_is_closed(fd, 3000));
    close(fd);
}

static size_t status_kib(const char *field)
{
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    size_t kib = 0;
    while (fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtoul(line + strlen(field), NULL, 10);
    }
    fclose(status);
    return kib;
}

/* Files that libh2o would spool to have no name. */
static unsigned deleted_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char target[256] = "";
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        count += length > 0 && strstr(target, "(deleted)") != NULL;
    }
    closedir(folder);
    return count;
}

static void test_large(bool is_chunked)
{
    const size_t size = (size_t)300 << 20;
    reset();
    size_t before = status_kib("VmHWM:"), deleted_before = deleted_files();
    int fd = client_open();
    char head[128];
    snprintf(head, sizeof head, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", size);
    client_say(fd, is_chunked ? "PUT /all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" : head);
    double began = seconds_now();
    for (size_t sent = 0; sent < size; sent += sizeof block) {
        if (is_chunked)
            client_say(fd, "10000\r\n");
        client_send(fd, block, sizeof block);
        if (is_chunked)
            client_say(fd, "\r\n");
        if (sent == size / 2)
            CHECK(deleted_files() == deleted_before);
    }
    if (is_chunked)
        client_say(fd, "0\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(told_size() == size);
    printf("%s: %.0f MiB/s, %zu KiB more memory\n", is_chunked ? "chunked" : "length",
           (double)(size >> 20) / (seconds_now() - began), status_kib("VmHWM:") - before);
    CHECK(client_is_tls() || status_kib("VmHWM:") - before < 8192); /* the client's TLS is in this process */
    CHECK(is_alive(fd));
    close(fd);
}

/* Bodies whose last byte is also the last that a turn may take. */
static void test_whole_turns(void)
{
    enum { TURN = 4096 };
    struct http_server_options options = {.host = "127.0.0.1",
                                          .tls = tls_fixture(),
                                          .loops = 1,
                                          .routes = ROUTES,
                                          .route_count = sizeof ROUTES / sizeof ROUTES[0],
                                          .authorize = authorize,
                                          .turn_bytes = TURN};
    struct error err = {0};
    AUTO(http_server) *careful = http_server_start(&options, &err);
    CHECK(careful != NULL);
    uint16_t port = client_port;
    client_port = http_server_port(careful);
    reset();
    int fd = client_open();
    for (unsigned round = 1; round <= 5; round++) {
        char head[128];
        snprintf(head, sizeof head, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: %u\r\n\r\n", round * TURN);
        client_say(fd, head);
        CHECK(wait_for(&handled, round, 5000)); /* so that no byte of it came with the head */
        client_send(fd, block, (size_t)round * TURN);
        reply[0] = '\0';
        client_read_reply(fd, reply, sizeof reply);
        CHECK(told_size() == (size_t)round * TURN);
    }
    close(fd);
    client_port = port;
}

static void test_stopped(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "PUT /all HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
    CHECK(wait_for(&handled, 1, 1000));
    http_server_stop(server, 50);
    CHECK(wait_for(&gone, 1, 1000) && wait_for(&ends, 1, 1000));
    close(fd);
}

int main(void)
{
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)(i * 7 + i / 251);
    atomic_store(&may_read, true);
    start_server();
    test_length();
    test_chunked();
    test_broken_chunks();
    test_pipelined();
    test_limits();
    test_authorized_once();
    test_continue();
    test_early();
    test_reader_leaves();
    for (int i = 0; i < 4; i++)
        test_client_leaves(i % 2 == 0, i / 2 == 0);
    test_client_leaves_full_pipe();
    test_half_closed();
    test_half_sent();
    test_slow_client();
    test_stalled(true, "HTTP/1.1 408 ");
    test_stalled(false, "HTTP/1.1 504 ");
    test_slow_reader();
    test_revoked();
    test_large(false);
    test_large(true);
    test_whole_turns();
    test_stopped();
    stop_server();
    return check_done();
}
