/** node.h - the sealed route of the node link (shared/node_protocol/DESIGN.md), by which the negotiator asks for
 * sandboxes. Its sealed body is the one credential; nothing else on the request is looked at. */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** Its rows; *count says how many. Static. */
const struct http_route *node_routes(size_t *count) MUST_USE;
