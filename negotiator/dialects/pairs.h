/** pairs.h - "name=value&name=value", percent-encoded, as a parameter of a query may hold once more: metadata that is
 *  looked for. Private to this folder and those in it. */
#pragma once

#include "shared/base/error.h"

#include <jansson.h>

#define PAIRS_MAX 32

/** The pairs as an object of texts, the caller's; of a name that comes twice the last. NULL: ERROR_INVALID. */
json_t *pairs_read(const char *text, struct error *err) MUST_USE;
