/** execd_results.h - what code shows, as this dialect's clients read it: texts by type of content. Pure. */
#pragma once

#include <jansson.h>

#define EXECD_RESULTS_MAX (3 * 1024 * 1024) /* bytes of JSON: some clients read no line over 4 MiB */

/** `data` (a bundle as of a kernel's event) with values that are texts alone: JSON becomes its text; text/plain is also
 *  there as "text", as some clients read only the one and some only the other. What is too long for that is left out,
 * and the text cut. The caller owns it. */
json_t *execd_results(const json_t *data);

/** An error's traceback as at most `most` texts, `count` of them: borrowed from `error`'s "traceback", the last ones
 *  where there are more. */
void execd_results_traceback(const json_t *error, const char **texts, size_t most, size_t *count);
