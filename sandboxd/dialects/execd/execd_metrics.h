/** execd_metrics.h - the sandbox's figures: of now, and each second. */
#pragma once

#include "shared/http/server.h"

/** Its rows; *count says how many. Static. */
const struct http_route *execd_metrics_routes(size_t *count) MUST_USE;
