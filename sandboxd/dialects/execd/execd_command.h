/** execd_command.h - commands: run in front and behind, asked about, and interrupted. */
#pragma once

#include "shared/http/server.h"

/** Answers an authorised request by running a command line in front, as POST /command of it alone. */
void execd_command_run_line(struct http_request *request, const char *line);

/** Answers one by stopping the command of the query's `id`: TERM, and 3 s later KILL; 500 when it has ended or is not
 *  known. */
void execd_command_stop(struct http_request *request);

/** Its rows; *count says how many. Static. */
const struct http_route *execd_command_routes(size_t *count) MUST_USE;
