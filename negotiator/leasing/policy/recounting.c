/* recounting.c - what everybody has, counted anew at a start: a ledger of before had no such rows, and a change of
 * limits may have been cut off between its node and its row. */
#include "negotiator/leasing/policy/quotas.h"

#include "negotiator/leasing/policy/policy_internal.h"
#include "shared/base/memory.h"

#include <string.h>

struct counting {
    struct work *work;
    json_t *sums;   /* by row: amounts */
    json_t *before; /* by row: what stands there */
};

static void count(json_t *sums, const char *row, const struct sandbox *sandbox)
{
    const struct resources *resources = &sandbox->resources;
    const struct {
        const char *name;
        int64_t amount;
    } parts[] = {{"sandboxes", 1},
                 {"cpu_milli", resources->cpu_milli},
                 {"memory_mb", resources->memory_mb},
                 {"disk_mb", resources->disk_mb}};
    json_t *sum = json_object_get(sums, row);
    if (sum == NULL) {
        sum = json_object();
        json_object_set_new(sums, row, sum);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_int_t so_far = json_integer_value(json_object_get(sum, parts[i].name));
        json_object_set_new(sum, parts[i].name, json_integer(so_far + parts[i].amount));
    }
}

static bool count_watched(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct counting *counting = cookie;
    AUTO_SANDBOX sandbox = {0};
    const char *id = strrchr(key, '/') + 1;
    if (!store_get_sandbox(counting->work, id, &sandbox))
        return false;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox))
        return true;
    count(counting->sums, store_key("used", sandbox.principal, NULL).text, &sandbox);
    count(counting->sums, "meta/used", &sandbox);
    return true;
}

static bool note_before(void *cookie, const char *key, const struct kv_value *value)
{
    struct counting *counting = cookie;
    json_t *row = json_loadb(value->data, value->size, 0, NULL);
    json_object_set_new(counting->before, key, row ? row : json_object());
    return true;
}

static bool read_all(struct counting *counting)
{
    struct work *work = counting->work;
    AUTO_KV_VALUE value = {0};
    if (!kv_range(work->kv, "watch/", NULL, 0, count_watched, counting, work->err) || work->err->kind != ERROR_NONE ||
        !kv_range(work->kv, "used/", NULL, 0, note_before, counting, work->err) ||
        !kv_get(work->kv, "meta/used", &value, work->err))
        return false;
    return value.revision == 0 || note_before(counting, "meta/used", &value);
}

static void write_differences(const struct counting *counting)
{
    const char *row;
    json_t *each;
    json_object_foreach (counting->before, row, each) {
        if (json_object_get(counting->sums, row) == NULL)
            json_object_set_new(counting->sums, row, json_object());
    }
    json_object_foreach (counting->sums, row, each) {
        json_t *before = json_object_get(counting->before, row), *pace = json_object_get(before, "paced_until_us");
        if (pace)
            json_object_set(each, "paced_until_us", pace);
        if (before && json_equal(before, each))
            continue;
        AUTO_FREE char *text = json_dumps(each, JSON_COMPACT);
        if (json_object_size(each) > 0)
            kv_change_put(counting->work->change, row, text, strlen(text));
        else
            kv_change_delete(counting->work->change, row);
    }
}

bool quotas_recount(struct work *work)
{
    struct counting counting = {.work = work, .sums = json_object(), .before = json_object()};
    bool read = read_all(&counting);
    if (read)
        write_differences(&counting);
    json_decref(counting.sums);
    json_decref(counting.before);
    return read;
}
