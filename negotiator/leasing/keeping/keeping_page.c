/* keeping_page.c - an owner's snapshots, newest first, by offset, with a total: as leasing/paging.c does it. */
#include "negotiator/leasing/keeping/keeping_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_ROWS = 100 };

struct paged {
    char id[RANDOM_ID_BYTES];
    int64_t created_at;
};

struct keeping_paging {
    struct paged *found; /* owned; those that are asked for */
    size_t count;
    char after[RANDOM_ID_BYTES]; /* rows up to this one have been looked at */
    bool walked, over;
    /* Set anew by each run of the rule. */
    char ids[STEP_ROWS][RANDOM_ID_BYTES];
    size_t id_count;
};

void keeping_paging_free(struct keeping_paging *paging)
{
    if (paging)
        free(paging->found);
    free(paging);
}

/* Looked at again when the page is read: meanwhile it may have become another. */
static bool is_asked_for(const struct keeping *k, const struct snapshot *snapshot)
{
    if (snapshot->revision == 0 || snapshot->state == SNAPSHOT_DELETING)
        return false;
    return (k->states == 0 || (k->states & 1U << snapshot->state) != 0) &&
           (k->sandbox_id[0] == '\0' || strcmp(k->sandbox_id, snapshot->sandbox_id) == 0) &&
           (k->name[0] == '\0' || strcmp(k->name, snapshot->name) == 0);
}

static bool note_id(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct keeping_paging *paging = cookie;
    const char *id = strrchr(key, '/');
    if (id && text_copy(paging->ids[paging->id_count], RANDOM_ID_BYTES, id + 1))
        paging->id_count++;
    return paging->id_count < STEP_ROWS;
}

static bool keep(struct keeping *k, const struct snapshot *snapshot)
{
    struct keeping_paging *paging = k->paging;
    if (!is_asked_for(k, snapshot))
        return true;
    if (paging->count == KEEPING_PAGE_MAX) {
        k->is_cut = true;
        return false;
    }
    if ((paging->count & (paging->count - 1)) == 0)
        paging->found = memory_resize(paging->found, (paging->count ? 2 * paging->count : 1) * sizeof *paging->found);
    struct paged *found = &paging->found[paging->count++];
    memcpy(found->id, snapshot->id, sizeof found->id);
    found->created_at = snapshot->created_at;
    return true;
}

static bool walk(struct work *work, struct keeping *k)
{
    struct keeping_paging *paging = k->paging;
    char first[KV_KEY_MAX_BYTES], end[KV_KEY_MAX_BYTES];
    const char *owner = caller_owner(&k->caller);
    paging->id_count = 0;
    /* '!' follows every id that begins the same; '0' follows '/'. */
    if (!text_format(first, sizeof first, "snapowned/%s/%s%s", owner, paging->after, paging->after[0] ? "!" : "") ||
        !text_format(end, sizeof end, "snapowned/%s0", owner))
        return error_set(work->err, ERROR_INTERNAL, "a key does not fit");
    if (!kv_range(work->kv, first, end, STEP_ROWS, note_id, paging, work->err))
        return false;
    paging->walked = paging->id_count < STEP_ROWS;
    for (size_t i = 0; i < paging->id_count; i++) {
        struct snapshot snapshot;
        if (!snapshot_get(work, paging->ids[i], &snapshot))
            return false;
        paging->walked |= !keep(k, &snapshot);
    }
    if (paging->id_count > 0)
        memcpy(paging->after, paging->ids[paging->id_count - 1], sizeof paging->after);
    return true;
}

/* The newest first; of the same moment, by their ids. */
static int compare(const void *a, const void *b)
{
    const struct paged *x = a, *y = b;
    if (x->created_at != y->created_at)
        return x->created_at < y->created_at ? 1 : -1;
    return strcmp(x->id, y->id);
}

static bool fill(struct work *work, struct keeping *k)
{
    struct keeping_paging *paging = k->paging;
    if (paging->count > 0)
        qsort(paging->found, paging->count, sizeof *paging->found, compare);
    k->count = 0;
    k->total = paging->count;
    for (size_t i = k->offset; i < paging->count && k->count < k->limit; i++) {
        struct snapshot snapshot;
        if (!snapshot_get(work, paging->found[i].id, &snapshot))
            return false;
        if (is_asked_for(k, &snapshot))
            k->list[k->count++] = snapshot;
    }
    paging->over = true;
    return true;
}

static enum kv_outcome page_rule(struct kv *kv, void *argument, struct error *err)
{
    struct keeping *k = argument;
    struct work work = work_begin(k->leasing, kv, NULL, err);
    if (!caller_may(&k->caller, ROLE_VIEWER, &k->refusal)) {
        k->paging->over = true;
        return KV_APPLIED;
    }
    return (k->paging->walked ? fill(&work, k) : walk(&work, k)) ? KV_APPLIED : KV_FAILED;
}

static bool is_over(const void *argument)
{
    const struct keeping *k = argument;
    return k->paging->over || atomic_load(&k->leasing->stopping);
}

static void paged(void *argument, const struct error *err)
{
    struct keeping *k = argument;
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    else if (!k->paging->over)
        error_set(&k->refusal, ERROR_STARTING, "the negotiator stops; ask again");
    keeping_answer(k);
}

void keeping_page_submit(struct keeping *k)
{
    if (k->limit == 0 || k->limit > KEEPING_LIST_MAX)
        k->limit = KEEPING_LIST_MAX;
    k->list = memory_array(KEEPING_LIST_MAX, sizeof *k->list);
    k->paging = memory_new(sizeof *k->paging);
    ledger_submit_long(k->leasing->options.ledger, page_rule, is_over, paged, k);
}
