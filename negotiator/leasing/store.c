#include "negotiator/leasing/store.h"

#include "negotiator/leasing/families.h"
#include "negotiator/leasing/keys/key_tokens.h"
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DUE_DIGITS = 16 };
static const char WATCH[] = "watch/";
static const int64_t ONCE_MS = (int64_t)WANTED_DAY_S * 1000; /* an Idempotency-Key is kept */

struct store_row store_key(const char *table, const char *first, const char *second)
{
    struct store_row key = {.text = ""};
    bool fits = second ? text_format(key.text, sizeof key.text, "%s/%s/%s", table, first, second)
                       : text_format(key.text, sizeof key.text, "%s/%s", table, first);
    (void)fits; /* else it is "", which the store refuses */
    return key;
}

static void put_text(struct work *work, const char *key, const char *text)
{
    kv_change_put(work->change, key, text, strlen(text));
}

/* --- sandboxes and leases --- */

bool store_get_sandbox(struct work *work, const char *id, struct sandbox *sandbox)
{
    AUTO_KV_VALUE value = {0};
    struct store_row key = store_key("sandbox", id, NULL);
    if (!kv_get(work->kv, key.text, &value, work->err))
        return false;
    if (value.revision == 0) {
        sandbox_done(sandbox);
        return true;
    }
    if (!sandbox_parse(sandbox, value.data, value.size, work->err))
        return false;
    sandbox->revision = value.revision;
    return true;
}

void store_put_sandbox(struct work *work, const struct sandbox *sandbox)
{
    struct store_row key = store_key("sandbox", sandbox->id, NULL);
    AUTO_FREE char *text = sandbox_format(sandbox);
    kv_change_expect(work->change, key.text, sandbox->revision);
    put_text(work, key.text, text);
}

bool store_get_lease(struct work *work, const char *principal, const char *thread_id, struct lease *lease)
{
    AUTO_KV_VALUE value = {0};
    struct store_row key = store_key("thread", principal, thread_id);
    if (!kv_get(work->kv, key.text, &value, work->err))
        return false;
    *lease = (struct lease){0};
    if (value.revision > 0 && !lease_parse(lease, value.data, value.size, work->err))
        return false;
    lease->revision = value.revision;
    return true;
}

void store_put_lease(struct work *work, const char *principal, const struct lease *lease)
{
    struct store_row key = store_key("thread", principal, lease->thread_id);
    AUTO_FREE char *text = lease_format(lease);
    kv_change_expect(work->change, key.text, lease->revision);
    put_text(work, key.text, text);
}

void store_delete_lease(struct work *work, const char *principal, const struct lease *lease)
{
    struct store_row key = store_key("thread", principal, lease->thread_id);
    kv_change_expect(work->change, key.text, lease->revision);
    kv_change_delete(work->change, key.text);
}

/* --- what points at them --- */

bool store_get_name(struct work *work, const char *principal, const char *name, char id[static RANDOM_ID_BYTES])
{
    AUTO_KV_VALUE value = {0};
    struct store_row key = store_key("name", principal, name);
    if (!kv_get(work->kv, key.text, &value, work->err))
        return false;
    /* Asked for before it is taken: so nobody may take it in between. */
    kv_change_expect(work->change, key.text, value.revision);
    id[0] = '\0';
    if (value.revision == 0)
        return true;
    return text_copy(id, RANDOM_ID_BYTES, value.data) ||
           error_set(work->err, ERROR_INTERNAL, "the row of a name is damaged");
}

void store_take_name(struct work *work, const struct sandbox *sandbox)
{
    put_text(work, store_key("name", sandbox->principal, sandbox->name).text, sandbox->id);
}

void store_free_name(struct work *work, const struct sandbox *sandbox)
{
    kv_change_delete(work->change, store_key("name", sandbox->principal, sandbox->name).text);
}

void store_own(struct work *work, const struct sandbox *sandbox)
{
    put_text(work, store_key("owned", sandbox->principal, sandbox->id).text, "");
}

/* --- when it is looked at --- */

static struct store_row due_key(int64_t at, const char *row)
{
    char when[DUE_DIGITS + 1];
    snprintf(when, sizeof when, "%016" PRIx64, (uint64_t)at);
    return store_key("due", when, row);
}

static void put_due(struct work *work, int64_t at, const char *row)
{
    put_text(work, due_key(at, row).text, "");
    reaper_arm(work->leasing, at);
}

bool store_get_wake(struct work *work, const char *node, const char *id, int64_t *wake)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(work->kv, store_key("watch", node, id).text, &value, work->err))
        return false;
    *wake = value.revision ? strtoll(value.data, NULL, 10) : INT64_MAX;
    return true;
}

/* A due row that stays behind because the store could not be read is found to be no longer meant. */
static void drop_watch(struct work *work, const struct sandbox *sandbox, const char *row)
{
    int64_t wake = INT64_MAX;
    if (store_get_wake(work, sandbox->node, sandbox->id, &wake) && wake != INT64_MAX)
        kv_change_delete(work->change, due_key(wake, row).text);
}

void store_watch(struct work *work, const struct sandbox *sandbox, int64_t wake)
{
    char text[32];
    struct store_row row = store_key("watch", sandbox->node, sandbox->id);
    drop_watch(work, sandbox, row.text);
    snprintf(text, sizeof text, "%" PRId64, wake);
    put_text(work, row.text, text);
    put_due(work, wake, row.text);
}

void store_unwatch(struct work *work, const struct sandbox *sandbox)
{
    struct store_row row = store_key("watch", sandbox->node, sandbox->id);
    drop_watch(work, sandbox, row.text);
    kv_change_delete(work->change, row.text);
}

struct watch_walk {
    const char *after;
    char (*ids)[RANDOM_ID_BYTES];
    size_t count, limit;
};

static bool note_watched(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct watch_walk *walk = cookie;
    const char *id = strrchr(key, '/') + 1;
    if (strcmp(id, walk->after) != 0 && text_copy(walk->ids[walk->count], RANDOM_ID_BYTES, id))
        walk->count++;
    return walk->count < walk->limit;
}

bool store_list_watched(struct work *work, const char *node, const char *after, char (*ids)[RANDOM_ID_BYTES],
                        size_t limit, size_t *count)
{
    struct watch_walk walk = {.after = after, .ids = ids, .limit = limit};
    struct store_row first = store_key("watch", node, after),
                     end = store_key("watch", node, "~"); /* '~' is after every id */
    bool read = kv_range(work->kv, first.text, end.text, 0, note_watched, &walk, work->err);
    *count = walk.count;
    return read;
}

/* --- Idempotency-Key --- */

bool store_get_once(struct work *work, const char *hash, struct once *once)
{
    AUTO_KV_VALUE value = {0};
    struct store_row key = store_key("once", hash, NULL);
    if (!kv_get(work->kv, key.text, &value, work->err))
        return false;
    *once = (struct once){.revision = value.revision};
    if (value.revision == 0)
        return true;
    char *space = strchr(value.data, ' ');
    if (space)
        *space = '\0';
    if (space && text_copy(once->body_hash, sizeof once->body_hash, value.data) &&
        text_copy(once->sandbox_id, sizeof once->sandbox_id, space + 1))
        return true;
    return error_set(work->err, ERROR_INTERNAL, "the row of an Idempotency-Key is damaged");
}

void store_put_once(struct work *work, const char *hash, const struct once *once)
{
    struct store_row key = store_key("once", hash, NULL);
    AUTO_FREE char *text = memory_printf("%s %s", once->body_hash, once->sandbox_id);
    kv_change_expect(work->change, key.text, once->revision);
    put_text(work, key.text, text);
    store_forget_at(work, work->now + ONCE_MS, key.text);
}

void store_delete_once(struct work *work, const char *hash, int64_t put_at)
{
    struct store_row key = store_key("once", hash, NULL);
    kv_change_delete(work->change, key.text);
    kv_change_delete(work->change, due_key(put_at + ONCE_MS, key.text).text);
}

/* --- what is forgotten --- */

void store_forget_at(struct work *work, int64_t at, const char *key)
{
    put_due(work, at, key);
}

const char *store_due_row(const char *due, int64_t *at)
{
    const char *when = due + strlen("due/");
    char *end = NULL;
    if (!text_starts_with(due, "due/") || strlen(when) <= DUE_DIGITS + 1)
        return NULL;
    *at = (int64_t)strtoull(when, &end, 16);
    return end == when + DUE_DIGITS && *end == '/' ? end + 1 : NULL;
}

struct due_walk {
    char **keys;
    size_t count, limit;
    int64_t now, next;
};

static bool note_due(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct due_walk *walk = cookie;
    int64_t at = 0;
    if (store_due_row(key, &at) && at > walk->now) {
        walk->next = at;
        return false;
    }
    if (walk->count == walk->limit) {
        walk->next = walk->now;
        return false;
    }
    walk->keys[walk->count++] = memory_string(key);
    return true;
}

bool store_list_due(struct work *work, char *keys[], size_t limit, size_t *count, int64_t *next)
{
    struct due_walk walk = {.keys = keys, .limit = limit, .now = work->now, .next = INT64_MAX};
    bool read = kv_range(work->kv, "due/", NULL, 0, note_due, &walk, work->err);
    *count = walk.count;
    *next = walk.next;
    return read;
}

/* A sandbox takes its row among its owner's with it. One that has not ended (it cannot be) stays. */
static bool forget_sandbox(struct work *work, const char *row, const char *id)
{
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(work, id, &sandbox))
        return false;
    if (sandbox.revision == 0 || !sandbox_has_ended(&sandbox))
        return true;
    kv_change_expect(work->change, row, sandbox.revision);
    kv_change_delete(work->change, row);
    kv_change_delete(work->change, store_key("owned", sandbox.principal, sandbox.id).text);
    return true;
}

/* A refresh lets a family live longer than was thought when it was to be forgotten. */
static bool forget_family(struct work *work, const char *row)
{
    static const int64_t AFTER_MS = 60000;
    AUTO_KV_VALUE value = {0};
    if (!kv_get(work->kv, row, &value, work->err))
        return false;
    json_t *json = value.revision ? json_loadb(value.data, value.size, 0, NULL) : NULL;
    int64_t until = json_integer_value(json_object_get(json, "until")) * 1000 + AFTER_MS;
    json_decref(json);
    if (until > work->now)
        put_due(work, until, row);
    else
        kv_change_delete(work->change, row);
    return true;
}

/* As the family that it names. */
static bool forget_of_key(struct work *work, const char *row)
{
    AUTO_KV_VALUE value = {0};
    int64_t until = 0;
    if (!kv_get(work->kv, row, &value, work->err))
        return false;
    if (key_tokens_until(&value, work->now, &until))
        put_due(work, until, row);
    else
        kv_change_delete(work->change, row);
    return true;
}

/* A lease may have its end moved, or have none. */
static bool forget_lease(struct work *work, const char *row, const char *id)
{
    int64_t until = 0;
    if (!family_lease_until(work, id, &until))
        return false;
    if (until > 0)
        put_due(work, until, row);
    else
        kv_change_delete(work->change, row);
    return true;
}

bool store_forget(struct work *work, const char *due)
{
    static const char SANDBOX[] = "sandbox/", LEASE[] = "lease/";
    int64_t at = 0;
    const char *row = store_due_row(due, &at);
    kv_change_delete(work->change, due);
    if (row == NULL)
        return true;
    if (text_starts_with(row, SANDBOX))
        return forget_sandbox(work, row, row + strlen(SANDBOX));
    if (text_starts_with(row, LEASE))
        return forget_lease(work, row, row + strlen(LEASE));
    if (text_starts_with(row, "family/"))
        return forget_family(work, row);
    if (text_starts_with(row, "keyfam/"))
        return forget_of_key(work, row);
    kv_change_delete(work->change, row);
    return true;
}

void store_postpone(struct work *work, const char *due, int64_t at)
{
    char text[32];
    int64_t before = 0;
    const char *row = store_due_row(due, &before);
    kv_change_delete(work->change, due);
    if (row == NULL)
        return;
    snprintf(text, sizeof text, "%" PRId64, at);
    if (text_starts_with(row, WATCH))
        put_text(work, row, text);
    put_due(work, at, row);
}

/* --- a ledger of before --- */

static bool mend_watch(void *cookie, const char *key, const struct kv_value *value)
{
    AUTO_KV_VALUE due = {0};
    struct work *work = cookie;
    char text[32];
    char *end = NULL;
    int64_t wake = strtoll(value->data, &end, 10);
    if (!kv_get(work->kv, due_key(wake, key).text, &due, work->err))
        return false;
    if (due.revision > 0 && *end == '\0')
        return true;
    snprintf(text, sizeof text, "%" PRId64, work->now);
    put_text(work, key, text);
    put_due(work, work->now, key);
    return true;
}

bool store_mend_watches(struct work *work)
{
    return kv_range(work->kv, WATCH, NULL, 0, mend_watch, work, work->err) && work->err->kind == ERROR_NONE;
}

/* --- ends of a rule --- */

bool store_audit(struct work *work, const struct caller *caller, struct audit_record *record)
{
    record->time_ms = work->now;
    record->plane = "negotiator";
    if (caller) {
        record->principal = caller->principal.name;
        record->role = role_name(caller->principal.role);
        record->remote = caller->remote;
        record->request_id = caller->request_id;
        if (record->actor == NULL || record->actor[0] == '\0')
            record->actor = caller->principal.actor;
    }
    return audit_append(work->kv, work->change, &work->leasing->audit_key, record, work->err);
}

enum kv_outcome store_apply(struct work *work)
{
    return kv_apply(work->kv, work->change, work->err);
}
