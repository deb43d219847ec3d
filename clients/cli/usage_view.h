/** usage_view.h - what sandboxes use, as a table and as a page. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/** A row for each of `sandboxes`, as the negotiator lists them; `before` (may be NULL): the list seen last, for the
 *  processor's load. */
void usage_view_all(FILE *to, const json_t *sandboxes, const json_t *before);

/** Of one core, of a sandbox of the first list: 0.5; by `before` when that knows it, else 0. */
double usage_view_load(const json_t *sandbox, const json_t *before);

/** All of one sandbox's metrics, as its node tells them; `before` as above. */
void usage_view_one(const char *name, const json_t *metrics, const json_t *before);
