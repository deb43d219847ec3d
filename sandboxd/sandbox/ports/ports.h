/** ports.h - the TCP ports of a sandbox: connections to them, and which of them somebody listens at. A connection is a
 *  socket that init makes in the sandbox's own net namespace, to 127.0.0.1, or to ::1 where nobody listens there. No
 *  HTTP. Any loop. */
#pragma once

#include "sandboxd/sandbox/sandboxes.h"

#define PORTS_CONNECTIONS_MAX 512  /* open at once to one sandbox, those that are being made with them */
#define PORTS_LISTED_MAX      1024 /* listeners that are told, the lowest */
#define PORTS_DIAL_MS         10000
#define PORTS_LIST_MS         10000 /* init's, for what asks the kernel; then TIMEOUT */

/** Decimal 1..65535, no leading zero, nothing else: the only reader of a port there is. INVALID. */
bool ports_parse(const char *text, uint16_t *port, struct error *err) MUST_USE;

#define PORTS_GUEST 0 /* in place of a port: the front inside a sandbox that has one (registry_view.is_guest) */

/** Connects to a port; it counts as use of the sandbox, and wakes it. dialed(cookie, fd, NULL) is called on the calling
 *  loop, later, once: `fd` is a connected, non-blocking TCP socket (of a guest perhaps a UNIX one) and the callee's,
 * who must call ports_hung_up when it is closed. Or (cookie, -1, err): BAD_GATEWAY nobody listens there, TIMEOUT,
 * NO_CAPACITY, STARTING, GONE, NOT_FOUND. While the loops end it may not be called at all. */
void ports_dial(struct sandboxes *all, const char *sandbox_id, uint16_t port,
                void (*dialed)(void *cookie, int fd, const struct error *err), void *cookie);

/** One that ports_dial gave is closed. Any loop. */
void ports_hung_up(struct sandboxes *all, const char *sandbox_id);

/* Where one listens. */
enum port_address {
    PORT_ANY_V4 = 1,      /* 0.0.0.0 */
    PORT_LOOPBACK_V4 = 2, /* 127.0.0.1 */
    PORT_ANY_V6 = 4,      /* :: */
    PORT_LOOPBACK_V6 = 8, /* ::1 */
    PORT_ELSEWHERE = 16   /* another address of the sandbox: nobody outside reaches it there */
};

struct port_listener {
    uint16_t port;
    uint8_t addresses; /* bits of enum port_address */
};

/** Those that programs of the sandbox listen at; what this node itself listens at inside is left out. */
struct port_list {
    size_t count;
    bool is_cut;                                      /* there are more than PORTS_LISTED_MAX */
    struct port_listener listeners[PORTS_LISTED_MAX]; /* by port */
};

/** told(key, list, NULL) or (key, NULL, err), valid during the call, on the calling loop, later, once. Wakes nothing.
 *  While the loops end it may not be called at all. */
void ports_list(struct sandboxes *all, const char *sandbox_id,
                void (*told)(uint64_t key, const struct port_list *list, const struct error *err), uint64_t key);

/** The same at once and then whenever the list has changed, which is looked for once a second, until ports_unwatch with
 *  the same key on the same loop, or until an error was told: the sandbox ended, or cannot be asked. `key` is unique on
 *  this loop. A call may still come after ports_unwatch. */
void ports_watch(struct sandboxes *all, const char *sandbox_id,
                 void (*told)(uint64_t key, const struct port_list *list, const struct error *err), uint64_t key);
void ports_unwatch(struct sandboxes *all, const char *sandbox_id, uint64_t key);
