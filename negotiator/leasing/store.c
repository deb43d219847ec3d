#include "negotiator/leasing/store.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FORGET_AT_ONCE = 64, DUE_DIGITS = 16 };

/* Every part was checked for '/' and length before: it always fits. */
struct row_key {
    char text[KV_KEY_MAX_BYTES + 1];
};

static struct row_key key_of(const char *table, const char *first, const char *second)
{
    struct row_key key = {.text = ""};
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
    struct row_key key = key_of("sandbox", id, NULL);
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
    struct row_key key = key_of("sandbox", sandbox->id, NULL);
    AUTO_FREE char *text = sandbox_format(sandbox);
    kv_change_expect(work->change, key.text, sandbox->revision);
    put_text(work, key.text, text);
}

bool store_get_lease(struct work *work, const char *principal, const char *thread_id, struct lease *lease)
{
    AUTO_KV_VALUE value = {0};
    struct row_key key = key_of("thread", principal, thread_id);
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
    struct row_key key = key_of("thread", principal, lease->thread_id);
    AUTO_FREE char *text = lease_format(lease);
    kv_change_expect(work->change, key.text, lease->revision);
    put_text(work, key.text, text);
}

void store_delete_lease(struct work *work, const char *principal, const struct lease *lease)
{
    struct row_key key = key_of("thread", principal, lease->thread_id);
    kv_change_expect(work->change, key.text, lease->revision);
    kv_change_delete(work->change, key.text);
}

/* --- what points at them --- */

bool store_get_name(struct work *work, const char *principal, const char *name, char id[static RANDOM_ID_BYTES])
{
    AUTO_KV_VALUE value = {0};
    struct row_key key = key_of("name", principal, name);
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
    put_text(work, key_of("name", sandbox->principal, sandbox->name).text, sandbox->id);
}

void store_free_name(struct work *work, const struct sandbox *sandbox)
{
    kv_change_delete(work->change, key_of("name", sandbox->principal, sandbox->name).text);
}

void store_own(struct work *work, const struct sandbox *sandbox)
{
    put_text(work, key_of("owned", sandbox->principal, sandbox->id).text, "");
}

void store_watch(struct work *work, const struct sandbox *sandbox, int64_t wake)
{
    char text[64];
    snprintf(text, sizeof text, "%" PRId64 " %" PRId64, sandbox->deadline, wake);
    put_text(work, key_of("watch", sandbox->node, sandbox->id).text, text);
}

void store_unwatch(struct work *work, const struct sandbox *sandbox)
{
    kv_change_delete(work->change, key_of("watch", sandbox->node, sandbox->id).text);
}

/* --- Idempotency-Key --- */

bool store_get_once(struct work *work, const char *hash, struct once *once)
{
    AUTO_KV_VALUE value = {0};
    struct row_key key = key_of("once", hash, NULL);
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
    struct row_key key = key_of("once", hash, NULL);
    AUTO_FREE char *text = memory_printf("%s %s", once->body_hash, once->sandbox_id);
    kv_change_expect(work->change, key.text, once->revision);
    put_text(work, key.text, text);
    store_forget_at(work, work->now + (int64_t)WANTED_DAY_S * 1000, key.text);
}

void store_delete_once(struct work *work, const char *hash)
{
    kv_change_delete(work->change, key_of("once", hash, NULL).text);
}

/* --- what is forgotten --- */

void store_forget_at(struct work *work, int64_t at, const char *key)
{
    char when[DUE_DIGITS + 1];
    snprintf(when, sizeof when, "%016" PRIx64, (uint64_t)at);
    put_text(work, key_of("due", when, key).text, "");
}

struct due_list {
    char *keys[FORGET_AT_ONCE];
    size_t count;
};

static void due_list_done(struct due_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->keys[i]);
}

static bool note_due(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct due_list *list = cookie;
    list->keys[list->count++] = memory_string(key);
    return list->count < FORGET_AT_ONCE;
}

/* A sandbox takes its row among its owner's with it. One that has not ended (it cannot be) stays. */
static bool forget(struct work *work, const char *row)
{
    static const char SANDBOX[] = "sandbox/";
    if (!text_starts_with(row, SANDBOX)) {
        kv_change_delete(work->change, row);
        return true;
    }
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(work, row + strlen(SANDBOX), &sandbox))
        return false;
    if (sandbox.revision == 0 || !sandbox_has_ended(&sandbox))
        return true;
    kv_change_expect(work->change, row, sandbox.revision);
    kv_change_delete(work->change, row);
    kv_change_delete(work->change, key_of("owned", sandbox.principal, sandbox.id).text);
    return true;
}

enum kv_outcome store_forget_due(struct work *work)
{
    __attribute__((cleanup(due_list_done))) struct due_list list = {0};
    char end[32];
    snprintf(end, sizeof end, "due/%016" PRIx64, (uint64_t)work->now);
    if (!kv_range(work->kv, "due/", end, FORGET_AT_ONCE, note_due, &list, work->err))
        return KV_FAILED;
    if (list.count == 0)
        return KV_APPLIED;
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    for (size_t i = 0; i < list.count; i++) {
        const char *row = list.keys[i] + strlen("due/") + DUE_DIGITS + 1;
        kv_change_delete(change, list.keys[i]);
        if (!forget(&own, row))
            return KV_FAILED;
    }
    return kv_apply(work->kv, change, work->err);
}

/* --- a node's sandboxes --- */

struct watch_list {
    struct watched *rows;
    size_t count, capacity;
};

static bool note_watched(void *cookie, const char *key, const struct kv_value *value)
{
    struct watch_list *list = cookie;
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 64;
        list->rows = memory_resize(list->rows, list->capacity * sizeof *list->rows);
    }
    struct watched row = {0};
    const char *id = strrchr(key, '/');
    char *rest = NULL;
    if (id == NULL || !text_copy(row.id, sizeof row.id, id + 1))
        return true;
    row.deadline = strtoll(value->data, &rest, 10);
    row.wake = strtoll(rest, NULL, 10);
    list->rows[list->count++] = row;
    return true;
}

bool store_list_watched(struct work *work, const char *node, struct watched **list, size_t *count)
{
    struct watch_list walk = {0};
    if (!kv_range(work->kv, key_of("watch", node, "").text, NULL, 0, note_watched, &walk, work->err)) {
        free(walk.rows);
        return false;
    }
    *list = walk.rows;
    *count = walk.count;
    return true;
}

struct overdue_walk {
    struct watch_list list;
    const char *after;
    size_t seen, limit;
    int64_t deadline;
    char last[KV_KEY_MAX_BYTES + 1];
};

static bool note_overdue(void *cookie, const char *key, const struct kv_value *value)
{
    struct overdue_walk *walk = cookie;
    if (strcmp(key, walk->after) == 0)
        return true;
    bool fits = text_copy(walk->last, sizeof walk->last, key);
    bool more = ++walk->seen < walk->limit;
    if (fits && strtoll(value->data, NULL, 10) < walk->deadline)
        note_watched(&walk->list, key, value);
    return more;
}

bool store_list_overdue(struct work *work, const char *after, size_t limit, int64_t deadline, struct watched **list,
                        size_t *count, char *next, size_t size)
{
    struct overdue_walk walk = {.after = after, .limit = limit, .deadline = deadline};
    if (!kv_range(work->kv, after[0] ? after : "watch/", "watch0", 0, note_overdue, &walk, work->err)) {
        free(walk.list.rows);
        return false;
    }
    if (walk.seen < limit || !text_copy(next, size, walk.last))
        next[0] = '\0';
    *list = walk.list.rows;
    *count = walk.list.count;
    return true;
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
    }
    return audit_append(work->kv, work->change, &work->leasing->audit_key, record, work->err);
}

enum kv_outcome store_apply(struct work *work)
{
    return kv_apply(work->kv, work->change, work->err);
}
