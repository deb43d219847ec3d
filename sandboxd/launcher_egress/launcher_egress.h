/** launcher_egress.h - the messages between the launcher and parley-egress, the process without rights that reads what
 * sandboxes with egress say on their way out: names (DNS), and the first bytes of TLS and HTTP.
 *
 *  The launcher starts the program parley-egress with its end as the descriptor that the environment variable
 * PARLEY_EGRESS_FD names. A SOCK_SEQPACKET pair; one message is one packet of a fixed size for its type, integers in
 * host order, texts NUL-padded. Both ends treat the other's bytes as hostile. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCHER_EGRESS_ENVIRONMENT "PARLEY_EGRESS_FD"
#define LAUNCHER_EGRESS_ID_BYTES    32
#define LAUNCHER_EGRESS_NAMES_BYTES 8192 /* all entries of a list of a sandbox, a blank between them */
#define LAUNCHER_EGRESS_SERVERS     3

enum launcher_egress_type {
    /* launcher -> egress */
    EG_CONFIG = 1, /* first, once, at once: EG_READY answers it */
    EG_SANDBOX,    /* a sandbox has egress, or another; + EG_FDS descriptors of enum launcher_egress_fd, non-blocking;
                      none when the egress process has them already: `number` is then one it knows */
    EG_GONE,       /* it has none any more: its connections are cut, its sockets closed */
    EG_PINNED,     /* the answer to EG_PIN of the same request */
    /* egress -> launcher */
    EG_READY, /* confined; first, once */
    EG_PIN    /* these addresses are those of a name that the sandbox may reach */
};

/* Made by the launcher inside the sandbox's network: which sandbox speaks is which socket it came by. */
enum launcher_egress_fd {
    EG_FD_DNS_UDP, /* bound to 127.0.0.53:53 */
    EG_FD_DNS_TCP, /* listening */
    EG_FD_PROXY,   /* listening; what the sandbox sends to pinned addresses' ports 80 and 443 is redirected to it
                      (SO_ORIGINAL_DST tells where it was going) */
    EG_FDS
};

enum launcher_egress_mode { EG_PUBLIC = 1, EG_ALLOW };

struct eg_server {
    uint32_t address; /* network order */
    uint16_t port;    /* host order */
    uint16_t reserved;
};

struct eg_config {
    uint32_t uid, gid;     /* whom it becomes; not 0. As a user without rights it stays who it is */
    uint32_t log_level;    /* enum log_level */
    uint32_t log_json;     /* 1: the log is JSON */
    uint32_t server_count; /* 0..LAUNCHER_EGRESS_SERVERS upstream DNS servers; 0: no name can be looked up */
    struct eg_server servers[LAUNCHER_EGRESS_SERVERS];
};

struct eg_sandbox {
    char id[LAUNCHER_EGRESS_ID_BYTES];       /* for the log */
    uint64_t number;                         /* names it here; never reused */
    uint32_t mode;                           /* enum launcher_egress_mode */
    uint32_t rules;                          /* names these rules, in what is asked under them */
    char allow[LAUNCHER_EGRESS_NAMES_BYTES]; /* EG_ALLOW: "pypi.org *.example.com github.com:22" (egress_rule.h), may be
                                                empty; EG_PUBLIC: what is excepted from `deny`. With `deny` networks
                                                too: "203.0.113.0/24" */
    char deny[LAUNCHER_EGRESS_NAMES_BYTES];  /* names and networks; may be empty */
};

struct eg_gone {
    uint64_t number;
};

#define LAUNCHER_EGRESS_PINS  16
#define LAUNCHER_EGRESS_PORTS 8
/* After an EG_SANDBOX that changes one, the egress process pins anew what the new rules still allow: the launcher may
 * empty the set when it sends it. */
struct eg_pin {
    uint64_t number;
    uint32_t count; /* 1..LAUNCHER_EGRESS_PINS */
    uint32_t ttl_s; /* 1..86400; a pin that is there lives at least so long */
    uint32_t rules; /* eg_sandbox's; under others than are in force nothing is pinned */
    uint32_t reserved;
    uint32_t addresses[LAUNCHER_EGRESS_PINS]; /* network order; the launcher refuses blocked ones */
    uint16_t ports[LAUNCHER_EGRESS_PORTS];    /* TCP, 1 or more; 0 ends the list: {80, 443} for a name without a port */
};

struct eg_pinned {
    uint64_t number;
    uint32_t ok; /* 0: refused or no room */
    uint32_t reserved;
};

struct launcher_egress_message {
    uint32_t type;
    uint32_t reserved;
    uint64_t request; /* of EG_PIN and EG_PINNED, not 0; else 0 */
    union {
        struct eg_config config;
        struct eg_sandbox sandbox;
        struct eg_gone gone;
        struct eg_pin pin;
        struct eg_pinned pinned;
    } as;
};

/** The bytes of a packet of this type; 0 for an unknown one. */
size_t launcher_egress_size(uint32_t type) MUST_USE;

enum launcher_egress_end { EG_FROM_LAUNCHER, EG_FROM_EGRESS };

/** Checks a packet: size, type, direction, texts, ranges, the count of descriptors. ERROR_INVALID says what. */
bool launcher_egress_check(const struct launcher_egress_message *message, size_t size, size_t fd_count,
                           enum launcher_egress_end sender, struct error *err) MUST_USE;
/** One packet. Zero the message first. system_errno EAGAIN when a non-blocking socket is full. */
bool launcher_egress_send(int socket, const struct launcher_egress_message *message, const int *fds, size_t fd_count,
                          struct error *err) MUST_USE;
/** 1 got one, 0 the end, -1 error (system_errno EAGAIN: none there). `fds` has room for EG_FDS. */
int launcher_egress_receive(int socket, struct launcher_egress_message *message, enum launcher_egress_end sender,
                            int *fds, size_t *fd_count, struct error *err) MUST_USE;
