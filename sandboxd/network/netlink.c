#include "sandboxd/network/netlink.h"

#include "shared/base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

enum { REQUEST_BYTES = 1024, ANSWER_BYTES = 32768, OUR_ROUTES = 80 /* rtm_protocol of those we make */ };

struct netlink {
    struct mnl_socket *socket;
    uint32_t sequence;
    char answer[ANSWER_BYTES];
};

struct request {
    struct nlmsghdr *head;
    _Alignas(8) char bytes[REQUEST_BYTES];
};

struct netlink *netlink_new(struct error *err)
{
    struct netlink *netlink = memory_new(sizeof *netlink);
    netlink->socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    if (netlink->socket && mnl_socket_bind(netlink->socket, 0, MNL_SOCKET_AUTOPID) == 0)
        return netlink;
    error_set_errno(err, ERROR_INTERNAL, "open a netlink socket");
    netlink_free(netlink);
    return NULL;
}

void netlink_free(struct netlink *netlink)
{
    if (!netlink)
        return;
    if (netlink->socket)
        mnl_socket_close(netlink->socket);
    free(netlink);
}

static void *begin(struct request *request, uint16_t type, unsigned flags, size_t size)
{
    request->head = mnl_nlmsg_put_header(request->bytes);
    request->head->nlmsg_type = type;
    request->head->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    return mnl_nlmsg_put_extra_header(request->head, size);
}

/* Sends it and takes all that comes back: the acknowledgement, or what was asked for. */
static bool ask(struct netlink *netlink, struct request *request, mnl_cb_t callback, void *context)
{
    request->head->nlmsg_seq = ++netlink->sequence;
    if (mnl_socket_sendto(netlink->socket, request->head, request->head->nlmsg_len) < 0)
        return false;
    for (;;) {
        ssize_t size = mnl_socket_recvfrom(netlink->socket, netlink->answer, sizeof netlink->answer);
        if (size < 0)
            return false;
        unsigned port = mnl_socket_get_portid(netlink->socket);
        int goes_on = mnl_cb_run(netlink->answer, (size_t)size, netlink->sequence, port, callback, context);
        if (goes_on <= MNL_CB_STOP)
            return goes_on == MNL_CB_STOP;
    }
}

static bool tell(struct netlink *netlink, struct request *request)
{
    request->head->nlmsg_flags |= NLM_F_ACK;
    return ask(netlink, request, NULL, NULL) || errno == EEXIST;
}

/* --- links --- */

static void put_peer(struct nlmsghdr *head, const struct netlink_pair *pair)
{
    struct nlattr *data = mnl_attr_nest_start(head, IFLA_INFO_DATA);
    struct nlattr *peer = mnl_attr_nest_start(head, VETH_INFO_PEER);
    (void)mnl_nlmsg_put_extra_header(head, sizeof(struct ifinfomsg));
    mnl_attr_put_strz(head, IFLA_IFNAME, pair->peer_name);
    mnl_attr_put(head, IFLA_ADDRESS, NETLINK_MAC_BYTES, pair->peer_mac);
    mnl_attr_put_u32(head, IFLA_NET_NS_FD, (uint32_t)pair->peer_namespace);
    mnl_attr_nest_end(head, peer);
    mnl_attr_nest_end(head, data);
}

bool netlink_add_pair(struct netlink *netlink, const struct netlink_pair *pair, struct error *err)
{
    struct request request;
    struct ifinfomsg *info = begin(&request, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, sizeof *info);
    info->ifi_flags = info->ifi_change = IFF_UP;
    mnl_attr_put_strz(request.head, IFLA_IFNAME, pair->name);
    mnl_attr_put_u32(request.head, IFLA_GROUP, pair->group);
    mnl_attr_put(request.head, IFLA_ADDRESS, NETLINK_MAC_BYTES, pair->mac);
    struct nlattr *linkinfo = mnl_attr_nest_start(request.head, IFLA_LINKINFO);
    mnl_attr_put_str(request.head, IFLA_INFO_KIND, "veth");
    put_peer(request.head, pair);
    mnl_attr_nest_end(request.head, linkinfo);
    return ask(netlink, &request, NULL, NULL) ||
           error_set_errno(err, ERROR_INTERNAL, "make the network link %s", pair->name);
}

bool netlink_bring_up(struct netlink *netlink, uint32_t index, struct error *err)
{
    struct request request;
    struct ifinfomsg *info = begin(&request, RTM_NEWLINK, NLM_F_ACK, sizeof *info);
    info->ifi_index = (int)index;
    info->ifi_flags = info->ifi_change = IFF_UP;
    return ask(netlink, &request, NULL, NULL) || error_set_errno(err, ERROR_INTERNAL, "bring a network link up");
}

bool netlink_remove_link(struct netlink *netlink, const char *name, struct error *err)
{
    struct request request;
    (void)begin(&request, RTM_DELLINK, NLM_F_ACK, sizeof(struct ifinfomsg));
    mnl_attr_put_strz(request.head, IFLA_IFNAME, name);
    return ask(netlink, &request, NULL, NULL) ||
           error_set_errno(err, errno == ENODEV ? ERROR_NOT_FOUND : ERROR_INTERNAL, "remove the network link %s", name);
}

/* --- addresses, routes, neighbours --- */

bool netlink_add_address(struct netlink *netlink, uint32_t index, uint32_t address, struct error *err)
{
    struct request request;
    struct ifaddrmsg *info = begin(&request, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof *info);
    info->ifa_family = AF_INET;
    info->ifa_prefixlen = 32;
    info->ifa_index = index;
    mnl_attr_put_u32(request.head, IFA_LOCAL, htonl(address));
    mnl_attr_put_u32(request.head, IFA_ADDRESS, htonl(address));
    return tell(netlink, &request) || error_set_errno(err, ERROR_INTERNAL, "give the link an address");
}

bool netlink_add_route(struct netlink *netlink, uint32_t index, uint32_t address, uint8_t prefix, uint32_t gateway,
                       struct error *err)
{
    struct request request;
    struct rtmsg *info = begin(&request, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sizeof *info);
    info->rtm_family = AF_INET;
    info->rtm_dst_len = prefix;
    info->rtm_table = RT_TABLE_MAIN;
    info->rtm_protocol = OUR_ROUTES;
    info->rtm_type = RTN_UNICAST;
    info->rtm_scope = gateway ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
    if (prefix > 0)
        mnl_attr_put_u32(request.head, RTA_DST, htonl(address));
    mnl_attr_put_u32(request.head, RTA_OIF, index);
    if (gateway) {
        info->rtm_flags = RTNH_F_ONLINK;
        mnl_attr_put_u32(request.head, RTA_GATEWAY, htonl(gateway));
    }
    return tell(netlink, &request) || error_set_errno(err, ERROR_INTERNAL, "add a route");
}

bool netlink_add_neighbour(struct netlink *netlink, uint32_t index, uint32_t address,
                           const uint8_t mac[static NETLINK_MAC_BYTES], struct error *err)
{
    struct request request;
    struct ndmsg *info = begin(&request, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof *info);
    info->ndm_family = AF_INET;
    info->ndm_ifindex = (int)index;
    info->ndm_state = NUD_PERMANENT;
    mnl_attr_put_u32(request.head, NDA_DST, htonl(address));
    mnl_attr_put(request.head, NDA_LLADDR, NETLINK_MAC_BYTES, mac);
    return tell(netlink, &request) || error_set_errno(err, ERROR_INTERNAL, "add a neighbour");
}

/* --- what there is --- */

/* A list of numbers that is filled from many messages. */
struct numbers {
    uint32_t *list;
    size_t max, count;
    uint16_t attribute; /* the one that holds the number */
    size_t head;        /* bytes before the attributes */
};

static void add_once(struct numbers *numbers, uint32_t number)
{
    for (size_t i = 0; i < numbers->count; i++) {
        if (numbers->list[i] == number)
            return;
    }
    if (numbers->count < numbers->max)
        numbers->list[numbers->count++] = number;
}

static int take_attribute(const struct nlattr *attribute, void *context)
{
    struct numbers *numbers = context;
    if (mnl_attr_get_type(attribute) == numbers->attribute && mnl_attr_validate(attribute, MNL_TYPE_U32) >= 0)
        add_once(numbers, mnl_attr_get_u32(attribute));
    return MNL_CB_OK;
}

static int take_number(const struct nlmsghdr *head, void *context)
{
    const struct numbers *numbers = context;
    const struct rtmsg *route = mnl_nlmsg_get_payload(head);
    bool is_other = head->nlmsg_type == RTM_NEWROUTE &&
                    (route->rtm_type != RTN_UNICAST || route->rtm_protocol == OUR_ROUTES);
    return is_other ? MNL_CB_OK : mnl_attr_parse(head, (unsigned)numbers->head, take_attribute, context);
}

bool netlink_list_addresses(struct netlink *netlink, uint32_t *addresses, size_t max, size_t *count,
                            struct error *err)
{
    struct request request;
    struct numbers numbers = {addresses, max, 0, IFA_LOCAL, sizeof(struct ifaddrmsg)};
    struct ifaddrmsg *info = begin(&request, RTM_GETADDR, NLM_F_DUMP, sizeof *info);
    info->ifa_family = AF_INET;
    if (!ask(netlink, &request, take_number, &numbers))
        return error_set_errno(err, ERROR_INTERNAL, "list the host's addresses");
    for (size_t i = 0; i < numbers.count; i++)
        addresses[i] = ntohl(addresses[i]);
    *count = numbers.count;
    return true;
}

bool netlink_list_ways(struct netlink *netlink, uint32_t *indexes, size_t max, size_t *count, struct error *err)
{
    struct request request;
    struct numbers numbers = {indexes, max, 0, RTA_OIF, sizeof(struct rtmsg)};
    struct rtmsg *info = begin(&request, RTM_GETROUTE, NLM_F_DUMP, sizeof *info);
    info->rtm_family = AF_INET;
    if (!ask(netlink, &request, take_number, &numbers))
        return error_set_errno(err, ERROR_INTERNAL, "list the host's routes");
    *count = numbers.count;
    return true;
}

struct group {
    uint32_t number;
    bool is_there;
};

static int look_at_attribute(const struct nlattr *attribute, void *context)
{
    struct group *group = context;
    if (mnl_attr_get_type(attribute) == IFLA_GROUP && mnl_attr_get_u32(attribute) == group->number)
        group->is_there = true;
    return MNL_CB_OK;
}

static int look_for_group(const struct nlmsghdr *head, void *context)
{
    return mnl_attr_parse(head, sizeof(struct ifinfomsg), look_at_attribute, context);
}

bool netlink_has_group(struct netlink *netlink, uint32_t group, bool *is_there, struct error *err)
{
    struct request request;
    struct group wanted = {.number = group};
    (void)begin(&request, RTM_GETLINK, NLM_F_DUMP, sizeof(struct ifinfomsg));
    if (!ask(netlink, &request, look_for_group, &wanted))
        return error_set_errno(err, ERROR_INTERNAL, "list the host's links");
    *is_there = wanted.is_there;
    return true;
}
