#include "sandboxd/templates/tool/image.h"

#include "sandboxd/templates/tool/tree.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static void take_env(const json_t *list, struct template_record *record, uint32_t *left_out)
{
    size_t i;
    json_t *item;
    json_array_foreach (list, i, item) {
        const char *text = json_string_value(item);
        const char *equals = text ? strchr(text, '=') : NULL;
        AUTO_FREE char *name = equals ? memory_copy(text, (size_t)(equals - text)) : NULL;
        if (name == NULL || !env_add(record->env, name, equals + 1, NULL))
            (*left_out)++;
    }
}

/* All of it or nothing: half a command is none. */
static void take_entrypoint(const json_t *config, struct template_record *record, uint32_t *left_out)
{
    static const char *const PARTS[] = {"Entrypoint", "Cmd"};
    size_t used = 0;
    for (size_t part = 0; part < 2; part++) {
        size_t i;
        json_t *item;
        json_array_foreach (json_object_get(config, PARTS[part]), i, item) {
            const char *text = json_string_value(item);
            size_t length = text ? strlen(text) : 0;
            if (length == 0 || used + length + 2 > sizeof record->entrypoint) {
                memset(record->entrypoint, 0, sizeof record->entrypoint);
                (*left_out)++;
                return;
            }
            memcpy(record->entrypoint + used, text, length);
            used += length + 1;
        }
    }
}

/* "" and "/" are what images have that say nothing. */
static bool take_workdir(const json_t *config, struct template_record *record, struct error *err)
{
    char path[TREE_PATH_BYTES];
    const char *text = json_string_value(json_object_get(config, "WorkingDir"));
    if (text == NULL || text[0] == '\0' || strspn(text, "/") == strlen(text))
        return text_copy(record->workdir, sizeof record->workdir, "/workspace");
    if (text[0] != '/' || !tree_path(text + strspn(text, "/"), path, NULL) || path[0] == '\0' ||
        !text_format(record->workdir, sizeof record->workdir, "/%s", path))
        return error_set(err, ERROR_INVALID,
                         "the image's WorkingDir \"%.80s\" is no absolute path without \"..\" of at most %zu bytes",
                         text, sizeof record->workdir - 1);
    return true;
}

bool image_describe(const struct image *image, struct template_record *record, char user[static IMAGE_USER_BYTES],
                    uint32_t *left_out, struct error *err)
{
    const json_t *config = json_object_get(image->config, "config");
    const char *name = json_string_value(json_object_get(config, "User"));
    if (!text_copy(user, IMAGE_USER_BYTES, name ? name : ""))
        return error_set(err, ERROR_INVALID, "the image's User is longer than %d", IMAGE_USER_BYTES - 1);
    *left_out = 0;
    take_env(json_object_get(config, "Env"), record, left_out);
    take_entrypoint(config, record, left_out);
    return take_workdir(config, record, err);
}
