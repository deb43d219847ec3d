/** wish.h - the body of a negotiation, from JSON. Private to this folder and its tests. */
#pragma once

#include "negotiator/leasing/wanted.h"

/** Reads every field of protocol.md, 2. ERROR_INVALID names a field that is unknown, mistyped, or not served yet. What
 *  was read before stays in *wanted, which the caller frees in any case (wanted_done). */
bool wish_read(struct wanted *wanted, const json_t *body, struct error *err) MUST_USE;
