/* proxy_stream_test.c - what is passed on while it comes: bodies up and down, slow ends on both sides, tunnels, ends of
 * all kinds, revocation, connections that are kept, and which credentials go on. */
#include "proxy_fixture.h"

enum { LARGE_BYTES = 48 << 20, BLOCK_BYTES = 1 << 16 };

static char block[BLOCK_BYTES];

/* What the socket takes of up to `max` bytes, within so long. */
static size_t say_some(int fd, size_t max, int ms)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (max == 0 || poll(&room, 1, ms) <= 0)
        return 0;
    ssize_t sent = send(fd, block, max < BLOCK_BYTES ? max : BLOCK_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? (size_t)sent : 0;
}

/* Sends until nothing was taken for half a second, or `max` were; returns how many bytes went. */
static size_t flood(int fd, size_t max)
{
    size_t sent = 0, more;
    while ((more = say_some(fd, max - sent, 500)) > 0)
        sent += more;
    return sent;
}

static size_t drink(int fd, size_t wanted)
{
    static char scrap[1 << 18];
    size_t got = 0;
    while (got < wanted) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        size_t room = wanted - got < sizeof scrap ? wanted - got : sizeof scrap;
        ssize_t size = poll(&ready, 1, 5000) > 0 ? recv(fd, scrap, room, 0) : -1;
        if (size <= 0)
            break;
        got += (size_t)size;
    }
    return got;
}

static int start(const char *request, int *upstream)
{
    int client = client_open();
    client_say(client, request);
    *upstream = upstream_accept();
    CHECK(*upstream >= 0 && upstream_read(*upstream, "\r\n\r\n"));
    return client;
}

static void test_large_upload(void)
{
    AUTO_TEXT head = {0};
    text_append_format(&head, "PUT /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", LARGE_BYTES);
    int upstream, client = start(head.data, &upstream);
    size_t sent = flood(client, LARGE_BYTES);
    CHECK(sent < LARGE_BYTES); /* the upstream reads nothing, so neither does the proxy */
    size_t got = 0;
    while (sent < LARGE_BYTES) {
        got += drink(upstream, BLOCK_BYTES);
        sent += say_some(client, LARGE_BYTES - sent, 0);
    }
    got += drink(upstream, LARGE_BYTES - got);
    CHECK(got == LARGE_BYTES);
    client_say(upstream, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "HTTP/1.1 201 Created");
    client_say(client, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "world");
    close(upstream);
    close(client);
}

static void test_chunked_upload(void)
{
    int upstream, client = start("POST /p/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
                                 "Expect: 100-continue\r\n\r\n",
                                 &upstream);
    client_read_all(client, answer, sizeof answer, 200);
    HAS(answer, "HTTP/1.1 100 Continue");
    HAS(seen, "\r\ntransfer-encoding: chunked\r\n");
    LACKS(seen, "expect");
    LACKS(seen, "content-length");
    client_say(client, "5;a=b\r\nhello\r\n");
    CHECK(upstream_read(upstream, "5\r\nhello\r\n"));
    /* Both at once: an answer before the body is whole. */
    client_say(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
    client_read_all(client, answer, sizeof answer, 200);
    HAS(answer, "2\r\nhi\r\n");
    client_say(client, "6\r\nagain!\r\n0\r\nX-Trailer: 1\r\n\r\n");
    CHECK(upstream_read(upstream, "6\r\nagain!\r\n0\r\n\r\n"));
    client_say(upstream, "3\r\nend\r\n0\r\n\r\n");
    client_read_all(client, answer, sizeof answer, 200);
    HAS(answer, "3\r\nend\r\n0\r\n\r\n");
    client_say(client, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "world");
    close(upstream);
    close(client);
}

/* Two requests in one: what stands behind a body never reaches the upstream as a request of its own. */
static void test_no_smuggling(void)
{
    int upstream, client = start("POST /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /hello HTTP/1.1\r\n"
                                 "Host: h\r\n\r\n",
                                 &upstream);
    CHECK(strstr(seen, "abc") != NULL || upstream_read(upstream, "abc"));
    client_say(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    client_read_all(client, answer, sizeof answer, 300);
    HAS(answer, "world");
    CHECK(recv(upstream, seen, sizeof seen, MSG_DONTWAIT) <= 0);
    close(upstream);
    close(client);
    static const char *const BAD[] = {
        "POST /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /p/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /p/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "GET http://evil/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /p/../hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /p/x HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
        "GET /p/x HTTP/1.1\r\nHost: h\r\nX: a\n b\r\n\r\n",
        "GET /p/x\r\nX: y HTTP/1.1\r\nHost: h\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(client_ask(BAD[i], answer, sizeof answer) == 400);
}

static void test_upload_ends(void)
{
    static const char HEAD[] = "PUT /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc";
    int upstream, client = start(HEAD, &upstream); /* a refusal before the end */
    client_say(upstream, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
    close(upstream);
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "HTTP/1.1 413 ");
    CHECK_TEXT(client_body(answer), "no");
    close(client);
    client = start(HEAD, &upstream); /* the client leaves */
    unsigned before = atomic_load(&overs);
    close(client);
    CHECK(client_is_closed(upstream, 5000));
    CHECK(wait_for(&overs, before + 1, 5000));
    close(upstream);
    client = start(HEAD, &upstream); /* the upstream does */
    close(upstream);
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "HTTP/1.1 502 ");
    close(client);
    client = start("PUT /p/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzzz\r\n", &upstream);
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "HTTP/1.1 400 ");
    while (recv(upstream, seen, sizeof seen, 0) > 0)
        LACKS(seen, "0\r\n\r\n"); /* what is broken is not ended as if it were whole */
    close(upstream);
    close(client);
}

static void test_large_download(void)
{
    int upstream, client = start("GET /p/x HTTP/1.1\r\nHost: h\r\n\r\n", &upstream);
    AUTO_TEXT head = {0};
    text_append_format(&head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", LARGE_BYTES);
    client_say(upstream, head.data);
    size_t sent = flood(upstream, LARGE_BYTES);
    CHECK(sent < LARGE_BYTES); /* the client reads nothing, so neither does the proxy */
    size_t got = 0, whole = 0;
    while (sent < LARGE_BYTES) {
        got += drink(client, BLOCK_BYTES);
        sent += say_some(upstream, LARGE_BYTES - sent, 0);
    }
    whole = got + drink(client, LARGE_BYTES);
    close(upstream);
    CHECK(whole > LARGE_BYTES && whole < LARGE_BYTES + 1000);
    close(client);
}

/* ---- tunnels ---- */

#define UPGRADE(more)                                                                                                  \
    "GET /p/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"      \
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" more "\r\n"
#define SWITCHED "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Own: 1\r\n\r\n"

static int start_tunnel(int *upstream)
{
    int client = start(UPGRADE("") "early", upstream);
    HAS(seen, "\r\nconnection: upgrade\r\nupgrade: websocket\r\n");
    HAS(seen, "\r\nsec-websocket-key: AAAA");
    client_say(*upstream, SWITCHED "greeting");
    CHECK(upstream_read(client, "greeting"));
    CHECK(strncmp(seen, "HTTP/1.1 101 ", 13) == 0);
    HAS(seen, "Upgrade: websocket\r\n");
    HAS(seen, "x-own: 1\r\n");
    CHECK(upstream_read(*upstream, "early"));
    return client;
}

static void test_tunnel(void)
{
    int upstream, client = start_tunnel(&upstream);
    client_say(client, "ping");
    CHECK(upstream_read(upstream, "ping"));
    client_say(upstream, "pong");
    CHECK(upstream_read(client, "pong"));
    unsigned before = atomic_load(&overs);
    shutdown(client, SHUT_WR); /* half: what the upstream still says comes through */
    CHECK(client_is_closed(upstream, 5000));
    client_say(upstream, "last words");
    CHECK(upstream_read(client, "last words"));
    CHECK(atomic_load(&overs) == before);
    close(upstream);
    CHECK(client_is_closed(client, 5000));
    CHECK(wait_for(&overs, before + 1, 5000));
    close(client);
    client = start_tunnel(&upstream); /* the client breaks off */
    struct linger at_once = {.l_onoff = 1};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(client);
    CHECK(client_is_closed(upstream, 5000));
    close(upstream);
    client = start_tunnel(&upstream); /* the upstream does */
    setsockopt(upstream, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(upstream);
    CHECK(client_is_closed(client, 5000));
    close(client);
}

static void test_slow_tunnel(void)
{
    int upstream, client = start_tunnel(&upstream);
    size_t up = flood(client, LARGE_BYTES), down = flood(upstream, LARGE_BYTES);
    CHECK(up < LARGE_BYTES && down < LARGE_BYTES);
    CHECK(drink(upstream, up) == up && drink(client, down) == down);
    close(upstream);
    close(client);
}

static void test_refused_upgrade(void)
{
    exchange(UPGRADE(""), "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    HAS(answer, "HTTP/1.1 403 ");
    CHECK_TEXT(client_body(answer), "no");
    exchange("GET /p/x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
             "HTTP2-Settings: AAA\r\n\r\n",
             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    LACKS(seen, "h2c");
    LACKS(seen, "settings");
}

/* ---- revocation ---- */

static atomic_uint revoked;

static void revoke_one(void *cookie UNUSED, struct http_request *request)
{
    struct error err;
    error_set(&err, ERROR_TOKEN_REVOKED, "it was revoked");
    atomic_fetch_add(&revoked, 1);
    http_request_revoke(request, &err);
}

static void revoke_all(void *cookie)
{
    http_requests_each(cookie, revoke_one, NULL);
}

static void revoke_now(unsigned count)
{
    unsigned before = atomic_load(&revoked);
    loop_post(http_server_loop(fixture, 0), revoke_all, http_server_loop(fixture, 0));
    CHECK(wait_for(&revoked, before + count, 5000));
}

static void test_revocation(void)
{
    int upstream, client = start_tunnel(&upstream);
    revoke_now(1);
    CHECK(client_is_closed(client, 5000) && client_is_closed(upstream, 5000));
    close(client);
    close(upstream);
    client = start("GET /p/x HTTP/1.1\r\nHost: h\r\n\r\n", &upstream); /* unanswered */
    revoke_now(1);
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "\"TOKEN_REVOKED\"");
    CHECK(client_is_closed(upstream, 5000));
    close(client);
    close(upstream);
    client = start("GET /p/x HTTP/1.1\r\nHost: h\r\n\r\n", &upstream); /* in the middle of its answer */
    client_say(upstream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
    CHECK(upstream_read(client, "2\r\nhi\r\n"));
    revoke_now(1);
    CHECK(client_is_closed(client, 5000) && client_is_closed(upstream, 5000));
    close(client);
    close(upstream);
    client = start("PUT /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc", &upstream); /* of its body */
    revoke_now(1);
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "\"TOKEN_REVOKED\"");
    CHECK(client_is_closed(upstream, 5000));
    close(client);
    close(upstream);
}

/* ---- kept connections ---- */

#define KEPT     "GET /kept/x HTTP/1.1\r\nHost: h\r\n\r\n"
#define EMPTY_OK "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

static void ask_kept(int client, int upstream)
{
    client_say(client, KEPT);
    CHECK(upstream_read(upstream, "\r\n\r\n"));
    LACKS(seen, "connection");
}

static void test_kept(void)
{
    int client = client_open();
    client_say(client, KEPT);
    int upstream = upstream_accept();
    CHECK(upstream_read(upstream, "\r\n\r\n"));
    client_say(upstream, EMPTY_OK);
    client_read_reply(client, answer, sizeof answer);
    CHECK(wait_for(&keeps, 1, 5000));
    ask_kept(client, upstream); /* by the same connection */
    client_say(upstream, EMPTY_OK);
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "200 OK");
    CHECK(wait_for(&keeps, 2, 5000));
    close(upstream); /* while it is idle: asked anew over another */
    client_say(client, KEPT);
    upstream = upstream_accept();
    CHECK(upstream >= 0 && upstream_read(upstream, "\r\n\r\n"));
    CHECK(atomic_load(&staled) == 1);
    client_say(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n"); /* too much: not kept */
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "200 OK");
    CHECK(atomic_load(&keeps) == 2);
    close(upstream);
    close(client);
}

static void test_not_kept(void)
{
    static const char *const REPLIES[] = {EMPTY_OK "x",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                                          "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
                                          "HTTP/1.1 200 OK\r\n\r\n",
                                          "HTTP/1.1 204 OK\r\n\r\n",
                                          "HTTP/1.1 304 OK\r\nContent-Length: 9\r\n\r\n"};
    unsigned before = atomic_load(&keeps);
    for (size_t i = 0; i < sizeof REPLIES / sizeof REPLIES[0]; i++) {
        exchange(KEPT, REPLIES[i]);
        HAS(answer, "HTTP/1.1 ");
    }
    exchange("HEAD /kept/x HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
    HAS(answer, "200 OK");
    CHECK(atomic_load(&keeps) == before);
}

/* ---- credentials and hosts ---- */

#define OK_REPLY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nReferrer-Policy: unsafe-url\r\n\r\n"

static void test_carriers(void)
{
    exchange("GET /s/sbx/ports/3000/a?x=1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer cap\r\n\r\n", OK_REPLY);
    CHECK(strncmp(seen, "GET /a?x=1 HTTP/1.1\r\n", 21) == 0);
    LACKS(seen, "cap");
    exchange("GET /s/sbx/ports/3000/a?token=cap&x=1&x=2 HTTP/1.1\r\nHost: h\r\n\r\n", OK_REPLY);
    CHECK(strncmp(seen, "GET /a?x=1&x=2 HTTP/1.1\r\n", 25) == 0);
    exchange("GET /s/sbx/ports/3000/a?t%6fken=c%61p HTTP/1.1\r\nHost: h\r\n\r\n", OK_REPLY);
    CHECK(strncmp(seen, "GET /a HTTP/1.1\r\n", 17) == 0);
    exchange("GET /c/cap/ports/3000/a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer the-apps\r\n\r\n", OK_REPLY);
    CHECK(strncmp(seen, "GET /a HTTP/1.1\r\n", 17) == 0);
    HAS(seen, "authorization: Bearer the-apps\r\n");
    HAS(answer, "Referrer-Policy: no-referrer\r\n");
    LACKS(answer, "unsafe-url");
    exchange(
        "GET /s/sbx/ports/3000/a HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Protocol: chat, parley.v1, bearer.cap, bearer.cap"
        "\r\n\r\n",
        OK_REPLY);
    HAS(seen, "sec-websocket-protocol: chat\r\n");
    LACKS(seen, "cap");
    exchange("GET /c/cap/ports/3000/ HTTP/1.1\r\nHost: h\r\nX-Api-Key: cap\r\nX-Access-Token: theirs\r\n\r\n",
             OK_REPLY);
    CHECK(strncmp(seen, "GET / HTTP/1.1\r\n", 16) == 0);
    LACKS(seen, "cap");
    HAS(seen, "x-access-token: theirs\r\n");
    CHECK(client_ask("GET /s/sbx/ports/3000/?token=a&token=b HTTP/1.1\r\nHost: h\r\n\r\n", answer, sizeof answer) ==
          400);
    CHECK(client_ask("GET /s/sbx/ports/3000/?token=a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer b\r\n\r\n", answer,
                     sizeof answer) == 400);
}

static void test_hosts(void)
{
    static const char *const OF_RULE[] = {"3000-sbx.preview.test",  "3000-SBX.Preview.TEST:8701",
                                          "3000-sbx.preview.test.", "3000-sbx.preview.test.:1",
                                          "a.b.preview.test",       ".preview.test",
                                          "x@y.preview.test",       "..preview.test"};
    static const char *const OTHERS[] = {"preview.test",
                                         "preview.test:80",
                                         "xpreview.test",
                                         "3000-sbx.preview.test@evil",
                                         "3000-sbx.preview.test.evil",
                                         "3000-sbx.preview.test:8x",
                                         "localhost",
                                         "[::1]:1"};
    char request[512];
    for (size_t i = 0; i < sizeof OF_RULE / sizeof OF_RULE[0]; i++) {
        snprintf(request, sizeof request, "GET /hello?a=1&a=1 HTTP/1.1\r\nHost: %s\r\n\r\n", OF_RULE[i]);
        CHECK(client_ask(request, answer, sizeof answer) == 200);
        HAS(answer, "\"remote\""); /* mirrored, and not greeted */
    }
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        snprintf(request, sizeof request, "GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n", OTHERS[i]);
        client_ask(request, answer, sizeof answer);
        HAS(answer, "world");
    }
    CHECK(client_ask("GET /hello HTTP/1.1\r\nHost: h\r\nHost: 3000-sbx.preview.test\r\n\r\n", answer, sizeof answer) ==
          400);
    CHECK(client_ask("GET http://3000-sbx.preview.test/ HTTP/1.1\r\nHost: h\r\n\r\n", answer, sizeof answer) == 400);
}

int main(void)
{
    proxy_start();
    test_large_upload();
    test_chunked_upload();
    test_no_smuggling();
    test_upload_ends();
    test_large_download();
    test_tunnel();
    test_slow_tunnel();
    test_refused_upgrade();
    test_revocation();
    test_kept();
    test_not_kept();
    test_carriers();
    test_hosts();
    fixture_stop(0);
    return check_done();
}
