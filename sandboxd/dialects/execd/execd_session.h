/** execd_session.h - sessions: shells that keep their folder and variables from one line to the next. */
#pragma once

#include "shared/http/server.h"

/** Its rows; *count says how many. Static. */
const struct http_route *execd_session_routes(size_t *count) MUST_USE;
