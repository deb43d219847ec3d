/** usage_view.h - what sandboxes use, as a table and as a page. */
#pragma once

#include <jansson.h>

/** A row for each of `sandboxes`, as the negotiator lists them; `before` (may be NULL): the list seen last, for the
 *  processor's load. */
void usage_view_all(const json_t *sandboxes, const json_t *before);

/** All of one sandbox's metrics, as its node tells them; `before` as above. */
void usage_view_one(const char *name, const json_t *metrics, const json_t *before);
