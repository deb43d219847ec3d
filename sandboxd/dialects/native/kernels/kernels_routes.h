/** kernels_routes.h - contexts over HTTP (protocol.md, 5). */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** Its rows, *count of them. Static. */
const struct http_route *kernels_routes(size_t *count) MUST_USE;
