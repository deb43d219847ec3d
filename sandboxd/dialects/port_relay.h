/** port_relay.h - a request that goes on to what listens on a port of a sandbox: over a connection that is idle, or a
 * new one. For every dialect that lets clients through to ports. */
#pragma once

#include "sandboxd/dialects/plane.h"
#include "shared/http/proxy.h"

#define PORT_RELAY_BODY_BYTES      ((size_t)16 << 30) /* of one request to a port */
#define PORT_RELAY_HEAD_TIMEOUT_MS 600000             /* a server's own time limit is shorter, or it has none */

/* All of our tokens begin with this, the header they share: {"alg":"HS256","typ":"JWT","kid":" */
#define PORT_RELAY_TOKEN_BEGINS "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6"

/** A port that stands for a service of ours where OpenSandbox's clients say /port/{port}: its execd, its egress
 * sidecar. */
bool port_relay_is_reserved(uint16_t port) MUST_USE;
/** What no row of such a port serves: the 404 of what it is taken for (its dialect words it). */
#define PORT_RELAY_EXECD_UNKNOWN  "/s/{sandbox}/port/44772/{rest...}"
#define PORT_RELAY_EGRESS_UNKNOWN "/s/{sandbox}/port/18080/{rest...}"

/** False of a header of an answer (lower-case name) that would be said for all that is at this server's address;
 * in_path: the token is, so that a browser may ask, whose cookies are those of others at this address too. */
bool port_relay_may_say(const char *name, bool in_path) MUST_USE;

/** As http_proxy, of an authorised request (caller_of); `upstream` and `kept_upstream`, `kept` and `stale` of the order
 *  are not looked at. The sandbox is in use until the exchange is over. It is answered by what
 *  ports_dial says where there is no connection. What caller_of gave before is gone. */
void port_relay(struct http_request *request, uint16_t port, const struct http_proxy_order *order);
