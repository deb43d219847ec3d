/** execd_code.h - code contexts: made, listed, removed, run in and interrupted. */
#pragma once

#include "shared/http/server.h"

/** Its rows; *count says how many. Static. */
const struct http_route *execd_code_routes(size_t *count) MUST_USE;
