/** netlink.h - links, addresses, routes and neighbours of the network namespace that the calling thread is in, by
 * rtnetlink(7) through libmnl. IPv4. Every call waits for the kernel's answer, which comes at once. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETLINK_MAC_BYTES 6

struct netlink;

/** A socket of the present namespace, whatever namespace the thread is in later. The caller owns it. */
struct netlink *netlink_new(struct error *err) MUST_USE;
void netlink_free(struct netlink *netlink);
DEFINE_AUTO(netlink)

/** Two ends of a cable, ours up. Made where they will be: to move a device takes tens of milliseconds. */
struct netlink_pair {
    const char *name;                /* ours */
    const char *peer_name;           /* the one in `peer_namespace` */
    int peer_namespace;              /* a descriptor */
    uint32_t group;                  /* of ours (iifgroup) */
    uint8_t mac[NETLINK_MAC_BYTES];  /* ours */
    uint8_t peer_mac[NETLINK_MAC_BYTES];
};
bool netlink_add_pair(struct netlink *netlink, const struct netlink_pair *pair, struct error *err) MUST_USE;

bool netlink_bring_up(struct netlink *netlink, uint32_t index, struct error *err) MUST_USE;

/** Removes one by name; ERROR_NOT_FOUND. Takes 20 ms of everybody's time: not for the launcher's loop. */
bool netlink_remove_link(struct netlink *netlink, const char *name, struct error *err) MUST_USE;

/** `address` as a host's own on the interface; host order. What is there already is fine. */
bool netlink_add_address(struct netlink *netlink, uint32_t index, uint32_t address, struct error *err) MUST_USE;

/** To `address`/`prefix` by the interface; with a gateway (0 none) that need not be in a network of ours. */
bool netlink_add_route(struct netlink *netlink, uint32_t index, uint32_t address, uint8_t prefix, uint32_t gateway,
                       struct error *err) MUST_USE;

/** Who has `address` behind the interface, for good: nobody is asked. */
bool netlink_add_neighbour(struct netlink *netlink, uint32_t index, uint32_t address,
                           const uint8_t mac[static NETLINK_MAC_BYTES], struct error *err) MUST_USE;

/** The namespace's own addresses, host order: at most `max`; *count gets how many. */
bool netlink_list_addresses(struct netlink *netlink, uint32_t *addresses, size_t max, size_t *count,
                            struct error *err) MUST_USE;

/** The interfaces that routes go out by, but for those made here, each once: at most `max`. */
bool netlink_list_ways(struct netlink *netlink, uint32_t *indexes, size_t max, size_t *count,
                       struct error *err) MUST_USE;

/** Whether there is a link of that group. */
bool netlink_has_group(struct netlink *netlink, uint32_t group, bool *is_there, struct error *err) MUST_USE;
