/** authorize.h - judges the credential of a request against its route: verification of the capability, and then what no
 *  cache may skip. Runs on the request's loop. */
#pragma once

#include "sandboxd/dialects/plane.h"
#include "shared/base/error.h"
#include "shared/capability/capability.h"
#include "shared/http/server.h"

#define AUTHORIZE_CACHE_SLOTS 1024 /* verified tokens remembered by each loop */

/** The server's context. `plane` stands first: dialects see only that. */
struct authorize_context {
    struct plane plane;
    struct capability_cache *caches[SANDBOXES_LOOPS_MAX]; /* each belongs to its loop */
};

/** For http_server_options.authorize. Sets a struct caller as the request's identity. UNAUTHENTICATED and TOKEN_EXPIRED
 *  as capability_verify says; TOKEN_REVOKED by a mark; GONE with the reason for a valid token of an ended sandbox;
 *  CAPABILITY_DENIED names the scope; a route's `needs` may name several with a | between, of which one is enough.
 *  Refusals and reads go into the audit spool. */
bool authorize(struct http_request *request, const struct http_route *route, struct error *err) MUST_USE;

/** For plane.judge. */
bool authorize_late(struct http_request *request, const char *token, struct error *err) MUST_USE;

/** Whether the node's contact with its negotiator is recent enough for this token: long-lived ones need that, as they
 * may have been revoked meanwhile. TOKEN_EXPIRED. */
bool authorize_has_contact(const struct plane *plane, const struct capability_claims *claims, int64_t now_ms,
                           struct error *err) MUST_USE;

/** TOKEN_REVOKED and its sentence; false. */
bool authorize_set_revoked(struct error *err);
