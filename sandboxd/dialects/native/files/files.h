/** files.h - the native dialect's files (protocol.md, 5): /files, /archive, /upload, /watch. */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** Its rows; *count says how many. Static. */
const struct http_route *files_routes(size_t *count) MUST_USE;
