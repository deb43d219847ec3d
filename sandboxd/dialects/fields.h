/** fields.h - what routes read from a query and from a JSON body, one field each. What is missing leaves the value as
 * it is; ERROR_INVALID names the field and says what is allowed. */
#pragma once

#include "shared/http/server.h"

#include <jansson.h>

/** A query parameter of 1, true, 0 or false. */
bool fields_query_switch(const struct http_request *request, const char *name, bool *value, struct error *err) MUST_USE;
/** A query parameter in decimal, lowest..highest. */
bool fields_query_number(const struct http_request *request, const char *name, uint64_t lowest, uint64_t highest,
                         uint64_t *value, struct error *err) MUST_USE;

/** Whether an object has only fields of these names (the last is NULL). */
bool fields_only(const json_t *object, const char *const *names, struct error *err) MUST_USE;
/** A field of true or false. */
bool fields_flag(const json_t *object, const char *name, bool *value, struct error *err) MUST_USE;
