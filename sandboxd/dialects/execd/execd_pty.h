/** execd_pty.h - terminals that stay: made, shown, ended, and opened as a WebSocket (execd_pty_socket.h). */
#pragma once

#include "shared/http/server.h"

/** Its rows; *count says how many. Static. */
const struct http_route *execd_pty_routes(size_t *count) MUST_USE;
