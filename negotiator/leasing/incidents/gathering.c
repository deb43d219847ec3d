/* gathering.c - which sandboxes an incident is about, as they are before anything is revoked. */
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/incidents/incidents_internal.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { LOOKS = 200 /* rows of one step */ };
static const char WATCH[] = "watch/", FAMILY[] = "family/";

struct keys {
    json_t *list;
    size_t limit;
};

static bool note_key(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct keys *keys = cookie;
    json_array_append_new(keys->list, json_string(key));
    return json_array_size(keys->list) < keys->limit;
}

/* --- how it is --- */

static json_t *when(int64_t wall_ms)
{
    char text[CLOCK_TEXT_BYTES];
    if (life_is_endless(wall_ms))
        return json_null();
    clock_format(text, wall_ms);
    return json_string(text);
}

/* All of its row but env, which may hold secrets. */
static json_t *describe(const struct sandbox *sandbox)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "id", sandbox->id, "name", sandbox->name,
                  "principal", sandbox->principal, "node", sandbox->node, "state", sandbox_state_name(sandbox->state),
                  "template", sandbox->template_name, "isolation", sandbox->isolation, "created_at",
                  when(sandbox->created_at), "max_expires_at", when(sandbox->deadline));
    json_object_set_new(json, "resources", resources_format(&sandbox->resources));
    json_object_set_new(json, "root", json_boolean(sandbox->has_root));
    json_object_set_new(json, "metadata", sandbox->metadata ? json_incref(sandbox->metadata) : json_object());
    json_object_set_new(json, "network", sandbox->network ? json_incref(sandbox->network) : json_null());
    json_object_set_new(json, "volumes", sandbox->volumes ? json_incref(sandbox->volumes) : json_null());
    json_object_set_new(json, "snapshot", json_string(sandbox->snapshot));
    return json;
}

/* NULL: the store failed. */
static json_t *list_leases(struct work *work, const struct sandbox *sandbox)
{
    json_t *leases = json_array();
    size_t i;
    const json_t *thread;
    json_array_foreach (sandbox->threads, i, thread) {
        struct lease lease;
        if (!store_get_lease(work, sandbox->principal, json_string_value(thread), &lease)) {
            json_decref(leases);
            return NULL;
        }
        if (lease.revision > 0)
            json_array_append_new(leases,
                                  json_pack("{s:s, s:s, s:o, s:o, s:o}", "id", lease.id, "thread_id", lease.thread_id,
                                            "created_at", when(lease.created_at), "expires_at", when(lease.expires_at),
                                            "max_expires_at", when(lease.max_expires_at)));
    }
    return leases;
}

/* `pauses`: it is to be paused, if the incident wants that; not where somebody else's token led to it. */
static bool add(struct work *work, struct incident *incident, const struct sandbox *sandbox, const char *why,
                bool pauses)
{
    uint64_t revision;
    AUTO_INCIDENT_JSON *before = NULL;
    if (!incident_get_suspect(work, incident->id, sandbox->id, &before, &revision))
        return false;
    if (revision > 0)
        return true;
    json_t *leases = list_leases(work, sandbox);
    if (leases == NULL)
        return false;
    bool wanted = pauses && json_is_true(json_object_get(incident->row, "pause"));
    AUTO_INCIDENT_JSON *row = json_pack("{s:o, s:o, s:s, s:s}", "sandbox", describe(sandbox), "leases", leases, "why",
                                        why, "pause", wanted ? "pending" : "not_asked");
    incident_put_suspect(work, incident->id, sandbox->id, row);
    json_t *count = json_object_get(incident->row, "suspects");
    return json_integer_set(count, json_integer_value(count) + 1) == 0;
}

/* --- sandboxes --- */

/* Why it is meant: "principal mallory"; false when it is not. */
static bool is_meant(const struct incident *incident, const struct sandbox *sandbox, char why[static 256])
{
    size_t i;
    const json_t *each;
    json_array_foreach (json_object_get(incident->row, "selectors"), i, each) {
        const char *kind = incident_text(each, "kind"), *value = incident_text(each, "value");
        bool of_owner = strcmp(kind, "principal") == 0 && strcmp(value, sandbox->principal) == 0;
        if (!of_owner && strcmp(kind, "all") != 0 && !incident_is(each, "sandbox", sandbox->id))
            continue;
        return text_format(why, 256, "%s%s%s", kind, value[0] ? " " : "", value);
    }
    return false;
}

static bool look_at_sandbox(struct work *work, struct incident *incident, const char *key)
{
    AUTO_SANDBOX sandbox = {0};
    char why[256];
    const char *id = strrchr(key, '/') + 1;
    if (!store_get_sandbox(work, id, &sandbox))
        return false;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox) || !is_meant(incident, &sandbox, why))
        return true;
    return add(work, incident, &sandbox, why, true);
}

/* --- tokens --- */

/* Whether it was granted under that API key (keys/key_tokens.h). */
static bool is_of_key(struct work *work, const char *key, const struct family *family)
{
    AUTO_KV_VALUE value = {0};
    return kv_get(work->kv, store_key("keyfam", key, family->id).text, &value, work->err) && value.revision > 0;
}

/* A token of it lives, and it is one that is meant by its scope or API key, or by its principal in somebody else's
 * sandbox. */
static bool is_family_meant(struct work *work, const struct incident *incident, const struct family *family,
                            bool *by_scope, char why[static 256])
{
    size_t i;
    const json_t *each;
    struct scope_set scopes;
    bool readable = scope_parse(&scopes, family->scope, strlen(family->scope), SCOPE_UNKNOWN_DROPPED, NULL);
    json_array_foreach (json_object_get(incident->row, "selectors"), i, each) {
        const char *kind = incident_text(each, "kind"), *value = incident_text(each, "value");
        const char *only = incident_text(each, "principal");
        *by_scope = strcmp(kind, "scope") == 0 && readable && scope_allows(&scopes, value) &&
                    (only[0] == '\0' || strcmp(only, family->principal) == 0);
        *by_scope |= strcmp(kind, "key") == 0 && is_of_key(work, value, family);
        bool by_principal = strcmp(kind, "principal") == 0 && strcmp(value, family->principal) == 0;
        if (*by_scope || by_principal)
            return text_format(why, 256, "token %s of %s %s", family->id, kind, value);
    }
    return false;
}

static bool look_at_family(struct work *work, struct incident *incident, const char *key, json_t *seen)
{
    struct family family;
    AUTO_SANDBOX sandbox = {0};
    char why[256];
    bool by_scope = false;
    if (!family_get(work, key + strlen(FAMILY), &family))
        return false;
    if (family.revision == 0 || family.until <= work->now / 1000 || json_object_get(seen, family.sandbox_id) ||
        !is_family_meant(work, incident, &family, &by_scope, why))
        return true;
    json_object_set_new(seen, family.sandbox_id, json_true());
    if (!store_get_sandbox(work, family.sandbox_id, &sandbox))
        return false;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox))
        return true;
    return add(work, incident, &sandbox, why, by_scope);
}

/* --- a step --- */

static bool wants_families(const struct incident *incident)
{
    size_t i;
    const json_t *each;
    json_array_foreach (json_object_get(incident->row, "selectors"), i, each) {
        if (incident_is(each, "kind", "scope") || incident_is(each, "kind", "key") ||
            incident_is(each, "kind", "principal"))
            return true;
    }
    return false;
}

/* All of one table were looked at. */
static void go_on(struct incident *incident, bool families)
{
    bool next = !families && wants_families(incident);
    json_object_set_new(incident->row, "cursor", json_string(next ? FAMILY : ""));
    if (!next)
        json_object_set_new(incident->row, "step",
                            json_string(json_is_true(json_object_get(incident->row, "revoke")) ? "revoke" : "pause"));
}

bool incident_gather(struct work *work, struct incident *incident)
{
    char first[KV_KEY_MAX_BYTES + 1];
    const char *cursor = incident_text(incident->row, "cursor");
    bool families = text_starts_with(cursor, FAMILY);
    /* '!' follows every key that begins the same. */
    bool begins = cursor[0] == '\0' || strcmp(cursor, FAMILY) == 0;
    if (!text_format(first, sizeof first, "%s%s", cursor[0] ? cursor : WATCH, begins ? "" : "!"))
        return error_set(work->err, ERROR_INTERNAL, "a key does not fit");
    AUTO_INCIDENT_JSON *list = json_array(), *seen = json_object();
    struct keys keys = {.list = list, .limit = LOOKS};
    if (!kv_range(work->kv, first, families ? "family0" : "watch0", LOOKS, note_key, &keys, work->err))
        return false;
    size_t i, count = json_array_size(list);
    const json_t *each;
    json_array_foreach (list, i, each) {
        const char *key = json_string_value(each);
        if (families ? !look_at_family(work, incident, key, seen) : !look_at_sandbox(work, incident, key))
            return false;
    }
    if (count < LOOKS)
        go_on(incident, families);
    else
        json_object_set(incident->row, "cursor", json_array_get(list, count - 1));
    return true;
}
