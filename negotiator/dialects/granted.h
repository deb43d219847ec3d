/** granted.h - a grant as the native dialect prints it, whoever it is for. Private to this folder. */
#pragma once

#include "negotiator/dialects/plane.h"

/** Reads what is asked for, gives it to the verb (leasing_negotiate, _refresh, _share), and ends the request with the
 *  grant: the token is minted on the loop, when the grant is durable; or with the refusal. */
void granted_ask(struct http_request *request,
                 bool (*read)(const struct http_request *request, struct negotiation *n, struct error *err),
                 bool (*verb)(struct leasing *leasing, struct negotiation *n, struct error *err));

/** The atoms of a set's text as a list; the caller owns it. */
json_t *granted_scopes(const char *scope) MUST_USE;
