/* proxy_test.c - requests that are passed on: what the upstream sees, what the client gets, and what becomes of hostile
 * upstreams. The test is both ends. */
#include "proxy_fixture.h"

#define GET "GET /p/x HTTP/1.1\r\nHost: h\r\n\r\n"

static void test_request_head(void)
{
    exchange("GET /p/a//b/%2e.txt?x=1&x=2&y=%zz HTTP/1.1\r\nHost: h:1\r\nAccept: a\r\nAccept: b\r\n"
             "Connection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nTrailer: x\r\n"
             "Proxy-Connection: x\r\nReferer: http://secret/\r\nCookie: a=1\r\nX-Request-ID: mine\r\n"
             "Authorization: Basic app\r\nX-Api-Key: pk_secret\r\n\r\n",
             "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    CHECK(strncmp(seen, "GET /a//b/%2e.txt?x=1&x=2&y=%zz HTTP/1.1\r\nhost: h:1\r\n", 53) == 0);
    HAS(seen, "\r\naccept: a\r\naccept: b\r\n");
    HAS(seen, "\r\nX-Forwarded-Prefix: /p\r\n");
    HAS(seen, "\r\nCookie: left=1\r\n");
    HAS(seen, "\r\nauthorization: Basic app\r\n");
    HAS(seen, "\r\nx-request-id: mine\r\n");
    HAS(seen, "\r\nconnection: close\r\n");
    LACKS(seen, "x-private");
    LACKS(seen, "keep-alive");
    LACKS(seen, "te:");
    LACKS(seen, "trailer");
    LACKS(seen, "proxy-connection");
    LACKS(seen, "secret");
    LACKS(seen, "a=1");
    LACKS(seen, "content-length");
    CHECK(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17) == 0);
    HAS(answer, "Content-Length: 2\r\n");
    CHECK_TEXT(client_body(answer), "hi");
}

/* Of a route whose parameters are cut apart and decoded before: they go on as they came, all the same. */
static void test_query_of_an_ordinary_route(void)
{
    exchange("GET /plain/a%20b?raw=std%6fut&empty=&alone&x=a%26b HTTP/1.1\r\nHost: h\r\n\r\n",
             "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    HAS(seen, "GET /a%20b?raw=std%6fut&empty=&alone&x=a%26b HTTP/1.1\r\n");
}

static void test_answer_head(void)
{
    exchange(GET, "HTTP/1.1 302 Moved along\r\nLocation: /y\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Dropped: 1\r\n"
                  "X-Changed: theirs\r\nConnection: close, x-mine\r\nX-Mine: 1\r\nServer: app\r\nDate: long ago\r\n"
                  "Keep-Alive: 1\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n");
    CHECK(strncmp(answer, "HTTP/1.1 302 Found\r\n", 20) == 0);
    HAS(answer, "location: /y\r\n");
    HAS(answer, "set-cookie: a=1\r\n");
    HAS(answer, "set-cookie: b=2\r\n");
    HAS(answer, "x-changed: by us\r\n");
    HAS(answer, "server: app\r\n");
    HAS(answer, "content-type: text/plain\r\n");
    HAS(answer, "Content-Length: 5\r\n"); /* all came at once */
    LACKS(answer, "x-dropped");
    LACKS(answer, "x-mine");
    LACKS(answer, "long ago");
    LACKS(answer, "Trailer");
    CHECK_TEXT(client_body(answer), "abcde");
}

static void test_streamed_answers(void)
{
    int client = client_open();
    client_say(client, GET);
    int upstream = upstream_accept();
    CHECK(upstream_read(upstream, "\r\n\r\n"));
    client_say(upstream,
               "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    client_say(upstream, "5\r\nfirst\r\n");
    size_t used = client_read_all(client, answer, sizeof answer, 300);
    HAS(answer, "transfer-encoding: chunked\r\n");
    HAS(answer, "5\r\nfirst\r\n"); /* before the rest is there */
    LACKS(answer, "Link");
    client_say(upstream, "6\r\nsecond\r\n0\r\n\r\n");
    client_read_all(client, answer + used, sizeof answer - used, 300);
    HAS(answer, "6\r\nsecond\r\n0\r\n\r\n");
    client_say(client, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"); /* the connection goes on */
    client_read_all(client, answer, sizeof answer, 300);
    HAS(answer, "world");
    close(upstream);
    close(client);
    exchange(GET, "HTTP/1.0 200 OK\r\n\r\nup to the end");
    HAS(answer, "up to the end");
    exchange("GET /p/x HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    CHECK_TEXT(client_body(answer), "abc");
}

static void test_sized_stream(void)
{
    int client = client_open();
    client_say(client, GET);
    int upstream = upstream_accept();
    CHECK(upstream_read(upstream, "\r\n\r\n"));
    client_say(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
    size_t used = client_read_all(client, answer, sizeof answer, 300);
    HAS(answer, "Content-Length: 10\r\n");
    LACKS(answer, "chunked");
    client_say(upstream, "01234");
    client_say(upstream, "56789");
    client_read_all(client, answer + used, sizeof answer - used, 300);
    CHECK_TEXT(client_body(answer), "0123456789");
    close(upstream);
    close(client);
}

static void test_no_bodies(void)
{
    exchange("HEAD /p/x HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
    HAS(answer, "Content-Length: 77\r\n");
    CHECK_TEXT(client_body(answer), "");
    exchange("HEAD /p/x HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    LACKS(answer, "Content-Length");
    CHECK_TEXT(client_body(answer), "");
    exchange(GET, "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nContent-Length: 9\r\n\r\n");
    HAS(answer, "304 Not Modified");
    LACKS(answer, "Content-Length");
    exchange(GET, "HTTP/1.1 204 No Content\r\n\r\nsmuggled");
    HAS(answer, "204 No Content");
    LACKS(answer, "smuggled");
}

static void test_held_bodies(void)
{
    exchange("POST /held/x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    HAS(seen, "\r\ncontent-length: 4\r\n");
    HAS(seen, "\r\n\r\nbody");
    exchange("POST /held/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    HAS(seen, "\r\ncontent-length: 4\r\n");
    LACKS(seen, "chunked");
    exchange("POST /other HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    CHECK(strncmp(seen, "POST /other HTTP/1.1\r\nhost: app.internal\r\n", 42) == 0);
    HAS(seen, "\r\ncontent-length: 8\r\n");
    HAS(seen, "\r\n\r\nreplaced");
    exchange("POST /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
             "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    HAS(seen, "\r\n\r\nbody");
    CHECK_TEXT(client_body(answer), "ok");
    exchange("POST /p/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    HAS(seen, "\r\ncontent-length: 0\r\n");
}

/* Each of these must never reach the client as an answer of its own. */
static void test_hostile_heads(void)
{
    static const char *const BAD[] = {
        "SSH-2.0-OpenSSH_9\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x10\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\x01b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX y: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Y : a\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: a\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", /* nobody asked */
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le", /* and closes */
        "HTTP/1.1 100 Continue\r\n\r\n",
        "",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        exchange(GET, BAD[i]);
        if (strncmp(answer, "HTTP/1.1 502 ", 13) != 0)
            fprintf(stderr, "case %zu: %.60s\n", i, answer);
        CHECK(strncmp(answer, "HTTP/1.1 502 ", 13) == 0);
        HAS(answer, "\"BAD_GATEWAY\"");
        HAS(answer, "\"retryable\":true");
    }
}

static void test_endless_heads(void)
{
    AUTO_TEXT reply = {0};
    for (int i = 0; i < 40; i++)
        text_append_string(&reply, "HTTP/1.1 100 Continue\r\n\r\n");
    exchange(GET, reply.data);
    HAS(answer, "HTTP/1.1 502 ");
    reply.length = 0;
    text_append_string(&reply, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 300; i++)
        text_append_format(&reply, "X-%d: 1\r\n", i);
    exchange(GET, reply.data);
    HAS(answer, "HTTP/1.1 502 ");
    reply.length = 0;
    text_append_string(&reply, "HTTP/1.1 200 OK\r\nX: ");
    for (int i = 0; i < 9000; i++)
        text_append_string(&reply, "0123456789");
    exchange(GET, reply.data);
    HAS(answer, "HTTP/1.1 502 ");
}

/* What breaks off must not look whole. */
static void test_early_ends(void)
{
    static const char *const CUT[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nz\r\n",
    };
    for (size_t i = 0; i < sizeof CUT / sizeof CUT[0]; i++) {
        exchange(GET, CUT[i]);
        LACKS(answer, "\r\n0\r\n\r\n");
        CHECK(strstr(answer, "502") != NULL || strstr(answer, "200 OK") == NULL || strlen(client_body(answer)) < 10);
    }
}

static void test_no_upstream(void)
{
    uint16_t kept = upstream_port;
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bound, and not listening */
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(bind(taken, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(getsockname(taken, (struct sockaddr *)&at, &size) == 0);
    upstream_port = ntohs(at.sin_port);
    CHECK(client_ask(GET, answer, sizeof answer) == 502);
    close(taken);
    upstream_port = kept;
    int client = client_open();
    client_say(client, "GET /p/soon HTTP/1.1\r\nHost: h\r\n\r\n");
    int upstream = upstream_accept(); /* which says nothing */
    client_read_reply(client, answer, sizeof answer);
    HAS(answer, "HTTP/1.1 504 ");
    HAS(answer, "\"TIMEOUT\"");
    CHECK(client_is_closed(upstream, 5000));
    close(upstream);
    close(client);
}

static void test_client_leaves(void)
{
    int client = client_open();
    client_say(client, GET);
    int upstream = upstream_accept();
    CHECK(upstream_read(upstream, "\r\n\r\n"));
    unsigned before = atomic_load(&overs);
    client_say(upstream, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
    client_read_all(client, answer, sizeof answer, 200);
    struct linger at_once = {.l_onoff = 1};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(client);
    CHECK(client_is_closed(upstream, 5000));
    CHECK(wait_for(&overs, before + 1, 5000));
    close(upstream);
}

int main(void)
{
    proxy_start();
    test_request_head();
    test_query_of_an_ordinary_route();
    test_answer_head();
    test_streamed_answers();
    test_sized_stream();
    test_no_bodies();
    test_held_bodies();
    test_hostile_heads();
    test_endless_heads();
    test_early_ends();
    test_no_upstream();
    test_client_leaves();
    fixture_stop(0);
    return check_done();
}
