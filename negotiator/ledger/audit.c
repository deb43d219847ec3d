#include "negotiator/ledger/audit.h"

#include "negotiator/ledger/audit_internal.h"
#include "negotiator/ledger/kv_internal.h"

#include <string.h>

static bool parse_head(struct audit_position *head, const char *data, size_t size, struct error *err)
{
    AUTO_JSON *object = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    if (object && json_object_size(object) == 2 && audit_get_number(object, AUDIT_NAMES[AUDIT_SEQ], &head->seq) &&
        audit_get_hash(object, "hash", head->hash))
        return true;
    return error_set(err, ERROR_INTERNAL, "the audit chain's head in the store is damaged");
}

/* The head as it is; its row's revision. */
static bool read_head(struct kv *kv, struct audit_position *head, uint64_t *revision, struct error *err)
{
    struct audit_position found = {0};
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, AUDIT_HEAD_KEY, &value, err))
        return false;
    if (value.data && !parse_head(&found, value.data, value.size, err))
        return false;
    *head = found;
    *revision = value.revision;
    return true;
}

bool audit_append(struct kv *kv, struct kv_change *change, const struct key *key, struct audit_record *record,
                  struct error *err)
{
    struct audit_position head = {0}, next = {0};
    uint64_t revision = 0;
    const struct kv_step *pending = kv_change_pending(change, AUDIT_HEAD_KEY);
    if (pending ? !parse_head(&head, pending->data, pending->size, err) : !read_head(kv, &head, &revision, err))
        return false;
    AUTO_FREE char *told = audit_write_record(record, key, &head, &next);
    AUTO_JSON *moved = json_pack("{s:I}", AUDIT_NAMES[AUDIT_SEQ], (json_int_t)next.seq);
    bool whole = told && moved && audit_set_hash(moved, "hash", next.hash);
    AUTO_FREE char *moved_text = whole ? json_dumps(moved, JSON_COMPACT) : NULL;
    if (moved_text == NULL)
        return error_set(err, ERROR_INTERNAL, "an audit record could not be written as JSON");
    char name[AUDIT_KEY_SIZE];
    audit_format_key(name, AUDIT_RECORDS, next.seq);
    if (pending == NULL)
        kv_change_expect(change, AUDIT_HEAD_KEY, revision);
    kv_change_put(change, name, told, strlen(told));
    kv_change_put(change, AUDIT_HEAD_KEY, moved_text, strlen(moved_text));
    record->seq = next.seq;
    return true;
}

bool audit_head(struct kv *kv, uint64_t *seq, uint8_t hash[static AUDIT_HASH_BYTES], struct error *err)
{
    struct audit_position head;
    uint64_t revision;
    if (!read_head(kv, &head, &revision, err))
        return false;
    *seq = head.seq;
    memcpy(hash, head.hash, AUDIT_HASH_BYTES);
    return true;
}
