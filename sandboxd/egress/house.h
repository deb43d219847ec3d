/** house.h - what all of the egress process shares, and what it knows of one sandbox. One loop; not locked. */
#pragma once

#include "sandboxd/egress/client_hello.h"
#include "sandboxd/egress/launcher_line.h"
#include "sandboxd/egress/pins.h"
#include "sandboxd/egress/policy.h"
#include "sandboxd/egress/resolver.h"

struct dns_server;
struct lookup;
struct proxy;
struct pipe_stock;

/** What a test replaces. */
struct house_face {
    /** Where the client of an accepted socket was going (address in network order, port in host order). */
    bool (*destination)(int fd, uint32_t *address, uint16_t *port);
    /** A non-blocking TCP socket that is connecting there; -1 with errno. Refuses the host's own addresses. */
    int (*dial)(uint32_t address, uint16_t port);
};

struct house {
    struct loop *loop;
    struct house_face face;
    struct resolver *resolver;
    struct client_hello_maker *hellos;
    struct launcher_line *line;
    struct pipe_stock *pipes;
    struct sandbox *sandboxes; /* a list */
    unsigned lookups, connections;
};

/* Bounds: of one sandbox, and of all. */
enum {
    LOOKUPS_OF_ONE = 64,
    LOOKUPS_OF_ALL = 4096,
    CONNECTIONS_OF_ONE = 256,
    CONNECTIONS_OF_ALL = 4096,
    CONNECTIONS_A_SECOND = 200, /* new ones */
    REFUSALS_TOLD = 20,         /* lines of the log in REFUSALS_S */
    REFUSALS_S = 10
};

/** Whether a sandbox that has so many may have no more: its own bound, or as many as are left for all others. So many
 *  that take all they get leave as much to each one that comes. */
static inline bool house_is_full_for(unsigned of_one, unsigned of_one_max, unsigned of_all, unsigned of_all_max)
{
    return of_one >= of_one_max || of_all + of_one >= of_all_max;
}

struct sandbox {
    struct sandbox *next;
    struct house *house;
    uint64_t number;
    uint32_t rules; /* the policy's name for the launcher */
    char id[LAUNCHER_EGRESS_ID_BYTES];
    struct policy *policy;
    struct pins *pins;
    struct lookup *lookups_first; /* under way, a list */
    unsigned lookups, connections;
    struct dns_server *dns;
    struct proxy *proxy;
    uint64_t refusals_since_ns;
    unsigned refusals, refusals_untold;
};

/** Logs at info that something of the sandbox was refused; a flood is counted, not told. */
void sandbox_refused(struct sandbox *sandbox, const char *format, ...) __attribute__((format(printf, 2, 3)));
