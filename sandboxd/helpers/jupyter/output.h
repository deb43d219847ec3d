/** output.h - what a kernel and its children write to descriptors 1 and 2: frames once somebody may see them; before
 * that, the last of it is kept to say why the kernel did not start. */
#pragma once

#include "sandboxd/helpers/jupyter/frames.h"
#include "sandboxd/helpers/jupyter/kernel.h"
#include "shared/base/text.h"

#include <stdbool.h>

/** Embedded; zero: nothing yet. */
struct output {
    bool is_shown;
    struct text rest[2]; /* of each stream: the beginning of a character */
    struct text early;   /* while it is not shown: the last OUTPUT_EARLY_MAX bytes */
};

#define OUTPUT_EARLY_MAX 2000

/** Moves what is in the pipes. A pipe at its end is closed. */
void output_drain(struct output *output, struct kernel *kernel, const char *run, struct frames *frames);
void output_done(struct output *output);
