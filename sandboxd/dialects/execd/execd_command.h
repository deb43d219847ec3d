/** execd_command.h - commands: run in front and behind, asked about, and interrupted. */
#pragma once

#include "shared/http/server.h"

/** Its rows; *count says how many. Static. */
const struct http_route *execd_command_routes(size_t *count) MUST_USE;
