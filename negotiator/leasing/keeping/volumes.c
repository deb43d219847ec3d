#include "negotiator/leasing/keeping/volumes.h"

#include "negotiator/leasing/keeping/volumes_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

/* --- rows --- */

static bool read_row(struct volume *volume, json_t *json)
{
    const char *node = NULL, *made_by = NULL;
    json_int_t size = 0, created = 0;
    bool good = json_unpack(json, "{s:s, s:s, s:I, s:I}", "node", &node, "made_by", &made_by, "size_mb", &size,
                            "created_at", &created) == 0 &&
                text_copy(volume->node, sizeof volume->node, node) &&
                text_copy(volume->made_by, sizeof volume->made_by, made_by);
    volume->size_mb = size;
    volume->created_at = created;
    return good;
}

bool volume_parse(struct volume *volume, const char *name, const struct kv_value *value, struct error *err)
{
    struct volume read = {.revision = value->revision};
    json_t *json = value->revision ? json_loadb(value->data, value->size, 0, NULL) : NULL;
    bool good =
        text_copy(read.name, sizeof read.name, name) && (value->revision == 0 || (json && read_row(&read, json)));
    json_decref(json);
    if (!good)
        return error_set(err, ERROR_INTERNAL, "the row of volume %.40s is damaged", name);
    *volume = read;
    return true;
}

bool volume_get(struct work *work, const char *principal, const char *name, struct volume *volume)
{
    AUTO_KV_VALUE value = {0};
    return kv_get(work->kv, store_key("volume", principal, name).text, &value, work->err) &&
           volume_parse(volume, name, &value, work->err);
}

static void put(struct work *work, const char *principal, const struct volume *volume)
{
    struct store_row key = store_key("volume", principal, volume->name);
    json_t *json = json_pack("{s:s, s:s, s:I, s:I}", "node", volume->node, "made_by", volume->made_by, "size_mb",
                             (json_int_t)volume->size_mb, "created_at", (json_int_t)volume->created_at);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_expect(work->change, key.text, volume->revision);
    kv_change_put(work->change, key.text, text, strlen(text));
}

void volume_remove(struct work *work, const char *principal, const struct volume *volume)
{
    struct store_row key = store_key("volume", principal, volume->name);
    kv_change_expect(work->change, key.text, volume->revision);
    kv_change_delete(work->change, key.text);
}

static struct store_row used_key(const struct sandbox *sandbox, const char *name)
{
    char second[WANTED_VOLUME_BYTES + RANDOM_ID_BYTES + 1];
    if (!text_format(second, sizeof second, "%s/%s", name, sandbox->id))
        second[0] = '\0'; /* cannot be: both were bounded */
    return store_key("volused", sandbox->principal, second);
}

static bool note_used(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    json_t *ids = cookie;
    json_array_append_new(ids, json_string(strrchr(key, '/') + 1));
    return true;
}

bool volume_used_by(struct work *work, const char *principal, const char *name, size_t most, json_t **ids)
{
    struct store_row prefix = store_key("volused", principal, name);
    size_t length = strlen(prefix.text);
    json_t *found = json_array();
    bool fits = text_copy(prefix.text + length, sizeof prefix.text - length, "/");
    if (!fits || !kv_range(work->kv, prefix.text, NULL, most, note_used, found, work->err)) {
        json_decref(found);
        return false;
    }
    *ids = found;
    return true;
}

/* --- of one sandbox --- */

/* The name of its i-th volume, once; NULL: it is a host's, or was named before. */
static const char *name_at(const struct sandbox *sandbox, size_t i)
{
    const json_t *volume = json_array_get(sandbox->volumes, i);
    const char *name = json_string_value(json_object_get(volume, "source"));
    if (!text_equal(json_string_value(json_object_get(volume, "kind")), "named"))
        return NULL;
    for (size_t before = 0; before < i; before++) {
        const json_t *other = json_array_get(sandbox->volumes, before);
        if (text_equal(json_string_value(json_object_get(other, "kind")), "named") &&
            text_equal(json_string_value(json_object_get(other, "source")), name))
            return NULL;
    }
    return name;
}

static bool count_one(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

static bool has_room(struct work *work, const char *principal, size_t wanted, struct error *refusal)
{
    size_t count = 0, most = work->leasing->options.policy.volumes_max;
    struct store_row prefix = store_key("volume", principal, "");
    if (!kv_range(work->kv, prefix.text, NULL, most, count_one, &count, work->err))
        return false;
    return count + wanted <= most ||
           error_set(refusal, ERROR_QUOTA, "%s has %zu volumes of at most %zu; delete one", principal, count, most);
}

bool volumes_place(struct work *work, struct sandbox *sandbox, struct error *refusal)
{
    size_t made = 0;
    for (size_t i = 0; i < json_array_size(sandbox->volumes); i++) {
        struct volume volume;
        const char *name = name_at(sandbox, i);
        if (name == NULL)
            continue;
        if (volumes_is_dropped(work->leasing, sandbox->principal, name))
            return error_set(refusal, ERROR_CONFLICT, "volume %s is being deleted; ask again", name);
        if (!volume_get(work, sandbox->principal, name, &volume))
            return false;
        if (volume.revision == 0 && json_is_true(json_object_get(json_array_get(sandbox->volumes, i), "must_exist")))
            return error_set(refusal, ERROR_NOT_FOUND, "there is no volume %s", name);
        made += volume.revision == 0;
        if (volume.revision == 0)
            continue;
        if (sandbox->node[0] && strcmp(sandbox->node, volume.node) != 0)
            return error_set(refusal, ERROR_CONFLICT, "volume %s lies on node %s, another volume or the snapshot on %s",
                             name, volume.node, sandbox->node);
        memcpy(sandbox->node, volume.node, sizeof sandbox->node);
    }
    return made == 0 || has_room(work, sandbox->principal, made, refusal);
}

bool volumes_take(struct work *work, const struct sandbox *sandbox)
{
    for (size_t i = 0; i < json_array_size(sandbox->volumes); i++) {
        struct volume volume;
        const char *name = name_at(sandbox, i);
        if (name == NULL)
            continue;
        if (!volume_get(work, sandbox->principal, name, &volume))
            return false;
        if (volume.revision == 0) {
            volume.created_at = work->now;
            volume.size_mb = json_integer_value(json_object_get(json_array_get(sandbox->volumes, i), "size_mb"));
            if (volume.size_mb == 0)
                volume.size_mb = sandbox->volume_mb;
            memcpy(volume.node, sandbox->node, sizeof volume.node);
            memcpy(volume.made_by, sandbox->id, sizeof volume.made_by);
            put(work, sandbox->principal, &volume);
        } else if (volume.made_by[0]) { /* what becomes of the first one is no matter any more */
            volume.made_by[0] = '\0';
            put(work, sandbox->principal, &volume);
        }
        kv_change_put(work->change, used_key(sandbox, name).text, "", 0);
    }
    return true;
}

typedef void deed_fn(struct work *work, const char *principal, const struct volume *volume);

/* Does it to each volume that this sandbox was the first to ask for, and nobody since. */
static bool each_own(struct work *work, const struct sandbox *sandbox, deed_fn *deed)
{
    for (size_t i = 0; i < json_array_size(sandbox->volumes); i++) {
        struct volume volume;
        const char *name = name_at(sandbox, i);
        if (name == NULL)
            continue;
        if (!volume_get(work, sandbox->principal, name, &volume))
            return false;
        if (volume.revision > 0 && strcmp(volume.made_by, sandbox->id) == 0)
            deed(work, sandbox->principal, &volume);
    }
    return true;
}

static void keep(struct work *work, const char *principal, const struct volume *volume)
{
    struct volume kept = *volume;
    kept.made_by[0] = '\0';
    put(work, principal, &kept);
}

bool volumes_made(struct work *work, const struct sandbox *sandbox)
{
    return each_own(work, sandbox, keep);
}

bool volumes_unmake(struct work *work, const struct sandbox *sandbox)
{
    return each_own(work, sandbox, volume_remove);
}

void volumes_release(struct work *work, const struct sandbox *sandbox)
{
    for (size_t i = 0; i < json_array_size(sandbox->volumes); i++) {
        const char *name = name_at(sandbox, i);
        if (name)
            kv_change_delete(work->change, used_key(sandbox, name).text);
    }
}
