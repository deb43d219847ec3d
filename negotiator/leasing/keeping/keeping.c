#include "negotiator/leasing/keeping/keeping_internal.h"
#include "negotiator/leasing/page_walk.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { SCAN_MAX = 200 }; /* rows one LIST looks at; the page then ends, with a cursor */

struct keeping *keeping_new(void)
{
    return memory_new(sizeof(struct keeping));
}

void keeping_free(struct keeping *keeping)
{
    if (keeping == NULL)
        return;
    if (keeping->token)
        explicit_bzero(keeping->token, strlen(keeping->token));
    free(keeping->token);
    free(keeping->list);
    page_walk_free(keeping->walk);
    free(keeping);
}

void keeping_answer(struct keeping *keeping)
{
    keeping->answered(keeping->cookie, keeping);
}

/* --- records --- */

bool keeping_audit(struct work *work, const struct keeping *keeping, const char *detail)
{
    bool done = keeping->refusal.kind == ERROR_NONE, is_take = keeping->verb == KEEPING_TAKE;
    const struct snapshot *snapshot = &keeping->snapshot;
    struct audit_record record = {.node = snapshot->node,
                                  .action = is_take ? "snapshot.create" : "snapshot.delete",
                                  .outcome = done ? "ok" : "refused",
                                  .status = done ? (is_take ? 201 : 204) : error_http_status(keeping->refusal.kind),
                                  .principal = keeping->caller.principal.name,
                                  .actor = keeping->actor,
                                  .thread_id = keeping->thread_id,
                                  .sandbox_id = is_take ? keeping->sandbox_id : snapshot->sandbox_id,
                                  .lease = keeping->lease,
                                  .jti = keeping->jti,
                                  .links = keeping->links,
                                  .remote = keeping->caller.remote,
                                  .request_id = keeping->caller.request_id,
                                  .detail = done ? detail : keeping->refusal.message};
    return store_audit(work, keeping->token ? NULL : &keeping->caller, &record); /* a holder has no role */
}

enum kv_outcome keeping_refuse(struct work *work, struct keeping *keeping)
{
    if (keeping->token && keeping->refusal.kind == ERROR_UNAUTHENTICATED)
        return KV_APPLIED; /* a stranger: they are summed */
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    return keeping_audit(&own, keeping, "") ? store_apply(&own) : KV_FAILED;
}

/* --- looking --- */

static bool find(struct work *work, struct keeping *k)
{
    struct error none = {0};
    if (!caller_may(&k->caller, ROLE_VIEWER, &k->refusal))
        return false;
    /* One that is being made is there, for who looks. */
    if (snapshot_find(work, &k->caller, k->snapshot_id, &k->snapshot, &k->refusal))
        return true;
    bool is_starting = k->refusal.kind == ERROR_STARTING;
    if (is_starting)
        k->refusal = none;
    return is_starting;
}

struct listing {
    struct work *work;
    struct keeping *k;
    char (*ids)[RANDOM_ID_BYTES];
    size_t count;
    bool more;
};

static bool note_id(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct listing *listing = cookie;
    const char *id = strrchr(key, '/');
    if (listing->count == SCAN_MAX) {
        listing->more = true;
        return false;
    }
    if (id && text_copy(listing->ids[listing->count], RANDOM_ID_BYTES, id + 1))
        listing->count++;
    return true;
}

static bool collect_ids(struct listing *listing)
{
    const struct keeping *k = listing->k;
    const char *owner = caller_owner(&k->caller);
    if (k->name[0]) {
        if (!snapshot_get_name(listing->work, owner, k->name, listing->ids[0]))
            return false;
        listing->count = listing->ids[0][0] ? 1 : 0;
        return true;
    }
    char first[KV_KEY_MAX_BYTES], end[KV_KEY_MAX_BYTES];
    bool all = k->caller.principal.role == ROLE_ADMIN && k->caller.owner[0] == '\0';
    const char *table = all ? "snapshot" : "snapowned/";
    /* '!' follows every id that begins the same; '0' follows '/'. */
    if (!text_format(first, sizeof first, "%s%s/%s%s", table, all ? "" : owner, k->cursor, k->cursor[0] ? "!" : "") ||
        !text_format(end, sizeof end, "%s%s0", table, all ? "" : owner))
        return error_set(listing->work->err, ERROR_INTERNAL, "a key does not fit");
    return kv_range(listing->work->kv, first, end, 0, note_id, listing, listing->work->err);
}

static bool fill_list(struct listing *listing)
{
    struct keeping *k = listing->k;
    const char *last = "";
    for (size_t i = 0; i < listing->count; i++) {
        struct snapshot snapshot;
        if (k->count == k->limit) {
            listing->more = true;
            break;
        }
        last = listing->ids[i];
        if (!snapshot_get(listing->work, last, &snapshot))
            return false;
        bool is_other = k->sandbox_id[0] && strcmp(k->sandbox_id, snapshot.sandbox_id) != 0;
        if (snapshot.revision > 0 && snapshot.state != SNAPSHOT_DELETING && !is_other)
            k->list[k->count++] = snapshot;
    }
    if (listing->more)
        memcpy(k->next, last, sizeof k->next);
    return true;
}

static bool list(struct work *work, struct keeping *k)
{
    if (!caller_may(&k->caller, ROLE_VIEWER, &k->refusal))
        return false;
    if (k->limit == 0 || k->limit > KEEPING_LIST_MAX)
        k->limit = KEEPING_LIST_MAX;
    if (k->list == NULL)
        k->list = memory_array(KEEPING_LIST_MAX, sizeof *k->list);
    AUTO_FREE char(*ids)[RANDOM_ID_BYTES] = memory_array(SCAN_MAX, sizeof *ids);
    struct listing listing = {.work = work, .k = k, .ids = ids};
    return collect_ids(&listing) && fill_list(&listing);
}

static enum kv_outcome seek_rule(struct kv *kv, void *argument, struct error *err)
{
    struct keeping *k = argument;
    struct work work = work_begin(k->leasing, kv, NULL, err); /* it changes nothing */
    k->refusal = (struct error){0};
    k->count = 0;
    k->next[0] = '\0';
    bool found = k->verb == KEEPING_FIND ? find(&work, k) : list(&work, k);
    return found || k->refusal.kind != ERROR_NONE ? KV_APPLIED : KV_FAILED;
}

static void looked(void *argument, const struct error *err)
{
    struct keeping *k = argument;
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    keeping_answer(k);
}

void leasing_keep(struct leasing *leasing, struct keeping *keeping)
{
    keeping->leasing = leasing;
    switch (keeping->verb) {
    case KEEPING_TAKE:
        taking_submit(keeping);
        break;
    case KEEPING_DROP:
        dropping_submit(keeping);
        break;
    case KEEPING_PAGE:
        keeping_page_submit(keeping);
        break;
    case KEEPING_FIND:
    case KEEPING_LIST:
        ledger_submit(leasing->options.ledger, seek_rule, looked, keeping);
        break;
    }
}
