/** outside.h - requests that show a token of an outside issuer (identity/identity.h). Private to this folder but for
 * the hook. */
#pragma once

#include "negotiator/dialects/plane.h"

enum outside {
    OUTSIDE_NOT,      /* it is something else */
    OUTSIDE_ADMITTED, /* verified a moment ago; its identity is set */
    OUTSIDE_REFUSED,  /* that, and its role is too low */
    OUTSIDE_PENDING   /* outside_gate has it verified before the handler runs */
};

/** The first look, within the server's authorize hook. */
enum outside outside_authorize(struct http_request *request, struct error *err) MUST_USE;

/** The server's gate: takes what is pending. */
bool outside_gate(struct http_request *request) MUST_USE;
