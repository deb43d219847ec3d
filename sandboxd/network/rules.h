/** rules.h - the two walls as nftables commands, made of numbers alone: inside the sandbox's namespace, and on the
 * host. Each refuses by itself what nobody may reach; what is refused fails at once. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RULES_LINK_PREFIX "ply" /* of the host's ends of all links of all deployments on a machine */
#define RULES_TABLE_BYTES 32
#define RULES_LOCAL       0x7F000035 /* 127.0.0.53, where parley-egress listens in each namespace; host order */
#define RULES_PROXY_PORT  1          /* there; 53 is the other */
#define RULES_FLOWS_MAX   1024       /* connections of a sandbox at once, and what is remembered of past ones */
#define RULES_SERVERS     3

struct rules_server {
    uint32_t address; /* host order */
    uint16_t port;
};

/** An address and TCP port of a name that a sandbox may reach. */
struct rules_pin {
    uint32_t address; /* host order */
    uint16_t port;
    uint64_t until_boot_ns;
};

struct rules_sandbox {
    const struct fl_network *network;
    const uint32_t *host; /* addresses of the host, host order */
    size_t host_count;
    const struct rules_pin *pins; /* that stay */
    size_t pin_count;
    uint64_t now_boot_ns;
    uint32_t mark; /* of flows that were judged under these rules; another one each time */
    bool is_first; /* there are no rules in it yet */
};

/** The table of a sandbox's namespace, in place of the one that is there. */
void rules_sandbox(struct text *to, const struct rules_sandbox *rules);

/** Puts pins into it, each for at least as long as it says. */
void rules_pin(struct text *to, const struct rules_pin *pins, size_t count, uint64_t now_boot_ns);

struct rules_host {
    char table[RULES_TABLE_BYTES];
    uint32_t group;                             /* of our links */
    uint32_t egress_uid;                        /* of parley-egress */
    struct rules_server servers[RULES_SERVERS]; /* of names, which parley-egress may ask wherever they are */
    size_t server_count;
};

/** The host's table, in place of the one that is there. */
void rules_host(struct text *to, const struct rules_host *rules);
/** Lets an address of a sandbox through, or not any more. What is so already is fine. */
void rules_member(struct text *to, const struct rules_host *rules, uint32_t address, bool is_member);
/** Forwarding of no interface is for us alone, but of those that are told next. */
void rules_opened_none(struct text *to, const struct rules_host *rules);
/** Forwarding of this interface is for us alone. `name` is made of letters, digits, '.', '-' and '_'. */
void rules_opened(struct text *to, const struct rules_host *rules, const char *name);
void rules_remove_host(struct text *to, const struct rules_host *rules);
