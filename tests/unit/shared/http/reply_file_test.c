/* reply_file_test.c - files by sendfile: as whole replies and within streams, ranges, HEAD, slow clients, files that
 * get shorter, revocation, clients that leave; and that descriptors go with their requests. */
#include "client.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/http/server.h"
#include "tests/unit/check.h"
#include "tls_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { FILE_BYTES = 24 << 20, SMALL_BYTES = 65536, STALL_MS = 1500 };

static struct http_server *server;
static atomic_uint handled, gone, drained, cuts, walked, visited;
static int file;
static char *content;
static char reply[1 << 16];
static char *large; /* FILE_BYTES and a head */

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
    atomic_store(&gone, 0);
    atomic_store(&drained, 0);
    atomic_store(&cuts, 0);
    atomic_store(&walked, 0);
    atomic_store(&visited, 0);
}

static uint64_t number(const struct http_request *request, const char *name, uint64_t otherwise)
{
    const char *text = http_request_query(request, name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void answer_file(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    uint64_t offset = number(request, "offset", 0), size = number(request, "size", FILE_BYTES);
    http_reply_header(request, "ETag", "\"e\"");
    http_reply_file(request, (int)number(request, "status", 200), "application/octet-stream",
                    fcntl(file, F_DUPFD_CLOEXEC, 0), offset, size);
}

/* As the handler of a slow helper would: from another turn. */
struct later {
    struct loop *loop;
    uint64_t number;
};

static void answer_now(void *cookie)
{
    struct later *later = cookie;
    struct http_request *request = http_request_find(later->loop, later->number);
    if (request != NULL)
        answer_file(request);
    free(later);
}

static void answer_later(struct http_request *request)
{
    struct later *later = memory_new(sizeof *later);
    *later = (struct later){http_request_loop(request), http_request_number(request)};
    loop_timer_start(later->loop, clock_boot_ns() + 20000000, answer_now, later);
}

/* A file with a hole behind what is there: it says it is longer than it will be. */
static void answer_shrinking(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    int shrinking = memfd_create("shrinking", MFD_CLOEXEC);
    CHECK(ftruncate(shrinking, 1000) == 0);
    http_reply_file(request, 200, "application/octet-stream", shrinking, 0, number(request, "size", 5000));
}

/* Streams "begin", `parts` of the file, and "end". */
struct parts {
    uint64_t at;
    unsigned left, part_bytes;
};

static void next_part(struct http_request *request, void *cookie)
{
    struct parts *parts = cookie;
    atomic_fetch_add(&drained, 1);
    if (parts->left == 0) {
        free(parts);
        http_stream_send(request, "end", 3);
        http_stream_end(request);
        return;
    }
    parts->left--;
    uint64_t at = parts->at;
    parts->at += parts->part_bytes;
    int borrowed = fcntl(file, F_DUPFD_CLOEXEC, 0);
    CHECK(http_stream_send_file(request, borrowed, at, parts->part_bytes));
    close(borrowed); /* sooner than is promised, and no harm */
}

static void parts_gone(void *cookie)
{
    free(cookie);
    atomic_fetch_add(&gone, 1);
}

static void parts_cut(struct http_request *request, void *cookie, const struct error *err)
{
    (void)err;
    http_stream_send(request, "last", 4);
    free(cookie);
    atomic_fetch_add(&cuts, 1);
}

static const struct http_stream_events PARTS_EVENTS = {.drained = next_part, .gone = parts_gone, .cut = parts_cut};
static const struct http_stream_events DEAR_EVENTS = {
    .drained = next_part, .gone = parts_gone, .cut = parts_cut, .cut_stalled = true};

static void answer_parts(struct http_request *request)
{
    atomic_fetch_add(&handled, 1);
    struct parts *parts = memory_new(sizeof *parts);
    *parts = (struct parts){.left = (unsigned)number(request, "parts", 3),
                            .part_bytes = (unsigned)number(request, "bytes", 100000)};
    bool is_dear = number(request, "dear", 0) != 0;
    http_stream_start(request, 200, "application/octet-stream", is_dear ? &DEAR_EVENTS : &PARTS_EVENTS, parts);
    http_stream_send(request, "begin", 5);
}

static void count_gone(void *cookie)
{
    (void)cookie;
    atomic_fetch_add(&gone, 1);
}

static void answer_quietly(struct http_request *request)
{
    static const struct http_stream_events EVENTS = {.gone = count_gone, .cut_stalled = true};
    http_stream_start(request, 200, "text/plain", &EVENTS, NULL);
    http_stream_send(request, "a", 1);
}

static const struct http_stream_events NO_EVENTS = {.drained = NULL};

/* Everything is queued at once, and the stream ended: order holds. */
static void answer_queued(struct http_request *request)
{
    http_stream_start(request, 200, "text/plain", &NO_EVENTS, NULL);
    http_stream_send(request, "<", 1);
    CHECK(http_stream_send_file(request, file, 10, (uint64_t)number(request, "bytes", 20)));
    http_stream_send(request, ">", 1);
    http_stream_send(request, "!", 1);
    http_stream_end(request);
}

static void answer_too_short(struct http_request *request)
{
    http_stream_start(request, 200, "text/plain", &NO_EVENTS, NULL);
    http_stream_send(request, "<", 1);
    CHECK(!http_stream_send_file(request, file, FILE_BYTES - 5, 6));
    CHECK(http_request_find(http_request_loop(request), http_request_number(request)) == NULL);
}

static void hello(struct http_request *request)
{
    http_reply_json(request, 200, json_pack("{s:s}", "hello", "world"));
}

static const struct http_route ROUTES[] = {
    {"GET", "/file", 0, NULL, 0, answer_file},
    {"GET", "/later", 0, NULL, 0, answer_later},
    {"GET", "/shrinking", 0, NULL, 0, answer_shrinking},
    {"GET", "/parts", 0, NULL, 0, answer_parts},
    {"GET", "/quiet", 0, NULL, 0, answer_quietly},
    {"GET", "/queued", 0, NULL, 0, answer_queued},
    {"GET", "/short", 0, NULL, 0, answer_too_short},
    {"PUT", "/file", HTTP_POURS, NULL, 1 << 20, answer_file},
    {"GET", "/hello", 0, NULL, 0, hello},
};

static unsigned open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* Every connection of a test, and all that hung on it, goes. */
static unsigned idle_files;

static bool is_idle(void)
{
    double until = seconds_now() + 2;
    while (open_files() != idle_files && seconds_now() < until)
        sleep_ms(10);
    return open_files() == idle_files;
}

static bool is_alive(int fd)
{
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    return client_read_reply(fd, reply, sizeof reply) > 0 && strstr(reply, "world") != NULL;
}

static size_t ask_large(int fd, const char *request)
{
    client_say(fd, request);
    return client_read_reply(fd, large, FILE_BYTES + 4096);
}

static bool is_content(const char *body, uint64_t offset, size_t size)
{
    return body != NULL && memcmp(body, content + offset, size) == 0;
}

static void test_whole(const char *path)
{
    reset();
    int fd = client_open();
    char request[128];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path);
    size_t size = ask_large(fd, request);
    const char *body = client_body(large);
    CHECK(strncmp(large, "HTTP/1.1 200 OK\r\n", 17) == 0 && strstr(large, "ETag: \"e\"\r\n") != NULL);
    CHECK(body != NULL && size == (size_t)(body - large) + FILE_BYTES && is_content(body, 0, FILE_BYTES));
    CHECK(is_alive(fd));
    close(fd);
}

static void test_parts_of_it(void)
{
    int fd = client_open();
    client_say(fd, "GET /file?offset=1000003&size=77777&status=206 HTTP/1.1\r\nHost: h\r\n\r\n"
                   "GET /file?offset=5&size=0 HTTP/1.1\r\nHost: h\r\n\r\n"
                   "HEAD /file HTTP/1.1\r\nHost: h\r\n\r\n"
                   "GET /file?size=1 HTTP/1.1\r\nHost: h\r\n\r\n");
    size_t size = client_read_reply(fd, large, FILE_BYTES + 4096);
    const char *body = client_body(large);
    CHECK(strncmp(large, "HTTP/1.1 206 Partial Content\r\n", 30) == 0);
    CHECK(body != NULL && size == (size_t)(body - large) + 77777 && is_content(body, 1000003, 77777));
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0 && strstr(reply, "Content-Length: 0\r\n") != NULL);
    size = client_read_all(fd, reply, sizeof reply, 300);
    CHECK(strstr(reply, "Content-Length: 25165824\r\n") != NULL);
    body = client_body(reply);
    CHECK(body != NULL && strncmp(body, "HTTP/1.1 200 ", 13) == 0); /* no body: the next reply is here */
    body = body != NULL ? client_body(body) : NULL;
    CHECK(body != NULL && body + 1 == reply + size && is_content(body, 0, 1));
    close(fd);
}

/* What the access log says of one request. */
static void test_logged(const char *request, const char *wanted)
{
    int log = memfd_create("log", MFD_CLOEXEC), before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    CHECK(dup2(log, STDERR_FILENO) >= 0);
    int fd = client_open();
    client_say(fd, request);
    (void)client_read_all(fd, large, FILE_BYTES + 4096, 3000);
    close(fd);
    bool found = false;
    for (int i = 0; i < 100 && !found; i++) {
        ssize_t got = pread(log, reply, sizeof reply - 1, 0);
        reply[got > 0 ? got : 0] = '\0';
        found = strstr(reply, wanted) != NULL;
        sleep_ms(10);
    }
    CHECK(dup2(before, STDERR_FILENO) >= 0);
    CHECK(found);
    close(before);
    close(log);
}

static void test_old_client(void)
{
    int fd = client_open();
    client_say(fd, "GET /file HTTP/1.0\r\n\r\n");
    size_t size = client_read_all(fd, large, FILE_BYTES + 4096, 3000);
    const char *body = client_body(large);
    CHECK(body != NULL && size == (size_t)(body - large) + FILE_BYTES && is_content(body, 0, FILE_BYTES));
    close(fd);
}

/* A body that nobody wants does not eat the reply, which is longer than the buffers. */
static void test_unwanted_body(void)
{
    int fd = client_open();
    client_say(fd, "PUT /file HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
    client_send(fd, content, 90000);
    size_t size = client_read_all(fd, large, FILE_BYTES + 4096, 3000);
    const char *body = client_body(large);
    CHECK(body != NULL && size == (size_t)(body - large) + FILE_BYTES && is_content(body, 0, FILE_BYTES));
    CHECK(strstr(large, "Connection: close\r\n") != NULL);
    close(fd);
}

static void test_shorter(unsigned claimed)
{
    reset();
    int fd = client_open();
    char request[64], length[64];
    snprintf(request, sizeof request, "GET /shrinking?size=%u HTTP/1.1\r\nHost: h\r\n\r\n", claimed);
    snprintf(length, sizeof length, "Content-Length: %u\r\n", claimed);
    client_say(fd, request);
    size_t size = client_read_all(fd, reply, sizeof reply, 2000);
    const char *body = client_body(reply);
    CHECK(strstr(reply, length) == NULL || (body != NULL && (size_t)(reply + size - body) <= 1000));
    char byte;
    CHECK(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

/* Other requests are served while a client takes its time. */
static void test_slow_client(void)
{
    reset();
    int slow = client_open_small(4096), others[8];
    client_say(slow, "GET /file HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(wait_for(&handled, 1, 1000));
    double began = seconds_now();
    for (int i = 0; i < 8; i++) {
        others[i] = client_open();
        CHECK(is_alive(others[i]));
        close(others[i]);
    }
    CHECK(seconds_now() - began < 1);
    for (int i = 0; i < 20; i++) {
        CHECK(recv(slow, reply, 4096, 0) > 0);
        sleep_ms(5);
    }
    size_t size = client_read_all(slow, large, FILE_BYTES, 2000);
    CHECK(memcmp(large + size - 1000, content + FILE_BYTES - 1000, 1000) == 0);
    close(slow);
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

static void test_revoked(const char *request, unsigned told)
{
    reset();
    int fd = client_open_small(4096);
    client_say(fd, request);
    CHECK(wait_for(&handled, 1, 1000));
    sleep_ms(100);
    for (unsigned i = 0; i < 2; i++)
        loop_post(http_server_loop(server, i), revoke_all, http_server_loop(server, i));
    CHECK(wait_for(&walked, 2, 1000) && atomic_load(&visited) == 1);
    CHECK(atomic_load(&cuts) == told && atomic_load(&gone) == 0);
    size_t size = client_read_all(fd, large, FILE_BYTES + 4096, 1000);
    CHECK(size < FILE_BYTES && memmem(large, size, "last", 4) == NULL);
    close(fd);
    CHECK(is_idle());
}

static void test_leaving(const char *request, unsigned told)
{
    reset();
    int fd = client_open_small(4096);
    client_say(fd, request);
    CHECK(wait_for(&handled, 1, 1000));
    sleep_ms(100);
    close(fd);
    CHECK(is_idle() && atomic_load(&gone) == told);
}

/* Clients that take nothing: a finished reply is cut, and a stream when it wants that. */
static void test_stalling(void)
{
    reset();
    int fds[3];
    const char *const asked[] = {"/file", "/parts?parts=2&bytes=12000000&dear=1", "/parts?parts=2&bytes=12000000"};
    for (int i = 0; i < 3; i++) {
        char request[96];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", asked[i]);
        fds[i] = client_open_small(4096);
        client_say(fds[i], request);
    }
    CHECK(wait_for(&handled, 3, 1000));
    CHECK(wait_for(&gone, 1, 3 * STALL_MS));
    sleep_ms(STALL_MS);
    CHECK(atomic_load(&gone) == 1);
    CHECK(client_read_all(fds[2], large, FILE_BYTES + 4096, 1000) > FILE_BYTES - 2000000);
    for (int i = 0; i < 2; i++)
        CHECK(client_read_all(fds[i], large, FILE_BYTES + 4096, 1000) < FILE_BYTES / 2);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    CHECK(is_idle());
}

/* One that waits for its owner does not stall. */
static void test_quiet(void)
{
    reset();
    int fd = client_open();
    client_say(fd, "GET /quiet HTTP/1.1\r\nHost: h\r\n\r\n");
    sleep_ms(3 * STALL_MS);
    CHECK(atomic_load(&gone) == 0 && client_read_all(fd, reply, sizeof reply, 100) > 0 && !client_is_closed(fd, 100));
    close(fd);
    CHECK(wait_for(&gone, 1, 1000));
}

/* The bytes of a chunked reply's body, joined; SIZE_MAX when it is broken. */
static size_t join_chunks(const char *body, char *to)
{
    size_t total = 0;
    for (;;) {
        char *end;
        size_t size = strtoul(body, &end, 16);
        if (end == body || strncmp(end, "\r\n", 2) != 0)
            return SIZE_MAX;
        if (size == 0)
            return strcmp(end, "\r\n\r\n") == 0 ? total : SIZE_MAX;
        memmove(to + total, end + 2, size);
        total += size;
        body = end + 2 + size;
        if (strncmp(body, "\r\n", 2) != 0)
            return SIZE_MAX;
        body += 2;
    }
}

static void test_stream(const char *query, unsigned parts, size_t part_bytes, bool is_old)
{
    reset();
    int fd = client_open();
    char request[128];
    snprintf(request, sizeof request, "GET /parts?%s HTTP/1.%d\r\nHost: h\r\nConnection: close\r\n\r\n", query,
             !is_old);
    client_say(fd, request);
    size_t size = client_read_all(fd, large, FILE_BYTES + 4096, 3000);
    char *body = strstr(large, "\r\n\r\n");
    CHECK(body != NULL);
    if (body == NULL)
        return;
    body += 4;
    char *joined = memory_new(FILE_BYTES + 4096);
    size_t wanted = parts * part_bytes + 8, total = size - (size_t)(body - large);
    if (is_old)
        memcpy(joined, body, total);
    else
        total = join_chunks(body, joined);
    CHECK(total == wanted);
    CHECK(total == wanted && memcmp(joined, "begin", 5) == 0 && memcmp(joined + wanted - 3, "end", 3) == 0 &&
          is_content(joined + 5, 0, parts * part_bytes));
    CHECK(atomic_load(&drained) == parts + 1 && atomic_load(&gone) == 0);
    free(joined);
    close(fd);
}

/* A large one is a chunk of its own; a small one goes with what waits. */
static void test_order(size_t bytes)
{
    int fd = client_open();
    char request[64];
    snprintf(request, sizeof request, "GET /queued?bytes=%zu HTTP/1.1\r\nHost: h\r\n\r\n", bytes);
    client_say(fd, request);
    client_read_all(fd, large, FILE_BYTES, 300);
    char *body = strstr(large, "\r\n\r\n"), *joined = memory_new(bytes + 4096);
    CHECK(body != NULL && join_chunks(body + 4, joined) == bytes + 3);
    CHECK(joined[0] == '<' && is_content(joined + 1, 10, bytes) && memcmp(joined + 1 + bytes, ">!", 2) == 0);
    CHECK(is_alive(fd));
    free(joined);
    close(fd);
}

static void test_queued(void)
{
    int fd = client_open();
    client_say(fd, "GET /queued HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 300);
    char want[64];
    snprintf(want, sizeof want, "17\r\n<%.20s>!\r\n0\r\n\r\n", content + 10);
    CHECK_TEXT(client_body(reply), want);
    CHECK(is_alive(fd));
    client_say(fd, "HEAD /queued HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 300);
    CHECK_TEXT(client_body(reply), "");
    close(fd);
    fd = client_open();
    client_say(fd, "GET /queued HTTP/1.0\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 1000);
    snprintf(want, sizeof want, "<%.20s>!", content + 10);
    CHECK_TEXT(client_body(reply), want);
    close(fd);
    fd = client_open();
    client_say(fd, "GET /short HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 1000);
    CHECK(strstr(reply, "\r\n0\r\n") == NULL && client_is_closed(fd, 100));
    close(fd);
}

int main(void)
{
    content = memory_new(FILE_BYTES);
    large = memory_new(FILE_BYTES + 8192);
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (char)('a' + (i * 7 + i / 251 + i / 65521) % 26);
    log_set_level(LOG_DEBUG); /* routine successes too */
    file = memfd_create("content", MFD_CLOEXEC);
    CHECK(write(file, content, FILE_BYTES) == FILE_BYTES);
    struct http_server_options options = {.host = "127.0.0.1",
                                          .tls = tls_fixture(),
                                          .loops = 2,
                                          .name = "file",
                                          .stall_ms = STALL_MS,
                                          .routes = ROUTES,
                                          .route_count = sizeof ROUTES / sizeof ROUTES[0]};
    struct error err = {0};
    server = http_server_start(&options, &err);
    if (server == NULL) {
        fprintf(stderr, "no server: %s\n", err.message);
        return 1;
    }
    client_port = http_server_port(server);
    sleep_ms(50);
    idle_files = open_files();
    test_whole("/file");
    test_whole("/later");
    test_parts_of_it();
    test_logged("GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", " bytes=25165824 ");
    test_logged("GET /parts?parts=3&bytes=1000 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", " bytes=3008 ");
    test_old_client();
    test_unwanted_body();
    test_shorter(5000);
    test_shorter(500000);
    test_slow_client();
    test_revoked("GET /file HTTP/1.1\r\nHost: h\r\n\r\n", 0);
    test_revoked("GET /parts?parts=2&bytes=12000000 HTTP/1.1\r\nHost: h\r\n\r\n", 1);
    test_leaving("GET /file HTTP/1.1\r\nHost: h\r\n\r\n", 0);
    test_leaving("GET /parts?parts=2&bytes=12000000 HTTP/1.1\r\nHost: h\r\n\r\n", 1);
    test_stream("parts=3&bytes=100000", 3, 100000, false);
    test_stream("parts=2&bytes=12000000", 2, 12000000, false);
    test_stream("parts=2&bytes=12000000", 2, 12000000, true);
    test_stream("parts=50&bytes=1", 50, 1, false);
    test_stalling();
    test_quiet();
    test_order(SMALL_BYTES);
    test_order(SMALL_BYTES + 1);
    test_order(1 << 20);
    test_queued();
    CHECK(is_idle());
    http_server_stop(server, 1000);
    http_server_free(server);
    close(file);
    free(content);
    free(large);
    return check_done();
}
