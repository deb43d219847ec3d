/** native.h - the native dialect (protocol.md, 5): exec, commands and their output, info, health. */
#pragma once

#include "shared/http/server.h"

#include <stddef.h>

/** Its rows; *count says how many. Static. */
const struct http_route *native_routes(size_t *count) MUST_USE;
