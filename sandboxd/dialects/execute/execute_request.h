/** execute_request.h - the body of POST /execute: JSON into an order, every field checked. */
#pragma once

#include "sandboxd/sandbox/executions/executions.h"

#include <jansson.h>

#define EXECUTE_TIMEOUT_DEFAULT_S 60
#define EXECUTE_TIMEOUT_MAX_S     86400

struct execute_request {
    struct execution_order *order; /* the caller's; NULL: `refusal` says why this cannot be run */
    double timeout_s;
    struct error refusal; /* a language or a file's name: told as a result, not as an error of HTTP */
};

/** ERROR_INVALID names the field and what is allowed; nothing is written then. */
bool execute_request_parse(struct execute_request *request, const char *sandbox_id, const json_t *body,
                           struct error *err) MUST_USE;

/** How much sooner than after `timeout_s` the program is killed, in s: so that its answer is there while the client,
 * which counts the same time, still waits. */
double execute_request_margin(double timeout_s) MUST_USE;
