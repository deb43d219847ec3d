/** image.h - what an archive says of its image: docker-save (manifest.json) or OCI layout (index.json). */
#pragma once

#include "sandboxd/templates/tool/blob.h"
#include "sandboxd/templates/tool/message.h"

#include <jansson.h>

#define IMAGE_LAYERS_MAX 256

struct image_layer {
    char member[512];               /* its name in the source */
    char digest[BLOB_DIGEST_BYTES]; /* as it lies there; "" when nobody said */
    char plain[BLOB_DIGEST_BYTES];  /* unpacked: diff_id */
    int64_t bytes;                  /* as it lies there; -1 when nobody said */
};

struct image {
    size_t layer_count;
    struct image_layer layers[IMAGE_LAYERS_MAX]; /* the lowest first */
    json_t *config;                              /* the image's configuration, its digest verified */
    char config_digest[BLOB_DIGEST_BYTES];
    char format[16];     /* "docker-archive", "oci-layout" */
    char reference[256]; /* "python:3.12-slim"; "" when there is none */
};

/** Finds the one image of the source that runs here (linux, this machine's architecture). INVALID says what is wrong,
 * or that there are several. */
bool image_read(struct image *image, const struct source *source, struct error *err) MUST_USE;
void image_done(struct image *image);
#define AUTO_IMAGE __attribute__((cleanup(image_done))) struct image

/** "amd64": this machine as images name it. */
const char *image_architecture(void) MUST_USE;

/** What the configuration says of commands: env, working folder, entrypoint. What does not fit is left out and counted
 *  in *left_out. `user` gets "name", "1000", "1000:100" or "". */
bool image_describe(const struct image *image, struct template_record *record, char user[static IMAGE_USER_BYTES],
                    uint32_t *left_out, struct error *err) MUST_USE;
