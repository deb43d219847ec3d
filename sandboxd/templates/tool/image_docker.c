/* docker-save: manifest.json is [{"Config": member, "RepoTags": [..], "Layers": [member, ..]}]. */
#include "sandboxd/templates/tool/image_parts.h"

#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

/* The digest that a member's name promises: "<64 hex>.json", "blobs/sha256/<64 hex>"; "" when none. */
static void promised_digest(const char *member, char digest[static BLOB_DIGEST_BYTES])
{
    const char *slash = strrchr(member, '/');
    const char *name = slash ? slash + 1 : member;
    size_t digits = strspn(name, "0123456789abcdef");
    digest[0] = '\0';
    if (digits == 64 && (name[digits] == '\0' || strcmp(name + digits, ".json") == 0))
        snprintf(digest, BLOB_DIGEST_BYTES, "sha256:%.64s", name);
}

static bool take_layers(struct image *image, const json_t *layers, struct error *err)
{
    size_t count = json_array_size(layers);
    if (count == 0 || count > IMAGE_LAYERS_MAX)
        return error_set(err, ERROR_INVALID, "the image has %zu layers; 1..%d are allowed", count, IMAGE_LAYERS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct image_layer *layer = &image->layers[i];
        const char *member = json_string_value(json_array_get(layers, i));
        if (member == NULL || !text_copy(layer->member, sizeof layer->member, member))
            return error_set(err, ERROR_INVALID, "layer %zu of manifest.json is no name of a member", i + 1);
        layer->bytes = -1;
        if (text_starts_with(member, "blobs/sha256/"))
            promised_digest(member, layer->digest);
    }
    image->layer_count = count;
    return true;
}

bool image_read_docker(struct image *image, const struct source *source, struct error *err)
{
    json_t *manifest = image_load_json(source, "manifest.json", NULL, err);
    const json_t *only = json_array_get(manifest, 0);
    const char *config = NULL;
    char digest[BLOB_DIGEST_BYTES];
    bool read = manifest != NULL;
    if (read && json_array_size(manifest) != 1)
        read = error_set(err, ERROR_INVALID, "manifest.json names %zu images; save exactly one",
                         json_array_size(manifest));
    if (read) {
        config = image_text(only, "Config", 500, err);
        read = config && take_layers(image, json_object_get(only, "Layers"), err);
    }
    if (read) {
        promised_digest(config, digest);
        read = image_take_config(image, source, config, digest, err);
    }
    const char *tag = json_string_value(json_array_get(json_object_get(only, "RepoTags"), 0));
    if (read && tag)
        (void)!text_copy(image->reference, sizeof image->reference, tag);
    snprintf(image->format, sizeof image->format, "docker-archive");
    json_decref(manifest);
    return read;
}
