/* wish_volumes.c - `volumes` of a negotiation: {"name" | "host", "path", "read_only"?, "sub_path"?, "size_mb"?} each.
 */
#include "negotiator/dialects/wish.h"
#include "shared/base/text.h"

#include <string.h>

static bool is_known(const char *name)
{
    static const char *const FIELDS[] = {"name", "host", "path", "read_only", "sub_path", "size_mb", "create"};
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (strcmp(name, FIELDS[i]) == 0)
            return true;
    }
    return false;
}

static bool check_types(json_t *volume, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach (volume, name, value) {
        bool is_switch = strcmp(name, "read_only") == 0 || strcmp(name, "create") == 0,
             is_amount = strcmp(name, "size_mb") == 0;
        if (!is_known(name))
            return error_set(err, ERROR_INVALID, "volumes: unknown field \"%.64s\"", name);
        if (json_is_null(value))
            continue;
        if (is_switch ? !json_is_boolean(value) : is_amount ? !json_is_integer(value) : !json_is_string(value))
            return error_set(err, ERROR_INVALID, "volumes: %s must be %s", name,
                             is_switch   ? "true or false"
                             : is_amount ? "a whole number"
                                         : "a text");
        if (is_amount && json_integer_value(value) < 1)
            return error_set(err, ERROR_INVALID, "volumes: size_mb must be above 0");
    }
    return true;
}

static json_t *text_of(const json_t *volume, const char *name)
{
    json_t *value = json_object_get(volume, name);
    return json_is_string(value) ? json_incref(value) : json_string("");
}

static json_t *read_one(json_t *volume, struct error *err)
{
    bool has_name = json_is_string(json_object_get(volume, "name"));
    bool has_host = json_is_string(json_object_get(volume, "host"));
    if (!json_is_object(volume) || has_name == has_host) {
        error_set(err, ERROR_INVALID,
                  "each of volumes must be {\"name\" or \"host\", \"path\", \"read_only\"?, \"sub_path\"?, "
                  "\"size_mb\"?, \"create\"?}");
        return NULL;
    }
    if (!check_types(volume, err))
        return NULL;
    json_t *read =
        json_pack("{s:s, s:o, s:o, s:o, s:b, s:I}", "kind", has_name ? "named" : "host", "source",
                  text_of(volume, has_name ? "name" : "host"), "sub_path", text_of(volume, "sub_path"), "path",
                  text_of(volume, "path"), "read_only", (int)json_is_true(json_object_get(volume, "read_only")),
                  "size_mb", json_integer_value(json_object_get(volume, "size_mb")));
    if (json_is_false(json_object_get(volume, "create")))
        json_object_set_new(read, "must_exist", json_true());
    return read;
}

json_t *wish_volumes(const json_t *list, struct error *err)
{
    size_t i;
    json_t *each;
    if (!json_is_array(list)) {
        error_set(err, ERROR_INVALID, "volumes must be a list");
        return NULL;
    }
    json_t *volumes = json_array();
    json_array_foreach (list, i, each) {
        json_t *volume = i < WANTED_VOLUMES_MAX ? read_one(each, err) : NULL;
        if (volume == NULL) {
            json_decref(volumes);
            if (i >= WANTED_VOLUMES_MAX)
                error_set(err, ERROR_INVALID, "volumes has more than %d", WANTED_VOLUMES_MAX);
            return NULL;
        }
        json_array_append_new(volumes, volume);
    }
    return volumes;
}

static void show_text(json_t *to, const char *name, const json_t *volume, const char *field)
{
    const char *text = json_string_value(json_object_get(volume, field));
    if (text && text[0])
        json_object_set_new(to, name, json_string(text));
}

json_t *wish_shown_volumes(const json_t *volumes)
{
    size_t i;
    json_t *each, *list = json_array();
    json_array_foreach (volumes, i, each) {
        json_t *shown = json_object();
        bool is_named = text_equal(json_string_value(json_object_get(each, "kind")), "named");
        show_text(shown, is_named ? "name" : "host", each, "source");
        show_text(shown, "path", each, "path");
        show_text(shown, "sub_path", each, "sub_path");
        json_object_set_new(shown, "read_only", json_boolean(json_is_true(json_object_get(each, "read_only"))));
        if (json_integer_value(json_object_get(each, "size_mb")) > 0)
            json_object_set(shown, "size_mb", json_object_get(each, "size_mb"));
        json_array_append_new(list, shown);
    }
    return list;
}
