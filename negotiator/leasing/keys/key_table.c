/* key_table.c - the keys in memory (principal.h): by the hash of a text, and by id. What it holds is replaced by one
 * thread and read by all; only the time of the last use is written by who reads. */
#include "negotiator/leasing/keys/api_key.h"
#include "negotiator/leasing/keys/login.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct known {
    struct api_key key;
    _Atomic int64_t used_at;
    int64_t stored; /* what the ledger has of it; under the write lock */
};

struct entry {
    const char *hash; /* of `known` */
    struct known *known;
    bool is_old; /* of the text before: until key.old_until */
};

struct principal_table {
    struct key master;
    int64_t (*wall_ms)(void);
    pthread_rwlock_t lock; /* guards all below */
    struct known **keys;   /* owned; sorted by id */
    size_t count;
    struct entry *entries; /* sorted by hash; up to two a key */
    size_t entry_count;
};

struct principal_table *principal_table_new(const struct key *master)
{
    struct principal_table *table = memory_new(sizeof *table);
    table->master = *master;
    table->wall_ms = clock_wall_ms;
    pthread_rwlock_init(&table->lock, NULL);
    return table;
}

void principal_table_set_clock(struct principal_table *table, int64_t (*wall_ms)(void))
{
    table->wall_ms = wall_ms;
}

static void free_keys(struct known **keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(keys[i]);
    free(keys);
}

void principal_table_free(struct principal_table *table)
{
    if (table == NULL)
        return;
    key_done(&table->master);
    pthread_rwlock_destroy(&table->lock);
    free_keys(table->keys, table->count);
    free(table->entries);
    free(table);
}

/* --- its order --- */

static int compare_ids(const void *a, const void *b)
{
    return strcmp((*(struct known *const *)a)->key.id, (*(struct known *const *)b)->key.id);
}

static int compare_id(const void *id, const void *known)
{
    return strcmp(id, (*(struct known *const *)known)->key.id);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->hash, ((const struct entry *)b)->hash);
}

/* Sorts what `keys` is to be; for who changes the table, before it takes the lock. */
static struct entry *make_entries(struct known **keys, size_t count, size_t *entry_count)
{
    struct entry *entries = memory_array(2 * count + 1, sizeof *entries);
    *entry_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct api_key *key = &keys[i]->key;
        entries[(*entry_count)++] = (struct entry){.hash = key->hash, .known = keys[i]};
        if (key->old_hash[0])
            entries[(*entry_count)++] = (struct entry){.hash = key->old_hash, .known = keys[i], .is_old = true};
    }
    qsort(entries, *entry_count, sizeof *entries, compare_entries);
    return entries;
}

/* `keys` is the table's from now on; those in it that were there before stay. */
static void replace(struct principal_table *table, struct known **keys, size_t count, struct known *gone)
{
    size_t entry_count = 0;
    struct entry *entries = make_entries(keys, count, &entry_count);
    pthread_rwlock_wrlock(&table->lock);
    struct known **keys_before = table->keys;
    struct entry *entries_before = table->entries;
    table->keys = keys;
    table->count = count;
    table->entries = entries;
    table->entry_count = entry_count;
    pthread_rwlock_unlock(&table->lock);
    free(keys_before);
    free(entries_before);
    free(gone);
}

/* --- reading the store --- */

struct loading {
    struct known **keys;
    size_t count;
    bool damaged;
};

static bool load_row(void *cookie, const char *row, const struct kv_value *value)
{
    struct loading *loading = cookie;
    struct known *known = memory_new(sizeof *known);
    if ((loading->count & (loading->count - 1)) == 0)
        loading->keys = memory_resize(loading->keys, (loading->count ? 2 * loading->count : 1) * sizeof *loading->keys);
    loading->keys[loading->count++] = known;
    loading->damaged = !api_key_parse(&known->key, row + strlen(API_KEY_ROW), value);
    return !loading->damaged;
}

static struct known *find_id(struct known *const *keys, size_t count, const char *id)
{
    struct known *const *found = count ? bsearch(id, keys, count, sizeof(struct known *), compare_id) : NULL;
    return found ? *found : NULL;
}

static bool load_use(void *cookie, const char *row, const struct kv_value *value)
{
    const struct loading *loading = cookie;
    struct known *known = find_id(loading->keys, loading->count, row + strlen(API_KEY_USE));
    if (known) {
        known->stored = strtoll(value->data, NULL, 10);
        atomic_init(&known->used_at, known->stored);
    }
    return true;
}

bool principal_table_load(struct principal_table *table, struct kv *kv, struct error *err)
{
    struct loading loading = {.keys = NULL};
    bool read = kv_range(kv, API_KEY_ROW, NULL, 0, load_row, &loading, err);
    if (read && loading.damaged)
        read = error_set(err, ERROR_INTERNAL, "the row of an API key is damaged");
    if (read && loading.count > 0)
        qsort(loading.keys, loading.count, sizeof(struct known *), compare_ids);
    if (!read || !kv_range(kv, API_KEY_USE, NULL, 0, load_use, &loading, err)) {
        free_keys(loading.keys, loading.count);
        return false;
    }
    struct known **before = NULL;
    size_t count = table->count;
    if (count > 0)
        before = memory_copy(table->keys, count * sizeof(struct known *));
    replace(table, loading.keys, loading.count, NULL);
    free_keys(before, count);
    return true;
}

/* --- looking one up --- */

static int compare_hash(const void *hash, const void *entry)
{
    return memcmp(hash, ((const struct entry *)entry)->hash, API_KEY_HASH_BYTES);
}

static bool is_over(int64_t end, int64_t now)
{
    return end != 0 && end <= now;
}

/* `is_old`: by the text before the last rotation. */
static bool give(struct known *known, bool is_old, int64_t now, struct principal *principal)
{
    const struct api_key *key = &known->key;
    if (is_over(key->expires_at, now) || (is_old && key->old_until <= now))
        return false;
    *principal = (struct principal){.role = key->role,
                                    .limits = key->limits,
                                    .generation = key->generation - (is_old ? 1 : 0),
                                    .expires_at = key->expires_at};
    if (is_old && (key->expires_at == 0 || key->old_until < key->expires_at))
        principal->expires_at = key->old_until;
    memcpy(principal->name, key->principal, sizeof principal->name);
    memcpy(principal->key_id, key->id, sizeof principal->key_id);
    memcpy(principal->actor, key->actor, sizeof principal->actor);
    if (atomic_load_explicit(&known->used_at, memory_order_relaxed) < now)
        atomic_store_explicit(&known->used_at, now, memory_order_relaxed);
    return true;
}

static bool find_login(struct principal_table *table, const char *token, int64_t now, struct principal *principal)
{
    struct login login;
    if (!login_verify(&login, &table->master, token, now))
        return false;
    pthread_rwlock_rdlock(&table->lock);
    struct known *known = find_id(table->keys, table->count, login.key_id);
    bool is_old = known && login.generation + 1 == known->key.generation;
    bool found = known && (is_old || login.generation == known->key.generation) && give(known, is_old, now, principal);
    pthread_rwlock_unlock(&table->lock);
    principal->kind = PRINCIPAL_LOGIN;
    return found;
}

static bool find_key(struct principal_table *table, const char *text, int64_t now, struct principal *principal)
{
    char hash[API_KEY_HASH_BYTES] = "";
    bool sane = principal_is_api_key(text);
    api_key_hash(hash, &table->master, sane ? text : "pk_"); /* the same work for what cannot be a key */
    pthread_rwlock_rdlock(&table->lock);
    const struct entry *entry =
        table->entry_count ? bsearch(hash, table->entries, table->entry_count, sizeof *entry, compare_hash) : NULL;
    bool found = entry && sane && give(entry->known, entry->is_old, now, principal);
    pthread_rwlock_unlock(&table->lock);
    return found;
}

bool principal_table_find(struct principal_table *table, const char *credential, struct principal *principal,
                          struct error *err)
{
    struct principal found = {.name = ""};
    int64_t now = table->wall_ms();
    if (!(principal_is_login_token(credential) ? find_login : find_key)(table, credential, now, &found))
        return error_set(err, ERROR_UNAUTHENTICATED, "the API key is missing or not valid");
    *principal = found;
    return true;
}

/* --- keeping it as the store is --- */

void principal_table_put(struct principal_table *table, const struct api_key *key)
{
    struct known *known = memory_new(sizeof *known), *before = find_id(table->keys, table->count, key->id);
    struct known **keys = memory_array(table->count + 1, sizeof(struct known *));
    size_t count = 0;
    known->key = *key;
    if (before) {
        known->stored = before->stored;
        atomic_init(&known->used_at, atomic_load(&before->used_at));
    }
    for (size_t i = 0; i < table->count; i++) {
        if (table->keys[i] != before)
            keys[count++] = table->keys[i];
    }
    keys[count++] = known;
    qsort(keys, count, sizeof(struct known *), compare_ids);
    replace(table, keys, count, before);
}

void principal_table_remove(struct principal_table *table, const char *key_id)
{
    struct known *gone = find_id(table->keys, table->count, key_id);
    if (gone == NULL)
        return;
    struct known **keys = memory_array(table->count, sizeof(struct known *));
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        if (table->keys[i] != gone)
            keys[count++] = table->keys[i];
    }
    replace(table, keys, count, gone);
}

size_t principal_table_count(struct principal_table *table)
{
    pthread_rwlock_rdlock(&table->lock);
    size_t count = table->count;
    pthread_rwlock_unlock(&table->lock);
    return count;
}

bool principal_table_has(struct principal_table *table, const char *name, enum role role)
{
    bool has = false;
    int64_t now = table->wall_ms();
    pthread_rwlock_rdlock(&table->lock);
    for (size_t i = 0; i < table->count && !has; i++) {
        const struct api_key *key = &table->keys[i]->key;
        has = strcmp(key->principal, name) == 0 && key->role >= role && !is_over(key->expires_at, now);
    }
    pthread_rwlock_unlock(&table->lock);
    return has;
}

/* --- when they were used --- */

int64_t principal_table_last_use(struct principal_table *table, const char *key_id)
{
    pthread_rwlock_rdlock(&table->lock);
    struct known *known = find_id(table->keys, table->count, key_id);
    int64_t at = known ? atomic_load_explicit(&known->used_at, memory_order_relaxed) : 0;
    pthread_rwlock_unlock(&table->lock);
    return at;
}

size_t principal_table_uses(struct principal_table *table, struct key_use *uses, size_t limit)
{
    size_t count = 0;
    pthread_rwlock_rdlock(&table->lock);
    for (size_t i = 0; i < table->count && count < limit; i++) {
        struct known *known = table->keys[i];
        int64_t at = atomic_load_explicit(&known->used_at, memory_order_relaxed);
        if (at <= known->stored)
            continue;
        uses[count].at = at;
        memcpy(uses[count++].key_id, known->key.id, sizeof uses->key_id);
    }
    pthread_rwlock_unlock(&table->lock);
    return count;
}

void principal_table_stored(struct principal_table *table, const struct key_use *uses, size_t count)
{
    pthread_rwlock_wrlock(&table->lock);
    for (size_t i = 0; i < count; i++) {
        struct known *known = find_id(table->keys, table->count, uses[i].key_id);
        if (known && known->stored < uses[i].at)
            known->stored = uses[i].at;
    }
    pthread_rwlock_unlock(&table->lock);
}
