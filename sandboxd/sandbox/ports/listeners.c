/* listeners.c - see listeners.h. Two dumps, IPv4 and IPv6. The kernel bounds what is in a packet, the number of sockets
 * only the sandbox's limits: so nothing is kept but a byte a port. */
#include "sandboxd/sandbox/ports/listeners.h"

#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { PORTS = 65536, PACKETS_A_TURN = 16, PACKET_BYTES = 32768 };

struct listeners {
    int fd;
    uint32_t hidden_uid;
    uint32_t sequence;        /* of the dump that is asked for; answers of another are late */
    uint8_t family;           /* of it */
    uint8_t addresses[PORTS]; /* bits of enum port_address */
};

struct listeners *listeners_new(int fd, uint32_t hidden_uid)
{
    struct listeners *listeners = memory_new(sizeof *listeners);
    listeners->fd = fd;
    listeners->hidden_uid = hidden_uid;
    return listeners;
}

void listeners_free(struct listeners *listeners)
{
    free(listeners);
}

bool listeners_check_socket(int fd, struct error *err)
{
    int domain = 0, protocol = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_NETLINK ||
        getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != NETLINK_SOCK_DIAG)
        return error_set(err, ERROR_INVALID, "not a socket that asks for sockets");
    return true;
}

static bool ask(struct listeners *listeners, uint8_t family, struct error *err)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } packet = {
        .head = {.nlmsg_len = sizeof packet,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                 .nlmsg_seq = ++listeners->sequence},
        .request = {.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = 1U << TCP_LISTEN},
    };
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    listeners->family = family;
    if (sendto(listeners->fd, &packet, sizeof packet, MSG_DONTWAIT, (const struct sockaddr *)&kernel, sizeof kernel) <
        0)
        return error_set_errno(err, ERROR_INTERNAL, "asking for the sandbox's sockets");
    return true;
}

bool listeners_ask(struct listeners *listeners, struct error *err)
{
    memset(listeners->addresses, 0, sizeof listeners->addresses);
    return ask(listeners, AF_INET, err);
}

static uint8_t address_of(const struct inet_diag_msg *told)
{
    const uint32_t *source = told->id.idiag_src;
    if (told->idiag_family == AF_INET)
        return source[0] == htonl(INADDR_ANY)        ? PORT_ANY_V4
               : source[0] == htonl(INADDR_LOOPBACK) ? PORT_LOOPBACK_V4
                                                     : PORT_ELSEWHERE;
    return memcmp(source, &in6addr_any, sizeof in6addr_any) == 0             ? PORT_ANY_V6
           : memcmp(source, &in6addr_loopback, sizeof in6addr_loopback) == 0 ? PORT_LOOPBACK_V6
                                                                             : PORT_ELSEWHERE;
}

static void take(struct listeners *listeners, const struct nlmsghdr *head)
{
    if (head->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        return;
    const struct inet_diag_msg *told = NLMSG_DATA((struct nlmsghdr *)(uintptr_t)head);
    if (told->idiag_state == TCP_LISTEN && told->idiag_uid != listeners->hidden_uid)
        listeners->addresses[ntohs(told->id.idiag_sport)] |= address_of(told);
}

static int end_of_dump(struct listeners *listeners, struct error *err)
{
    if (listeners->family == AF_INET6)
        return 1;
    return ask(listeners, AF_INET6, err) ? 0 : -1;
}

/* A kernel without IPv6 has no answer for it. */
static int refused(const struct listeners *listeners, const struct nlmsghdr *head, struct error *err)
{
    const struct nlmsgerr *why = NLMSG_DATA((struct nlmsghdr *)(uintptr_t)head);
    if (head->nlmsg_len >= NLMSG_LENGTH(sizeof *why) && listeners->family == AF_INET6 && why->error == -ENOENT)
        return 1;
    errno = head->nlmsg_len >= NLMSG_LENGTH(sizeof *why) ? -why->error : EPROTO;
    error_set_errno(err, ERROR_INTERNAL, "the kernel does not tell the sandbox's sockets");
    return -1;
}

/* 2: the dump goes on. */
static int read_packet(struct listeners *listeners, const char *packet, size_t size, struct error *err)
{
    const struct nlmsghdr *head = (const struct nlmsghdr *)(const void *)packet;
    for (size_t left = size; left >= sizeof *head && head->nlmsg_len >= sizeof *head && head->nlmsg_len <= left;) {
        if (head->nlmsg_seq != listeners->sequence)
            ; /* of one that was given up */
        else if (head->nlmsg_type == NLMSG_DONE)
            return end_of_dump(listeners, err);
        else if (head->nlmsg_type == NLMSG_ERROR)
            return refused(listeners, head, err);
        else if (head->nlmsg_type == SOCK_DIAG_BY_FAMILY)
            take(listeners, head);
        size_t step = NLMSG_ALIGN(head->nlmsg_len);
        left -= step < left ? step : left;
        head = (const struct nlmsghdr *)(const void *)((const char *)head + step);
    }
    return 2;
}

int listeners_read(struct listeners *listeners, struct error *err)
{
    _Alignas(struct nlmsghdr) char packet[PACKET_BYTES];
    for (int i = 0; i < PACKETS_A_TURN; i++) {
        struct sockaddr_nl from = {0};
        socklen_t from_size = sizeof from;
        ssize_t size =
            recvfrom(listeners->fd, packet, sizeof packet, MSG_DONTWAIT, (struct sockaddr *)&from, &from_size);
        if (size < 0 && errno == EAGAIN)
            return 0;
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0) {
            error_set_errno(err, ERROR_INTERNAL, "reading the sandbox's sockets");
            return -1;
        }
        if (from.nl_pid != 0)
            continue; /* not the kernel's */
        int state = read_packet(listeners, packet, (size_t)size, err);
        if (state == 1 || state == -1)
            return state;
    }
    return 0;
}

void listeners_show(const struct listeners *listeners, struct port_list *list)
{
    list->count = 0;
    list->is_cut = false;
    for (unsigned port = 1; port < PORTS; port++) {
        if (listeners->addresses[port] == 0)
            continue;
        if (list->count == PORTS_LISTED_MAX) {
            list->is_cut = true;
            return;
        }
        list->listeners[list->count++] =
            (struct port_listener){.port = (uint16_t)port, .addresses = listeners->addresses[port]};
    }
}
