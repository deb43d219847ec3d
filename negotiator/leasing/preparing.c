/* preparing.c - what a node is told of a sandbox that it is to make (shared/node_protocol/DESIGN.md, `prepare`). */
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/text.h"

static const json_int_t MIB = 1024 * 1024;

/* A principal's volumes are its own on every node, and no node reads from them whose they are. */
static void add_volumes(json_t *asked, const struct leasing *leasing, const struct sandbox *sandbox)
{
    char owner[LEASING_OWNER_BYTES];
    size_t i;
    json_t *each, *list = json_array();
    leasing_owner(leasing, sandbox->principal, owner);
    json_array_foreach (sandbox->volumes, i, each) {
        json_t *told = json_deep_copy(each);
        json_int_t size_mb = json_integer_value(json_object_get(each, "size_mb"));
        bool is_named = text_equal(json_string_value(json_object_get(each, "kind")), "named");
        json_object_set_new(told, "owner", json_string(is_named ? owner : ""));
        if (is_named && size_mb == 0)
            size_mb = sandbox->volume_mb;
        json_object_set_new(told, "size_bytes", json_integer(size_mb * MIB));
        json_object_del(told, "size_mb");
        json_array_append_new(list, told);
    }
    json_object_set_new(asked, "volumes", list);
}

json_t *preparing_message(const struct leasing *leasing, const struct sandbox *sandbox)
{
    const struct resources *resources = &sandbox->resources;
    json_t *asked = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s*}", "id",
                              sandbox->id, "name", sandbox->name, "template", sandbox->template_name, "isolation",
                              sandbox->isolation, "cpu_milli", (json_int_t)resources->cpu_milli, "memory_bytes",
                              resources->memory_mb * MIB, "disk_bytes", resources->disk_mb * MIB, "pids",
                              (json_int_t)resources->pids, "open_files", (json_int_t)resources->open_files, "commands",
                              (json_int_t)resources->processes, "output_bytes", resources->output_mb * MIB, "deadline",
                              (json_int_t)sandbox->node_deadline, "epoch", (json_int_t)sandbox->epoch, "root",
                              (int)sandbox->has_root, "snapshot", sandbox->snapshot[0] ? sandbox->snapshot : NULL);
    json_object_set_new(asked, "env", sandbox->env ? json_incref(sandbox->env) : json_object());
    if (json_array_size(sandbox->volumes) > 0)
        add_volumes(asked, leasing, sandbox);
    json_object_set(asked, "network", sandbox->network);
    json_object_set(asked, "entrypoint", sandbox->entrypoint);
    return json_pack("{s:s, s:o}", "call", "prepare", "sandbox", asked);
}
