/* templates.c - the templates that nodes have, as their heartbeats say. */
#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/text.h"

#include <string.h>

enum { DIGEST_BYTES = 160, SOURCE_BYTES = 512 };

/* On every node: it is the host's own /usr. */
static const char BASE[] = "base";

static json_t *copy_text(const json_t *told, const char *name, size_t max_bytes)
{
    const char *text = json_string_value(json_object_get(told, name));
    size_t length = text ? text_utf8_prefix(text, strnlen(text, max_bytes - 1)) : 0;
    return json_stringn(text ? text : "", length);
}

static json_t *copy_amount(const json_t *told, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(told, name));
    return json_integer(value > 0 ? value : 0);
}

/* Only what we know, within bounds; NULL when it has no proper name. */
static json_t *copy_one(const json_t *told)
{
    const char *name = json_string_value(json_object_get(told, "name"));
    if (!name || !text_is_made_of(name, FLEET_TEMPLATE_BYTES - 1, "._:-"))
        return NULL;
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", name, "digest", copy_text(told, "digest", DIGEST_BYTES),
                     "source", copy_text(told, "source", SOURCE_BYTES), "size_bytes", copy_amount(told, "size_bytes"),
                     "created_at", copy_amount(told, "created_at"));
}

bool fleet_read_templates(json_t **templates, const json_t *told, struct error *err)
{
    size_t i;
    json_t *each;
    if (told == NULL)
        return true;
    if (!json_is_array(told) || json_array_size(told) > FLEET_TEMPLATES_MAX)
        return error_set(err, ERROR_INVALID, "the heartbeat's templates are not a list of at most %d",
                         FLEET_TEMPLATES_MAX);
    json_t *list = json_array();
    json_array_foreach (told, i, each) {
        json_t *copy = copy_one(each);
        if (copy == NULL) {
            json_decref(list);
            return error_set(err, ERROR_INVALID, "the heartbeat names a template that has no proper name");
        }
        json_array_append_new(list, copy);
    }
    json_decref(*templates);
    *templates = list;
    return true;
}

static json_t *find(json_t *list, const char *name, const json_t *digest)
{
    size_t i;
    json_t *each;
    json_array_foreach (list, i, each) {
        if (text_equal(json_string_value(json_object_get(each, "name")), name) &&
            (digest == NULL || json_equal(json_object_get(each, "digest"), digest)))
            return each;
    }
    return NULL;
}

bool fleet_node_has_template(const struct fleet_node *node, const char *name)
{
    return strcmp(name, BASE) == 0 || find(node->templates, name, NULL) != NULL;
}

/* Of one name and digest on several nodes it is one. */
static void collect(json_t *all, const struct fleet_node *node)
{
    size_t i;
    json_t *each;
    json_array_foreach (node->templates, i, each) {
        json_t *known = find(all, json_string_value(json_object_get(each, "name")), json_object_get(each, "digest"));
        if (known == NULL) {
            known = json_deep_copy(each);
            json_object_set_new(known, "nodes", json_array());
            json_array_append_new(all, known);
        }
        json_array_append_new(json_object_get(known, "nodes"), json_string(node->name));
    }
}

json_t *fleet_templates(struct fleet *fleet)
{
    uint64_t now = fleet->options.boot_ns();
    json_t *all = json_array();
    pthread_mutex_lock(&fleet->registry_lock);
    for (size_t i = 0; i < fleet->node_count; i++) {
        if (fleet_node_life(fleet->nodes[i], now) != FLEET_LOST)
            collect(all, fleet->nodes[i]);
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return all;
}

void fleet_template_names(struct fleet *fleet, char *names, size_t size)
{
    json_t *all = fleet_templates(fleet), *named = json_pack("{s:b}", BASE, 1);
    size_t i, length = strlen(BASE);
    json_t *each;
    if (!text_copy(names, size, BASE))
        length = 0;
    json_array_foreach (all, i, each) {
        const char *name = json_string_value(json_object_get(each, "name"));
        if (json_object_get(named, name)) /* of several digests: once */
            continue;
        json_object_set_new(named, name, json_true());
        if (length + strlen(name) + sizeof ", ..." >= size) {
            (void)!text_copy(names + length, size - length, ", ...");
            break;
        }
        if (text_format(names + length, size - length, ", %s", name))
            length += strlen(name) + 2;
    }
    json_decref(named);
    json_decref(all);
}
