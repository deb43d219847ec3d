/** execd.h - the dialect of the daemon that OpenSandbox clients expect in a sandbox, as its port 44772
 *  (specs/opensandbox.md): commands, sessions, code, files, metrics. Each part of it is a table of rows of its own, which
 *  execd_routes joins. Errors have this dialect's bodies (execd_errors.h). */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** What the path of each row begins with. */
#define EXECD_PREFIX "/s/{sandbox}/port/44772"

/** Where a row takes its credential. */
#define EXECD_CARRIERS (HTTP_EXECD | HTTP_BEARER | HTTP_PATH)

/** Its rows; *count says how many. The caller frees. */
struct http_route *execd_routes(size_t *count) MUST_USE;
