/** negotiator.h - calls on the negotiator with the place's API key: one request, a list that comes in pages, and how
 *  names go into paths. Blocks; any thread. */
#pragma once

#include "clients/c/place.h"

#include "shared/base/error.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** GET, DELETE ... of a path. `body` is borrowed, may be NULL; *reply (may be NULL) is the caller's, NULL when empty.
 * The server's error kinds. Waits 60 s at most. */
bool negotiator_call(const struct place *place, const char *method, const char *path, json_t *body, json_t **reply,
                     struct error *err) MUST_USE;

/** The same for what may only be done to the version that `if_match` names ("\"3\"" or "*"). */
bool negotiator_call_matching(const struct place *place, const char *method, const char *path, const char *if_match,
                              json_t *body, json_t **reply, struct error *err) MUST_USE;

/** A list that comes in pages. */
struct negotiator_list {
    const char *path, *member; /* "/sandboxes?state=all", "sandboxes" */
    const char *next;          /* the member that holds the cursor */
    size_t most;
};

/** Its items, until there are `most` or no more, as an array that the caller owns; NULL with err. */
json_t *negotiator_list(const struct place *place, const struct negotiator_list *wanted, struct error *err) MUST_USE;

/** Appends "name=value" to a query ("?" or "&" before it as needed), the value percent-encoded; NULL appends nothing.
 */
void negotiator_query(struct text *path, const char *name, const char *value);

/** "before/name/after", the name percent-encoded; without `after` when NULL. The caller frees. */
char *negotiator_path(const char *before, const char *name, const char *after) MUST_USE;
