/* body_guard_test.c - bodies of strangers are refused before they are read, all bodies are bounded in size, speed and
 * sum, and slow heads are cut. */
#include "fixture.h"

static char reply[1 << 16];
static char block[1 << 16];

/* Sends a body until the server stops taking it; returns how much went out. */
static size_t push(int fd, size_t size, bool is_chunked)
{
    size_t sent = 0;
    while (sent < size) {
        struct pollfd ready = {.fd = fd, .events = POLLIN | POLLOUT};
        if (poll(&ready, 1, 3000) <= 0 || (ready.revents & (POLLIN | POLLERR | POLLHUP)) != 0)
            break;
        if (is_chunked && !client_say(fd, "1000\r\n"))
            break;
        ssize_t got = send(fd, block, 4096, MSG_NOSIGNAL);
        if (got <= 0 || (is_chunked && !client_say(fd, "\r\n")))
            break;
        sent += (size_t)got;
    }
    return sent;
}

static void refuse_upload(const char *head, size_t size, bool is_chunked, const char *status, size_t at_most)
{
    unsigned before = atomic_load(&handled);
    int fd = client_open();
    client_say(fd, head);
    size_t sent = push(fd, size, is_chunked);
    client_read_all(fd, reply, sizeof reply, 3000);
    if (strncmp(reply, status, strlen(status)) != 0 || sent > at_most)
        fprintf(stderr, "%s: sent %zu, got %s\n", head, sent, reply);
    CHECK(strncmp(reply, status, strlen(status)) == 0);
    CHECK(sent <= at_most);
    CHECK(strstr(reply, "X-Request-ID: up\r\n") != NULL);
    CHECK(strstr(reply, "\"request_id\":\"up\"") != NULL);
    CHECK(strstr(reply, "Connection: close\r\n") != NULL);
    CHECK(atomic_load(&handled) == before);
    CHECK(client_is_closed(fd, 3000));
    close(fd);
}

/* The client may have filled both kernels' buffers before it sees the answer; the server has read 64 KiB at most. */
enum { KERNEL_BYTES = 8 << 20 };

static void test_refused_early(void)
{
    /* 64 KiB of the body, and not one byte more, are enough to be told. */
    int fd = client_open();
    client_say(fd, "PUT /s/x/files/a HTTP/1.1\r\nHost: h\r\nContent-Length: 60000000\r\n\r\n");
    client_send(fd, block, sizeof block);
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 401 ", 13) == 0);
    close(fd);
    atomic_store(&authorized, 0);
    refuse_upload("PUT /s/x/files/a HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 60000000\r\n\r\n",
                  60000000, false, "HTTP/1.1 401 ", KERNEL_BYTES);
    CHECK(strstr(reply, "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n") != NULL);
    CHECK(atomic_load(&authorized) == 1);
    refuse_upload("PUT /c/bad/files/a HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nTransfer-Encoding: chunked\r\n\r\n",
                  60000000, true, "HTTP/1.1 401 ", KERNEL_BYTES);
    CHECK(strstr(reply, "Cache-Control: no-store\r\n") != NULL);
    CHECK(atomic_load(&authorized) == 2);
    refuse_upload("POST /c/tok/never HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 600000\r\n\r\n", 600000,
                  false, "HTTP/1.1 403 ", KERNEL_BYTES);
    refuse_upload("POST /nowhere HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 60000000\r\n\r\n", 60000000,
                  false, "HTTP/1.1 404 ", KERNEL_BYTES);
    refuse_upload("POST /hello HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 60000000\r\n\r\n", 60000000,
                  false, "HTTP/1.1 405 ", KERNEL_BYTES);
}

static void test_refused_size(void)
{
    refuse_upload("POST /echo HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 1048577\r\n\r\n", 1, false,
                  "HTTP/1.1 413 ", 8192);
    refuse_upload("GET /hello HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 5000\r\n\r\n", 1, false,
                  "HTTP/1.1 413 ", 8192);
    refuse_upload("GET /hello HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nTransfer-Encoding: chunked\r\n\r\n", 1, true,
                  "HTTP/1.1 413 ", 8192);
    refuse_upload("POST /echo HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nTransfer-Encoding: chunked\r\n\r\n", 60000000,
                  true, "HTTP/1.1 413 ", KERNEL_BYTES);
    /* Exactly the limit is taken. */
    int fd = client_open();
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t sent = 0; sent < 1 << 20; sent += 4096) {
        client_say(fd, "1000\r\n");
        client_send(fd, block, 4096);
        client_say(fd, "\r\n");
    }
    client_say(fd, "0\r\n\r\n");
    static char large[(1 << 20) + 4096];
    client_read_all(fd, large, sizeof large, 60000);
    CHECK(strncmp(large, "HTTP/1.1 200", 12) == 0);
    CHECK(strstr(large, "Content-Length: 1048576\r\n") != NULL);
    close(fd);
}

/* Without Content-Length the size is only known when it is exceeded, in one read with the end of the body or not. */
static void test_small_chunks(void)
{
    int fd = client_open();
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    const char *const pieces[] = {"2\r", "\nab\r\n1;ext=\"x\"\r\nc\r\n", "0\r\nTrailer: t\r\n", "\r\n"};
    for (size_t i = 0; i < 4; i++) {
        sleep_ms(10);
        client_say(fd, pieces[i]);
    }
    client_read_reply(fd, reply, sizeof reply);
    CHECK_TEXT(client_body(reply), "abc");
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0);
    CHECK(strstr(reply, "X-Request-ID: up\r\n") != NULL);
    CHECK_TEXT(client_body(reply),
               "{\"error\":{\"code\":\"INVALID_REQUEST\",\"message\":\"the body's chunks are not well-formed\","
               "\"retryable\":false,\"request_id\":\"up\"}}");
    close(fd);
}

static void test_expect(void)
{
    int fd = client_open();
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK_TEXT(reply, "HTTP/1.1 100 Continue\r\n\r\n");
    client_say(fd, "abc");
    sleep_ms(20);
    client_say(fd, "def");
    client_read_reply(fd, reply, sizeof reply);
    CHECK_TEXT(client_body(reply), "abcdef");
    /* A stranger gets no 100. */
    client_say(fd, "POST /s/x/exec HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 401 ", 13) == 0);
    close(fd);
}

/* A body over the file threshold arrives whole, and the second judgement is asked. */
static void test_large(void)
{
    size_t size = 40u << 20;
    char *data = malloc(size);
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++) {
        data[i] = (char)(i * 2654435761u >> 13);
        sum = sum * 31 + (unsigned char)data[i];
    }
    atomic_store(&authorized, 0);
    int fd = client_open();
    char head[256], wanted[64];
    snprintf(head, sizeof head, "PUT /c/tok/files/big HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", size);
    client_say(fd, head);
    CHECK(client_send(fd, data, size));
    client_read_reply(fd, reply, sizeof reply);
    snprintf(wanted, sizeof wanted, "{\"size\":%zu,\"sum\":%u}", size, sum);
    CHECK_TEXT(client_body(reply), wanted);
    CHECK(atomic_load(&authorized) == 2);
    /* The connection goes on. */
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 200", 12) == 0);
    close(fd);
    free(data);
}

static void test_budget(void)
{
    /* Two bodies of 40 MiB do not fit into 64 MiB. */
    int first = client_open();
    const char *head = "PUT /large HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 41943040\r\n\r\n";
    client_say(first, head);
    CHECK(push(first, 40000000, false) >= 40000000);
    int second = client_open(); /* only now: who says nothing for a while is gone */
    client_say(second, head);
    push(second, 41943040, false);
    client_read_all(second, reply, sizeof reply, 60000);
    CHECK(strncmp(reply, "HTTP/1.1 503 ", 13) == 0);
    CHECK(strstr(reply, "Retry-After: 1\r\n") != NULL);
    close(second);
    close(first);
    sleep_ms(100);
    test_large(); /* what they held was given back */
}

static void test_slow(void)
{
    int head = client_open(), silent = client_open(), body = client_open(), chunked = client_open();
    client_say(head, "GET /hello HTTP/1.1\r\nHo");
    client_say(body, "POST /echo HTTP/1.1\r\nHost: h\r\nX-Request-ID: up\r\nContent-Length: 100000\r\n\r\n");
    client_say(chunked, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;");
    double start = seconds_now();
    bool is_head_closed = false;
    for (int i = 0; i < 40 && !is_head_closed; i++) {
        client_say(head, "s");
        client_say(body, "x");
        client_say(chunked, "e"); /* an extension that never ends is no progress */
        is_head_closed = client_is_closed(head, 50);
    }
    CHECK(is_head_closed);
    CHECK(seconds_now() - start < 1.5);
    CHECK(client_is_closed(silent, 1500));
    client_read_all(body, reply, sizeof reply, 2000);
    CHECK(strncmp(reply, "HTTP/1.1 408 ", 13) == 0);
    CHECK(strstr(reply, "\"code\":\"TIMEOUT\"") != NULL && strstr(reply, "X-Request-ID: up\r\n") != NULL);
    CHECK(client_is_closed(chunked, 2000));
    close(head);
    close(silent);
    close(body);
    close(chunked);
}

static void test_long_head(void)
{
    int fd = client_open();
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\nA: ");
    memset(block, 'a', sizeof block);
    client_send(fd, block, sizeof block);
    client_send(fd, block, 4096);
    client_read_all(fd, reply, sizeof reply, 3000);
    CHECK(strncmp(reply, "HTTP/1.1 431 ", 13) == 0);
    close(fd);
    fd = client_open();
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\nA: ");
    client_send(fd, block, sizeof block - 100);
    client_say(fd, "\r\n\r\n");
    client_read_reply(fd, reply, sizeof reply);
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
    close(fd);
}

/* Clients that leave at every point, and bytes that are no HTTP. */
static void test_rude(void)
{
    const char *const parts[] = {"",
                                 "G",
                                 "GET /hello",
                                 "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
                                 "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
                                 "\x16\x03\x01\x02\r\n\r\n",
                                 "\r\n\r\n\r\n\r\n",
                                 "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        for (int reset = 0; reset < 2; reset++) {
            int fd = client_open();
            struct linger at_once = {.l_onoff = reset, .l_linger = 0};
            client_say(fd, parts[i]);
            if (reset)
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            sleep_ms(5);
            close(fd);
        }
    }
    CHECK(wait_for(&gone, 2, 2000));
}

int main(void)
{
    fixture_start(
        (struct http_server_options){.head_timeout_ms = 600, .body_grace_ms = 600, .spool_max_bytes = 64 << 20});
    test_refused_early();
    test_refused_size();
    test_small_chunks();
    test_expect();
    test_large();
    test_budget();
    test_long_head();
    test_slow();
    test_rude();
    CHECK(client_ask("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n", reply, sizeof reply) == 200);
    fixture_stop(1000);
    return check_done();
}
