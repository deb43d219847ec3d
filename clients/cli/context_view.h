/** context_view.h - what comes of a run, as text on a terminal: stdout and stderr as they are, results as text, and
 * what is no text by its name, or in a file. */
#pragma once

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>

struct context_view {
    const char *save; /* a folder, made when it is needed; NULL: nothing is saved */
    unsigned saved;   /* files so far */
};

/** Shows one event. False: it could not be written. */
bool context_view_event(struct context_view *view, const json_t *event, struct error *err) MUST_USE;
