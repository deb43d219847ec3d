/* share_row.c - the rows of shares, and which of them hold. */
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/sharing/sharing.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEEP_S = 120,
    SHIPPED_S = 2 * WANTED_DAY_S /* its node may tell of its use that late */,
    REFRESHABLE_S = 60 /* past its exp a token can still be refreshed */
};

struct store_row share_key(const char *owner, const char *thread_id, const char *id)
{
    struct store_row row;
    if (!text_format(row.text, sizeof row.text, "share/%s/%s/%s", owner, thread_id, id))
        row.text[0] = '\0';
    return row;
}

static struct store_row where_key(const char *sub, const char *sandbox_id, const char *id)
{
    struct store_row row;
    if (!text_format(row.text, sizeof row.text, "shareto/%s/%s/%s", sub, sandbox_id, id))
        row.text[0] = '\0';
    return row;
}

void share_put(struct work *work, const struct family *family)
{
    char made[32];
    struct store_row row = share_key(family->owner, family->thread_id, family->id),
                     where = where_key(family->principal, family->sandbox_id, family->id);
    snprintf(made, sizeof made, "%" PRId64, work->now);
    kv_change_put(work->change, row.text, made, strlen(made));
    kv_change_put(work->change, where.text, family->sandbox_id, strlen(family->sandbox_id));
    store_forget_at(work, (family->share_until + KEEP_S) * 1000, row.text);
    store_forget_at(work, (family->share_until + SHIPPED_S) * 1000, where.text);
}

void share_delete(struct work *work, const struct family *family)
{
    kv_change_delete(work->change, share_key(family->owner, family->thread_id, family->id).text);
}

static bool note_one(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    *(bool *)cookie = true;
    return false;
}

bool sharing_is_with(struct work *work, const char *sub, const char *sandbox_id, bool *is_with)
{
    *is_with = false;
    if (!principal_is_name(sub) || !random_is_id(sandbox_id, "sbx"))
        return true;
    return kv_range(work->kv, where_key(sub, sandbox_id, "").text, NULL, 1, note_one, is_with, work->err);
}

/* --- walking them --- */

struct place {
    char row[KV_KEY_MAX_BYTES + 1];
    int64_t created_ms;
};

struct walk {
    struct place *places; /* of SHARES_MAX */
    size_t count;
};

static bool note(void *cookie, const char *key, const struct kv_value *value)
{
    struct walk *walk = cookie;
    struct place *place = &walk->places[walk->count];
    if (text_copy(place->row, sizeof place->row, key)) {
        place->created_ms = strtoll(value->data, NULL, 10);
        walk->count++;
    }
    return walk->count < SHARES_MAX;
}

static bool collect(struct work *work, const char *owner, const char *thread_id, struct walk *walk)
{
    char first[KV_KEY_MAX_BYTES], end[KV_KEY_MAX_BYTES]; /* '0' follows '/' */
    const char *slash = thread_id ? "/" : "", *thread = thread_id ? thread_id : "";
    if (!text_format(first, sizeof first, "share/%s%s%s/", owner, slash, thread) ||
        !text_format(end, sizeof end, "share/%s%s%s0", owner, slash, thread))
        return error_set(work->err, ERROR_INTERNAL, "a key does not fit");
    return kv_range(work->kv, first, end, 0, note, walk, work->err);
}

/* Of a lease that its thread still has, not run out, and not revoked. */
static bool judge(struct work *work, const struct family *family, bool *holds)
{
    AUTO_SANDBOX sandbox = {0};
    struct lease lease;
    struct capability_claims claims;
    bool forbidden = false;
    int64_t now_s = work->now / 1000;
    *holds = false;
    if (family->revision == 0 || family->share_until <= now_s || family->until + REFRESHABLE_S < now_s)
        return true;
    if (!store_get_lease(work, family->owner, family->thread_id, &lease) ||
        !store_get_sandbox(work, family->sandbox_id, &sandbox))
        return false;
    if (lease.revision == 0 || strcmp(lease.id, family->lease) != 0 || !sandbox_is_live(&sandbox))
        return true;
    if (!family_claims(family, &sandbox, work->leasing->deployment, &claims, work->err) ||
        !marks_forbid(work, &claims, &forbidden))
        return false;
    *holds = !forbidden;
    return true;
}

bool share_each(struct work *work, const char *owner, const char *thread_id, bool mend,
                bool (*visit)(void *cookie, const struct share_found *found), void *cookie)
{
    AUTO_FREE struct place *places = memory_array(SHARES_MAX, sizeof *places);
    struct walk walk = {.places = places};
    if (!collect(work, owner, thread_id, &walk))
        return false;
    for (size_t i = 0; i < walk.count; i++) {
        struct share_found found = {.created_ms = places[i].created_ms};
        bool holds = false;
        if (!family_get(work, strrchr(places[i].row, '/') + 1, &found.family) || !judge(work, &found.family, &holds))
            return false;
        if (holds && !visit(cookie, &found))
            return false;
        if (!holds && mend)
            kv_change_delete(work->change, places[i].row);
    }
    return true;
}
