/** kernel_outcome.h - a run as one JSON: what its events add up to, within bounds. */
#pragma once

#include "sandboxd/sandbox/kernels/kernel_run.h"
#include "shared/base/text.h"

#include <jansson.h>

#define KERNEL_OUTCOME_TEXT_MAX  (1024 * 1024)     /* bytes of each of stdout and stderr */
#define KERNEL_OUTCOME_ERROR_MAX (2 * 1024 * 1024) /* of the error, about */
/* Of displays and the result, about. What is done is here until its client takes it, however slowly, and clients may be
 * many: more than this is for streams, whose context waits for their reader. */
#define KERNEL_OUTCOME_DISPLAY_MAX (6 * 1024 * 1024)

/** Zero is empty; embedded, the fields are private. */
struct kernel_outcome {
    struct text texts[2]; /* stdout, stderr */
    json_t *displays, *result, *error, *run;
    size_t cost;
    bool truncated;
};

void kernel_outcome_done(struct kernel_outcome *outcome);
/** Takes the event's body. */
void kernel_outcome_add(struct kernel_outcome *outcome, const struct kernel_event *event);
/** Takes the last event's body and makes {run, stdout, stderr, displays, result, error, truncated} and what that has.
 */
json_t *kernel_outcome_finish(struct kernel_outcome *outcome, json_t *done) MUST_USE;
