/* node_call_test.c - one POST against a server that answers as it is told, and against none. */
#include "shared/node_protocol/node_call.h"
#include "tests/unit/check.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/link.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

/* The server: one connection at a time, one answer by the path of the request. */
static struct server {
    int listener, stop[2];
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock; /* for what follows */
    int connections, requests;
    struct text last; /* the last request, head and body */
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void answer(int fd, const char *text)
{
    ssize_t ignored UNUSED = send(fd, text, strlen(text), MSG_NOSIGNAL); /* the client may be gone */
}

/* More than is allowed, with or without a length told before. */
static void answer_large(int fd, bool told)
{
    AUTO_TEXT text = {0};
    text_append_string(&text, "HTTP/1.1 200 OK\r\n");
    if (told)
        text_append_format(&text, "Content-Length: %d\r\n", LINK_MESSAGE_MAX_BYTES + 1);
    text_append_string(&text, "Connection: close\r\n\r\n");
    AUTO_FREE char *body = memory_new(LINK_MESSAGE_MAX_BYTES + 1);
    text_append(&text, body, LINK_MESSAGE_MAX_BYTES + 1);
    for (size_t at = 0; at < text.length;) {
        ssize_t sent = send(fd, text.data + at, text.length - at, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        at += (size_t)sent;
    }
}

static bool waits_for(int fd, int milliseconds)
{
    struct pollfd polled[2] = {{.fd = fd, .events = POLLIN}, {.fd = server.stop[0], .events = POLLIN}};
    return poll(polled, 2, milliseconds) > 0 && polled[1].revents == 0;
}

static const struct {
    const char *path, *reply; /* NULL: none at all */
} ANSWERS[] = {
    {"/echo", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"},
    {"/empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
    {"/created", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"},
    {"/moved", "HTTP/1.1 307 Moved\r\nLocation: /echo\r\nContent-Length: 0\r\n\r\n"},
    {"/401", "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"},
    {"/403", "HTTP/1.1 403 No\r\nContent-Length: 41\r\n\r\n{\"error\":{\"code\":\"X\",\"message\":\"not me\"}}"},
    {"/404", "HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\n{\"er"},
    {"/409", "HTTP/1.1 409 No\r\nContent-Length: 0\r\n\r\n"},
    {"/413", "HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"},
    {"/500", "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"},
    {"/503", "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"},
    {"/cut", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\nConnection: close\r\n\r\nhalf"},
    {"/noise", "\x16\x03\x01 this is no HTTP\r\n\r\n"},
    {"/never", NULL},
};

/* False when the connection is to be closed. */
static bool serve_request(int fd, const char *path)
{
    if (strcmp(path, "/large") == 0 || strcmp(path, "/large-told") == 0) {
        answer_large(fd, strcmp(path, "/large-told") == 0);
        return false;
    }
    for (size_t i = 0; i < sizeof ANSWERS / sizeof ANSWERS[0]; i++) {
        if (strcmp(path, ANSWERS[i].path) != 0)
            continue;
        if (ANSWERS[i].reply == NULL) {
            char gone = 0;
            while (waits_for(fd, 5000) && recv(fd, &gone, 1, 0) > 0)
                continue;
            return false;
        }
        answer(fd, ANSWERS[i].reply);
        if (strcmp(path, "/echo") == 0)
            send(fd, "\0lo", 3, MSG_NOSIGNAL);
        return strcmp(path, "/cut") != 0 && strcmp(path, "/noise") != 0;
    }
    return false;
}

/* Reads one request; false at the end of the connection. */
static bool read_request(int fd, struct text *request)
{
    for (;;) {
        const char *end = request->data ? memmem(request->data, request->length, "\r\n\r\n", 4) : NULL;
        const char *length = end ? strstr(request->data, "Content-Length: ") : NULL;
        size_t wanted = length ? strtoul(length + 16, NULL, 10) : 0;
        if (end && request->length >= (size_t)(end - request->data) + 4 + wanted)
            return true;
        char bytes[65536];
        if (!waits_for(fd, 5000))
            return false;
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got <= 0)
            return false;
        text_append(request, bytes, (size_t)got);
    }
}

static bool serve_one(int fd)
{
    AUTO_TEXT request = {0};
    if (!read_request(fd, &request))
        return false;
    char path[64] = "";
    bool is_post = sscanf(request.data, "POST %63s HTTP/1.1", path) == 1;
    pthread_mutex_lock(&server.lock);
    server.requests++;
    text_done(&server.last);
    server.last = request;
    request = (struct text){0};
    pthread_mutex_unlock(&server.lock);
    return is_post && serve_request(fd, path);
}

static void *serve(void *unused)
{
    while (waits_for(server.listener, -1)) {
        AUTO_FD int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_mutex_lock(&server.lock);
        server.connections++;
        pthread_mutex_unlock(&server.lock);
        while (fd >= 0 && serve_one(fd))
            continue;
    }
    return unused;
}

static int connections(void)
{
    pthread_mutex_lock(&server.lock);
    int count = server.connections;
    pthread_mutex_unlock(&server.lock);
    return count;
}

static int requests(void)
{
    pthread_mutex_lock(&server.lock);
    int count = server.requests;
    pthread_mutex_unlock(&server.lock);
    return count;
}

static int listen_on_loopback(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 10) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        exit(1);
    *port = ntohs(address.sin_port);
    return fd;
}

struct outcome {
    bool ok;
    uint8_t *reply;
    size_t size;
    struct error err;
};

static struct outcome call(struct node_caller *caller, const char *path, unsigned timeout_ms)
{
    struct outcome outcome = {.size = 99};
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", server.port, path);
    outcome.ok = node_call(caller, url, "bo\0dy", 5, timeout_ms, &outcome.reply, &outcome.size, &outcome.err);
    CHECK(outcome.ok == (outcome.err.kind == ERROR_NONE));
    CHECK(outcome.ok || (outcome.reply == NULL && outcome.size == 99)); /* untouched */
    return outcome;
}

static void check_kind(struct node_caller *caller, const char *path, enum error_kind kind)
{
    struct outcome outcome = call(caller, path, 3000);
    if (outcome.ok || outcome.err.kind != kind) {
        fprintf(stderr, "%s: %s: %s\n", path, error_code(outcome.err.kind), outcome.err.message);
        CHECK(!"the kind");
    }
    free(outcome.reply);
}

static void test_replies(struct node_caller *caller)
{
    struct outcome outcome = call(caller, "/echo", 3000);
    CHECK(outcome.ok && outcome.size == 5 && memcmp(outcome.reply, "he\0lo", 5) == 0);
    free(outcome.reply);
    pthread_mutex_lock(&server.lock);
    CHECK(strstr(server.last.data, "Content-Type: application/octet-stream\r\n") != NULL);
    CHECK(memcmp(server.last.data + server.last.length - 9, "\r\n\r\nbo\0dy", 9) == 0);
    pthread_mutex_unlock(&server.lock);
    outcome = call(caller, "/empty", 3000);
    CHECK(outcome.ok && outcome.size == 0 && outcome.reply != NULL);
    free(outcome.reply);
    CHECK(connections() == 1 && requests() == 2); /* one kept-alive connection */
    check_kind(caller, "/created", ERROR_INTERNAL);
    check_kind(caller, "/401", ERROR_UNAUTHENTICATED);
    check_kind(caller, "/404", ERROR_NOT_FOUND);
    check_kind(caller, "/409", ERROR_CONFLICT);
    check_kind(caller, "/413", ERROR_TOO_LARGE);
    check_kind(caller, "/500", ERROR_INTERNAL);
    check_kind(caller, "/503", ERROR_NODE_UNREACHABLE);
    int before = requests();
    check_kind(caller, "/moved", ERROR_INTERNAL);
    CHECK(requests() == before + 1); /* not followed */
    check_kind(caller, "/cut", ERROR_NODE_UNREACHABLE);
    check_kind(caller, "/noise", ERROR_NODE_UNREACHABLE);
    check_kind(caller, "/closed", ERROR_NODE_UNREACHABLE);
    check_kind(caller, "/large", ERROR_TOO_LARGE);
    check_kind(caller, "/large-told", ERROR_TOO_LARGE);
    outcome = call(caller, "/403", 3000);
    CHECK(!outcome.ok && outcome.err.kind == ERROR_FORBIDDEN && strstr(outcome.err.message, "403: not me") != NULL);
    outcome = call(caller, "/echo", 3000); /* and it still works after all that */
    CHECK(outcome.ok && outcome.size == 5);
    free(outcome.reply);
}

/* Any answer is one, with its type; headers go as they are. */
static void test_any_answer(struct node_caller *caller)
{
    static const char *const HEADERS[] = {"X-One: 1", "Content-Type: application/json", NULL};
    char url[64];
    struct node_answer answer = {0};
    struct error err = {0};
    snprintf(url, sizeof url, "http://127.0.0.1:%d/403", server.port);
    struct node_request request = {
        .method = "POST", .url = url, .headers = HEADERS, .body = "[1]", .body_size = 3, .timeout_ms = 3000};
    CHECK(node_ask(caller, &request, &answer, &err) && answer.status == 403 && answer.body_size == 41);
    CHECK(answer.type[0] == '\0' && memcmp(answer.body, "{\"error\"", 8) == 0);
    free(answer.body);
    pthread_mutex_lock(&server.lock);
    CHECK(strstr(server.last.data, "X-One: 1\r\n") && strstr(server.last.data, "Content-Type: application/json\r\n"));
    CHECK(memcmp(server.last.data + server.last.length - 3, "[1]", 3) == 0);
    pthread_mutex_unlock(&server.lock);
    request.method = "PATCH";
    (void)!node_ask(caller, &request, &answer, &err); /* that server answers POSTs alone */
    pthread_mutex_lock(&server.lock);
    CHECK(strncmp(server.last.data, "PATCH /403 HTTP/1.1\r\n", 21) == 0);
    pthread_mutex_unlock(&server.lock);
    request.url = "file:///etc/passwd";
    CHECK(!node_ask(caller, &request, &answer, &err) && err.kind == ERROR_INVALID);
    request.url = url;
    request.body_size = LINK_MESSAGE_MAX_BYTES + 1;
    CHECK(!node_ask(caller, &request, &answer, &err) && err.kind == ERROR_TOO_LARGE);
}

static void test_large_request(struct node_caller *caller)
{
    AUTO_FREE char *body = memory_new(LINK_MESSAGE_MAX_BYTES + 1);
    AUTO_FREE uint8_t *reply = NULL;
    size_t size = 0;
    struct error err = {0};
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/empty", server.port);
    CHECK(node_call(caller, url, body, LINK_MESSAGE_MAX_BYTES, 10000, &reply, &size, &err));
    pthread_mutex_lock(&server.lock);
    CHECK(server.last.length > LINK_MESSAGE_MAX_BYTES);
    CHECK(strstr(server.last.data, "Expect:") == NULL); /* curl asks first from 1 MiB on */
    pthread_mutex_unlock(&server.lock);
    CHECK(!node_call(caller, url, body, LINK_MESSAGE_MAX_BYTES + 1, 10000, &reply, &size, &err));
    CHECK(err.kind == ERROR_TOO_LARGE);
}

static void test_time(struct node_caller *caller)
{
    uint64_t before = clock_monotonic_ns();
    struct outcome outcome = call(caller, "/never", 150);
    uint64_t took_ms = (clock_monotonic_ns() - before) / 1000000;
    CHECK(!outcome.ok && outcome.err.kind == ERROR_NODE_UNREACHABLE && took_ms >= 140 && took_ms < 4000);
    before = clock_monotonic_ns();
    outcome = call(caller, "/never", 0); /* 0 is not for ever */
    took_ms = (clock_monotonic_ns() - before) / 1000000;
    CHECK(!outcome.ok && outcome.err.kind == ERROR_NODE_UNREACHABLE && took_ms < 4000);
}

static void test_unreachable(struct node_caller *caller)
{
    struct error err = {0};
    uint8_t *reply = NULL;
    size_t size = 0;
    uint16_t port = 0;
    char url[64];
    close(listen_on_loopback(&port)); /* nobody listens there now */
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    CHECK(!node_call(caller, url, NULL, 0, 2000, &reply, &size, &err) && err.kind == ERROR_NODE_UNREACHABLE);
    CHECK(strstr(err.message, "127.0.0.1") != NULL);
    static const char *const BAD[] = {"file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "http://", ""};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!node_call(caller, BAD[i], "", 0, 2000, &reply, &size, &err) && err.kind == ERROR_INVALID);
    CHECK(reply == NULL);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* whoever believed these would not get through */
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    setenv("all_proxy", "socks5://127.0.0.1:1", 1);
    server.listener = listen_on_loopback(&server.port);
    if (pipe(server.stop) < 0 || pthread_create(&server.thread, NULL, serve, NULL) != 0)
        return 1;
    AUTO(node_caller) *caller = node_caller_new();
    test_replies(caller);
    test_any_answer(caller);
    test_large_request(caller);
    test_time(caller);
    test_unreachable(caller);
    node_caller_free(NULL);
    AUTO(node_caller) *unused UNUSED = node_caller_new();
    close(server.stop[1]);
    pthread_join(server.thread, NULL);
    close(server.stop[0]);
    close(server.listener);
    text_done(&server.last);
    return check_done();
}
