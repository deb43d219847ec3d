/* audit_search.c - records that match, a page at a time, in steps that are short. */
#include "negotiator/ledger/audit_internal.h"

#include <string.h>

/* Backwards: what is looked at in one step is kept whole, however long its records are. */
enum { STEP_BACK = AUDIT_STEP / 5 };

/* --- one record --- */

static bool has_text(const struct kv_value *value, const char *text)
{
    return text == NULL || memmem(value->data, value->size, text, strlen(text)) != NULL;
}

/* Without reading the JSON: most records are not meant, and what a filter holds stands in JSON as it is. */
static bool may_match(const struct audit_filter *filter, const struct kv_value *value)
{
    return has_text(value, filter->jti) && has_text(value, filter->link) && has_text(value, filter->sandbox_id) &&
           has_text(value, filter->thread_id) && has_text(value, filter->action) &&
           (filter->or_plane || has_text(value, filter->principal));
}

static const char *field(const json_t *record, enum audit_field which)
{
    const char *text = json_string_value(json_object_get(record, AUDIT_NAMES[which]));
    return text ? text : "";
}

static bool is_field(const json_t *record, enum audit_field which, const char *wanted)
{
    return wanted == NULL || strcmp(field(record, which), wanted) == 0;
}

/* A word among words. */
static bool has_link(const char *links, const char *wanted)
{
    size_t length = wanted ? strlen(wanted) : 0;
    for (const char *at = links; length > 0 && *at;) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, wanted, length) == 0)
            return true;
        at += word + strspn(at + word, " ");
    }
    return wanted == NULL;
}

static bool is_principals(const json_t *record, const struct audit_filter *filter)
{
    return is_field(record, AUDIT_PRINCIPAL, filter->principal) ||
           (filter->or_plane && is_field(record, AUDIT_PLANE, filter->or_plane));
}

static bool matches(const struct audit_filter *filter, const json_t *record)
{
    const char *when = field(record, AUDIT_TIME);
    return is_principals(record, filter) && is_field(record, AUDIT_THREAD_ID, filter->thread_id) &&
           is_field(record, AUDIT_SANDBOX_ID, filter->sandbox_id) && is_field(record, AUDIT_JTI, filter->jti) &&
           is_field(record, AUDIT_ACTION, filter->action) && has_link(field(record, AUDIT_LINKS), filter->link) &&
           (filter->since == NULL || strcmp(when, filter->since) >= 0) &&
           (filter->until == NULL || strcmp(when, filter->until) < 0);
}

/* --- a stretch of them --- */

struct reading {
    struct audit_search *search;
    json_t *into; /* borrowed */
    size_t room;  /* records that `into` still takes, in AUDIT_PAGE_BYTES; 0: any number */
    size_t visited;
    uint64_t last; /* number of the last one looked at */
    struct error err;
};

static bool read_next(void *cookie, const char *name, const struct kv_value *value)
{
    struct reading *reading = cookie;
    struct audit_search *search = reading->search;
    if (reading->room > 0 && search->bytes >= AUDIT_PAGE_BYTES)
        return false;
    reading->visited++;
    reading->last = strtoull(name + strlen(AUDIT_RECORDS), NULL, 10);
    if (!may_match(&search->filter, value))
        return true;
    AUTO_JSON *record = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(record))
        return error_set(&reading->err, ERROR_INTERNAL, "%s in the store is not a record", name);
    if (!matches(&search->filter, record))
        return true;
    if (!search->chained) {
        json_object_del(record, "prev");
        json_object_del(record, "hash");
    }
    search->bytes += value->size;
    json_array_append(reading->into, record);
    return reading->room == 0 || json_array_size(reading->into) < reading->room;
}

static bool read_stretch(struct kv *kv, struct reading *reading, uint64_t after, const char *end, struct error *err)
{
    char first[AUDIT_KEY_SIZE];
    audit_format_key(first, AUDIT_RECORDS, after + 1);
    reading->last = after;
    if (!kv_range(kv, first, end, AUDIT_STEP, read_next, reading, err))
        return false;
    return reading->err.kind == ERROR_NONE || error_set(err, reading->err.kind, "%s", reading->err.message);
}

static bool step_forward(struct kv *kv, struct audit_search *search, struct error *err)
{
    struct reading reading = {.search = search, .into = search->records, .room = search->limit};
    struct audit_position head;
    if (!read_stretch(kv, &reading, search->after, AUDIT_RECORDS_END, err) ||
        !audit_head(kv, &head.seq, head.hash, err))
        return false;
    search->scanned += reading.visited;
    search->after = reading.last;
    bool at_end = reading.last >= head.seq || (reading.visited == 0 && search->bytes < AUDIT_PAGE_BYTES);
    search->done = at_end || json_array_size(search->records) >= search->limit || search->scanned >= AUDIT_SCAN_MAX ||
                   search->bytes >= AUDIT_PAGE_BYTES;
    search->next = at_end ? 0 : search->after;
    return true;
}

/* Puts what was found before what is there; only the last `limit` are kept. */
static void put_before(struct audit_search *search, json_t *found)
{
    size_t room = search->limit - json_array_size(search->records);
    size_t count = json_array_size(found);
    for (size_t i = 0; i < room && i < count; i++)
        json_array_insert(search->records, 0, json_array_get(found, count - 1 - i));
}

static bool step_backward(struct kv *kv, struct audit_search *search, struct error *err)
{
    struct audit_position head;
    if (!audit_head(kv, &head.seq, head.hash, err))
        return false;
    if (search->before == 0)
        search->before = head.seq + 1;
    uint64_t after = search->before > STEP_BACK ? search->before - 1 - STEP_BACK : 0;
    char end[AUDIT_KEY_SIZE];
    AUTO_JSON *found = json_array();
    struct reading reading = {.search = search, .into = found};
    audit_format_key(end, AUDIT_RECORDS, search->before);
    if (!read_stretch(kv, &reading, after, end, err))
        return false;
    bool at_start = after == 0 || reading.visited < search->before - 1 - after; /* the rest is sealed */
    put_before(search, found);
    search->scanned += reading.visited;
    search->before = after + 1;
    search->done = at_start || json_array_size(search->records) >= search->limit || search->scanned >= AUDIT_SCAN_MAX ||
                   search->bytes >= AUDIT_PAGE_BYTES;
    return true;
}

bool audit_search_step(struct kv *kv, struct audit_search *search, struct error *err)
{
    if (search->records == NULL)
        search->records = json_array();
    return search->newest ? step_backward(kv, search, err) : step_forward(kv, search, err);
}

void audit_search_done(struct audit_search *search)
{
    json_decref(TAKE(search->records));
}

/* --- all of a stretch --- */

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
    char first[AUDIT_KEY_SIZE];
    audit_format_key(first, AUDIT_RECORDS, after_seq + 1);
    bool wanted = limit > 0 && after_seq < UINT64_MAX; /* kv_range takes 0 for no limit */
    if (wanted && !kv_range(kv, first, AUDIT_RECORDS_END, limit, list_next, &listing, err))
        return NULL;
    if (listing.err.kind != ERROR_NONE) {
        error_set(err, listing.err.kind, "%s", listing.err.message);
        return NULL;
    }
    return TAKE(records);
}

/* --- which there are --- */

static bool note_first(void *cookie, const char *name, const struct kv_value *value UNUSED)
{
    *(uint64_t *)cookie = strtoull(name + strlen(AUDIT_RECORDS), NULL, 10);
    return false;
}

bool audit_first(struct kv *kv, uint64_t after, uint64_t *seq, struct error *err)
{
    char first[AUDIT_KEY_SIZE];
    uint64_t found = 0;
    if (after < UINT64_MAX) {
        audit_format_key(first, AUDIT_RECORDS, after + 1);
        if (!kv_range(kv, first, AUDIT_RECORDS_END, 1, note_first, &found, err))
            return false;
    }
    *seq = found;
    return true;
}
