/** execute_result.h - a result as JSON. */
#pragma once

#include "sandboxd/sandbox/executions/executions.h"

#include <jansson.h>

/** All seven fields of a run that ended so, without any output; `error` NULL is null. The caller owns it. */
json_t *execute_result_bare(int exit_code, const char *error, const char *sandbox_id) MUST_USE;

/** A whole one; `artifacts` (taken; NULL is null). The caller owns it. */
json_t *execute_result_json(const struct execution_result *result, const char *sandbox_id, json_t *artifacts) MUST_USE;

/** {"base64": ...}. The caller owns it. */
json_t *execute_result_inline(const struct execution_artifact *artifact) MUST_USE;

/** The path of a name below executions/{id}/artifacts/, every byte that is not plain percent-encoded. The caller frees.
 */
char *execute_result_path(const char *execution_id, const char *name) MUST_USE;
