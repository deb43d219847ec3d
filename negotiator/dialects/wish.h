/** wish.h - the JSON fields of a negotiation, and of a change, as `wanted` (leasing/wanted.h). Private to this folder.
 */
#pragma once

#include "negotiator/leasing/wanted.h"

/** Reads the body of a negotiation into `wanted`. ERROR_INVALID names the field; unknown ones are refused. */
bool wish_read(struct wanted *wanted, const json_t *body, struct error *err) MUST_USE;

/** The same of a token for a sandbox that is known: scopes, ttl, long, expires_at, actor, wait, capability_url. */
bool wish_read_token(struct wanted *wanted, const json_t *body, struct error *err) MUST_USE;

/** The same of what a living sandbox may be changed in: resources, network, on_idle, metadata, name. */
bool wish_read_change(struct wanted *wanted, const json_t *body, struct error *err) MUST_USE;

/** The list of `volumes` as `wanted` has it; the caller owns it. NULL: ERROR_INVALID. */
json_t *wish_volumes(const json_t *list, struct error *err) MUST_USE;
/** And back, as it was asked for; the caller owns it. `volumes` may be NULL. */
json_t *wish_shown_volumes(const json_t *volumes) MUST_USE;
