/** guest_gate.h - requests of sandboxes that have a front of their own inside (isolation gvisor, microvm): judged here
 * as any other, recorded before they are passed on, and then relayed whole. The one place where that is decided.
 *
 *  The guest judges another token with the same claims, which is made here by a key that opens nothing else
 *  (guest_relay.h). A revocation cuts a relayed request as it cuts any: http_requests_each finds it. What a socket does
 *  inside is one deed here, "socket"; a token that it is given there is none to the guest. */
#pragma once

#include "shared/http/server.h"

/** For http_server_options.gate. False: the sandbox has no guest, or the route is the node's own to answer (/info,
 *  /metrics). */
bool guest_gate(struct http_request *request);

#define GUEST_GATE_UNKNOWN "guest" /* a deed that this has no name for */

/** What the audit calls requests of a route when they are relayed; NULL: they change nothing. */
const char *guest_gate_action(const struct http_route *route) MUST_USE;
