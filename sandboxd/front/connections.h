/** connections.h - connections that come over a socket, each as one byte with a descriptor (guest/guest.h), in place of
 * a listener. */
#pragma once

#include "shared/http/server.h"

struct connections;

/** Reads `socket` (owned from now on) on the server's first loop, until its end. Any thread. */
struct connections *connections_start(struct http_server *server, int socket) MUST_USE;
/** Before the server is stopped: takes no more. NULL is allowed. */
void connections_stop(struct connections *connections);
/** After the server is freed. NULL is allowed. */
void connections_free(struct connections *connections);
