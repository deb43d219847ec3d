/* audit_record.c - one record of the audit chain: as texts, as JSON, and its hash. */
#include "negotiator/ledger/audit_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

const char *const AUDIT_NAMES[AUDIT_FIELDS] = {
    "seq",       "time",       "plane", "node", "action", "outcome", "status", "principal",  "role",  "actor",
    "thread_id", "sandbox_id", "lease", "jti",  "links",  "scope",   "remote", "request_id", "detail"};

/* The texts of one record as they are hashed. */
struct fields {
    char *text[AUDIT_FIELDS]; /* owned */
};

static void fields_done(struct fields *fields)
{
    for (size_t i = 0; i < AUDIT_FIELDS; i++)
        free(fields->text[i]);
    *fields = (struct fields){0};
}
#define AUTO_FIELDS __attribute__((cleanup(fields_done))) struct fields

void audit_json_done(json_t **json)
{
    json_decref(*json);
}

void audit_format_key(char to[static AUDIT_KEY_SIZE], const char *table, uint64_t seq)
{
    (void)snprintf(to, AUDIT_KEY_SIZE, "%s%020" PRIu64, table, seq);
}

/* --- the hash --- */

void audit_absorb(void *state, const char *text)
{
    uint32_t size = (uint32_t)strlen(text);
    uint8_t length[4] = {(uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    crypto_generichash_update(state, length, sizeof length);
    crypto_generichash_update(state, (const uint8_t *)text, size);
}

static void hash_fields(uint8_t hash[static AUDIT_HASH_BYTES], const struct key *key,
                        const uint8_t prev[static AUDIT_HASH_BYTES], const struct fields *fields)
{
    crypto_generichash_state state;
    if (crypto_generichash_init(&state, key->bytes, sizeof key->bytes, AUDIT_HASH_BYTES) != 0)
        abort(); /* only for sizes out of range, which are constants here */
    crypto_generichash_update(&state, prev, AUDIT_HASH_BYTES);
    for (size_t i = 0; i < AUDIT_FIELDS; i++)
        audit_absorb(&state, fields->text[i]);
    crypto_generichash_final(&state, hash, AUDIT_HASH_BYTES);
    sodium_memzero(&state, sizeof state);
}

/* --- as texts --- */

/* At most `max` bytes of valid UTF-8: what a client or a sandbox wrote may be neither. */
static char *clean_text(const char *from, size_t max)
{
    AUTO_TEXT clean = {0};
    size_t size = from ? strnlen(from, max + 1) : 0;
    text_append_string(&clean, "");
    while (size > 0) {
        size_t valid = text_utf8_prefix(from, size);
        text_append(&clean, from, valid);
        if (valid < size) {
            text_append_string(&clean, "\xef\xbf\xbd");
            valid++;
        }
        from += valid;
        size -= valid;
    }
    if (clean.length > max) {
        clean.length = text_utf8_prefix(clean.data, max - 3);
        text_append_string(&clean, "...");
    }
    return TAKE(clean.data);
}

static void fields_of_record(struct fields *fields, const struct audit_record *record, uint64_t seq)
{
    char when[CLOCK_TEXT_BYTES];
    clock_format(when, record->time_ms);
    const char *const texts[AUDIT_FIELDS] = {[AUDIT_PLANE] = record->plane,
                                             [AUDIT_NODE] = record->node,
                                             [AUDIT_ACTION] = record->action,
                                             [AUDIT_OUTCOME] = record->outcome,
                                             [AUDIT_PRINCIPAL] = record->principal,
                                             [AUDIT_ROLE] = record->role,
                                             [AUDIT_ACTOR] = record->actor,
                                             [AUDIT_THREAD_ID] = record->thread_id,
                                             [AUDIT_SANDBOX_ID] = record->sandbox_id,
                                             [AUDIT_LEASE] = record->lease,
                                             [AUDIT_JTI] = record->jti,
                                             [AUDIT_LINKS] = record->links,
                                             [AUDIT_SCOPE] = record->scope,
                                             [AUDIT_REMOTE] = record->remote,
                                             [AUDIT_REQUEST_ID] = record->request_id,
                                             [AUDIT_DETAIL] = record->detail,
                                             [AUDIT_TIME] = when};
    for (size_t i = 0; i < AUDIT_FIELDS; i++) {
        if (i == AUDIT_SEQ)
            fields->text[i] = memory_printf("%" PRIu64, seq);
        else if (i == AUDIT_STATUS)
            fields->text[i] = memory_printf("%d", record->status);
        else
            fields->text[i] = clean_text(texts[i], i == AUDIT_DETAIL ? AUDIT_DETAIL_MAX_BYTES : AUDIT_FIELD_MAX_BYTES);
    }
}

/* --- as JSON --- */

bool audit_set_hash(json_t *object, const char *name, const uint8_t hash[static AUDIT_HASH_BYTES])
{
    char text[AUDIT_HASH_TEXT];
    text_hex(text, hash, AUDIT_HASH_BYTES);
    return json_object_set_new(object, name, json_string(text)) == 0;
}

bool audit_get_hash(const json_t *object, const char *name, uint8_t hash[static AUDIT_HASH_BYTES])
{
    const char *text = json_string_value(json_object_get(object, name));
    return text && text_hex_decode(hash, AUDIT_HASH_BYTES, text, strlen(text));
}

bool audit_get_number(const json_t *object, const char *name, uint64_t *number)
{
    json_int_t found = json_integer_value(json_object_get(object, name));
    *number = found > 0 ? (uint64_t)found : 0;
    return *number > 0;
}

/* NULL cannot happen but for a lack of memory. */
static json_t *fields_to_json(const struct fields *fields, const struct audit_position *prev,
                              const struct audit_position *next, int status)
{
    AUTO_JSON *object = json_object();
    bool whole = true;
    for (size_t i = 0; i < AUDIT_FIELDS; i++) {
        json_t *value = i == AUDIT_SEQ      ? json_integer((json_int_t)next->seq)
                        : i == AUDIT_STATUS ? json_integer(status)
                                            : json_string_nocheck(fields->text[i]); /* cleaned */
        whole = json_object_set_new_nocheck(object, AUDIT_NAMES[i], value) == 0 && whole;
    }
    whole = audit_set_hash(object, "prev", prev->hash) && audit_set_hash(object, "hash", next->hash) && whole;
    return whole ? TAKE(object) : NULL;
}

/* False when the object is not exactly what fields_to_json makes: a name more would be told by no hash. */
static bool fields_of_json(struct fields *fields, const json_t *object)
{
    if (json_object_size(object) != AUDIT_FIELDS + 2)
        return false;
    for (size_t i = 0; i < AUDIT_FIELDS; i++) {
        const json_t *value = json_object_get(object, AUDIT_NAMES[i]);
        bool number = i == AUDIT_SEQ || i == AUDIT_STATUS;
        if (number ? !json_is_integer(value) : !json_is_string(value))
            return false;
        fields->text[i] = number ? memory_printf("%" JSON_INTEGER_FORMAT, json_integer_value(value))
                                 : memory_string(json_string_value(value));
    }
    return true;
}

char *audit_write_record(const struct audit_record *record, const struct key *key, const struct audit_position *prev,
                         struct audit_position *next)
{
    AUTO_FIELDS fields = {0};
    next->seq = prev->seq + 1;
    fields_of_record(&fields, record, next->seq);
    hash_fields(next->hash, key, prev->hash, &fields);
    AUTO_JSON *object = fields_to_json(&fields, prev, next, record->status);
    return object ? json_dumps(object, JSON_COMPACT) : NULL;
}

const char *audit_read_record(const char *data, size_t size, const struct key *key, struct audit_position *last,
                              int64_t *when)
{
    AUTO_JSON *object = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    AUTO_FIELDS fields = {0};
    struct audit_position next;
    uint8_t prev[AUDIT_HASH_BYTES], told[AUDIT_HASH_BYTES];
    if (!fields_of_json(&fields, object) || !audit_get_number(object, AUDIT_NAMES[AUDIT_SEQ], &next.seq) ||
        !audit_get_hash(object, "prev", prev) || !audit_get_hash(object, "hash", told))
        return "is not a record";
    if (next.seq != last->seq + 1)
        return "has another number";
    if (memcmp(prev, last->hash, sizeof prev) != 0)
        return "does not follow the one before it";
    hash_fields(next.hash, key, prev, &fields);
    if (memcmp(next.hash, told, sizeof told) != 0 || !clock_parse(fields.text[AUDIT_TIME], when))
        return "was changed";
    *last = next;
    return NULL;
}
