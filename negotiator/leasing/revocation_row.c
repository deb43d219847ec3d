/* revocation_row.c - the rows of revocations, and looking at them. */
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/revocations.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SCAN_MAX = 500 /* rows one LIST looks at; the page then ends, with a cursor */ };

struct row_key {
    char text[64];
};

static struct row_key key_of(const char *table, const char *id)
{
    struct row_key key;
    snprintf(key.text, sizeof key.text, "%s/%.40s", table, id);
    return key;
}

/* Those that were made last come first. */
static struct row_key place_of(uint64_t number)
{
    struct row_key key;
    snprintf(key.text, sizeof key.text, "revoked/%016" PRIx64, UINT64_MAX - number);
    return key;
}

static void put_json(struct work *work, const char *key, json_t *json, int64_t forget_at)
{
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_put(work->change, key, text, strlen(text));
    store_forget_at(work, forget_at, key);
}

void revocation_put(struct work *work, const struct revocation *revocation, const char *owner, const json_t *nodes)
{
    const struct mark *mark = &revocation->mark;
    int64_t forget_at = (mark->until + REVOCATIONS_KEEP_S) * 1000;
    AUTO_FREE char *place = memory_printf("%s %s", revocation->id, owner);
    struct row_key key = place_of(mark->number);
    kv_change_put(work->change, key.text, place, strlen(place));
    store_forget_at(work, forget_at, key.text);
    put_json(work, key_of("revocation", revocation->id).text,
             json_pack("{s:o, s:s, s:s, s:s, s:I, s:I}", "mark", mark_format(mark), "owner", owner, "by",
                       revocation->by, "reason", revocation->reason, "created_at", (json_int_t)revocation->created_ms,
                       "usable_until", (json_int_t)revocation->usable_until),
             forget_at);
    if (json_array_size(nodes) > 0)
        put_json(work, key_of("unheard", revocation->id).text,
                 json_pack("{s:I, s:I, s:O}", "n", (json_int_t)mark->number, "until",
                           (json_int_t)revocation->usable_until, "nodes", nodes),
                 forget_at);
}

void revocation_judge(const struct leasing *leasing, struct revocation *revocation, const json_t *nodes, int64_t now)
{
    size_t i;
    json_t *node;
    revocation->missing_count = 0;
    bool over = revocation->usable_until * 1000 <= now;
    json_array_foreach (nodes, i, node) {
        const char *name = json_string_value(node);
        if (over || name == NULL || marks_has(leasing, name, revocation->mark.number))
            continue;
        size_t at = revocation->missing_count;
        if (at >= REVOCATION_NODES_MAX || text_copy(revocation->missing[at], sizeof revocation->missing[at], name))
            revocation->missing_count++;
    }
    revocation->in_force = revocation->missing_count == 0;
}

static bool read_row(struct revocation *to, char owner[static PRINCIPAL_BYTES], const json_t *json)
{
    to->created_ms = json_integer_value(json_object_get(json, "created_at"));
    to->usable_until = json_integer_value(json_object_get(json, "usable_until"));
    return mark_parse(&to->mark, json_object_get(json, "mark"), NULL) &&
           text_copy(to->by, sizeof to->by, json_string_value(json_object_get(json, "by"))) &&
           text_copy(to->reason, sizeof to->reason, json_string_value(json_object_get(json, "reason"))) &&
           text_copy(owner, PRINCIPAL_BYTES, json_string_value(json_object_get(json, "owner")));
}

static bool judge_row(struct work *work, struct revocation *revocation)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(work->kv, key_of("unheard", revocation->id).text, &value, work->err))
        return false;
    json_t *json = value.revision ? json_loadb(value.data, value.size, 0, NULL) : NULL;
    revocation_judge(work->leasing, revocation, json_object_get(json, "nodes"), work->now);
    json_decref(json);
    return true;
}

bool revocation_get(struct work *work, const char *id, struct revocation *revocation,
                    char owner[static PRINCIPAL_BYTES])
{
    AUTO_KV_VALUE value = {0};
    *revocation = (struct revocation){.id = ""};
    if (!random_is_id(id, "rev"))
        return true;
    if (!kv_get(work->kv, key_of("revocation", id).text, &value, work->err))
        return false;
    if (value.revision == 0)
        return true;
    json_t *json = json_loadb(value.data, value.size, 0, NULL);
    bool whole = json && read_row(revocation, owner, json) && text_copy(revocation->id, sizeof revocation->id, id);
    json_decref(json);
    if (!whole)
        return error_set(work->err, ERROR_INTERNAL, "the row of a revocation is damaged");
    return judge_row(work, revocation);
}

/* --- looking --- */

static bool is_visible(const struct revoking *r, const char *owner)
{
    return r->caller.principal.role == ROLE_ADMIN || strcmp(owner, r->caller.principal.name) == 0;
}

bool revocation_find(struct work *work, struct revoking *r)
{
    char owner[PRINCIPAL_BYTES];
    r->list = memory_new(sizeof *r->list);
    if (!revocation_get(work, r->id, r->list, owner))
        return false;
    if (r->list->id[0] == '\0' || !is_visible(r, owner))
        return error_set(&r->refusal, ERROR_NOT_FOUND, "no such revocation");
    r->count = 1;
    return true;
}

struct listing {
    const struct revoking *r;
    const char *owner; /* NULL: everybody's */
    char (*ids)[RANDOM_ID_BYTES];
    size_t count, seen;
    char last[RANDOM_ID_BYTES]; /* the last one looked at, listed or not */
    bool more;
};

static bool note_place(void *cookie, const char *key UNUSED, const struct kv_value *value)
{
    struct listing *listing = cookie;
    size_t length = strcspn(value->data, " ");
    if (listing->count == listing->r->limit || listing->seen == SCAN_MAX) {
        listing->more = true;
        return false;
    }
    listing->seen++;
    if (!text_format(listing->last, sizeof listing->last, "%.*s", (int)length, value->data))
        return true;
    if (value->data[length] != ' ' || (listing->owner && strcmp(value->data + length + 1, listing->owner) != 0))
        return true;
    memcpy(listing->ids[listing->count++], listing->last, RANDOM_ID_BYTES);
    return true;
}

/* Where the list begins: behind the cursor. */
static bool find_start(struct work *work, struct revoking *r, struct row_key *start)
{
    char owner[PRINCIPAL_BYTES];
    struct revocation last;
    *start = (struct row_key){"revoked/"};
    if (r->id[0] == '\0')
        return true;
    if (!revocation_get(work, r->id, &last, owner))
        return false;
    if (last.id[0] == '\0')
        return error_set(&r->refusal, ERROR_INVALID, "cursor must be the next of an earlier answer");
    *start = place_of(last.mark.number - 1);
    return true;
}

bool revocation_list(struct work *work, struct revoking *r)
{
    struct row_key start;
    char owner[PRINCIPAL_BYTES];
    if (!caller_may(&r->caller, r->all ? ROLE_ADMIN : ROLE_VIEWER, &r->refusal) || !find_start(work, r, &start))
        return false;
    if (r->limit == 0 || r->limit > REVOCATION_LIST_MAX)
        r->limit = REVOCATION_LIST_MAX;
    AUTO_FREE char(*ids)[RANDOM_ID_BYTES] = memory_array(r->limit, sizeof *ids);
    struct listing listing = {.r = r, .owner = r->all ? NULL : caller_owner(&r->caller), .ids = ids};
    if (!kv_range(work->kv, start.text, "revoked0", 0, note_place, &listing, work->err))
        return false;
    r->list = memory_array(r->limit, sizeof *r->list);
    for (size_t i = 0; i < listing.count; i++) {
        if (!revocation_get(work, ids[i], &r->list[r->count], owner))
            return false;
        r->count += r->list[r->count].id[0] != '\0';
    }
    if (listing.more)
        memcpy(r->next, listing.last, sizeof r->next);
    return true;
}
