/** granted.h - a grant as the native dialect prints it, whoever it is for. Private to this folder. */
#pragma once

#include "negotiator/dialects/plane.h"

/** A print for waiting_start: mints the token, on the loop, with the grant durable; or the refusal. */
void granted_print(struct http_request *request, const struct negotiation *n);

/** The atoms of a set's text as a list; the caller owns it. */
json_t *granted_scopes(const char *scope) MUST_USE;
