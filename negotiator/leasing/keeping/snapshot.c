#include "negotiator/leasing/keeping/snapshot.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <string.h>

static const char *const STATE_NAMES[SNAPSHOT_STATES] = {
    [SNAPSHOT_CREATING] = "creating", [SNAPSHOT_READY] = "ready", [SNAPSHOT_DELETING] = "deleting"};

const char *snapshot_state_name(enum snapshot_state state)
{
    return state < SNAPSHOT_STATES ? STATE_NAMES[state] : "unknown";
}

/* --- rows --- */

static bool read_state(enum snapshot_state *state, const char *text)
{
    for (enum snapshot_state each = 0; each < SNAPSHOT_STATES; each++) {
        if (text_equal(text, STATE_NAMES[each])) {
            *state = each;
            return true;
        }
    }
    return false;
}

static bool read_row(struct snapshot *to, json_t *json)
{
    const char *id, *name, *principal, *node, *sandbox, *template_name, *storage, *state;
    json_int_t size = 0, created = 0, since = 0, due = 0;
    if (json_unpack(json, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "id", &id, "name", &name,
                    "principal", &principal, "node", &node, "sandbox_id", &sandbox, "template", &template_name,
                    "storage", &storage, "state", &state, "size_bytes", &size, "created_at", &created, "state_since",
                    &since, "due_at", &due) != 0)
        return false;
    to->size_bytes = size;
    to->created_at = created;
    to->state_since = since;
    to->due_at = due;
    return text_copy(to->id, sizeof to->id, id) && text_copy(to->name, sizeof to->name, name) &&
           text_copy(to->principal, sizeof to->principal, principal) && text_copy(to->node, sizeof to->node, node) &&
           text_copy(to->sandbox_id, sizeof to->sandbox_id, sandbox) &&
           text_copy(to->template_name, sizeof to->template_name, template_name) &&
           text_copy(to->storage, sizeof to->storage, storage) && read_state(&to->state, state);
}

bool snapshot_get(struct work *work, const char *id, struct snapshot *snapshot)
{
    AUTO_KV_VALUE value = {0};
    struct snapshot read = {.revision = 0};
    if (!kv_get(work->kv, store_key("snapshot", id, NULL).text, &value, work->err))
        return false;
    json_t *json = value.revision ? json_loadb(value.data, value.size, 0, NULL) : NULL;
    bool good = value.revision == 0 || (json && read_row(&read, json));
    json_decref(json);
    if (!good)
        return error_set(work->err, ERROR_INTERNAL, "the row of snapshot %s is damaged", id);
    read.revision = value.revision;
    *snapshot = read;
    return true;
}

void snapshot_put(struct work *work, const struct snapshot *snapshot)
{
    struct store_row key = store_key("snapshot", snapshot->id, NULL);
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "id", snapshot->id, "name",
                             snapshot->name, "principal", snapshot->principal, "node", snapshot->node, "sandbox_id",
                             snapshot->sandbox_id, "template", snapshot->template_name, "storage", snapshot->storage,
                             "state", snapshot_state_name(snapshot->state), "size_bytes",
                             (json_int_t)snapshot->size_bytes, "created_at", (json_int_t)snapshot->created_at,
                             "state_since", (json_int_t)snapshot->state_since, "due_at", (json_int_t)snapshot->due_at);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_expect(work->change, key.text, snapshot->revision);
    kv_change_put(work->change, key.text, text, strlen(text));
    if (snapshot->due_at > 0)
        store_forget_at(work, snapshot->due_at, key.text);
}

void snapshot_remove(struct work *work, const struct snapshot *snapshot)
{
    struct store_row key = store_key("snapshot", snapshot->id, NULL);
    kv_change_expect(work->change, key.text, snapshot->revision);
    kv_change_delete(work->change, key.text);
}

/* --- what points at them --- */

bool snapshot_get_name(struct work *work, const char *principal, const char *name, char id[static RANDOM_ID_BYTES])
{
    AUTO_KV_VALUE value = {0};
    struct store_row key = store_key("snapname", principal, name);
    if (!kv_get(work->kv, key.text, &value, work->err))
        return false;
    if (work->change)
        kv_change_expect(work->change, key.text, value.revision);
    id[0] = '\0';
    return value.revision == 0 || text_copy(id, RANDOM_ID_BYTES, value.data) ||
           error_set(work->err, ERROR_INTERNAL, "the row of a snapshot's name is damaged");
}

void snapshot_enlist(struct work *work, const struct snapshot *snapshot)
{
    const struct store_row name = store_key("snapname", snapshot->principal, snapshot->name);
    kv_change_put(work->change, name.text, snapshot->id, strlen(snapshot->id));
    kv_change_put(work->change, store_key("snapowned", snapshot->principal, snapshot->id).text, "", 0);
}

void snapshot_delist(struct work *work, const struct snapshot *snapshot)
{
    kv_change_delete(work->change, store_key("snapname", snapshot->principal, snapshot->name).text);
    kv_change_delete(work->change, store_key("snapowned", snapshot->principal, snapshot->id).text);
}

static bool count_one(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

bool snapshot_count(struct work *work, const char *principal, size_t most, size_t *count)
{
    /* '0' follows '/'. */
    struct store_row first = store_key("snapowned", principal, ""), end = first;
    end.text[strlen(end.text) - 1] = '0';
    *count = 0;
    return kv_range(work->kv, first.text, end.text, most, count_one, count, work->err);
}

bool snapshot_find(struct work *work, const struct caller *caller, const char *text, struct snapshot *snapshot,
                   struct error *refusal)
{
    char id[RANDOM_ID_BYTES] = "";
    const char *owner = caller_owner(caller);
    bool is_id = random_is_id(text, "snp");
    *snapshot = (struct snapshot){.revision = 0};
    if (!is_id && !snapshot_get_name(work, owner, text, id))
        return false;
    if ((is_id && !text_copy(id, sizeof id, text)) || (id[0] && !snapshot_get(work, id, snapshot)))
        return false;
    bool is_ours = strcmp(snapshot->principal, owner) == 0 || (is_id && caller->principal.role == ROLE_ADMIN);
    if (snapshot->revision == 0 || !is_ours || snapshot->state == SNAPSHOT_DELETING)
        return error_set(refusal, ERROR_NOT_FOUND, "no snapshot %s", text);
    return snapshot->state == SNAPSHOT_READY ||
           error_set(refusal, ERROR_STARTING, "snapshot %s is still being made; ask again", text);
}
