/** ports_routes.h - the ports of a sandbox over HTTP (protocol.md, 5 "Ports"). */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** Its rows; *count says how many. Static. */
const struct http_route *ports_routes(size_t *count) MUST_USE;
