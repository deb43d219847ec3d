/** shown.h - sandboxes and leases as the native protocol prints them. Private to this folder. */
#pragma once

#include "negotiator/leasing/leasing.h"

/** All of a sandbox but its env. The caller owns the result. */
json_t *shown_sandbox(const struct sandbox *sandbox) MUST_USE;

/** The lease object of protocol.md, 2. */
json_t *shown_lease(const struct lease *lease) MUST_USE;

/** {"http", "ws"}; with a token and capability_url, the /c/<token>/ form too. */
json_t *shown_endpoints(const char *url, const char *sandbox_id, const char *token) MUST_USE;

/** {"3000": "http://3000-sbx-....localhost:8701/"}: where a browser finds a sandbox's ports on the node of that URL.
 * The caller owns it. */
json_t *shown_previews(const char *url, const char *domain, const char *sandbox_id, const json_t *ports) MUST_USE;

/** RFC 3339 of ms since 1970. */
json_t *shown_time(int64_t wall_ms) MUST_USE;
