/* dial.c - see dial.h. Our end's buffers count for init, which has no limit: they are kept small. */
#include "sandboxd/init/dial.h"

#include "sandboxd/init/connection.h"

#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 131072 }; /* the kernel takes twice as much for its own book-keeping: socket(7) */

static bool set_up(int fd)
{
    int bytes = BUFFER_BYTES, on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0;
}

static int begin(int fd, const struct fi_dial *dial)
{
    const struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(dial->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(dial->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    return dial->family == 4 ? connect(fd, (const struct sockaddr *)&v4, sizeof v4)
                             : connect(fd, (const struct sockaddr *)&v6, sizeof v6);
}

/* A socket, or -1 with errno. */
static int dial_socket(const struct fi_dial *dial)
{
    int family = dial->family == 4 ? AF_INET : AF_INET6;
    AUTO_FD int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0 || !set_up(fd) || (begin(fd, dial) < 0 && errno != EINPROGRESS))
        return -1;
    return TAKE_FD(fd);
}

void dial_start(struct init *init, const struct fi_dial *dial)
{
    struct front_init_message message = {.type = FI_DIALED};
    errno = ESHUTDOWN;
    int fd = init->end_boot_ns != 0 ? -1 : dial_socket(dial);
    message.as.dialed = (struct fi_dialed){.number = dial->number, .error_number = fd < 0 ? errno : 0};
    connection_give(init, &message, fd);
}

void dial_give_listeners(struct init *init)
{
    struct front_init_message message = {.type = FI_LISTENERS_IS};
    const struct sockaddr_nl any = {.nl_family = AF_NETLINK};
    AUTO_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&any, sizeof any) < 0) {
        message.as.listeners.error_number = errno;
        connection_give(init, &message, -1);
        return;
    }
    connection_give(init, &message, TAKE_FD(fd));
}
