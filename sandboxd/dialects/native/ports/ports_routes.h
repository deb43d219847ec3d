/** ports_routes.h - the ports of a sandbox over HTTP (protocol.md, 5 "Ports"). */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** What no row of such a port serves: the 404 of what OpenSandbox's clients take it for (its dialect words it). */
#define PORTS_EXECD_UNKNOWN  "/s/{sandbox}/port/44772/{rest...}"
#define PORTS_EGRESS_UNKNOWN "/s/{sandbox}/port/18080/{rest...}"

/** Its rows; *count says how many. Static. */
const struct http_route *ports_routes(size_t *count) MUST_USE;
