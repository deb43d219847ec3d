/** remote_preview.h - the link by which a browser opens a port of a sandbox (sandboxd's previews). Blocks; any thread.
 */
#pragma once

#include "clients/c/grant.h"

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/** The link of `port`, 1..65535, with a token that may do nothing else, made offline from the grant's: it holds for
 *  ttl_s seconds, or as long as that one when it is less; *expires_s (UTC) says. *url is the caller's.
 * CAPABILITY_DENIED: the grant has no scope for the port; NOT_FOUND: its node has no previews. */
bool remote_preview_link(const struct grant *grant, uint16_t port, unsigned ttl_s, char **url, int64_t *expires_s,
                         struct error *err) MUST_USE;
