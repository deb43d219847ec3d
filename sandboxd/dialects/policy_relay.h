/** policy_relay.h - what OpenSandbox's clients ask the egress sidecar of a sandbox (its port 18080), handed to the
 *  negotiator, which knows and judges what a sandbox reaches: a thread that asks it (libcurl), one request after
 * another. Bounded: POLICY_RELAY_WAITING in all, POLICY_RELAY_OF_ONE of a sandbox; beyond, 429. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/http/server.h"

#define POLICY_RELAY_WAITING    64
#define POLICY_RELAY_OF_ONE     8
#define POLICY_RELAY_BODY_BYTES (256 * 1024) /* as the negotiator takes */

struct policy_relay;

/** Starts the thread; `negotiator`: its URL without a slash at the end, copied. ERROR_INTERNAL. */
struct policy_relay *policy_relay_start(const char *negotiator, struct error *err) MUST_USE;
/** Who waits is told 503; what comes later too. NULL is allowed. While the server lives. */
void policy_relay_stop(struct policy_relay *relay);
/** After the server. NULL is allowed. */
void policy_relay_free(struct policy_relay *relay);
DEFINE_AUTO(policy_relay)

/** The row of the port (PORT_RELAY_EGRESS_UNKNOWN): any authorised request of it. Errors are plain text. */
void policy_relay_handle(struct http_request *request);

/** For http_server_options.error_body: the text of an error of this port; NULL of anything else. */
json_t *policy_relay_error(const struct http_request *request, const struct error *err) MUST_USE;
