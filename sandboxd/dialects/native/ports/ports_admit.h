/** ports_admit.h - whether a request's capability may use a port of its sandbox. */
#pragma once

#include "shared/http/server.h"

#include <stdint.h>

/** The route's {port}, read by the one parser there is, and covered by the scopes. INVALID, CAPABILITY_DENIED (which is
 *  recorded). */
bool ports_admit(const struct http_request *request, uint16_t *port, struct error *err) MUST_USE;

/** A token in the path ends up in more places than a header does, and pages of the app know it: all of its scopes must
 *  be port's. CAPABILITY_DENIED (which is recorded). */
bool ports_admit_carrier(const struct http_request *request, struct error *err) MUST_USE;

/** Whether the request's scopes, as they are now, cover the port. */
bool ports_covers(const struct http_request *request, uint16_t port) MUST_USE;
