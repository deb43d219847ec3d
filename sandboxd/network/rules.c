#include "sandboxd/network/rules.h"

#include "shared/node_protocol/egress_rule.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>

static const uint64_t SECOND = 1000000000;
enum { VERDICT_BYTES = 64 };

#define QUAD_FORMAT   "%u.%u.%u.%u"
#define QUAD(address) (address) >> 24, (address) >> 16 & 255U, (address) >> 8 & 255U, (address)&255U

static const char *separator(size_t i)
{
    return i ? ", " : "";
}

/* A set without elements has no list of them. */
static void begin_elements(struct text *to, size_t count)
{
    if (count > 0)
        text_append_string(to, "elements = { ");
}

static void end_elements(struct text *to, size_t count)
{
    text_append_string(to, count > 0 ? " }; }\n" : "}\n");
}

/* TCP learns of it by a reset: that one is not held back by the limit on ICMP. */
static void put_refuse(struct text *to)
{
    text_append_string(
        to, "chain refuse { meta l4proto tcp reject with tcp reset; reject with icmpx admin-prohibited; }\n");
    text_append_format(to, "set blocked { type ipv4_addr; flags interval; elements = { %s }; }\n",
                       egress_blocked_elements());
}

/* --- inside --- */

static void put_host_addresses(struct text *to, const struct rules_sandbox *rules)
{
    text_append_string(to, "set host { type ipv4_addr; ");
    begin_elements(to, rules->host_count);
    for (size_t i = 0; i < rules->host_count; i++)
        text_append_format(to, "%s" QUAD_FORMAT, separator(i), QUAD(rules->host[i]));
    end_elements(to, rules->host_count);
}

/* What becomes of what a network has, in the three places where it is asked. */
struct nets_chain {
    const char *name, *end; /* "d" or "s": the end of a packet that is looked at */
    const char *denied, *allowed;
};

struct listed_net {
    const struct fl_net *net;
    bool is_denied;
};

static int compare_nets(const void *a, const void *b)
{
    const struct listed_net *first = a, *second = b;
    const struct fl_net *x = first->net, *y = second->net;
    if (x->prefix != y->prefix)
        return y->prefix - x->prefix;
    if ((x->port_to != 0) != (y->port_to != 0))
        return x->port_to != 0 ? -1 : 1;
    if ((x->protocol != 0) != (y->protocol != 0))
        return x->protocol != 0 ? -1 : 1;
    return second->is_denied - first->is_denied;
}

/* The most specific first: the first one that has an address and port decides. */
static size_t list_nets(const struct fl_network *network, struct listed_net list[static 2 * FRONT_LAUNCHER_NETS])
{
    size_t count = 0;
    for (size_t i = 0; i < network->net_count; i++)
        list[count++] = (struct listed_net){.net = &network->nets[i]};
    for (size_t i = 0; i < network->denied_count; i++)
        list[count++] = (struct listed_net){.net = &network->denied[i], .is_denied = true};
    qsort(list, count, sizeof list[0], compare_nets);
    return count;
}

/* A rule each: networks may lie in one another, which a set of intervals does not take. */
static void put_nets(struct text *to, const struct rules_sandbox *rules, const struct nets_chain *chain)
{
    struct listed_net list[2 * FRONT_LAUNCHER_NETS];
    size_t count = list_nets(rules->network, list);
    text_append_format(to, "chain nets_%s {\n", chain->name);
    for (size_t i = 0; i < count; i++) {
        const struct fl_net *net = list[i].net;
        const char *protocol = net->protocol == IPPROTO_TCP   ? "tcp"
                               : net->protocol == IPPROTO_UDP ? "udp"
                                                              : "{ tcp, udp }";
        unsigned last = net->port_to ? net->port_to : UINT16_MAX;
        text_append_format(to, "ip %saddr " QUAD_FORMAT "/%u meta l4proto %s th %sport %u-%u %s\n", chain->end,
                           QUAD(net->address), net->prefix, protocol, chain->end, (unsigned)net->port_from, last,
                           list[i].is_denied ? chain->denied : chain->allowed);
    }
    text_append_string(to, "}\n");
}

static void name_verdict(const struct rules_sandbox *rules, char to[static VERDICT_BYTES])
{
    (void)!text_format(to, VERDICT_BYTES, "ct mark set %" PRIu32 " accept", rules->mark);
}

/* In mode public what is allowed is only excepted from what is denied: what follows decides. */
static void put_all_nets(struct text *to, const struct rules_sandbox *rules)
{
    char verdict[VERDICT_BYTES];
    name_verdict(rules, verdict);
    bool is_public = rules->network->mode == FL_NETWORK_PUBLIC;
    const char *accept = is_public ? "return" : verdict, *spare = is_public ? "return" : "accept";
    const struct nets_chain chains[] = {
        {"out", "d", "goto refuse", accept},
        {"in", "s", "drop", accept},
        {"spared", "d", "accept", spare}}; /* what goes the straight way, or is refused there */
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
        put_nets(to, rules, &chains[i]);
}

/* Whether 80 and 443 go by the proxy: where names are allowed, or denied. */
static bool has_detour(const struct fl_network *network)
{
    return network->mode == FL_NETWORK_ALLOW ||
           (network->mode == FL_NETWORK_PUBLIC && network->denied_names[0] != '\0');
}

/* A pin lives on for whole seconds, one more rather than one less. */
static uint64_t left_s(const struct rules_pin *pin, uint64_t now_boot_ns)
{
    return pin->until_boot_ns > now_boot_ns ? (pin->until_boot_ns - now_boot_ns) / SECOND + 1 : 1;
}

static void list_pins(struct text *to, const struct rules_pin *pins, size_t count, bool with_time, uint64_t now_boot_ns)
{
    for (size_t i = 0; i < count; i++) {
        text_append_format(to, "%s" QUAD_FORMAT " . %u", separator(i), QUAD(pins[i].address), (unsigned)pins[i].port);
        if (with_time)
            text_append_format(to, " timeout %" PRIu64 "s", left_s(&pins[i], now_boot_ns));
    }
}

static void put_pins(struct text *to, const struct rules_sandbox *rules)
{
    text_append_string(to, "set pins { type ipv4_addr . inet_service; flags timeout; ");
    begin_elements(to, rules->pin_count);
    list_pins(to, rules->pins, rules->pin_count, true, rules->now_boot_ns);
    end_elements(to, rules->pin_count);
}

/* What goes on the loopback is not followed, but for the answers of the proxy, whose addresses are to be put back. */
static void put_untracked(struct text *to)
{
    text_append_format(to,
                       "chain untracked { type filter hook output priority -300; policy accept;\n"
                       "oifname != \"lo\" accept\n"
                       "ip saddr " QUAD_FORMAT " tcp sport %u accept\n"
                       "notrack\n}\n",
                       QUAD(RULES_LOCAL), RULES_PROXY_PORT);
}

static void put_detour(struct text *to, const struct rules_sandbox *rules)
{
    text_append_format(to,
                       "chain detour { type nat hook output priority -100; policy accept;\n"
                       "oifname \"lo\" accept\n"
                       "ip daddr @blocked accept\n"
                       "ip daddr @host accept\n"
                       "jump nets_spared\n"
                       "tcp dport { 80, 443 } %sdnat ip to " QUAD_FORMAT ":%u\n}\n",
                       rules->network->mode == FL_NETWORK_ALLOW ? "ip daddr . tcp dport @pins " : "", QUAD(RULES_LOCAL),
                       RULES_PROXY_PORT);
}

/* A packet is judged by the rules that are in force when it passes: those of flows that these rules have let through
 * carry their mark. The answers' side is judged too: who may not be spoken to any more is not heard any more. */
static void put_judgement(struct text *to, const struct rules_sandbox *rules, bool is_out)
{
    const char *end = is_out ? "d" : "s";
    char verdict[VERDICT_BYTES];
    name_verdict(rules, verdict);
    if (rules->network->mode == FL_NETWORK_NONE)
        return;
    text_append_format(to, "jump nets_%s\n", is_out ? "out" : "in");
    if (rules->network->mode == FL_NETWORK_PUBLIC &&
        !has_detour(rules->network)) /* else all that it may is the proxy's */
        text_append_format(to, "tcp %sport { 53, 80, 443 } %s\nudp %sport 53 %s\n", end, verdict, end, verdict);
    if (rules->network->mode != FL_NETWORK_ALLOW)
        return;
    text_append_format(to, "tcp %sport != { 80, 443 } ip %saddr . tcp %sport @pins %s\n", end, end, end, verdict);
}

static void put_output(struct text *to, const struct rules_sandbox *rules)
{
    text_append_string(to, "chain output { type filter hook output priority 0; policy drop;\noifname \"lo\" accept\n");
    if (has_detour(rules->network)) /* the device that is shown is still the one from before the detour */
        text_append_format(to, "ip daddr " QUAD_FORMAT " tcp dport %u ct status dnat accept\n", QUAD(RULES_LOCAL),
                           RULES_PROXY_PORT);
    text_append_format(to,
                       "meta nfproto != ipv4 goto refuse\n"
                       "ct state new ct count over %d goto refuse\n"
                       "ct mark %" PRIu32 " accept\n"
                       "ip daddr @blocked goto refuse\n"
                       "ip daddr @host goto refuse\n"
                       "fib daddr type != unicast goto refuse\n",
                       RULES_FLOWS_MAX, rules->mark);
    put_judgement(to, rules, true);
    text_append_string(to, "goto refuse\n}\n");
}

static void put_input(struct text *to, const struct rules_sandbox *rules)
{
    text_append_format(to,
                       "chain input { type filter hook input priority 0; policy drop;\n"
                       "iifname \"lo\" accept\n"
                       "meta nfproto != ipv4 drop\n"
                       "ct state != { established, related } drop\n"
                       "ct mark %" PRIu32 " accept\n",
                       rules->mark);
    put_judgement(to, rules, false);
    text_append_string(to, "}\n");
}

void rules_sandbox(struct text *to, const struct rules_sandbox *rules)
{
    if (!rules->is_first)
        text_append_string(to, "add table inet parley\ndelete table inet parley\n");
    text_append_string(to, "table inet parley {\n");
    put_refuse(to);
    put_host_addresses(to, rules);
    put_all_nets(to, rules);
    put_pins(to, rules);
    put_untracked(to);
    if (has_detour(rules->network))
        put_detour(to, rules);
    put_output(to, rules);
    put_input(to, rules);
    text_append_string(to, "}\n");
}

/* One that is there already would keep its time: taken out and put in again, in one transaction. */
void rules_pin(struct text *to, const struct rules_pin *pins, size_t count, uint64_t now_boot_ns)
{
    static const char *const STEPS[] = {"add", "delete", "add"};
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        text_append_format(to, "%s element inet parley pins { ", STEPS[i]);
        list_pins(to, pins, count, i != 1, now_boot_ns);
        text_append_string(to, " }\n");
    }
}

/* --- on the host --- */

/* What comes from a sandbox: from its own address by its own link, to neither the host nor a blocked range. One that
 * has ended is told so too: what its last connections wait for would keep its namespace for minutes. */
static void put_judge(struct text *to, const struct rules_host *rules)
{
    text_append_format(to,
                       "chain judge {\n"
                       "meta nfproto != ipv4 drop\n"
                       "ip saddr != @members goto refuse\n"
                       "fib saddr . iif oif missing drop\n"
                       "ip daddr @blocked goto refuse\n"
                       "fib daddr type != unicast goto refuse\n}\n"
                       "chain prerouting { type filter hook prerouting priority -150; policy accept;\n"
                       "iifgroup %" PRIu32 " goto judge\n}\n"
                       "chain input { type filter hook input priority -10; policy accept;\n"
                       "iifgroup %" PRIu32 " goto refuse\n}\n",
                       rules->group, rules->group);
}

/* Blocked once more: behind what the host's other rules may have made of the address. */
static void put_forward(struct text *to, const struct rules_host *rules)
{
    text_append_format(to,
                       "chain forward { type filter hook forward priority -10; policy accept;\n"
                       "iifgroup %" PRIu32 " oifname \"" RULES_LINK_PREFIX "*\" goto refuse\n"
                       "iifgroup %" PRIu32 " ip daddr @blocked goto refuse\n"
                       "iifgroup %" PRIu32 " accept\n"
                       "oifgroup %" PRIu32 " ip daddr @members ct state { established, related } accept\n"
                       "oifgroup %" PRIu32 " drop\n"
                       "iifname @opened oifname != \"" RULES_LINK_PREFIX "*\" drop\n}\n",
                       rules->group, rules->group, rules->group, rules->group, rules->group);
    text_append_string(to, "chain postrouting { type nat hook postrouting priority 100; policy accept;\n"
                           "ip saddr @members oifname != \"" RULES_LINK_PREFIX "*\" masquerade\n}\n");
}

/* Behind parley-egress's own check of where it connects to. What is nobody's (the kernel's own answers) has no skuid
 * that could be compared: only what is its is looked at. */
static void put_egress(struct text *to, const struct rules_host *rules)
{
    text_append_string(to, "chain egress {\n");
    for (size_t i = 0; i < rules->server_count; i++)
        text_append_format(to, "ip daddr " QUAD_FORMAT " meta l4proto { tcp, udp } th dport %u accept\n",
                           QUAD(rules->servers[i].address), (unsigned)rules->servers[i].port);
    text_append_string(to, "meta nfproto != ipv4 goto refuse\n"
                           "ip daddr @blocked goto refuse\n"
                           "fib daddr type != unicast goto refuse\n}\n");
    text_append_format(to,
                       "chain output { type filter hook output priority 0; policy accept;\n"
                       "meta skuid %" PRIu32 " goto egress\n}\n",
                       rules->egress_uid);
}

void rules_host(struct text *to, const struct rules_host *rules)
{
    text_append_format(to, "add table inet %s\ndelete table inet %s\ntable inet %s {\n", rules->table, rules->table,
                       rules->table);
    put_refuse(to);
    text_append_string(to, "set members { type ipv4_addr; }\nset opened { type ifname; }\n");
    put_judge(to, rules);
    put_forward(to, rules);
    put_egress(to, rules);
    text_append_string(to, "}\n");
}

void rules_member(struct text *to, const struct rules_host *rules, uint32_t address, bool is_member)
{
    text_append_format(to, "add element inet %s members { " QUAD_FORMAT " }\n", rules->table, QUAD(address));
    if (!is_member)
        text_append_format(to, "delete element inet %s members { " QUAD_FORMAT " }\n", rules->table, QUAD(address));
}

void rules_opened_none(struct text *to, const struct rules_host *rules)
{
    text_append_format(to, "flush set inet %s opened\n", rules->table);
}

void rules_opened(struct text *to, const struct rules_host *rules, const char *name)
{
    text_append_format(to, "add element inet %s opened { \"%s\" }\n", rules->table, name);
}

void rules_remove_host(struct text *to, const struct rules_host *rules)
{
    text_append_format(to, "add table inet %s\ndelete table inet %s\n", rules->table, rules->table);
}
