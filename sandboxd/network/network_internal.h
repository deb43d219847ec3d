/** network_internal.h - what network.c (the node's) and sandbox_network.c (one sandbox's) share. */
#pragma once

#include "sandboxd/network/forwarding.h"
#include "sandboxd/network/maker.h"
#include "sandboxd/network/namespace.h"
#include "sandboxd/network/netlink.h"
#include "sandboxd/network/network.h"
#include "sandboxd/network/nft.h"

struct networks {
    struct rules_host host;
    uint32_t net; /* address of slot 0, host order */
    char *forwarding_file;
    bool none_only;
    int home; /* the host's namespace; -1 when it is none of ours */
    struct netlink *netlink;
    struct nft *nft; /* the host's */
    struct maker maker;
    unsigned stock;              /* that the maker keeps ready; 0: there is none */
    uint64_t maker_boot_ns;      /* when it was started last */
    uint64_t forwarding_boot_ns; /* when it was looked after; 0 not yet */
    bool is_host_ready;
    uint64_t last_number;
    struct network *members; /* those that may go out */
    uint64_t bucket_boot_ns; /* of pins of all sandboxes: when the last one would be paid for */
};

/** Of one sandbox. */
struct network {
    struct networks *networks; /* borrowed */
    struct network *next;      /* of the members */
    uint32_t slot, address;    /* host order */
    uint64_t number;
    struct nft *nft; /* of its namespace; NULL: it has no rules yet */
    bool has_rules, is_linked, is_member;
    bool is_half_linked;      /* perhaps: to be made anew */
    uint32_t mark;            /* of the rules; 0: a former launcher's, or none */
    struct fl_network *rules; /* in force; NULL: none ever */
    int sockets[NETWORK_SOCKETS];
    struct rules_pin *pins;
    size_t pin_count;
    uint64_t bucket_boot_ns;
};

/** Runs `commands` in the host's namespace and empties the text. */
bool network_host_run(struct networks *networks, struct text *commands, struct error *err) MUST_USE;

/** The host's table and forwarding are there. */
bool network_host_ready(struct networks *networks, uint64_t now_boot_ns, struct error *err) MUST_USE;
