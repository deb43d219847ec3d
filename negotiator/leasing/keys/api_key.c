#include "negotiator/leasing/keys/api_key.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { ACTOR_ID_BYTES = 128 }; /* as in a negotiation */

struct row_key {
    char text[KV_KEY_MAX_BYTES + 1];
};

/* Every part was checked before: it always fits; one that did not would be "", which the store refuses. */
static struct row_key key_of(const char *table, const char *first, const char *second)
{
    struct row_key key;
    bool fits = second ? text_format(key.text, sizeof key.text, "%s%s/%s", table, first, second)
                       : text_format(key.text, sizeof key.text, "%s%s", table, first);
    if (!fits)
        key.text[0] = '\0';
    return key;
}

void api_key_hash(char to[static API_KEY_HASH_BYTES], const struct key *master, const char *text)
{
    AUTO_KEY hash;
    key_derive(&hash, master, "parley/apikey/1", text);
    text_hex(to, hash.bytes, sizeof hash.bytes);
}

/* --- a row --- */

static bool take(char *to, size_t size, const json_t *json, const char *name)
{
    const json_t *value = json_object_get(json, name);
    return value == NULL || text_copy(to, size, json_string_value(value));
}

static int64_t take_limit(const json_t *limits, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(limits, name));
    return value > 0 ? value : -1;
}

static bool read_row(struct api_key *key, const json_t *json)
{
    const json_t *limits = json_object_get(json, "limits"), *old = json_object_get(json, "old");
    key->limits = (struct quota){.sandboxes = take_limit(limits, "sandboxes"),
                                 .cpu_milli = take_limit(limits, "cpu_milli"),
                                 .memory_mb = take_limit(limits, "memory_mb"),
                                 .disk_mb = take_limit(limits, "disk_mb"),
                                 .creates_per_minute = take_limit(limits, "creates_per_minute")};
    key->created_at = json_integer_value(json_object_get(json, "created_at"));
    key->expires_at = json_integer_value(json_object_get(json, "expires_at"));
    key->rotated_at = json_integer_value(json_object_get(json, "rotated_at"));
    key->generation = (uint32_t)json_integer_value(json_object_get(json, "generation"));
    key->old_until = json_integer_value(json_object_get(old, "until"));
    return text_copy(key->id, sizeof key->id, json_string_value(json_object_get(json, "id"))) &&
           text_copy(key->principal, sizeof key->principal, json_string_value(json_object_get(json, "principal"))) &&
           role_parse(json_string_value(json_object_get(json, "role")), &key->role) &&
           take(key->actor, sizeof key->actor, json, "actor") && take(key->note, sizeof key->note, json, "note") &&
           take(key->old_hash, sizeof key->old_hash, old, "hash");
}

bool api_key_parse(struct api_key *key, const char *hash, const struct kv_value *value)
{
    struct api_key read = {.revision = value->revision};
    json_t *json = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    bool whole = json && text_copy(read.hash, sizeof read.hash, hash) && read_row(&read, json);
    json_decref(json);
    if (whole)
        *key = read;
    return whole;
}

static bool get_row(struct kv *kv, const char *hash, struct api_key *key, struct error *err)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, key_of(API_KEY_ROW, hash, NULL).text, &value, err))
        return false;
    return (value.revision > 0 && api_key_parse(key, hash, &value)) ||
           error_set(err, ERROR_INTERNAL, "the row of an API key is damaged");
}

bool api_key_get(struct kv *kv, const char *id, struct api_key *key, struct error *err)
{
    AUTO_KV_VALUE hash = {0}, use = {0};
    *key = (struct api_key){.revision = 0};
    if (!kv_get(kv, key_of(API_KEY_INDEX, id, NULL).text, &hash, err))
        return false;
    if (hash.revision == 0)
        return true;
    if (!get_row(kv, hash.data, key, err) || !kv_get(kv, key_of(API_KEY_USE, id, NULL).text, &use, err))
        return false;
    key->last_use = use.revision ? strtoll(use.data, NULL, 10) : 0;
    return true;
}

static void set_limit(json_t *limits, const char *name, int64_t value)
{
    if (value > 0)
        json_object_set_new(limits, name, json_integer(value));
}

static json_t *format(const struct api_key *key)
{
    json_t *limits = json_object();
    set_limit(limits, "sandboxes", key->limits.sandboxes);
    set_limit(limits, "cpu_milli", key->limits.cpu_milli);
    set_limit(limits, "memory_mb", key->limits.memory_mb);
    set_limit(limits, "disk_mb", key->limits.disk_mb);
    set_limit(limits, "creates_per_minute", key->limits.creates_per_minute);
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I}", "id", key->id, "principal", key->principal,
                  "role", role_name(key->role), "actor", key->actor, "note", key->note, "limits", limits, "created_at",
                  (json_int_t)key->created_at, "expires_at", (json_int_t)key->expires_at, "rotated_at",
                  (json_int_t)key->rotated_at, "generation", (json_int_t)key->generation);
    if (key->old_hash[0])
        json_object_set_new(row, "old",
                            json_pack("{s:s, s:I}", "hash", key->old_hash, "until", (json_int_t)key->old_until));
    return row;
}

void api_key_put(struct kv_change *change, const struct api_key *key, const struct api_key *before)
{
    struct row_key row = key_of(API_KEY_ROW, key->hash, NULL);
    json_t *json = format(key);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    bool same = before && strcmp(before->hash, key->hash) == 0;
    kv_change_expect(change, row.text, same ? before->revision : 0);
    kv_change_put(change, row.text, text, strlen(text));
    if (same)
        return;
    if (before) {
        struct row_key former = key_of(API_KEY_ROW, before->hash, NULL);
        kv_change_expect(change, former.text, before->revision);
        kv_change_delete(change, former.text);
    }
    kv_change_put(change, key_of(API_KEY_INDEX, key->id, NULL).text, key->hash, strlen(key->hash));
    kv_change_put(change, key_of(API_KEY_OWNED, key->principal, key->id).text, "", 0);
}

void api_key_remove(struct kv_change *change, const struct api_key *key)
{
    struct row_key row = key_of(API_KEY_ROW, key->hash, NULL);
    kv_change_expect(change, row.text, key->revision);
    kv_change_delete(change, row.text);
    kv_change_delete(change, key_of(API_KEY_INDEX, key->id, NULL).text);
    kv_change_delete(change, key_of(API_KEY_OWNED, key->principal, key->id).text);
    kv_change_delete(change, key_of(API_KEY_USE, key->id, NULL).text);
}

/* --- a ledger of before --- */

struct mending {
    struct kv *kv;
    struct kv_change *change;
    struct error *err;
    bool failed;
};

static bool mend_one(void *cookie, const char *row, const struct kv_value *value)
{
    struct mending *mending = cookie;
    struct api_key key;
    AUTO_KV_VALUE index = {0};
    if (!api_key_parse(&key, row + strlen(API_KEY_ROW), value))
        mending->failed = !error_set(mending->err, ERROR_INTERNAL, "the row of an API key is damaged");
    else
        mending->failed = !kv_get(mending->kv, key_of(API_KEY_INDEX, key.id, NULL).text, &index, mending->err);
    if (mending->failed)
        return false;
    if (index.revision == 0) {
        kv_change_put(mending->change, key_of(API_KEY_INDEX, key.id, NULL).text, key.hash, strlen(key.hash));
        kv_change_put(mending->change, key_of(API_KEY_OWNED, key.principal, key.id).text, "", 0);
    }
    return true;
}

bool api_key_mend(struct kv *kv, struct kv_change *change, struct error *err)
{
    struct mending mending = {.kv = kv, .change = change, .err = err};
    return kv_range(kv, API_KEY_ROW, NULL, 0, mend_one, &mending, err) && !mending.failed;
}

/* --- what its fields may be --- */

bool api_key_is_local_name(const char *name)
{
    return principal_is_name(name) && strchr(name, ':') == NULL;
}

bool api_key_is_actor(const char *text)
{
    const char *id = text ? strchr(text, ':') : NULL;
    return id && (text_starts_with(text, "human:") || text_starts_with(text, "agent:")) &&
           text_is_made_of(id + 1, ACTOR_ID_BYTES, "._:@+-");
}
