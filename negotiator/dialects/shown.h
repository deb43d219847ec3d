/** shown.h - sandboxes and leases as the native protocol prints them. Private to this folder. */
#pragma once

#include "negotiator/leasing/leasing.h"

/** All of a sandbox but its env. The caller owns the result. */
json_t *shown_sandbox(const struct sandbox *sandbox) MUST_USE;

/** The lease object of protocol.md, 2. */
json_t *shown_lease(const struct lease *lease) MUST_USE;

/** {"http", "ws"}; with a token and capability_url, the /c/<token>/ form too. */
json_t *shown_endpoints(const char *url, const char *sandbox_id, const char *token) MUST_USE;

/** RFC 3339 of ms since 1970. */
json_t *shown_time(int64_t wall_ms) MUST_USE;
