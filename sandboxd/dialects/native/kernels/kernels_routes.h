/** kernels_routes.h - contexts over HTTP (protocol.md, 5). */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

const struct http_route *kernels_routes(size_t *count) MUST_USE;
