#include "negotiator/ledger/audit.h"

#include "negotiator/ledger/kv_internal.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define HEAD_KEY     "audit-head"
#define RECORDS      "audit/"
#define RECORDS_END  "audit0" /* '0' follows '/' */
#define KEY_SIZE     (sizeof RECORDS + 20)
#define NUMBER_BYTES 21
#define HASH_TEXT    (2 * AUDIT_HASH_BYTES + 1)

/* The order is the protocol's (protocol.md, 7), and that of the JSON; prev and hash follow. */
enum field {
    SEQ,
    TIME,
    PLANE,
    NODE,
    ACTION,
    OUTCOME,
    STATUS,
    PRINCIPAL,
    ROLE,
    ACTOR,
    THREAD_ID,
    SANDBOX_ID,
    LEASE,
    JTI,
    LINKS,
    SCOPE,
    REMOTE,
    REQUEST_ID,
    DETAIL,
    FIELDS
};
static const char *const NAMES[FIELDS] = {
    "seq",       "time",       "plane", "node", "action", "outcome", "status", "principal",  "role",  "actor",
    "thread_id", "sandbox_id", "lease", "jti",  "links",  "scope",   "remote", "request_id", "detail"};

struct head {
    uint64_t seq;
    uint8_t hash[AUDIT_HASH_BYTES];
    uint64_t revision; /* of its key */
    bool pending;      /* read from the change itself */
};

/* The texts of one record as they are hashed. */
struct fields {
    char *text[FIELDS]; /* owned */
};

static void fields_done(struct fields *fields)
{
    for (size_t i = 0; i < FIELDS; i++)
        free(fields->text[i]);
    *fields = (struct fields){0};
}
#define AUTO_FIELDS __attribute__((cleanup(fields_done))) struct fields

static void json_done(json_t **json)
{
    json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(json_done))) json_t

static void format_key(char to[static KEY_SIZE], uint64_t seq)
{
    (void)snprintf(to, KEY_SIZE, RECORDS "%020" PRIu64, seq);
}

/* --- the hash --- */

static void absorb(crypto_generichash_state *state, const char *text)
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
    for (size_t i = 0; i < FIELDS; i++)
        absorb(&state, fields->text[i]);
    crypto_generichash_final(&state, hash, AUDIT_HASH_BYTES);
    sodium_memzero(&state, sizeof state);
}

/* --- a record as texts, and as JSON --- */

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
    const char *const texts[FIELDS] = {[PLANE] = record->plane,
                                       [NODE] = record->node,
                                       [ACTION] = record->action,
                                       [OUTCOME] = record->outcome,
                                       [PRINCIPAL] = record->principal,
                                       [ROLE] = record->role,
                                       [ACTOR] = record->actor,
                                       [THREAD_ID] = record->thread_id,
                                       [SANDBOX_ID] = record->sandbox_id,
                                       [LEASE] = record->lease,
                                       [JTI] = record->jti,
                                       [LINKS] = record->links,
                                       [SCOPE] = record->scope,
                                       [REMOTE] = record->remote,
                                       [REQUEST_ID] = record->request_id,
                                       [DETAIL] = record->detail,
                                       [TIME] = when};
    for (size_t i = 0; i < FIELDS; i++) {
        if (i == SEQ)
            fields->text[i] = memory_printf("%" PRIu64, seq);
        else if (i == STATUS)
            fields->text[i] = memory_printf("%d", record->status);
        else
            fields->text[i] = clean_text(texts[i], i == DETAIL ? AUDIT_DETAIL_MAX_BYTES : AUDIT_FIELD_MAX_BYTES);
    }
}

static bool set_hash(json_t *object, const char *name, const uint8_t hash[static AUDIT_HASH_BYTES])
{
    char text[HASH_TEXT];
    text_hex(text, hash, AUDIT_HASH_BYTES);
    return json_object_set_new(object, name, json_string(text)) == 0;
}

static bool get_hash(const json_t *object, const char *name, uint8_t hash[static AUDIT_HASH_BYTES])
{
    const char *text = json_string_value(json_object_get(object, name));
    return text && text_hex_decode(hash, AUDIT_HASH_BYTES, text, strlen(text));
}

static bool get_seq(const json_t *object, uint64_t *seq)
{
    json_int_t number = json_integer_value(json_object_get(object, NAMES[SEQ]));
    *seq = number > 0 ? (uint64_t)number : 0;
    return *seq > 0;
}

/* The record as it is stored; NULL cannot happen but for a lack of memory. */
static json_t *fields_to_json(const struct fields *fields, const struct head *prev, const struct head *next, int status)
{
    AUTO_JSON *object = json_object();
    bool whole = true;
    for (size_t i = 0; i < FIELDS; i++) {
        json_t *value = i == SEQ      ? json_integer((json_int_t)next->seq)
                        : i == STATUS ? json_integer(status)
                                      : json_string(fields->text[i]);
        whole = json_object_set_new(object, NAMES[i], value) == 0 && whole;
    }
    whole = set_hash(object, "prev", prev->hash) && set_hash(object, "hash", next->hash) && whole;
    return whole ? TAKE(object) : NULL;
}

/* False when the object is not exactly what fields_to_json makes: a name more would be told by no hash. */
static bool fields_of_json(struct fields *fields, const json_t *object)
{
    if (json_object_size(object) != FIELDS + 2)
        return false;
    for (size_t i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(object, NAMES[i]);
        bool number = i == SEQ || i == STATUS;
        if (number ? !json_is_integer(value) : !json_is_string(value))
            return false;
        fields->text[i] = number ? memory_printf("%" JSON_INTEGER_FORMAT, json_integer_value(value))
                                 : memory_string(json_string_value(value));
    }
    return true;
}

/* --- the head --- */

static bool parse_head(struct head *head, const char *data, size_t size, struct error *err)
{
    AUTO_JSON *object = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    if (object && json_object_size(object) == 2 && get_seq(object, &head->seq) && get_hash(object, "hash", head->hash))
        return true;
    return error_set(err, ERROR_INTERNAL, "the audit chain's head in the store is damaged");
}

/* The head as it will be after `change` (NULL: as it is). */
static bool read_head(struct kv *kv, const struct kv_change *change, struct head *head, struct error *err)
{
    struct head found = {0};
    const struct kv_step *step = change ? kv_change_pending(change, HEAD_KEY) : NULL;
    AUTO_KV_VALUE value = {0};
    if (step == NULL && !kv_get(kv, HEAD_KEY, &value, err))
        return false;
    const char *data = step ? step->data : value.data;
    if (data && !parse_head(&found, data, step ? step->size : value.size, err))
        return false;
    found.pending = step != NULL;
    found.revision = value.revision;
    *head = found;
    return true;
}

bool audit_append(struct kv *kv, struct kv_change *change, const struct key *key, struct audit_record *record,
                  struct error *err)
{
    struct head head;
    if (!read_head(kv, change, &head, err))
        return false;
    struct head next = {.seq = head.seq + 1};
    AUTO_FIELDS fields = {0};
    fields_of_record(&fields, record, next.seq);
    hash_fields(next.hash, key, head.hash, &fields);
    AUTO_JSON *told = fields_to_json(&fields, &head, &next, record->status);
    AUTO_JSON *moved = json_pack("{s:I}", NAMES[SEQ], (json_int_t)next.seq);
    bool whole = told && moved && set_hash(moved, "hash", next.hash);
    AUTO_FREE char *told_text = whole ? json_dumps(told, JSON_COMPACT) : NULL;
    AUTO_FREE char *moved_text = whole ? json_dumps(moved, JSON_COMPACT) : NULL;
    if (told_text == NULL || moved_text == NULL)
        return error_set(err, ERROR_INTERNAL, "an audit record could not be written as JSON");
    char name[KEY_SIZE];
    format_key(name, next.seq);
    if (!head.pending)
        kv_change_expect(change, HEAD_KEY, head.revision);
    kv_change_put(change, name, told_text, strlen(told_text));
    kv_change_put(change, HEAD_KEY, moved_text, strlen(moved_text));
    record->seq = next.seq;
    return true;
}

bool audit_head(struct kv *kv, uint64_t *seq, uint8_t hash[static AUDIT_HASH_BYTES], struct error *err)
{
    struct head head;
    if (!read_head(kv, NULL, &head, err))
        return false;
    *seq = head.seq;
    memcpy(hash, head.hash, AUDIT_HASH_BYTES);
    return true;
}

/* --- proving --- */

struct proof {
    const struct key *key;
    struct head last; /* the last record that holds */
    struct error err; /* why the next does not; ERROR_NONE */
};

/* What is wrong with the record after `last`; NULL when it holds, and then *hash is its hash. */
static const char *find_flaw(const struct proof *proof, const char *name, const struct kv_value *value,
                             uint8_t hash[static AUDIT_HASH_BYTES])
{
    char expected[KEY_SIZE];
    format_key(expected, proof->last.seq + 1);
    if (strcmp(name, expected) != 0)
        return "is missing";
    AUTO_JSON *object = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    AUTO_FIELDS fields = {0};
    uint64_t seq;
    uint8_t prev[AUDIT_HASH_BYTES], told[AUDIT_HASH_BYTES];
    if (!fields_of_json(&fields, object) || !get_seq(object, &seq) || !get_hash(object, "prev", prev) ||
        !get_hash(object, "hash", told))
        return "is not a record";
    if (seq != proof->last.seq + 1)
        return "has another number";
    if (memcmp(prev, proof->last.hash, sizeof prev) != 0)
        return "does not follow the one before it";
    hash_fields(hash, proof->key, prev, &fields);
    return memcmp(hash, told, sizeof told) == 0 ? NULL : "was changed";
}

static bool prove_next(void *cookie, const char *name, const struct kv_value *value)
{
    struct proof *proof = cookie;
    uint8_t hash[AUDIT_HASH_BYTES];
    const char *flaw = find_flaw(proof, name, value, hash);
    if (flaw)
        return error_set(&proof->err, ERROR_INVALID, "audit record %" PRIu64 " %s", proof->last.seq + 1, flaw);
    proof->last.seq++;
    memcpy(proof->last.hash, hash, sizeof hash);
    return true;
}

/* Compares the head with the records found; *count gets how many of these it covers. */
static bool prove_head(const struct head *head, const struct head *last, uint64_t *count, struct error *err)
{
    *count = head->seq < last->seq ? head->seq : last->seq;
    if (head->seq > last->seq)
        return error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is missing: the head tells of %" PRIu64,
                         last->seq + 1, head->seq);
    if (head->seq < last->seq)
        return error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is beyond the head", head->seq + 1);
    if (memcmp(head->hash, last->hash, sizeof head->hash) == 0)
        return true;
    *count = last->seq - 1; /* not 0: both empty are both zeros */
    return error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is not the one the head tells of", last->seq);
}

bool audit_verify(struct kv *kv, const struct key *key, uint64_t *count, struct error *err)
{
    struct proof proof = {.key = key};
    struct head head;
    *count = 0;
    bool walked = kv_range(kv, RECORDS, RECORDS_END, 0, prove_next, &proof, err);
    *count = proof.last.seq;
    if (!walked)
        return false;
    if (proof.err.kind != ERROR_NONE)
        return error_set(err, proof.err.kind, "%s", proof.err.message);
    return read_head(kv, NULL, &head, err) && prove_head(&head, &proof.last, count, err);
}

bool audit_verify_head(struct kv *kv, uint64_t seq, const uint8_t hash[static AUDIT_HASH_BYTES], struct error *err)
{
    if (seq == 0)
        return sodium_is_zero(hash, AUDIT_HASH_BYTES) ||
               error_set(err, ERROR_INVALID, "the hash of an empty audit chain is zeros");
    char name[KEY_SIZE];
    format_key(name, seq);
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, name, &value, err))
        return false;
    if (value.data == NULL)
        return error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is missing: the end was cut off", seq);
    AUTO_JSON *object = json_loadb(value.data, value.size, JSON_REJECT_DUPLICATES, NULL);
    uint8_t found[AUDIT_HASH_BYTES];
    if (!get_hash(object, "hash", found) || memcmp(found, hash, sizeof found) != 0)
        return error_set(err, ERROR_INVALID, "audit record %" PRIu64 " is not the one that was kept", seq);
    return true;
}

/* --- export --- */

struct listing {
    json_t *records;
    struct error err;
};

static bool list_next(void *cookie, const char *name, const struct kv_value *value)
{
    struct listing *listing = cookie;
    json_t *record = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    if (record == NULL || json_array_append_new(listing->records, record) != 0)
        return error_set(&listing->err, ERROR_INTERNAL, "%s in the store is not a record", name);
    return true;
}

json_t *audit_list(struct kv *kv, uint64_t after_seq, size_t limit, struct error *err)
{
    AUTO_JSON *records = json_array();
    struct listing listing = {.records = records};
    char first[KEY_SIZE];
    format_key(first, after_seq + 1);
    bool wanted = limit > 0 && after_seq < UINT64_MAX; /* kv_range takes 0 for no limit */
    if (wanted && !kv_range(kv, first, RECORDS_END, limit, list_next, &listing, err))
        return NULL;
    if (listing.err.kind != ERROR_NONE) {
        error_set(err, listing.err.kind, "%s", listing.err.message);
        return NULL;
    }
    return TAKE(records);
}
