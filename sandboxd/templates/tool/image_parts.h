/** image_parts.h - what the readers of the two formats share. For image*.c. */
#pragma once

#include "sandboxd/templates/tool/image.h"

enum { IMAGE_JSON_MAX_BYTES = 4 * 1024 * 1024 };

/** A JSON object or array from a member; duplicate keys are refused. The caller owns it. `digest` (NULL: not wanted)
 * gets the digest of its bytes. */
json_t *image_load_json(const struct source *source, const char *member, char *digest, struct error *err) MUST_USE;

/** A member of an object that must be a text of at most `max` bytes without control characters; NULL with err. */
const char *image_text(const json_t *object, const char *name, size_t max, struct error *err) MUST_USE;

/** "sha256:<64 hex>" of a descriptor, and blobs/sha256/<64 hex>. */
bool image_is_digest(const char *text) MUST_USE;

/** Reads the configuration from `member`; its digest must be `digest`, when that is not "". Takes the layers' diff_ids
 *  out of it; layer_count is set before. */
bool image_take_config(struct image *image, const struct source *source, const char *member, const char *digest,
                       struct error *err) MUST_USE;

bool image_read_docker(struct image *image, const struct source *source, struct error *err) MUST_USE;
bool image_read_oci(struct image *image, const struct source *source, struct error *err) MUST_USE;
