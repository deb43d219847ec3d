/** network.h - the networks of a node's sandboxes: namespaces made in advance, for each sandbox one; and for those that
 * may go out a link to the host, the two walls (rules.h), and the sockets by which parley-egress serves it.
 *
 *  One thread, with rights, in the host's namespace: the launcher's. Each call goes where it has to and comes back.
 *  What is made in a namespace dies with it, and goes on without us: nothing here needs this process to be alive. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/network/rules.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETWORK_SOCKETS     3    /* in the order of enum launcher_egress_fd */
#define NETWORK_PINS_MAX    1024 /* of a sandbox at once */
#define NETWORK_PINS_A_S    50   /* ... calls of a sandbox in a second that change something, and this many at once */
#define NETWORK_PINS_A_CALL 128
struct networks;
struct network;

/** What a node's operator says. Texts are borrowed until networks_open has returned. */
struct networks_options {
    const char *state;         /* real path: names the host's table and the group of links */
    const char *net;           /* setting egress_net: "100.126.0.0/20" */
    const char *servers;       /* setting dns_servers: "9.9.9.9,127.0.0.1:5353"; NULL: those of `resolv_conf` */
    const char *resolv_conf;   /* "/etc/resolv.conf" */
    const char *shared_folder; /* of all deployments of the machine: "/run/parley" */
    uint32_t egress_uid;
    bool none_only; /* an ordinary user's: nothing of the host's network is ours, no way out can be made */
    uint32_t stock; /* namespaces kept ready by a process of their own; 0: each is made when it is needed */
};

/** ERROR_INVALID names the setting. Changes nothing on the host. Forks: by a process of one thread. */
struct networks *networks_open(const struct networks_options *options, struct error *err) MUST_USE;
/** Lets go; what was made stays. NULL is allowed. */
void networks_free(struct networks *networks);
DEFINE_AUTO(networks)

/** A namespace for a sandbox to be born in, of the stock or made now (0.5 to 1 ms); the caller closes it. -1 on
 *  failure. */
int networks_take(struct networks *networks, struct error *err) MUST_USE;

/** Whether any sandbox may go out now. */
bool networks_have_members(const struct networks *networks) MUST_USE;

/** When all that a former launcher made was taken up: its host's rules are put in force anew, if there is anybody. */
bool networks_start_host(struct networks *networks, uint64_t now_boot_ns, struct error *err) MUST_USE;

/** Takes away what was made on the host: its table, and forwarding that was turned on. ERROR_STARTING while a sandbox
 * of this node has a link: the kernel takes that away a moment after its end. */
bool networks_clear_host(struct networks *networks, struct error *err) MUST_USE;

/** The servers that parley-egress asks; returns how many. */
size_t networks_servers(const struct networks *networks, struct rules_server servers[static RULES_SERVERS]);

/** One sandbox's: `slot` gives it its address and the name of its link. Nothing is made yet. The caller owns it. */
struct network *network_new(struct networks *networks, uint32_t slot);
/** Closes our side: its address is not let through any more, its sockets are closed. The link goes with the namespace.
 *  NULL is allowed. */
void network_free(struct network *network);
DEFINE_AUTO(network)

/** Only forgets it: what lives goes on. For a launcher that stops. */
void network_let_go(struct network *network);

/** Lets it go where `rules` say and nowhere else, from now on: what it has open to other places is cut. `where` is a
 * descriptor of its namespace, or the pidfd of its init. ERROR_INVALID when the rules meet a blocked range,
 * ERROR_CONFLICT when the sandbox itself has taken the port that names are asked at; ERROR_GONE. On failure the former
 * rules are in force, or nothing passes. */
bool network_apply(struct network *network, int where, const struct fl_network *rules, struct error *err) MUST_USE;

/** Takes up one that a former launcher made: its rules go on as they are. Its sockets are for network_open.
 * `is_pending`: that one may have ended in the middle of network_apply, which is to be called again. */
bool network_adopt(struct network *network, int where, const struct fl_network *rules, bool is_pending,
                   struct error *err) MUST_USE;

/** Makes its sockets, if it may go out and has none. ERROR_CONFLICT when a process in it, or a former parley-egress
 * that is not quite dead, has the port. */
bool network_open(struct network *network, int where, struct error *err) MUST_USE;

/** What is in force; NULL: nothing was ever asked for. */
const struct fl_network *network_rules(const struct network *network) MUST_USE;

/** Its sockets, NETWORK_SOCKETS of them, when it has a way out; else NULL. */
const int *network_sockets(const struct network *network) MUST_USE;

/** What it tells parley-egress by: never used again by this process. */
uint64_t network_number(const struct network *network) MUST_USE;

/** Names the rules that are in force: another one with each network_apply. */
uint32_t network_mark(const struct network *network) MUST_USE;

struct network_pins {
    uint32_t rules;            /* network_mark of those under which they were allowed */
    const uint32_t *addresses; /* host order */
    const uint16_t *ports;
    size_t address_count, port_count; /* their product at most NETWORK_PINS_A_CALL */
    uint32_t ttl_s;
};

/** Lets TCP to these addresses and ports pass for ttl_s at least. ERROR_FORBIDDEN for a blocked address or one of this
 *  host's, in a mode without names, or under other rules than were in force; ERROR_RATE_LIMITED; ERROR_NO_CAPACITY. */
bool network_pin(struct network *network, const struct network_pins *pins, uint64_t now_boot_ns,
                 struct error *err) MUST_USE;

/** Whether the rules are such that this node can hold to them; ERROR_INVALID names the network. */
bool network_judge(const struct fl_network *rules, struct error *err) MUST_USE;

/** What a host gives, for `parley doctor`: tries it in a namespace of its own. False: `detail` says what is missing. */
bool networks_probe(char *detail, size_t size) MUST_USE;
