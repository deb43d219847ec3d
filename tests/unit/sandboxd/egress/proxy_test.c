/* Connections of a sandbox: to allowed names at their own addresses, and to nothing else. */
#include "tests/unit/sandboxd/egress/egress_rig.h"

#include "sandboxd/egress/proxy.h"

#include <openssl/ssl.h>
#include <stdlib.h>

static struct rig rig;

static void go_to(const char *address, uint16_t port)
{
    rig_destination = inet_addr(address);
    rig_port = port;
}

/* All that comes until the end, or `want` bytes. */
static size_t receive_up_to(int fd, char *to, size_t want)
{
    size_t had = 0;
    struct timeval wait = {.tv_sec = RIG_WAIT_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    for (ssize_t got = 1; had < want && got > 0; had += got > 0 ? (size_t)got : 0)
        got = recv(fd, to + had, want - had, 0);
    return had;
}

static void say(int fd, const char *text, size_t size)
{
    CHECK(send(fd, text, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static size_t hello_of(const char *name, char *to, size_t room)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *tls = SSL_new(context);
    BIO *output = BIO_new(BIO_s_mem());
    SSL_set_bio(tls, BIO_new(BIO_s_mem()), output);
    if (name != NULL)
        SSL_set_tlsext_host_name(tls, name);
    (void)SSL_connect(tls);
    int size = BIO_read(output, to, (int)room);
    SSL_free(tls);
    SSL_CTX_free(context);
    return (size_t)size;
}

/* The server's end of the next connection that the proxy made. */
static int accept_web(void)
{
    struct pollfd polled = {.fd = rig.web, .events = POLLIN};
    CHECK(poll(&polled, 1, RIG_WAIT_MS) == 1);
    return accept4(rig.web, NULL, NULL, SOCK_CLOEXEC);
}

/* Everything reaches the server as it was said, and back. */
static void check_through(const char *first, size_t size, const char *address)
{
    char got[65536];
    int client = rig_connect(rig.proxy);
    say(client, first, size);
    int server = accept_web();
    CHECK(rig_dialled == inet_addr(address));
    CHECK(receive_up_to(server, got, size) == size && memcmp(got, first, size) == 0);
    say(server, "answer", 6);
    CHECK(receive_up_to(client, got, 6) == 6 && memcmp(got, "answer", 6) == 0);
    shutdown(client, SHUT_WR);
    CHECK(receive_up_to(server, got, 1) == 0); /* the half that is closed is closed there */
    say(server, "more", 4);
    CHECK(receive_up_to(client, got, 4) == 4);
    close(server);
    CHECK(receive_up_to(client, got, 1) == 0);
    close(client);
}

/* The connection ends, and no server ever heard of it. */
static size_t check_cut(const char *first, size_t size, char *got, size_t room)
{
    int client = rig_connect(rig.proxy);
    (void)send(client, first, size, MSG_NOSIGNAL);
    size_t had = receive_up_to(client, got, room);
    struct pollfd polled = {.fd = rig.web, .events = POLLIN};
    CHECK(poll(&polled, 1, 0) == 0);
    close(client);
    return had;
}

static char told[512];

static void test_tls(void)
{
    char hello[4096];
    char got[512];
    size_t size = hello_of("Good.Test", hello, sizeof hello);
    go_to("203.0.113.7", 443);
    check_through(hello, size, "203.0.113.7");
    go_to("203.0.113.8", 443); /* another name's address, as yet unknown as good.test's */
    CHECK(check_cut(hello, size, got, sizeof got) == 7 && got[0] == 21 && got[6] == 112);
    go_to("203.0.113.66", 443);
    CHECK(check_cut(hello, size, got, sizeof got) == 7);
    go_to("203.0.113.7", 443);
    size = hello_of("evil.test", hello, sizeof hello);
    CHECK(check_cut(hello, size, got, sizeof got) == 7);
    size = hello_of(NULL, hello, sizeof hello);
    CHECK(check_cut(hello, size, got, sizeof got) == 7);
    size = hello_of("ssh.test", hello, sizeof hello); /* its rule opens port 22 alone */
    CHECK(check_cut(hello, size, got, sizeof got) == 7);
    CHECK(check_cut("SSH-2.0-x\r\n", 11, got, sizeof got) == 7);
    CHECK(check_cut("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", 36, got, sizeof got) == 7);
}

/* What was told before this process began is looked up again. */
static void test_not_yet_known(void)
{
    char hello[4096];
    char got[64];
    unsigned pins = rig.pins;
    size_t size = hello_of("also.test", hello, sizeof hello);
    go_to("203.0.113.8", 443);
    check_through(hello, size, "203.0.113.8");
    CHECK(rig.pins == pins + 1);
    size = hello_of("rebind.test", hello, sizeof hello);
    go_to("10.1.2.3", 443); /* the DNS says so, and nobody may go there */
    (void)check_cut(hello, size, got, sizeof got);
    go_to("127.0.0.1", 443);
    (void)check_cut(hello, size, got, sizeof got);
    go_to("203.0.113.9", 443);
    check_through(hello, size, "203.0.113.9");
}

#define GET(host)    "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"
#define CUT(request) check_cut(request, sizeof(request) - 1, got, sizeof got)

static void test_http(void)
{
    char got[1024] = "";
    go_to("203.0.113.7", 80);
    check_through(GET("good.test"), sizeof GET("good.test") - 1, "203.0.113.7");
    check_through(GET("good.test") GET("also.test"), sizeof(GET("good.test") GET("also.test")) - 1, "203.0.113.7");
    memset(got, 0, sizeof got);
    CHECK(CUT(GET("evil.test")) > 0 && strstr(got, "HTTP/1.1 403") == got && strstr(got, "evil.test is not allowed"));
    const char *body = strstr(got, "\r\n\r\n");
    const char *length = strstr(got, "Content-Length: ");
    CHECK(body != NULL && length != NULL && strtoul(length + 16, NULL, 10) == strlen(body + 4));
    CHECK(CUT("GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n") > 0);
    CHECK(CUT("CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n") > 0);
    go_to("203.0.113.8", 80); /* also.test's: not good.test's */
    CHECK(CUT(GET("good.test")) > 0);
}

/* On a connection that is allowed, a later request for another host. */
static void test_later_request(void)
{
    char got[512];
    go_to("203.0.113.7", 80);
    for (int i = 0; i < 3; i++) {
        static const char *const BAD[] = {GET("evil.test"), GET("rebind.test"), /* allowed, but at another address */
                                          "GET / HTTP/1.1\r\nHost: good.test\r\nUpgrade: h2c\r\n\r\n"};
        size_t size = sizeof GET("good.test") - 1;
        int client = rig_connect(rig.proxy);
        say(client, GET("good.test"), size);
        int server = accept_web();
        CHECK(receive_up_to(server, got, size) == size);
        say(server, "HTTP/1.1 204 x\r\n\r\n", 18);
        CHECK(receive_up_to(client, got, 18) == 18);
        say(client, GET("good.test"), size);
        CHECK(receive_up_to(server, got, size) == size);
        say(client, BAD[i], strlen(BAD[i]));
        CHECK(receive_up_to(server, got, sizeof got) == 0); /* not one byte of it */
        close(server);
        close(client);
    }
}

/* The real dial, which other tests replace. */
static void test_own_addresses(void)
{
    static const char *const OWN[] = {"127.0.0.1", "127.9.9.9", "0.0.0.0", "255.255.255.255"};
    for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++)
        CHECK(proxy_dial(inet_addr(OWN[i]), 80) == -1);
    errno = 0;
    CHECK(proxy_dial(inet_addr("127.0.0.1"), rig_web_port) == -1 && errno == EACCES);
    uint32_t address = 1;
    uint16_t port = 1;
    int client = rig_connect(rig_web_port), server = accept_web();
    CHECK(!proxy_destination(server, &address, &port) && address == 1 && port == 1); /* nothing redirected it */
    close(client);
    close(server);
}

static void test_wrong_ways(void)
{
    char got[512];
    rig_port = 0; /* straight to the listener */
    CHECK(CUT(GET("good.test")) == 0);
    go_to("203.0.113.7", 22);
    CHECK(CUT(GET("good.test")) == 0);
    go_to("169.254.169.254", 80);
    CHECK(CUT(GET("good.test")) > 0);
    static char big[20000];
    memset(big, 'a', sizeof big);
    go_to("203.0.113.7", 80);
    (void)check_cut(big, sizeof big, got, sizeof got);
}

/* Slowly or not at all: others are served meanwhile; and not more than may be. */
static void test_many(void)
{
    char got[16];
    int held[CONNECTIONS_OF_ONE];
    go_to("203.0.113.7", 80);
    for (size_t i = 0; i < CONNECTIONS_OF_ONE; i++) {
        held[i] = rig_connect(rig.proxy);
        say(held[i], "GET /", 5);
    }
    int beyond = rig_connect(rig.proxy);
    CHECK(receive_up_to(beyond, got, 1) == 0);
    close(beyond);
    for (size_t i = 0; i < CONNECTIONS_OF_ONE; i++)
        close(held[i]);
    for (int i = 0; i < 300; i++) { /* until the ends of them were read */
        int client = rig_connect(rig.proxy);
        struct pollfd polled = {.fd = client, .events = POLLIN};
        bool is_closed = poll(&polled, 1, 100) == 1;
        close(client);
        if (!is_closed)
            break;
    }
    check_through(GET("good.test"), sizeof GET("good.test") - 1, "203.0.113.7");
}

enum { BULK_BYTES = 32 << 20 };

static void *pour(void *cookie)
{
    static const char zeros[65536];
    int fd = *(int *)cookie;
    for (size_t sent = 0; sent < BULK_BYTES; sent += sizeof zeros)
        CHECK(send(fd, zeros, sizeof zeros, MSG_NOSIGNAL) == sizeof zeros);
    shutdown(fd, SHUT_WR);
    return NULL;
}

static size_t drain(int fd)
{
    static char bytes[65536];
    size_t all = 0;
    for (ssize_t got = 1; got > 0; all += got > 0 ? (size_t)got : 0)
        got = recv(fd, bytes, sizeof bytes, 0);
    return all;
}

/* Much, both ways, one after the other, against full sockets. */
static void test_bulk(void)
{
    char hello[4096];
    size_t size = hello_of("good.test", hello, sizeof hello);
    go_to("203.0.113.7", 443);
    int client = rig_connect(rig.proxy);
    say(client, hello, size);
    int server = accept_web();
    pthread_t up;
    pthread_t down;
    pthread_create(&up, NULL, pour, &client);
    pthread_create(&down, NULL, pour, &server);
    usleep(100000); /* both are full now */
    CHECK(drain(server) == BULK_BYTES + size);
    CHECK(drain(client) == BULK_BYTES);
    pthread_join(up, NULL);
    pthread_join(down, NULL);
    close(client);
    close(server);
}

static void test_changed_rules(void)
{
    char got[512];
    int clients[2];
    int servers[2];
    static const char *const SAID[] = {GET("good.test"), GET("also.test")};
    go_to("203.0.113.7", 80);
    for (int i = 0; i < 2; i++) {
        clients[i] = rig_connect(rig.proxy);
        say(clients[i], SAID[i], strlen(SAID[i]));
        servers[i] = accept_web();
        CHECK(receive_up_to(servers[i], got, strlen(SAID[i])) == strlen(SAID[i]));
    }
    rig_say_sandbox(&rig, RIG_SANDBOX, EG_ALLOW, "also.test", NULL);
    CHECK(receive_up_to(clients[0], got, 1) == 0 && receive_up_to(servers[0], got, 1) == 0);
    say(servers[1], "still", 5);
    CHECK(receive_up_to(clients[1], got, 5) == 5);
    CHECK(CUT(GET("good.test")) > 0);
    struct launcher_egress_message gone = {.type = EG_GONE, .as.gone.number = RIG_SANDBOX};
    struct error err = {0};
    CHECK(launcher_egress_send(rig.line, &gone, NULL, 0, &err));
    CHECK(receive_up_to(clients[1], got, 1) == 0 && receive_up_to(servers[1], got, 1) == 0);
    for (int i = 0; i < 2; i++) {
        close(clients[i]);
        close(servers[i]);
    }
}

/* Everywhere, but to names and addresses that are denied. */
static void test_denied(void)
{
    char got[512], hello[4096];
    rig_denied = "good.test *.wild.test deep.test 203.0.113.8";
    rig_new_sandbox(&rig, RIG_SANDBOX, EG_PUBLIC, "a.wild.test");
    go_to("203.0.113.9", 443);
    size_t size = hello_of("Rebind.Test", hello, sizeof hello);
    check_through(hello, size, "203.0.113.9"); /* a name that nobody denies, at its address, as yet unasked */
    go_to("203.0.113.7", 443);
    CHECK(check_cut(hello, size, got, sizeof got) == 7); /* at the address of a denied one */
    size = hello_of("GOOD.test", hello, sizeof hello);
    CHECK(check_cut(hello, size, got, sizeof got) == 7);
    size = hello_of(NULL, hello, sizeof hello); /* by the address alone */
    CHECK(check_cut(hello, size, got, sizeof got) == 7);
    size = hello_of("alias.test", hello, sizeof hello); /* stands for deep.test */
    go_to("203.0.113.10", 443);
    CHECK(check_cut(hello, size, got, sizeof got) == 7);
    size = hello_of("also.test", hello, sizeof hello);
    go_to("203.0.113.8", 443);
    CHECK(check_cut(hello, size, got, sizeof got) == 7); /* a denied address, under whatever name */
    size = hello_of("a.wild.test", hello, sizeof hello);
    go_to("203.0.113.11", 443);
    check_through(hello, size, "203.0.113.11");
    go_to("203.0.113.7", 80);
    CHECK(CUT(GET("good.test")) > 0 && CUT(GET("Good.Test.")) > 0 && CUT(GET("203.0.113.7")) > 0);
    CHECK(CUT("GET http://good.test/ HTTP/1.1\r\nHost: rebind.test\r\n\r\n") > 0);
    CHECK(CUT("GET / HTTP/1.0\r\n\r\n") > 0);
    pthread_mutex_lock(&rig.mutex);
    CHECK(rig.last_pin.rules != rig.rules); /* nothing was pinned */
    pthread_mutex_unlock(&rig.mutex);
}

/* A connection that other rules deny is cut; by its name, and by its address. */
static void test_denied_later(void)
{
    static const char *const RULES[] = {"rebind.test", "203.0.113.0/24"};
    char got[512];
    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++) {
        rig_denied = "good.test";
        rig_say_sandbox(&rig, RIG_SANDBOX, EG_PUBLIC, "", NULL);
        go_to("203.0.113.9", 80);
        int client = rig_connect(rig.proxy);
        say(client, GET("rebind.test"), sizeof GET("rebind.test") - 1);
        int server = accept_web();
        CHECK(receive_up_to(server, got, sizeof GET("rebind.test") - 1) == sizeof GET("rebind.test") - 1);
        rig_denied = RULES[i];
        rig_say_sandbox(&rig, RIG_SANDBOX, EG_PUBLIC, "", NULL);
        CHECK(receive_up_to(client, got, 1) == 0 && receive_up_to(server, got, 1) == 0);
        close(client);
        close(server);
    }
    rig_denied = "";
}

int main(void)
{
    rig_start(&rig);
    rig_new_sandbox(&rig, RIG_SANDBOX, EG_ALLOW, "good.test also.test ssh.test:22 rebind.test");
    rig_ask(&rig, "good.test", 1, told);
    test_tls();
    test_not_yet_known();
    test_http();
    test_later_request();
    test_own_addresses();
    test_wrong_ways();
    test_many();
    test_bulk();
    test_changed_rules();
    test_denied();
    test_denied_later();
    rig_stop(&rig);
    return check_done();
}
