/** proxy.h - where a sandbox's connections to ports 80 and 443 of pinned addresses come out: the name that the client
 *  says in TLS or HTTP must be one that the rules allow, and the address one that is that name's. One loop. */
#pragma once

#include "sandboxd/egress/house.h"

struct proxy;

/** `listener` is non-blocking and the proxy's now. */
struct proxy *proxy_new(struct sandbox *sandbox, int listener) MUST_USE;

/** Cuts every connection. NULL is allowed. */
void proxy_free(struct proxy *proxy);

/** Cuts the connections that the sandbox's rules do not allow any more. */
void proxy_check_again(struct proxy *proxy);

/** The destination of an accepted connection: SO_ORIGINAL_DST. False for one that came to the listener itself. */
bool proxy_destination(int fd, uint32_t *address, uint16_t *port);

/** Begins to connect from the network that this process is in; -1 with errno, EACCES for an address of this host or
 *  in a range that nobody may reach. */
int proxy_dial(uint32_t address, uint16_t port);
