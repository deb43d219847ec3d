/** chain.h - the links of an attenuated token: the JSON of one, and what it takes away. A link is written by any
 * holder: even under a right MAC its content is hostile. Private to this folder. */
#pragma once

#include "shared/capability/capability.h"

#define CHAIN_JSON_BYTES 1280

/** Reads one link and narrows `claims` (scopes, expires_at, note) by it. ERROR_INVALID, `claims` untouched: not a JSON
 *  object of scope, exp and note with at least one of them and none twice; an unknown scope; or it would widen. */
bool chain_narrow(struct capability_claims *claims, const void *json, size_t size, struct error *err) MUST_USE;

/** Writes a link in its compact form. ERROR_INVALID as above, but widening is not looked at. */
bool chain_write(char to[static CHAIN_JSON_BYTES], const struct capability_link *link, struct error *err) MUST_USE;

/** "lnk_..." of the link that ends in this MAC (protocol.md, 3). */
void chain_link_id(char to[static CAPABILITY_LINK_ID_BYTES], const uint8_t mac[static 32]);
