/* What a sandbox is told of names: by its rules alone, never an address that nobody may reach, and only once it is
 * pinned. */
#include "tests/unit/sandboxd/egress/egress_rig.h"

static struct rig rig;
static char told[512];

#define TELLS(name, type, want)                                                                                        \
    do {                                                                                                               \
        rig_ask(&rig, name, type, told);                                                                               \
        CHECK_TEXT(told, want);                                                                                        \
    } while (0)

/* After the launcher said something, which is read when it is read. */
#define TELLS_SOON(name, type, want)                                                                                   \
    do {                                                                                                               \
        for (int i_ = 0; i_ < 300; i_++) {                                                                             \
            rig_ask(&rig, name, type, told);                                                                           \
            if (strcmp(told, want) == 0)                                                                               \
                break;                                                                                                 \
            usleep(100000);                                                                                            \
        }                                                                                                              \
        CHECK_TEXT(told, want);                                                                                        \
    } while (0)

enum { A = 1, PTR = 12, MX = 15, AAAA = 28, HTTPS = 65, ANY = 255 };

static void test_allow(void)
{
    rig_new_sandbox(&rig, 7, EG_ALLOW,
                    "good.test *.wild.test ssh.test:22 rebind.test inner.test alias.test alias2.test cut.test "
                    "mapped.test none.test also.test:443");
    TELLS("good.test", A, "0 203.0.113.7");
    pthread_mutex_lock(&rig.mutex);
    CHECK(rig.last_pin.number == 7 && rig.last_pin.count == 1 &&
          rig.last_pin.addresses[0] == inet_addr("203.0.113.7") && rig.last_pin.ttl_s > 30);
    CHECK(rig.last_pin.ports[0] == 80 && rig.last_pin.ports[1] == 443 && rig.last_pin.ports[2] == 0);
    CHECK(rig.last_pin.rules == rig.rules);
    pthread_mutex_unlock(&rig.mutex);
    TELLS("GOOD.Test.", A, "0 203.0.113.7");
    CHECK(rig.pins == 1); /* it still holds */
    unsigned questions = rig.questions;
    TELLS("good.test", AAAA, "0");
    TELLS("good.test", HTTPS, "0");
    TELLS("good.test", MX, "0");
    TELLS("good.test", ANY, "0");
    TELLS("evil.test", A, "5");
    TELLS("evil.test", AAAA, "5");
    TELLS("secret-data.evil.test", A, "5");
    TELLS("good.test.evil.test", A, "5");
    TELLS("xgood.test", A, "5");
    TELLS("test", A, "5");
    TELLS("wild.test", A, "5"); /* not itself */
    TELLS("7.113.0.203.in-addr.arpa", PTR, "5");
    CHECK(rig.questions == questions); /* none of these went out */
    TELLS("a.wild.test", A, "0 203.0.113.11");
    TELLS("ssh.test", A, "0 203.0.113.12");
    pthread_mutex_lock(&rig.mutex);
    CHECK(rig.last_pin.ports[0] == 22 && rig.last_pin.ports[1] == 0);
    pthread_mutex_unlock(&rig.mutex);
    TELLS("none.test", A, "3");
    TELLS("cut.test", A, "0 203.0.113.13"); /* by TCP */
    TELLS("localhost", A, "0 127.0.0.1");
    TELLS("x.localhost", AAAA, "0");
}

static void test_rebinding(void)
{
    unsigned pins = rig.pins;
    TELLS("rebind.test", A, "0 203.0.113.9");
    CHECK(rig.pins == pins + 1);
    pthread_mutex_lock(&rig.mutex);
    CHECK(rig.last_pin.count == 1 && rig.last_pin.addresses[0] == inet_addr("203.0.113.9"));
    CHECK(rig.last_pin.rules == rig.rules);
    pthread_mutex_unlock(&rig.mutex);
    TELLS("inner.test", A, "0");
    TELLS("mapped.test", A, "0");
    TELLS("alias.test", A, "0 203.0.113.10"); /* flat: no CNAME is told */
    TELLS("alias2.test", A, "0");
    CHECK(rig.pins == pins + 2);
}

static void test_pins(void)
{
    rig_new_sandbox(&rig, 8, EG_ALLOW, "good.test also.test");
    rig.refuses_pins = true;
    TELLS("good.test", A, "2");
    rig.refuses_pins = false;
    rig.holds_pins = true;
    unsigned pins = rig.pins;
    CHECK(!rig_ask_within(&rig, "also.test", A, 300, told)); /* not before it is pinned */
    CHECK(rig.pins == pins + 1);
    rig.holds_pins = false;
    TELLS("good.test", A, "0 203.0.113.7");
    pins = rig.pins;
    rig_say_sandbox(&rig, 8, EG_ALLOW, "good.test:8443 evil.test", NULL);
    TELLS_SOON("evil.test", A, "0 203.0.113.66");
    TELLS("also.test", A, "5");
    CHECK(rig.pins == pins + 2); /* good.test again, by itself */
    rig_say_sandbox(&rig, 8, EG_ALLOW, "", NULL);
    TELLS_SOON("good.test", A, "5");
}

static void test_public(void)
{
    rig_new_sandbox(&rig, 9, EG_PUBLIC, "");
    unsigned pins = rig.pins;
    TELLS("good.test", A, "0 203.0.113.7");
    TELLS("rebind.test", A, "0 203.0.113.9");
    TELLS("good.test", AAAA, "0");
    TELLS("mail.test", MX, "0 5"); /* the preference; neither AAAA nor an inner A */
    TELLS("missing.test", MX, "3");
    TELLS("good.test", ANY, "5");
    unsigned questions = rig.questions;
    TELLS("db.corp", A, "3");
    TELLS("printer", A, "3");
    TELLS("router.local", A, "3");
    TELLS("1.0.0.10.in-addr.arpa", PTR, "3");
    TELLS("1.1.16.172.in-addr.arpa", PTR, "3");
    TELLS("1.1.64.100.in-addr.arpa", PTR, "3");
    TELLS("1.1.168.192.in-addr.arpa", PTR, "3");
    CHECK(rig.questions == questions && rig.pins == pins);
    TELLS("1.1.32.172.in-addr.arpa", PTR, "3"); /* asked for: not in our zone */
    CHECK(rig.questions > questions);
}

/* Denied in any spelling, by what stands for it, and by its addresses; what is more specific decides. */
static void test_denied(void)
{
    unsigned pins = rig.pins;
    rig_denied = "good.test *.wild.test deep.test 203.0.113.12 mail.test:25";
    rig_new_sandbox(&rig, 21, EG_PUBLIC, "a.wild.test");
    unsigned questions = rig.questions;
    TELLS("good.test", A, "5");
    TELLS("GOOD.Test.", A, "5");
    TELLS("good.test", MX, "5");
    TELLS("good.test", ANY, "5");
    TELLS("b.wild.test", A, "5");
    TELLS("deep.test", AAAA, "5");
    CHECK(rig.questions == questions); /* asked of nobody */
    TELLS("a.wild.test", A, "0 203.0.113.11");
    TELLS("rebind.test", A, "0 203.0.113.9");
    TELLS("alias.test", A, "5"); /* stands for deep.test */
    TELLS("ssh.test", A, "0");   /* its one address is denied */
    TELLS("mail.test", MX, "0 5");
    TELLS("xgood.test", A, "3");
    CHECK(rig.pins == pins);
    rig_say_sandbox(&rig, 21, EG_ALLOW, "good.test:22 *.wild.test a.wild.test alias.test rebind.test mail.test", NULL);
    TELLS_SOON("alias.test", A, "5");
    TELLS("good.test", A, "0 203.0.113.7"); /* port 22 alone is more specific */
    pthread_mutex_lock(&rig.mutex);
    CHECK(rig.last_pin.ports[0] == 22 && rig.last_pin.ports[1] == 0);
    pthread_mutex_unlock(&rig.mutex);
    TELLS("a.wild.test", A, "0 203.0.113.11");
    TELLS("b.wild.test", A, "5");
    rig_denied = "";
    rig_say_sandbox(&rig, 21, EG_PUBLIC, "", NULL);
    TELLS_SOON("b.wild.test", A, "3");
}

static ssize_t receive_all(int fd, uint8_t *to, size_t size)
{
    size_t had = 0;
    for (ssize_t got = 1; had < size && got > 0; had += got > 0 ? (size_t)got : 0)
        got = recv(fd, to + had, size - had, 0);
    return (ssize_t)had;
}

static void test_tcp(void)
{
    uint8_t data[1024];
    int fd = rig_connect(rig.dns_tcp);
    size_t size = rig_query("good.test", A, data + 2);
    data[0] = 0;
    data[1] = (uint8_t)size;
    memcpy(data + 2 + size, data, 2 + size); /* a second one at once */
    for (size_t i = 0; i < 2 * (2 + size); i++)
        CHECK(send(fd, data + i, 1, MSG_NOSIGNAL) == 1);
    for (int i = 0; i < 2; i++) {
        CHECK(receive_all(fd, data, 2) == 2);
        size = (size_t)(data[0] << 8 | data[1]);
        CHECK(size < sizeof data && receive_all(fd, data, size) == (ssize_t)size);
        rig_told(data, size, told);
        CHECK_TEXT(told, "0 203.0.113.7");
    }
    close(fd);
    static const uint8_t TOO_LONG[] = {0xff, 0xff, 1, 2, 3};
    static const uint8_t EMPTY[] = {0, 0};
    fd = rig_connect(rig.dns_tcp);
    CHECK(send(fd, TOO_LONG, sizeof TOO_LONG, MSG_NOSIGNAL) > 0 && receive_all(fd, data, 1) == 0);
    close(fd);
    fd = rig_connect(rig.dns_tcp);
    CHECK(send(fd, EMPTY, sizeof EMPTY, MSG_NOSIGNAL) > 0 && receive_all(fd, data, 1) == 0);
    close(fd);
    int many[40]; /* more than may be: the rest is closed, and the first still serve */
    for (int i = 0; i < 40; i++)
        many[i] = rig_connect(rig.dns_tcp);
    CHECK(receive_all(many[39], data, 1) == 0);
    for (int i = 0; i < 40; i++)
        close(many[i]);
}

/* The connections of before are gone once their ends were read. The query is said, its answer waits. */
static int connect_when_there_is_room(const uint8_t *query, size_t size)
{
    for (int i = 0; i < 300; i++) {
        uint8_t byte;
        int fd = rig_connect(rig.dns_tcp);
        if (send(fd, query, size, MSG_NOSIGNAL) == (ssize_t)size && recv(fd, &byte, 1, MSG_PEEK) == 1)
            return fd;
        close(fd);
        usleep(100000);
    }
    CHECK(!"room for a connection");
    exit(1);
}

/* One connection, more queries than the rate lets through at once: every one is answered, in order. */
static void test_many_by_tcp(void)
{
    enum { QUERIES = 450 };
    uint8_t data[1024];
    size_t size = rig_query("refused.example", ANY, data + 2);
    data[0] = 0;
    data[1] = (uint8_t)size;
    int fd = connect_when_there_is_room(data, 2 + size);
    for (int i = 1; i < QUERIES; i++)
        CHECK(send(fd, data, 2 + size, MSG_NOSIGNAL) == (ssize_t)(2 + size));
    for (int i = 0; i < QUERIES; i++) {
        CHECK(receive_all(fd, data, 2) == 2);
        size = (size_t)(data[0] << 8 | data[1]);
        CHECK(size < sizeof data && receive_all(fd, data, size) == (ssize_t)size);
    }
    rig_told(data, size, told);
    CHECK_TEXT(told, "5");
    close(fd);
}

/* Rubbish, responses, and far more queries than may be: the server goes on. */
static void test_flood(void)
{
    uint8_t data[512];
    struct sockaddr_in at = rig_loopback(rig.dns_udp);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < 600; i++) {
        size_t size = rig_query(i % 16 == 1 ? "silent.test" : "good.test", A, data);
        data[2] |= i % 3 ? 0 : 0x80;
        data[i % 12] ^= (uint8_t)(i % 5 ? 0 : i);
        (void)sendto(fd, data, i % 7 ? size : (size_t)i % size, 0, (struct sockaddr *)&at, sizeof at);
    }
    close(fd);
    for (int i = 0; i < 300; i++) { /* the rate comes back, and room in the socket */
        if (rig_ask_within(&rig, "good.test", A, 1000, told) && strcmp(told, "0 203.0.113.7") == 0)
            break;
        usleep(100000);
    }
    CHECK_TEXT(told, "0 203.0.113.7");
}

/* Names whose servers are silent: those beyond the bound are told so at once, and another sandbox does not notice. */
static void test_under_way(void)
{
    uint16_t other = rig.dns_udp;
    uint8_t data[512];
    rig_new_sandbox(&rig, 11, EG_PUBLIC, "");
    struct sockaddr_in at = rig_loopback(rig.dns_udp);
    struct timeval wait = {.tv_sec = RIG_WAIT_MS / 1000};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    size_t size = rig_query("silent.test", A, data);
    for (int i = 0; i < LOOKUPS_OF_ONE + 1; i++)
        CHECK(sendto(fd, data, size, 0, (struct sockaddr *)&at, sizeof at) == (ssize_t)size);
    ssize_t got = recv(fd, data, sizeof data, 0);
    CHECK(got > 0);
    rig_told(data, got > 0 ? (size_t)got : 0, told);
    CHECK_TEXT(told, "2");
    rig.dns_udp = other;
    TELLS("good.test", A, "0 203.0.113.7");
    close(fd);
}

static void test_gone(void)
{
    struct error err = {0};
    struct launcher_egress_message gone = {.type = EG_GONE, .as.gone.number = 21};
    uint16_t before = rig.dns_udp;
    CHECK(launcher_egress_send(rig.line, &gone, NULL, 0, &err));
    CHECK(launcher_egress_send(rig.line, &gone, NULL, 0, &err)); /* twice does no harm */
    rig_say_sandbox(&rig, 99, EG_PUBLIC, "", NULL);              /* nor one that was never there */
    rig_new_sandbox(&rig, 10, EG_PUBLIC, "");
    TELLS("good.test", A, "0 203.0.113.7"); /* so the launcher's words before were read */
    rig.dns_udp = before;
    CHECK(!rig_ask_within(&rig, "good.test", A, 300, told));
}

int main(void)
{
    rig_start(&rig);
    test_allow();
    test_rebinding();
    test_pins();
    test_public();
    test_denied();
    test_tcp();
    test_many_by_tcp();
    test_flood();
    test_under_way();
    test_gone();
    rig_stop(&rig);
    return check_done();
}
