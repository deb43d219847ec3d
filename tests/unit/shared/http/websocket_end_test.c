/* websocket_end_test.c - WebSockets with peers that are silent, slow, hostile or gone, and all the ways to an end. */
#include "websocket_fixture.h"

#include <netinet/tcp.h>

static atomic_uint walked, visited;

/* The next frame that is no ping. */
static void read_word(int fd)
{
    do
        ws_read(fd, &frame, 1000);
    while (frame.opcode == 9);
}

/* ---- silence ---- */

static void test_ping(void)
{
    reset();
    int quiet = ws_open("/open"), deaf = ws_open("/open"), broken = ws_open("/silent");
    double began = seconds_now();
    for (int i = 0; i < 3; i++) {
        ws_read(quiet, &frame, 3000);
        CHECK(frame.opcode == 9 && frame.size == 0);
        ws_send(quiet, 0x8A, "", 0);
    }
    CHECK(seconds_now() - began > 2.5 * PING_MS / 1e3);
    CHECK(ws_read_close(deaf, &frame, 1000) == 4408);
    CHECK(atomic_load(&closed) >= 1); /* at once, not when the handshake is through */
    CHECK(atomic_load(&rested) == 0); /* that one cannot answer: nobody listens to it */
    ws_read(quiet, &frame, 100);
    ws_say(quiet, "still here");
    read_word(quiet);
    CHECK_TEXT(frame.data, "still here");
    CHECK(ws_read_close(broken, &frame, 1000) == 4408);
    CHECK(client_is_closed(deaf, 3000)); /* it answers the close frame neither */
    close(quiet);
    CHECK(wait_for(&closed, 3, 1000));
    close(deaf);
    close(broken);
}

/* While its owner pauses a peer cannot answer. */
static void test_pause_is_no_silence(void)
{
    reset();
    int fd = ws_open("/open");
    for (int i = 0; i < 6; i++) {
        ws_say(fd, "!pause"); /* 300 ms each */
        sleep_ms(250);
    }
    ws_say(fd, "alive");
    read_word(fd);
    CHECK_TEXT(frame.data, "alive");
    close(fd);
    CHECK(wait_for(&closed, 1, 1000));
}

/* ---- slow and hostile ---- */

/* A reader slower than the pings' time, but one that reads. */
static void test_slow_reader(void)
{
    reset();
    int fd = client_open_small(16384);
    client_say(fd, "GET /open HTTP/1.1\r\n" UPGRADE_LINES "\r\n");
    client_read_reply(fd, reply, sizeof reply);
    ws_say(fd, "!flood");
    size_t total = 0;
    while (total < 16u << 20) {
        ws_read(fd, &frame, 2000);
        if (frame.opcode == 9)
            ws_send(fd, 0x8A, "", 0);
        else if (frame.opcode != 2)
            break;
        total += frame.opcode == 2 ? frame.size : 0;
    }
    CHECK(total == 16u << 20);
    size_t most = atomic_load(&most_waiting);
    CHECK(most >= HTTP_WEBSOCKET_FULL_BYTES && most < HTTP_WEBSOCKET_FULL_BYTES + 8192);
    ws_say(fd, "!identity");
    read_word(fd);
    CHECK_TEXT(frame.data, "new");
    close(fd);
    CHECK(wait_for(&closed, 1, 1000));
    CHECK(wait_for(&freed, 1, 1000));
}

/* Small buffers, so that little is on its way. */
static int open_narrow(void)
{
    int fd = client_open_small(4096);
    int small = 65536;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    client_say(fd, "GET /open HTTP/1.1\r\n" UPGRADE_LINES "\r\n");
    client_read_reply(fd, reply, sizeof reply);
    return fd;
}

/* Sends without reading until the connection breaks, or the time or 256 MiB are over. */
static size_t send_flood(int fd, int opcode, size_t most, double seconds)
{
    char bytes[125 * 131];
    size_t length = 0, sent = 0;
    while (length + 131 <= sizeof bytes)
        length += ws_frame(bytes + length, 0x80 | opcode, true, reply, 125);
    double until = seconds_now() + seconds;
    while (sent < most && seconds_now() < until) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        if (poll(&ready, 1, 50) <= 0)
            continue;
        ssize_t got = send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (got <= 0)
            break;
        sent += (size_t)got;
    }
    return sent;
}

/* Pongs do not queue, so it is listened to for long. */
static void test_ping_flood(void)
{
    reset();
    int fd = open_narrow();
    CHECK(send_flood(fd, 9, 64u << 20, 60) >= 64u << 20);
    close(fd);
    CHECK(wait_for(&closed, 1, 1000));
}

/* Echoes do queue: at last it is not listened to, and then cut. */
static void test_echo_flood(void)
{
    reset();
    int fd = open_narrow();
    CHECK(send_flood(fd, 1, 256u << 20, 1.5) < 32u << 20);
    CHECK(wait_for(&closed, 1, 5000));
    CHECK(atomic_load(&most_waiting) < 3 * HTTP_WEBSOCKET_FULL_BYTES);
    close(fd);
}

/* What it takes says that it is alive, when what it says cannot be heard. */
static void test_slow_taker(void)
{
    reset();
    int fd = open_narrow();
    send_flood(fd, 1, 256u << 20, 0.3);
    for (int i = 0; i < 30; i++) {
        ws_read_exactly(fd, reply, 10000, 100);
        sleep_ms(50);
    }
    CHECK(atomic_load(&closed) == 0);
    close(fd);
    CHECK(wait_for(&closed, 1, 1000));
}

/* So much is on its way that a ping behind it is read long after the time for an answer. */
static void test_far_behind(void)
{
    reset();
    int fd = open_narrow();
    ws_say(fd, "!flood");
    for (int i = 0; i < 30; i++) {
        ws_read_exactly(fd, reply, 10000, 100);
        sleep_ms(100);
    }
    CHECK(atomic_load(&closed) == 0);
    close(fd);
    CHECK(wait_for(&closed, 1, 1000));
}

/* What the kernel holds of ours for this client. */
static unsigned long kernel_holds(int fd)
{
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    char line[512];
    unsigned long held = 0;
    CHECK(getsockname(fd, (struct sockaddr *)&own, &size) == 0);
    FILE *table = fopen("/proc/net/tcp", "re");
    while (table != NULL && fgets(line, sizeof line, table) != NULL) {
        unsigned from, to;
        unsigned long queued;
        if (sscanf(line, " %*d: %*x:%x %*x:%x %*x %lx:", &from, &to, &queued) == 3 && from == client_port &&
            to == ntohs(own.sin_port))
            held = queued;
    }
    if (table != NULL)
        fclose(table);
    return held;
}

/* It says that it lives, and takes nothing. */
static void test_deaf_and_loud(void)
{
    reset();
    int fd = open_narrow();
    ws_say(fd, "!flood");
    double until = seconds_now() + 4;
    while (atomic_load(&closed) == 0 && seconds_now() < until) {
        ws_send(fd, 0x8A, "", 0);
        sleep_ms(100);
    }
    CHECK(atomic_load(&closed) == 0); /* who is heard may take its time */
    CHECK(kernel_holds(fd) > 0 && kernel_holds(fd) < 512 << 10);
    close(fd);
    CHECK(wait_for(&closed, 1, 5000));
}

/* Without a word, as a machine that loses its power, while nobody listens to it. */
static void test_vanishes_during_a_pause(void)
{
    reset();
    unsigned before = atomic_load(&rested);
    int fd = ws_open("/rest"), on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) != 0)
        fprintf(stderr, "    not tried without CAP_NET_ADMIN: a peer that vanishes\n");
    close(fd);
    CHECK(wait_for(&rested, before + 1, 6000));
}

static void test_overdone(void)
{
    reset();
    int fd = ws_open("/open");
    ws_say(fd, "!overdo");
    CHECK(wait_for(&closed, 1, 2000));
    CHECK(atomic_load(&most_waiting) == 8u << 20);
    CHECK(client_is_closed(fd, 3000));
    close(fd);
}

/* ---- gone ---- */

/* Nothing is read from it, so that only the kernel tells. */
static int begin_rest(void)
{
    int fd = ws_open("/rest");
    ws_say(fd, "never read");
    shutdown(fd, SHUT_WR);
    return fd;
}

static void end_rest(int fd)
{
    CHECK(wait_for(&rested, 1, 6000));
    CHECK(client_is_closed(fd, 500));
    close(fd);
}

static void test_gone(void)
{
    reset();
    int fd = ws_open("/open");
    close(fd);
    CHECK(wait_for(&closed, 1, 500));
    fd = ws_open("/open");
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd); /* a reset */
    CHECK(wait_for(&closed, 2, 500));
    fd = ws_open("/open");
    shutdown(fd, SHUT_WR);
    CHECK(wait_for(&closed, 3, 500));
    CHECK(client_is_closed(fd, 500));
    close(fd);
    fd = ws_open("/open");
    ws_say(fd, "!pause");
    ws_say(fd, "unread"); /* so that the close is a reset */
    sleep_ms(50);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    CHECK(wait_for(&closed, 4, 250)); /* before the pause ends */
}

/* ---- ends ---- */

static void test_close(void)
{
    reset();
    int fd = ws_open("/open");
    ws_say(fd, "!close");
    ws_read(fd, &frame, 1000);
    CHECK_TEXT(frame.data, "before");
    CHECK(ws_read_close(fd, &frame, 1000) == 4400);
    CHECK_TEXT(frame.data + 2, "as you wish");
    ws_say(fd, "!close"); /* nobody is there to hear it */
    ws_send_close(fd, 4400);
    CHECK(client_is_closed(fd, 500));
    close(fd);
    fd = ws_open("/open");
    ws_say(fd, "!close");
    double began = seconds_now();
    CHECK(client_is_closed(fd, 4000)); /* no answer: given up */
    CHECK(seconds_now() - began > 1.5);
    close(fd);
    CHECK(atomic_load(&closed) == 0);
}

static void revoke_one(void *cookie UNUSED, struct http_request *request)
{
    struct error err = {0};
    error_set(&err, ERROR_TOKEN_REVOKED, "revoked by the test");
    atomic_fetch_add(&visited, 1);
    http_request_revoke(request, &err);
}

static void revoke_all(void *cookie)
{
    http_requests_each(cookie, revoke_one, NULL);
    atomic_fetch_add(&walked, 1);
}

static unsigned revoke_everything(void)
{
    atomic_store(&visited, 0);
    atomic_store(&walked, 0);
    for (unsigned i = 0; i < http_server_loop_count(server); i++)
        loop_post(http_server_loop(server, i), revoke_all, http_server_loop(server, i));
    CHECK(wait_for(&walked, http_server_loop_count(server), 2000));
    return atomic_load(&visited);
}

static void test_revoke(void)
{
    reset();
    int wordy = ws_open("/open"), silent = ws_open("/silent"), full = client_open_small(4096);
    client_say(full, "GET /open HTTP/1.1\r\n" UPGRADE_LINES "\r\n");
    client_read_reply(full, reply, sizeof reply);
    ws_say(full, "!flood");
    sleep_ms(100);
    CHECK(revoke_everything() == 3);
    ws_read(wordy, &frame, 1000);
    CHECK_TEXT(frame.data, "last word: TOKEN_REVOKED");
    CHECK(ws_read_close(wordy, &frame, 1000) == 4401);
    CHECK_TEXT(frame.data + 2, "TOKEN_REVOKED");
    CHECK(ws_read_close(silent, &frame, 1000) == 4401);
    CHECK(atomic_load(&closed) == 1 && atomic_load(&cuts) == 2);
    ws_send_close(wordy, 4401);
    CHECK(client_is_closed(wordy, 500));
    sleep_ms(2200); /* the one that does not read is cut */
    CHECK(revoke_everything() == 0);
    close(wordy);
    close(silent);
    close(full);
}

/* ---- many ---- */

static size_t resident_bytes(void)
{
    size_t total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%zu %zu", &total, &resident) != 2)
        exit(1);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_many(void)
{
    static int fds[IDLE_SOCKETS];
    reset();
    size_t before = resident_bytes();
    for (int i = 0; i < IDLE_SOCKETS; i++) {
        fds[i] = ws_open("/open");
        check_failures += fds[i] < 0;
        if (fds[i] < 0)
            break;
        ws_say(fds[i], "hello");
        ws_read(fds[i], &frame, 1000);
        CHECK_TEXT(frame.data, "hello");
    }
    size_t each = (resident_bytes() - before) / IDLE_SOCKETS;
    printf("%zu bytes for each idle socket\n", each);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(each < IDLE_BYTES_MAX);
#endif
    for (int i = 0; i < IDLE_SOCKETS / 2; i++)
        close(fds[i]);
    CHECK(wait_for(&closed, IDLE_SOCKETS / 2, 3000));
}

static void *stop_now(void *cookie UNUSED)
{
    server_stop(3000);
    return NULL;
}

static void test_stop(void)
{
    reset();
    int polite = ws_open("/open"), silent = ws_open("/open");
    pthread_t thread;
    if (pthread_create(&thread, NULL, stop_now, NULL) != 0)
        exit(1);
    CHECK(ws_read_close(polite, &frame, 1000) == 1001);
    ws_send_close(polite, 1001);
    CHECK(client_is_closed(polite, 500));
    CHECK(ws_read_close(silent, &frame, 1000) == 1001);
    double began = seconds_now();
    pthread_join(thread, NULL);
    CHECK(seconds_now() - began < 2.9); /* not the whole grace */
    CHECK(atomic_load(&closed) >= 2);
    CHECK(client_is_closed(silent, 500));
    close(polite);
    close(silent);
}

int main(void)
{
    server_start(PING_MS, PONG_MS);
    int resting = begin_rest();
    test_ping();
    test_pause_is_no_silence();
    test_slow_reader();
    test_ping_flood();
    test_echo_flood();
    test_slow_taker();
    test_far_behind();
    test_deaf_and_loud();
    test_overdone();
    end_rest(resting);
    test_vanishes_during_a_pause();
    server_stop(1000);
    server_start(0, 0);
    test_gone();
    test_close();
    test_revoke();
    server_stop(0);
    server_start(0, 0);
    test_many();
    server_stop(0);
    server_start(0, 0);
    test_stop();
    return check_done();
}
