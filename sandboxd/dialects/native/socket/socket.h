/** socket.h - the route /ws (protocol.md, 5; specs/websocket.md): terminals and commands over a WebSocket. */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** Its rows; *count says how many. Static. */
const struct http_route *socket_routes(size_t *count) MUST_USE;
