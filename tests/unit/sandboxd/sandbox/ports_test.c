/* ports_test.c - the reader of a port, and what the kernel tells of listeners. */
#include "sandboxd/sandbox/ports/listeners.h"
#include "sandboxd/sandbox/ports/ports.h"

#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_parse(void)
{
    static const char *const bad[] = {"",      "0",     "00",     "03000", "+3000", "-1",     " 3000", "3000 ", "3000x",
                                      "65536", "99999", "100000", "0x50",  "3e3",   "3000\n", "٣",     "3.0",   "1,2"};
    struct error err;
    uint16_t port = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct error){0};
        CHECK(!ports_parse(bad[i], &port, &err) && err.kind == ERROR_INVALID && port == 7);
    }
    CHECK(ports_parse("1", &port, &err) && port == 1);
    CHECK(ports_parse("3000", &port, &err) && port == 3000);
    CHECK(ports_parse("65535", &port, &err) && port == 65535);
}

static uint16_t listen_at(const struct sockaddr *address, socklen_t size, int *fd)
{
    struct sockaddr_in6 got = {0};
    *fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, address, size) < 0 || listen(*fd, 1) < 0)
        return 0;
    size = sizeof got;
    CHECK(getsockname(*fd, (struct sockaddr *)&got, &size) == 0);
    return ntohs(got.sin6_port); /* where sin_port is, too */
}

static int open_diag(void)
{
    const struct sockaddr_nl any = {.nl_family = AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any) == 0);
    return fd;
}

static void look(struct listeners *listeners, int fd, struct port_list *list)
{
    struct error err = {0};
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int state = 0;
    CHECK(listeners_ask(listeners, &err));
    while (state == 0 && poll(&wait, 1, 20000) == 1)
        state = listeners_read(listeners, &err);
    CHECK(state == 1);
    listeners_show(listeners, list);
}

/* The addresses told of a port; 0: it is not there. */
static unsigned addresses_of(const struct port_list *list, uint16_t port)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->listeners[i].port == port)
            return list->listeners[i].addresses;
    return 0;
}

static void test_listeners(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET},
                             loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                             other = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    const struct sockaddr_in6 loopback6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    static struct port_list list;
    AUTO_FD int a = -1, b = -1, c = -1, d = -1;
    AUTO_FD int diag = open_diag();
    uint16_t at_any = listen_at((const struct sockaddr *)&any, sizeof any, &a);
    uint16_t at_loopback = listen_at((const struct sockaddr *)&loopback, sizeof loopback, &b);
    uint16_t at_other = listen_at((const struct sockaddr *)&other, sizeof other, &c);
    uint16_t at_v6 = listen_at((const struct sockaddr *)&loopback6, sizeof loopback6, &d);
    AUTO(listeners) *listeners = listeners_new(diag, UINT32_MAX);
    look(listeners, diag, &list);
    CHECK(addresses_of(&list, at_any) == PORT_ANY_V4);
    CHECK(addresses_of(&list, at_loopback) == PORT_LOOPBACK_V4);
    CHECK(addresses_of(&list, at_other) == PORT_ELSEWHERE);
    CHECK(at_v6 == 0 || addresses_of(&list, at_v6) == PORT_LOOPBACK_V6);
    for (size_t i = 1; i < list.count; i++)
        CHECK(list.listeners[i - 1].port < list.listeners[i].port);
    close(b);
    b = -1;
    look(listeners, diag, &list); /* the same socket serves again */
    CHECK(addresses_of(&list, at_loopback) == 0 && addresses_of(&list, at_any) == PORT_ANY_V4);
    AUTO(listeners) *without_ours = listeners_new(diag, getuid());
    look(without_ours, diag, &list);
    CHECK(addresses_of(&list, at_any) == 0 && addresses_of(&list, at_other) == 0);
}

/* What init gives is looked at: it may be anything. */
static void test_sockets(void)
{
    struct error err;
    AUTO_FD int diag = open_diag(), tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    AUTO_FD int route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(listeners_check_socket(diag, &err));
    CHECK(!listeners_check_socket(tcp, &err) && err.kind == ERROR_INVALID);
    CHECK(!listeners_check_socket(route, &err) && err.kind == ERROR_INVALID);
    CHECK(!listeners_check_socket(0, &err) && err.kind == ERROR_INVALID);
}

int main(void)
{
    test_parse();
    test_listeners();
    test_sockets();
    return check_done();
}
