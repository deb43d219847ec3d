#include "negotiator/leasing/incidents/incidents_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

void incident_done(struct incident *incident)
{
    json_decref(incident->row);
    incident->row = NULL;
}

void incident_json_done(json_t **json)
{
    json_decref(*json);
    *json = NULL;
}

const char *incident_text(const json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

const char *incident_kind_name(enum mark_kind kind)
{
    return kind == MARK_KINDS ? "key" : mark_kind_name(kind);
}

bool incident_is(const json_t *row, const char *name, const char *value)
{
    return strcmp(incident_text(row, name), value) == 0;
}

/* --- incidents --- */

static json_t *read_row(const struct kv_value *value)
{
    json_t *row = json_loadb(value->data, value->size, 0, NULL);
    if (row && json_is_array(json_object_get(row, "selectors")) && incident_text(row, "step")[0])
        return row;
    json_decref(row);
    return NULL;
}

bool incident_get(struct work *work, const char *id, struct incident *incident)
{
    AUTO_KV_VALUE value = {0};
    incident_done(incident);
    if (!text_copy(incident->id, sizeof incident->id, id))
        return error_set(work->err, ERROR_INTERNAL, "the id of an incident is too long");
    if (!kv_get(work->kv, store_key("incident", id, NULL).text, &value, work->err))
        return false;
    incident->revision = value.revision;
    if (value.revision == 0)
        return true;
    incident->row = read_row(&value);
    return incident->row || error_set(work->err, ERROR_INTERNAL, "the row of incident %.40s is damaged", id);
}

static void put_json(struct work *work, const char *key, const json_t *json)
{
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    kv_change_put(work->change, key, text ? text : "", text ? strlen(text) : 0);
}

void incident_put(struct work *work, const struct incident *incident)
{
    struct store_row key = store_key("incident", incident->id, NULL);
    kv_change_expect(work->change, key.text, incident->revision);
    put_json(work, key.text, incident->row);
}

static bool note_row(void *cookie, const char *key UNUSED, const struct kv_value *value)
{
    json_t *row = read_row(value);
    if (row)
        json_array_append_new(cookie, row);
    return true;
}

json_t *incident_all(struct work *work)
{
    json_t *all = json_array();
    if (kv_range(work->kv, "incident/", NULL, INCIDENT_LIST_MAX, note_row, all, work->err))
        return all;
    json_decref(all);
    return NULL;
}

/* --- suspects --- */

bool incident_get_suspect(struct work *work, const char *id, const char *sandbox_id, json_t **row, uint64_t *revision)
{
    AUTO_KV_VALUE value = {0};
    *row = NULL;
    *revision = 0;
    if (!kv_get(work->kv, store_key("suspect", id, sandbox_id).text, &value, work->err))
        return false;
    *revision = value.revision;
    *row = value.revision ? json_loadb(value.data, value.size, 0, NULL) : NULL;
    return *row || value.revision == 0 || error_set(work->err, ERROR_INTERNAL, "the row of a suspect is damaged");
}

void incident_put_suspect(struct work *work, const char *id, const char *sandbox_id, const json_t *row)
{
    put_json(work, store_key("suspect", id, sandbox_id).text, row);
}

struct page {
    json_t *list;
    size_t limit;
    bool more;
};

static bool note_suspect(void *cookie, const char *key UNUSED, const struct kv_value *value)
{
    struct page *page = cookie;
    if (json_array_size(page->list) == page->limit) {
        page->more = true;
        return false;
    }
    json_t *row = json_loadb(value->data, value->size, 0, NULL);
    if (row)
        json_array_append_new(page->list, row);
    return true;
}

json_t *incident_suspects(struct work *work, const char *id, const char *after, size_t limit, bool *more)
{
    struct page page = {.list = json_array(), .limit = limit};
    char first[KV_KEY_MAX_BYTES], end[KV_KEY_MAX_BYTES];
    /* '!' follows every id that begins the same; '0' follows '/'. */
    bool fits = text_format(first, sizeof first, "suspect/%s/%s%s", id, after, after[0] ? "!" : "") &&
                text_format(end, sizeof end, "suspect/%s0", id);
    if (fits && kv_range(work->kv, first, end, 0, note_suspect, &page, work->err)) {
        *more = page.more;
        return page.list;
    }
    if (!fits)
        error_set(work->err, ERROR_INTERNAL, "a key does not fit");
    json_decref(page.list);
    return NULL;
}

/* --- the audit --- */

bool incident_audit(struct work *work, const struct caller *caller, const char *action, const char *sandbox_id,
                    const struct error *refusal, const char *detail)
{
    bool refused = refusal && refusal->kind != ERROR_NONE;
    struct audit_record record = {.action = action,
                                  .outcome = refused ? "refused" : "ok",
                                  .status = refused ? error_http_status(refusal->kind) : 200,
                                  .sandbox_id = sandbox_id,
                                  .detail = refused ? refusal->message : detail};
    return store_audit(work, caller, &record);
}
