/** tunnel.h - a TCP connection to a port of the sandbox over a WebSocket: binary messages are its bytes, as they come
 *  (specs/websocket.md, "Tunnels"). */
#pragma once

#include "shared/http/server.h"

/** GET /tunnels/{port}, of an authorised request: dials the port, then becomes a WebSocket of its bytes
 *  (specs/websocket.md). Answers in every case. */
void tunnel_start(struct http_request *request);
