/** dns_server.h - answers a sandbox's DNS queries by UDP and TCP, on sockets that lie inside its network: who asks is
 *  which socket it came by. One loop. */
#pragma once

#include "sandboxd/egress/house.h"

struct dns_server;

/** `udp` is bound, `tcp` listens; both non-blocking, and the server's now. */
struct dns_server *dns_server_new(struct sandbox *sandbox, int udp, int tcp) MUST_USE;

/** Closes everything; questions under way are cancelled. NULL is allowed. */
void dns_server_free(struct dns_server *server);
