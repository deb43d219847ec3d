#include "negotiator/leasing/principal.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_PREFIX "apikey/"
enum { PART_LENGTH = 43 /* base64url of 32 bytes */, HASH_TEXT_BYTES = 2 * KEY_BYTES + 1 };

static const char *const ROLE_NAMES[] = {[ROLE_VIEWER] = "viewer", [ROLE_USER] = "user", [ROLE_ADMIN] = "admin"};

struct known {
    char hash[HASH_TEXT_BYTES]; /* hex; sorted by it */
    struct principal principal;
};

struct principal_table {
    struct key master;
    pthread_rwlock_t lock; /* guards all below */
    struct known *rows;
    size_t count;
};

const char *role_name(enum role role)
{
    return ROLE_NAMES[role];
}

bool role_parse(const char *text, enum role *role)
{
    for (enum role each = ROLE_VIEWER; each <= ROLE_ADMIN; each++) {
        if (text_equal(text, ROLE_NAMES[each])) {
            *role = each;
            return true;
        }
    }
    return false;
}

bool principal_is_name(const char *text)
{
    return text_is_made_of(text, PRINCIPAL_BYTES - 1, "._@:+-");
}

static void hash_key(char to[static HASH_TEXT_BYTES], const struct key *master, const char *text)
{
    AUTO_KEY hash;
    key_derive(&hash, master, "parley/apikey/1", text);
    text_hex(to, hash.bytes, sizeof hash.bytes);
}

struct principal_table *principal_table_new(const struct key *master)
{
    struct principal_table *table = memory_new(sizeof *table);
    table->master = *master;
    pthread_rwlock_init(&table->lock, NULL);
    return table;
}

void principal_table_free(struct principal_table *table)
{
    if (table == NULL)
        return;
    key_done(&table->master);
    pthread_rwlock_destroy(&table->lock);
    free(table->rows);
    free(table);
}

static bool parse_row(const struct kv_value *value, struct principal *principal)
{
    json_t *json = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    const char *id = NULL, *name = NULL, *role = NULL;
    bool read = json && json_unpack(json, "{s:s, s:s, s:s}", "id", &id, "principal", &name, "role", &role) == 0 &&
                text_copy(principal->key_id, sizeof principal->key_id, id) &&
                text_copy(principal->name, sizeof principal->name, name) && role_parse(role, &principal->role);
    json_decref(json);
    return read;
}

struct loading {
    struct known *rows;
    size_t count;
    bool damaged;
};

static bool load_row(void *cookie, const char *key, const struct kv_value *value)
{
    struct loading *loading = cookie;
    struct known row = {0};
    const char *hash = key + strlen(KEYS_PREFIX);
    if (!text_copy(row.hash, sizeof row.hash, hash) || !parse_row(value, &row.principal)) {
        loading->damaged = true;
        return false;
    }
    loading->rows = memory_resize(loading->rows, (loading->count + 1) * sizeof row);
    loading->rows[loading->count++] = row; /* keys come sorted */
    return true;
}

bool principal_table_load(struct principal_table *table, struct kv *kv, struct error *err)
{
    struct loading loading = {0};
    if (!kv_range(kv, KEYS_PREFIX, NULL, 0, load_row, &loading, err) || loading.damaged) {
        free(loading.rows);
        return loading.damaged ? error_set(err, ERROR_INTERNAL, "the row of an API key is damaged") : false;
    }
    pthread_rwlock_wrlock(&table->lock);
    struct known *before = table->rows;
    table->rows = loading.rows;
    table->count = loading.count;
    pthread_rwlock_unlock(&table->lock);
    free(before);
    return true;
}

static int compare(const void *hash, const void *row)
{
    return memcmp(hash, ((const struct known *)row)->hash, HASH_TEXT_BYTES - 1);
}

bool principal_table_find(struct principal_table *table, const char *credential, struct principal *principal,
                          struct error *err)
{
    char hash[HASH_TEXT_BYTES] = "";
    bool sane = principal_is_api_key(credential);
    hash_key(hash, &table->master, sane ? credential : "pk_"); /* the same work for what cannot be a key */
    pthread_rwlock_rdlock(&table->lock);
    const struct known *row = table->count ? bsearch(hash, table->rows, table->count, sizeof *row, compare) : NULL;
    if (row && sane)
        *principal = row->principal;
    pthread_rwlock_unlock(&table->lock);
    if (row && sane)
        return true;
    return error_set(err, ERROR_UNAUTHENTICATED, "the API key is missing or not valid");
}

void principal_new_api_key(char to[static API_KEY_BYTES])
{
    AUTO_KEY secret;
    key_random(&secret);
    memcpy(to, "pk_", 3);
    text_base64url_encode(to + 3, secret.bytes, sizeof secret.bytes);
}

bool principal_is_api_key(const char *text)
{
    return text && text_starts_with(text, "pk_") && strnlen(text, API_KEY_BYTES) == 3 + PART_LENGTH &&
           text_is_made_of(text + 3, PART_LENGTH, "-_");
}

void principal_add_key(struct kv_change *change, const struct key *master, const char *api_key,
                       struct principal *principal, int64_t now_ms)
{
    char key[sizeof KEYS_PREFIX + HASH_TEXT_BYTES] = KEYS_PREFIX;
    hash_key(key + strlen(KEYS_PREFIX), master, api_key);
    random_id(principal->key_id, "key");
    json_t *row = json_pack("{s:s, s:s, s:s, s:I}", "id", principal->key_id, "principal", principal->name, "role",
                            role_name(principal->role), "created_at", (json_int_t)now_ms);
    AUTO_FREE char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    kv_change_expect(change, key, 0);
    kv_change_put(change, key, text, strlen(text));
}
