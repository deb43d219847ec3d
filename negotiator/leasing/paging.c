/* paging.c - a principal's sandboxes, newest first, by offset, with a total. Rows lie by id, so all of them are looked
 * at: in steps between which other rules run, keeping of each no more than when it was made. Then the page's are read.
 */
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_ROWS = 100 };

struct paged {
    char id[RANDOM_ID_BYTES];
    int64_t created_at;
};

struct paging {
    struct paged *found; /* owned; those that are asked for */
    size_t count;
    char after[RANDOM_ID_BYTES]; /* rows up to this one have been looked at */
    bool walked, over;
    /* Set anew by each run of the rule. */
    char ids[STEP_ROWS][RANDOM_ID_BYTES];
    size_t id_count;
};

void paging_free(struct paging *paging)
{
    if (paging)
        free(paging->found);
    free(paging);
}

static bool has_pairs(const struct sandbox *sandbox, json_t *pairs)
{
    const char *name;
    json_t *value;
    bool has = true;
    json_object_foreach (pairs, name, value)
        has = has && json_equal(json_object_get(sandbox->metadata, name), value);
    return has;
}

/* Looked at again when the page is read: meanwhile it may have become another. */
static bool is_asked_for(const struct question *q, const struct sandbox *sandbox)
{
    if (sandbox->revision == 0 || strcmp(sandbox->principal, caller_owner(&q->caller)) != 0)
        return false;
    bool has_state = q->states ? (q->states & 1U << sandbox->state) != 0 : !sandbox_has_ended(sandbox);
    return has_state && has_pairs(sandbox, q->metadata);
}

static bool note_id(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct paging *paging = cookie;
    const char *id = strrchr(key, '/');
    if (id && text_copy(paging->ids[paging->id_count], RANDOM_ID_BYTES, id + 1))
        paging->id_count++;
    return paging->id_count < STEP_ROWS;
}

static bool keep(struct question *q, const struct sandbox *sandbox)
{
    struct paging *paging = q->paging;
    if (!is_asked_for(q, sandbox))
        return true;
    if (paging->count == QUESTION_PAGE_MAX) {
        q->is_cut = true;
        return false;
    }
    if ((paging->count & (paging->count - 1)) == 0)
        paging->found = memory_resize(paging->found, (paging->count ? 2 * paging->count : 1) * sizeof *paging->found);
    struct paged *found = &paging->found[paging->count++];
    memcpy(found->id, sandbox->id, sizeof found->id);
    found->created_at = sandbox->created_at;
    return true;
}

static bool walk(struct work *work, struct question *q)
{
    struct paging *paging = q->paging;
    char first[KV_KEY_MAX_BYTES], end[KV_KEY_MAX_BYTES];
    const char *owner = caller_owner(&q->caller);
    paging->id_count = 0;
    /* '!' follows every id that begins the same; '0' follows '/'. */
    if (!text_format(first, sizeof first, "owned/%s/%s%s", owner, paging->after, paging->after[0] ? "!" : "") ||
        !text_format(end, sizeof end, "owned/%s0", owner))
        return error_set(work->err, ERROR_INTERNAL, "a key does not fit");
    if (!kv_range(work->kv, first, end, STEP_ROWS, note_id, paging, work->err))
        return false;
    paging->walked = paging->id_count < STEP_ROWS;
    for (size_t i = 0; i < paging->id_count; i++) {
        AUTO_SANDBOX sandbox = {0};
        if (!store_get_sandbox(work, paging->ids[i], &sandbox))
            return false;
        paging->walked |= !keep(q, &sandbox);
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

static bool fill(struct work *work, struct question *q)
{
    struct paging *paging = q->paging;
    if (paging->count > 0)
        qsort(paging->found, paging->count, sizeof *paging->found, compare);
    q->total = paging->count;
    for (size_t i = q->offset; i < paging->count && q->count < q->limit; i++) {
        AUTO_SANDBOX sandbox = {0};
        if (!store_get_sandbox(work, paging->found[i].id, &sandbox))
            return false;
        if (!is_asked_for(q, &sandbox))
            continue;
        presence_show(&work->leasing->presence, &sandbox);
        q->list[q->count++] = sandbox;
        sandbox = (struct sandbox){0};
    }
    paging->over = true;
    return true;
}

static enum kv_outcome paging_rule(struct kv *kv, void *argument, struct error *err)
{
    struct question *q = argument;
    struct work work = work_begin(q->leasing, kv, NULL, err);
    if (!caller_may(&q->caller, ROLE_VIEWER, &q->refusal)) {
        q->paging->over = true;
        return KV_APPLIED;
    }
    return (q->paging->walked ? fill(&work, q) : walk(&work, q)) ? KV_APPLIED : KV_FAILED;
}

static bool is_over(const void *argument)
{
    const struct question *q = argument;
    return q->paging->over || atomic_load(&q->leasing->stopping);
}

static void paging_done(void *argument, const struct error *err)
{
    struct question *q = argument;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    else if (!q->paging->over)
        error_set(&q->refusal, ERROR_STARTING, "the negotiator stops; ask again");
    q->answered(q->cookie, q);
}

void paging_submit(struct question *q)
{
    if (q->limit == 0 || q->limit > QUESTION_LIST_MAX)
        q->limit = QUESTION_LIST_MAX;
    q->list = memory_array(QUESTION_LIST_MAX, sizeof *q->list);
    q->paging = memory_new(sizeof *q->paging);
    ledger_submit_long(q->leasing->options.ledger, paging_rule, is_over, paging_done, q);
}
