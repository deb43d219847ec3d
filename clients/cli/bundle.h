/** bundle.h - a folder of evidence as a .tar.gz file: parts, and a manifest with the SHA-256 of each and what could not
 *  be had. */
#pragma once

#include "shared/base/error.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <stdbool.h>

struct bundle;

/** Begins it at `path`, 0600, which must not be there yet; all its names lie below `folder`. NULL with err. */
struct bundle *bundle_new(const char *path, const char *folder, struct error *err) MUST_USE;

/** Adds a part. */
bool bundle_add(struct bundle *bundle, const char *name, const char *data, size_t size, struct error *err) MUST_USE;
/** The same of JSON, with a line end. */
bool bundle_add_json(struct bundle *bundle, const char *name, const json_t *value, struct error *err) MUST_USE;

/** Notes that `what` could not be had, and why. */
void bundle_miss(struct bundle *bundle, const char *what, const struct error *why);
/** {"what", "why"} of all that; borrowed. */
const json_t *bundle_missing(const struct bundle *bundle) MUST_USE;

/** Adds manifest.json (`about` is the rest of it; borrowed) and closes the file. */
bool bundle_finish(struct bundle *bundle, const json_t *about, struct error *err) MUST_USE;
/** Removes the file unless it was finished; NULL is allowed. */
void bundle_free(struct bundle *bundle);
DEFINE_AUTO(bundle)
