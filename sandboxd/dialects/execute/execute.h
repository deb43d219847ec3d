/** execute.h - the dialect of one-shot runs (specs/execute.md): POST /execute, and the files that a run left and that
 * are fetched by URL. Errors are {"error": "a sentence", ...} with all fields of a result, whatever the status. */
#pragma once

#include "shared/http/server.h"

#include <jansson.h>
#include <stddef.h>

/** Its rows; *count says how many. Static. */
const struct http_route *execute_routes(size_t *count) MUST_USE;

/** For http_server_options.error_body: an error of a route of this dialect as its clients read it; NULL of any other.
 */
json_t *execute_error(const struct http_request *request, const struct error *err) MUST_USE;
