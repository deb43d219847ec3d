/* sandbox_network.c - one sandbox's way out: its rules, its link, its sockets, its pins. See network.h. */
#include "sandboxd/network/network_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/node_protocol/egress_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t SECOND = 1000000000;
static const uint32_t GATEWAY = 0xA9FE0101; /* 169.254.1.1: nobody is it; its neighbour entry is the link's other end */
static const char INSIDE[] = "eth0";
enum { HOST_ADDRESSES_MAX = 256, BACKLOG = 128, DNS_PORT = 53, PINS_A_S_OF_ALL = 1000 };

/* --- made and closed --- */

struct network *network_new(struct networks *networks, uint32_t slot)
{
    struct network *network = memory_new(sizeof *network);
    network->networks = networks;
    network->slot = slot;
    network->address = networks->net + slot;
    network->number = ++networks->last_number;
    for (size_t i = 0; i < NETWORK_SOCKETS; i++)
        network->sockets[i] = -1;
    return network;
}

static void close_sockets(struct network *network)
{
    for (size_t i = 0; i < NETWORK_SOCKETS; i++) {
        if (network->sockets[i] >= 0)
            close(network->sockets[i]);
        network->sockets[i] = -1;
    }
}

static void leave_members(struct network *network)
{
    struct network **at = &network->networks->members;
    while (*at && *at != network)
        at = &(*at)->next;
    if (*at)
        *at = network->next;
    network->is_member = false;
}

static void join_members(struct network *network)
{
    if (network->is_member)
        return;
    network->next = network->networks->members;
    network->networks->members = network;
    network->is_member = true;
}

/* The host's wall knows who may send; on failure nothing is let through that was not before. */
static bool set_member(struct network *network, bool is_member, struct error *err)
{
    struct text commands = {0};
    if (is_member == network->is_member)
        return true;
    rules_member(&commands, &network->networks->host, network->address, is_member);
    if (!network_host_run(network->networks, &commands, err))
        return false;
    if (is_member)
        join_members(network);
    else
        leave_members(network);
    return true;
}

void network_free(struct network *network)
{
    if (!network)
        return;
    if (network->is_member && !set_member(network, false, NULL))
        leave_members(network);
    close_sockets(network);
    nft_free(network->nft);
    free(network->rules);
    free(network->pins);
    free(network);
}

void network_let_go(struct network *network)
{
    if (network)
        leave_members(network);
    network_free(network);
}

const int *network_sockets(const struct network *network)
{
    return network->sockets[0] >= 0 ? network->sockets : NULL;
}

uint64_t network_number(const struct network *network)
{
    return network->number;
}

uint32_t network_mark(const struct network *network)
{
    return network->mark;
}

/* --- judging --- */

bool network_judge(const struct fl_network *rules, struct error *err)
{
    for (size_t i = 0; i < rules->net_count; i++) {
        const struct fl_net *net = &rules->nets[i];
        if (egress_meets_blocked(net->address, net->prefix))
            return error_set(err, ERROR_INVALID, "network: %u.%u.%u.%u/%u meets a range that no sandbox may reach",
                             net->address >> 24, net->address >> 16 & 255U, net->address >> 8 & 255U,
                             net->address & 255U, net->prefix);
    }
    return true;
}

/* --- sockets --- */

static int make_socket(int type, uint16_t port, struct error *err)
{
    const int yes = 1;
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(RULES_LOCAL)};
    AUTO_FD int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (type == SOCK_STREAM && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0)) {
        error_set_errno(err, ERROR_INTERNAL, "make a socket in the sandbox's network");
        return -1;
    }
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        (type == SOCK_DGRAM || listen(fd, BACKLOG) == 0))
        return TAKE_FD(fd);
    bool is_taken = errno == EADDRINUSE;
    error_set_errno(err, is_taken ? ERROR_CONFLICT : ERROR_INTERNAL, "port %u of 127.0.0.53 in the sandbox%s",
                    (unsigned)port, is_taken ? " is taken by a process of its own: end it" : "");
    return -1;
}

static bool make_sockets(struct network *network, struct error *err)
{
    static const struct {
        int type;
        uint16_t port;
    } ROWS[NETWORK_SOCKETS] = {{SOCK_DGRAM, DNS_PORT}, {SOCK_STREAM, DNS_PORT}, {SOCK_STREAM, RULES_PROXY_PORT}};
    if (network->sockets[0] >= 0)
        return true;
    for (size_t i = 0; i < NETWORK_SOCKETS; i++) {
        network->sockets[i] = make_socket(ROWS[i].type, ROWS[i].port, err);
        if (network->sockets[i] < 0) {
            close_sockets(network);
            return false;
        }
    }
    return true;
}

/* --- inside --- */

static size_t drop_old_pins(struct network *network, uint64_t now_boot_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < network->pin_count; i++) {
        if (network->pins[i].until_boot_ns > now_boot_ns)
            network->pins[kept++] = network->pins[i];
    }
    network->pin_count = kept;
    return kept;
}

/* Pins are those of the same names; which of another list's may stay only parley-egress knows, and pins them anew. */
static bool put_rules(struct network *network, const struct fl_network *rules, uint64_t now_boot_ns, struct error *err)
{
    uint32_t host[HOST_ADDRESSES_MAX];
    struct text commands = {0};
    const struct fl_network *before = network->rules;
    bool same_names = before && before->mode == rules->mode && strcmp(before->names, rules->names) == 0 &&
                      strcmp(before->denied_names, rules->denied_names) == 0;
    struct rules_sandbox wall = {.network = rules,
                                 .host = host,
                                 .pins = network->pins,
                                 .pin_count = same_names ? drop_old_pins(network, now_boot_ns) : 0,
                                 .now_boot_ns = now_boot_ns,
                                 .mark = (uint32_t)(now_boot_ns / 1000) | 1,
                                 .is_first = !network->has_rules};
    if (!network->nft)
        network->nft = nft_new(err);
    if (!network->nft ||
        !netlink_list_addresses(network->networks->netlink, host, HOST_ADDRESSES_MAX, &wall.host_count, err))
        return false;
    rules_sandbox(&commands, &wall);
    if (!nft_run(network->nft, &commands, err))
        return err && error_prefix(err, "the sandbox's rules");
    network->has_rules = true;
    network->mark = wall.mark;
    network->pin_count = wall.pin_count;
    return true;
}

static void name_link(const struct network *network, struct netlink_pair *pair, char name[static IFNAMSIZ])
{
    const uint8_t mac[NETLINK_MAC_BYTES] = {2, 'p', 'l', (uint8_t)(network->slot >> 8), (uint8_t)network->slot, 0};
    /* The slot's former sandbox may have left one that the kernel has yet to take away. */
    snprintf(name, IFNAMSIZ, RULES_LINK_PREFIX "%u-%x", (unsigned)network->slot,
             (unsigned)(clock_boot_ns() >> 10 & 0xffff));
    *pair = (struct netlink_pair){.name = name, .peer_name = INSIDE, .group = network->networks->host.group};
    memcpy(pair->mac, mac, sizeof mac);
    memcpy(pair->peer_mac, mac, sizeof mac);
    pair->peer_mac[NETLINK_MAC_BYTES - 1] = 1;
}

/* In the sandbox's namespace. */
static bool furnish_inside(const struct network *network, const struct netlink_pair *pair, struct error *err)
{
    AUTO(netlink) *netlink = netlink_new(err);
    uint32_t index = if_nametoindex(INSIDE);
    if (!netlink)
        return false;
    if (index == 0)
        return error_set_errno(err, ERROR_INTERNAL, "find the sandbox's end of its link");
    return netlink_bring_up(netlink, index, err) && netlink_add_address(netlink, index, network->address, err) &&
           netlink_add_neighbour(netlink, index, GATEWAY, pair->mac, err) &&
           netlink_add_route(netlink, index, 0, 0, GATEWAY, err);
}

/* In the host's. */
static bool furnish_outside(const struct network *network, const struct netlink_pair *pair, struct error *err)
{
    char name[64];
    struct netlink *netlink = network->networks->netlink;
    uint32_t index = if_nametoindex(pair->name);
    if (index == 0)
        return error_set_errno(err, ERROR_INTERNAL, "find the host's end of a link");
    snprintf(name, sizeof name, "ipv6/conf/%s/disable_ipv6", pair->name);
    (void)!namespace_set(name, "1", NULL); /* who has no IPv6 has nothing to turn off */
    snprintf(name, sizeof name, "ipv4/conf/%s/forwarding", pair->name);
    return netlink_add_neighbour(netlink, index, network->address, pair->peer_mac, err) &&
           netlink_add_route(netlink, index, network->address, 32, 0, err) && namespace_set(name, "1", err);
}

/* Both ends. */
static bool remove_link(struct error *err)
{
    struct error why = {0};
    AUTO(netlink) *netlink = netlink_new(err);
    if (!netlink)
        return false;
    if (netlink_remove_link(netlink, INSIDE, &why) || why.kind == ERROR_NOT_FOUND)
        return true;
    if (err)
        *err = why;
    return false;
}

/* The thread is in the sandbox's namespace, and there again afterwards. */
static bool link_up(struct network *network, struct error *err)
{
    struct netlink_pair pair;
    char name[IFNAMSIZ];
    if (network->is_linked && !network->is_half_linked)
        return true;
    if (network->is_half_linked && !remove_link(err))
        return false;
    name_link(network, &pair, name);
    AUTO_FD int inside = namespace_open(err);
    pair.peer_namespace = inside;
    if (inside < 0 || !netlink_add_pair(network->networks->netlink, &pair, err))
        return false;
    network->is_linked = network->is_half_linked = true; /* nothing passes until the host's wall knows the member */
    if (!furnish_inside(network, &pair, err))
        return false;
    namespace_leave(network->networks->home);
    bool is_done = furnish_outside(network, &pair, err);
    network->is_half_linked = !is_done;
    return namespace_enter(inside, is_done ? err : NULL) && is_done;
}

/* --- rules in force --- */

static bool apply_inside(struct network *network, const struct fl_network *rules, uint64_t now_boot_ns,
                         struct error *err)
{
    bool has_way = rules->mode != FL_NETWORK_NONE;
    return (!has_way || make_sockets(network, err)) && put_rules(network, rules, now_boot_ns, err) &&
           (!has_way || link_up(network, err));
}

static bool apply(struct network *network, int where, const struct fl_network *rules, struct error *err)
{
    uint64_t now = clock_boot_ns();
    bool has_way = rules->mode != FL_NETWORK_NONE;
    if (!has_way && !set_member(network, false, err))
        return false;
    if ((has_way && !network_host_ready(network->networks, now, err)) || !namespace_enter(where, err))
        return false;
    bool is_done = apply_inside(network, rules, now, err);
    namespace_leave(network->networks->home);
    if (is_done && !has_way)
        close_sockets(network);
    return is_done && (!has_way || set_member(network, true, err));
}

static void keep(struct network *network, const struct fl_network *rules)
{
    if (!network->rules)
        network->rules = memory_new(sizeof *network->rules);
    *network->rules = *rules;
}

bool network_apply(struct network *network, int where, const struct fl_network *rules, struct error *err)
{
    static const struct fl_network NONE = {.mode = FL_NETWORK_NONE};
    if (!network_judge(rules, err))
        return false;
    if (apply(network, where, rules, err)) {
        keep(network, rules);
        return true;
    }
    bool was_none = !network->rules || network->rules->mode == FL_NETWORK_NONE;
    if (!was_none && apply(network, where, network->rules, NULL))
        return false;
    if (!apply(network, where, &NONE, NULL))
        (void)!set_member(network, false, NULL);
    keep(network, &NONE);
    return false;
}

bool network_adopt(struct network *network, int where, const struct fl_network *rules, bool is_pending,
                   struct error *err)
{
    bool has_way = rules->mode != FL_NETWORK_NONE;
    keep(network, rules);
    if (has_way)
        join_members(network);
    if (!namespace_enter(where, err))
        return false;
    network->has_rules = true; /* or half of them: put in place of what is there */
    network->is_linked = if_nametoindex(INSIDE) != 0;
    network->is_half_linked = network->is_linked && is_pending;
    network->nft = nft_new(err);
    namespace_leave(network->networks->home);
    return network->nft != NULL;
}

bool network_open(struct network *network, int where, struct error *err)
{
    if (!network->rules || network->rules->mode == FL_NETWORK_NONE || network->sockets[0] >= 0)
        return true;
    if (!namespace_enter(where, err))
        return false;
    bool is_done = make_sockets(network, err);
    namespace_leave(network->networks->home);
    return is_done;
}

const struct fl_network *network_rules(const struct network *network)
{
    return network->rules;
}

/* --- pins --- */

/* A bucket as the time at which it is full again (GCRA): `rate` a second, and as many at once. */
static bool pay(uint64_t *full_boot_ns, uint64_t count, uint64_t rate, uint64_t now_boot_ns)
{
    uint64_t from = *full_boot_ns > now_boot_ns ? *full_boot_ns : now_boot_ns;
    uint64_t until = from + count * (SECOND / rate);
    if (until - now_boot_ns > SECOND)
        return false;
    *full_boot_ns = until;
    return true;
}

static struct rules_pin *find_pin(const struct network *network, uint32_t address, uint16_t port)
{
    for (size_t i = 0; i < network->pin_count; i++) {
        if (network->pins[i].address == address && network->pins[i].port == port)
            return &network->pins[i];
    }
    return NULL;
}

static bool are_allowed(const struct network *network, const struct network_pins *pins, struct error *err)
{
    uint32_t host[HOST_ADDRESSES_MAX];
    size_t count = 0;
    if (pins->rules != network->mark)
        return error_set(err, ERROR_FORBIDDEN, "other rules are in force by now");
    if (!network->rules || network->rules->mode != FL_NETWORK_ALLOW || !network->rules->names[0])
        return error_set(err, ERROR_FORBIDDEN, "this sandbox reaches nothing by name");
    if (!netlink_list_addresses(network->networks->netlink, host, HOST_ADDRESSES_MAX, &count, err))
        return false;
    for (size_t i = 0; i < pins->address_count; i++) {
        bool is_host = false;
        for (size_t j = 0; j < count; j++)
            is_host = is_host || host[j] == pins->addresses[i];
        if (is_host || egress_is_blocked(pins->addresses[i]))
            return error_set(err, ERROR_FORBIDDEN, "no sandbox may reach that address");
    }
    return true;
}

/* Those of `pins` that are new or would not live long enough, with their time; at most `max`. */
static size_t pick(const struct network *network, const struct network_pins *pins, uint64_t until_boot_ns,
                   struct rules_pin *picked, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < pins->address_count * pins->port_count && count < max; i++) {
        const struct rules_pin pin = {.address = pins->addresses[i / pins->port_count],
                                      .port = pins->ports[i % pins->port_count],
                                      .until_boot_ns = until_boot_ns};
        const struct rules_pin *there = find_pin(network, pin.address, pin.port);
        bool is_twice = false;
        for (size_t j = 0; j < count; j++)
            is_twice = is_twice || (picked[j].address == pin.address && picked[j].port == pin.port);
        if ((!there || there->until_boot_ns < until_boot_ns) && !is_twice)
            picked[count++] = pin;
    }
    return count;
}

static void remember(struct network *network, const struct rules_pin *picked, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct rules_pin *there = find_pin(network, picked[i].address, picked[i].port);
        if (there)
            *there = picked[i];
        else
            network->pins[network->pin_count++] = picked[i];
    }
}

bool network_pin(struct network *network, const struct network_pins *pins, uint64_t now_boot_ns, struct error *err)
{
    struct rules_pin picked[NETWORK_PINS_A_CALL];
    struct text commands = {0};
    if (!are_allowed(network, pins, err))
        return false;
    if (!network->pins)
        network->pins = memory_array(NETWORK_PINS_MAX, sizeof *network->pins);
    size_t room = NETWORK_PINS_MAX - drop_old_pins(network, now_boot_ns);
    size_t count = pick(network, pins, now_boot_ns + pins->ttl_s * SECOND, picked, NETWORK_PINS_A_CALL);
    if (count == 0)
        return true;
    if (count > room)
        return error_set(err, ERROR_NO_CAPACITY, "a sandbox has %d addresses of names at once", NETWORK_PINS_MAX);
    if (!pay(&network->bucket_boot_ns, 1, NETWORK_PINS_A_S, now_boot_ns) ||
        !pay(&network->networks->bucket_boot_ns, 1, PINS_A_S_OF_ALL, now_boot_ns))
        return error_set(err, ERROR_RATE_LIMITED, "more names a second than %d", NETWORK_PINS_A_S);
    rules_pin(&commands, picked, count, now_boot_ns);
    if (!nft_run(network->nft, &commands, err))
        return false;
    remember(network, picked, count);
    return true;
}
