/** osb_json.h - fields of a body as OpenSandbox's server reads them: null is as good as missing. Private to this
 *  folder. */
#pragma once

#include "shared/base/error.h"

#include <jansson.h>

/** The field's value, borrowed; NULL: it is missing, or null. */
json_t *osb_given(const json_t *object, const char *name) MUST_USE;

/** Its text, borrowed; NULL: it is none, or has a NUL in it. */
const char *osb_text_of(const json_t *value) MUST_USE;
