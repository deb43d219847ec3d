/* OCI image layout: index.json -> (index ->) manifest -> config, layers; each a blob that its digest names. */
#include "sandboxd/templates/tool/image_parts.h"

#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

enum { INDEX_DEPTH_MAX = 4, MEMBER_BYTES = 96 };

static const char REFERENCE[] = "org.opencontainers.image.ref.name";
static const char LONG_REFERENCE[] = "io.containerd.image.name";

/* What is to be followed: the only manifest for this machine. */
struct choice {
    const json_t *descriptor;
    size_t count;
};

static bool is_type(const json_t *descriptor, const char *const *types)
{
    const char *type = json_string_value(json_object_get(descriptor, "mediaType"));
    for (size_t i = 0; type && types[i]; i++) {
        if (strcmp(type, types[i]) == 0)
            return true;
    }
    return false;
}

static bool is_index(const json_t *descriptor)
{
    static const char *const TYPES[] = {"application/vnd.oci.image.index.v1+json",
                                        "application/vnd.docker.distribution.manifest.list.v2+json", NULL};
    return is_type(descriptor, TYPES);
}

static bool is_manifest(const json_t *descriptor)
{
    static const char *const TYPES[] = {"application/vnd.oci.image.manifest.v1+json",
                                        "application/vnd.docker.distribution.manifest.v2+json", NULL};
    return is_type(descriptor, TYPES);
}

static bool is_layer(const json_t *descriptor)
{
    static const char *const TYPES[] = {"application/vnd.oci.image.layer.v1.tar",
                                        "application/vnd.oci.image.layer.v1.tar+gzip",
                                        "application/vnd.oci.image.layer.v1.tar+zstd",
                                        "application/vnd.oci.image.layer.nondistributable.v1.tar",
                                        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
                                        "application/vnd.docker.image.rootfs.diff.tar",
                                        "application/vnd.docker.image.rootfs.diff.tar.gzip",
                                        NULL};
    return is_type(descriptor, TYPES);
}

static bool is_for_us(const json_t *descriptor)
{
    const json_t *platform = json_object_get(descriptor, "platform");
    const char *os = json_string_value(json_object_get(platform, "os"));
    const char *architecture = json_string_value(json_object_get(platform, "architecture"));
    return platform == NULL ||
           (os && strcmp(os, "linux") == 0 && architecture && strcmp(architecture, image_architecture()) == 0);
}

static bool blob_of(const json_t *descriptor, char member[static MEMBER_BYTES], char digest[static BLOB_DIGEST_BYTES],
                    struct error *err)
{
    const char *text = json_string_value(json_object_get(descriptor, "digest"));
    if (text == NULL || !image_is_digest(text))
        return error_set(err, ERROR_INVALID, "a descriptor's digest is no \"sha256:<64 hex digits>\"");
    memcpy(digest, text, BLOB_DIGEST_BYTES);
    snprintf(member, MEMBER_BYTES, "blobs/sha256/%s", text + 7);
    return true;
}

static json_t *load_blob(const struct source *source, const json_t *descriptor, struct error *err)
{
    char member[MEMBER_BYTES], wanted[BLOB_DIGEST_BYTES], found[BLOB_DIGEST_BYTES];
    if (!blob_of(descriptor, member, wanted, err))
        return NULL;
    json_t *value = image_load_json(source, member, found, err);
    if (value && strcmp(wanted, found) != 0) {
        error_set(err, ERROR_INVALID, "the digest of %s is %s", member, found);
        json_decref(value);
        return NULL;
    }
    return value;
}

static void take_reference(struct image *image, const json_t *descriptor)
{
    const json_t *annotations = json_object_get(descriptor, "annotations");
    const char *name = json_string_value(json_object_get(annotations, LONG_REFERENCE));
    if (name == NULL)
        name = json_string_value(json_object_get(annotations, REFERENCE));
    if (name && image->reference[0] == '\0')
        (void)!text_copy(image->reference, sizeof image->reference, name);
}

static bool take_layers(struct image *image, const json_t *layers, struct error *err)
{
    size_t count = json_array_size(layers);
    if (count == 0 || count > IMAGE_LAYERS_MAX)
        return error_set(err, ERROR_INVALID, "the image has %zu layers; 1..%d are allowed", count, IMAGE_LAYERS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct image_layer *layer = &image->layers[i];
        const json_t *descriptor = json_array_get(layers, i);
        const json_t *size = json_object_get(descriptor, "size");
        if (!is_layer(descriptor))
            return error_set(err, ERROR_INVALID, "layer %zu is of a media type that is none of an image's tar", i + 1);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return error_set(err, ERROR_INVALID, "the size of layer %zu is no number of bytes", i + 1);
        char member[MEMBER_BYTES];
        if (!blob_of(descriptor, member, layer->digest, err))
            return error_prefix(err, "layer %zu", i + 1);
        memcpy(layer->member, member, sizeof member);
        layer->bytes = json_integer_value(size);
    }
    image->layer_count = count;
    return true;
}

static bool take_manifest(struct image *image, const struct source *source, const json_t *manifest, struct error *err)
{
    char member[MEMBER_BYTES], digest[BLOB_DIGEST_BYTES];
    const json_t *config = json_object_get(manifest, "config");
    return take_layers(image, json_object_get(manifest, "layers"), err) && blob_of(config, member, digest, err) &&
           image_take_config(image, source, member, digest, err);
}

static bool choose(const json_t *index, struct choice *choice, struct error *err)
{
    size_t i;
    json_t *descriptor;
    if (!json_is_array(json_object_get(index, "manifests")))
        return error_set(err, ERROR_INVALID, "the index has no \"manifests\"");
    json_array_foreach (json_object_get(index, "manifests"), i, descriptor) {
        if ((is_index(descriptor) || is_manifest(descriptor)) && is_for_us(descriptor)) {
            choice->descriptor = choice->count == 0 ? descriptor : choice->descriptor;
            choice->count++;
        }
    }
    if (choice->count == 0)
        return error_set(err, ERROR_INVALID, "the index has no image for linux/%s", image_architecture());
    if (choice->count > 1)
        return error_set(err, ERROR_INVALID, "the index has %zu images for linux/%s; there must be one", choice->count,
                         image_architecture());
    return true;
}

/* Each index and each manifest is loaded by its digest, from one above. */
bool image_read_oci(struct image *image, const struct source *source, struct error *err)
{
    json_t *index = image_load_json(source, "index.json", NULL, err);
    bool read = index != NULL;
    bool found = false;
    for (int depth = 0; read && !found; depth++) {
        struct choice choice = {0};
        read = depth < INDEX_DEPTH_MAX ? choose(index, &choice, err)
                                       : error_set(err, ERROR_INVALID, "more than %d indexes lie in each other", depth);
        if (!read)
            break;
        take_reference(image, choice.descriptor);
        found = is_manifest(choice.descriptor);
        json_t *next = load_blob(source, choice.descriptor, err);
        json_decref(index);
        index = next;
        read = index != NULL;
    }
    read = read && take_manifest(image, source, index, err);
    snprintf(image->format, sizeof image->format, "oci-layout");
    json_decref(index);
    return read;
}
