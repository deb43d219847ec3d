#include "sandboxd/templates/tool/image.h"

#include "sandboxd/templates/tool/image_parts.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

const char *image_architecture(void)
{
    static const char *const NAMES[][2] = {{"x86_64", "amd64"},    {"aarch64", "arm64"},      {"armv7l", "arm"},
                                           {"i686", "386"},        {"ppc64le", "ppc64le"},    {"s390x", "s390x"},
                                           {"riscv64", "riscv64"}, {"loongarch64", "loong64"}};
    struct utsname name;
    if (uname(&name) == 0) {
        for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
            if (strcmp(name.machine, NAMES[i][0]) == 0)
                return NAMES[i][1];
        }
    }
    return "unknown";
}

json_t *image_load_json(const struct source *source, const char *member, char *digest, struct error *err)
{
    size_t size = 0;
    json_error_t why;
    AUTO_FREE char *bytes = source_read(source, member, IMAGE_JSON_MAX_BYTES, &size, err);
    if (bytes == NULL)
        return NULL;
    json_t *value = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &why);
    if (value == NULL)
        error_set(err, ERROR_INVALID, "%.80s is no JSON: %.100s", member, why.text);
    else if (digest)
        blob_digest(bytes, size, digest);
    return value;
}

const char *image_text(const json_t *object, const char *name, size_t max, struct error *err)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (text == NULL) {
        error_set(err, ERROR_INVALID, "\"%s\" is missing, or no text", name);
        return NULL;
    }
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || length > max) {
            error_set(err, ERROR_INVALID, "\"%s\" has control characters, or more than %zu bytes", name, max);
            return NULL;
        }
    }
    return text;
}

bool image_is_digest(const char *text)
{
    return text_starts_with(text, "sha256:") && strlen(text) == BLOB_DIGEST_BYTES - 1 &&
           strspn(text + 7, "0123456789abcdef") == 64;
}

/* --- the configuration --- */

static bool check_platform(const json_t *config, struct error *err)
{
    const char *os = json_string_value(json_object_get(config, "os"));
    const char *architecture = json_string_value(json_object_get(config, "architecture"));
    if (os && strcmp(os, "linux") != 0)
        return error_set(err, ERROR_INVALID, "the image is for the system \"%.32s\", not linux", os);
    if (architecture && strcmp(architecture, image_architecture()) != 0)
        return error_set(err, ERROR_INVALID, "the image is for %.32s; this machine is %s", architecture,
                         image_architecture());
    return true;
}

static bool take_diff_ids(struct image *image, struct error *err)
{
    const json_t *ids = json_object_get(json_object_get(image->config, "rootfs"), "diff_ids");
    if (json_array_size(ids) != image->layer_count)
        return error_set(err, ERROR_INVALID, "the configuration has %zu diff_ids for %zu layers", json_array_size(ids),
                         image->layer_count);
    for (size_t i = 0; i < image->layer_count; i++) {
        const char *id = json_string_value(json_array_get(ids, i));
        if (id == NULL || !image_is_digest(id))
            return error_set(err, ERROR_INVALID, "the diff_id of layer %zu is no \"sha256:<64 hex digits>\"", i + 1);
        memcpy(image->layers[i].plain, id, BLOB_DIGEST_BYTES);
    }
    return true;
}

bool image_take_config(struct image *image, const struct source *source, const char *member, const char *digest,
                       struct error *err)
{
    json_decref(image->config);
    image->config = image_load_json(source, member, image->config_digest, err);
    if (image->config == NULL)
        return error_prefix(err, "the image's configuration");
    if (digest[0] && strcmp(digest, image->config_digest) != 0)
        return error_set(err, ERROR_INVALID, "the configuration's digest is %s, it should be %s", image->config_digest,
                         digest);
    return check_platform(image->config, err) && take_diff_ids(image, err);
}

bool image_read(struct image *image, const struct source *source, struct error *err)
{
    *image = (struct image){.layer_count = 0};
    bool is_oci = source_has(source, "index.json") && source_has(source, "oci-layout");
    bool is_docker = !is_oci && source_has(source, "manifest.json");
    if (!is_oci && !is_docker)
        return error_set(err, ERROR_INVALID,
                         "it is neither a docker-save archive (manifest.json) nor an OCI layout (index.json)");
    return is_oci ? image_read_oci(image, source, err) : image_read_docker(image, source, err);
}

void image_done(struct image *image)
{
    json_decref(image->config);
    image->config = NULL;
}
