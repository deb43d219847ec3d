/* proxy_dial.c - the two ends of a connection: where it was going, and going there. */
#include "sandboxd/egress/proxy.h"

#include "shared/node_protocol/egress_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

bool proxy_destination(int fd, uint32_t *address, uint16_t *port)
{
    struct sockaddr_in original = {0};
    struct sockaddr_in own = {0};
    socklen_t size = sizeof original;
    if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &original, &size) < 0 || original.sin_family != AF_INET)
        return false;
    size = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &size) < 0 ||
        (own.sin_addr.s_addr == original.sin_addr.s_addr && own.sin_port == original.sin_port))
        return false;
    *address = original.sin_addr.s_addr;
    *port = ntohs(original.sin_port);
    return true;
}

/* What would be sent to an address of this host is sent from that address, or from a loopback one. */
static bool is_own(const struct sockaddr_in *to)
{
    struct sockaddr_in from = {0};
    socklen_t size = sizeof from;
    AUTO_FD int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0 || connect(probe, (const struct sockaddr *)to, sizeof *to) < 0 ||
        getsockname(probe, (struct sockaddr *)&from, &size) < 0)
        return true; /* not known to be another's */
    return from.sin_addr.s_addr == to->sin_addr.s_addr || ntohl(from.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

int proxy_dial(uint32_t address, uint16_t port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = address};
    const int one = 1;
    if (egress_is_blocked(ntohl(address)) || is_own(&to)) {
        errno = EACCES;
        return -1;
    }
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
        return -1;
    return TAKE_FD(fd);
}
