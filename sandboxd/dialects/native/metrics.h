/** metrics.h - GET /metrics and /metrics/watch: what a sandbox uses, and of how much. Neither wakes a paused one. */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** Its rows; *count says how many. Static. */
const struct http_route *metrics_routes(size_t *count) MUST_USE;
