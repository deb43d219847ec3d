/* keeping_page.c - an owner's snapshots, newest first, by offset, with a total: as leasing/paging.c does it. */
#include "negotiator/leasing/keeping/keeping_internal.h"
#include "negotiator/leasing/page_walk.h"
#include "shared/base/memory.h"

#include <string.h>

/* Looked at again when the page is read: meanwhile it may have become another. */
static bool is_asked_for(const struct keeping *k, const struct snapshot *snapshot)
{
    if (snapshot->revision == 0 || snapshot->state == SNAPSHOT_DELETING)
        return false;
    return (k->states == 0 || (k->states & 1U << snapshot->state) != 0) &&
           (k->sandbox_id[0] == '\0' || strcmp(k->sandbox_id, snapshot->sandbox_id) == 0) &&
           (k->name[0] == '\0' || strcmp(k->name, snapshot->name) == 0);
}

/* For page_walk_step. */
static bool look(struct work *work, void *cookie, const char *id, bool *is_wanted, int64_t *created_at)
{
    const struct keeping *k = cookie;
    struct snapshot snapshot;
    if (!snapshot_get(work, id, &snapshot))
        return false;
    *is_wanted = is_asked_for(k, &snapshot);
    *created_at = snapshot.created_at;
    return true;
}

static bool fill(struct work *work, struct keeping *k)
{
    struct page_walk *walk = k->walk;
    k->count = 0;
    k->total = walk->count;
    k->is_cut = walk->is_cut;
    for (size_t i = k->offset; i < walk->count && k->count < k->limit; i++) {
        struct snapshot snapshot;
        if (!snapshot_get(work, walk->found[i].id, &snapshot))
            return false;
        if (is_asked_for(k, &snapshot))
            k->list[k->count++] = snapshot;
    }
    walk->over = true;
    return true;
}

static bool step(struct work *work, struct keeping *k)
{
    return k->walk->walked ? fill(work, k)
                           : page_walk_step(work, k->walk, "snapowned", caller_owner(&k->caller), look, k);
}

static enum kv_outcome page_rule(struct kv *kv, void *argument, struct error *err)
{
    struct keeping *k = argument;
    struct work work = work_begin(k->leasing, kv, NULL, err);
    if (!caller_may(&k->caller, ROLE_VIEWER, &k->refusal)) {
        k->walk->over = true;
        return KV_APPLIED;
    }
    return step(&work, k) ? KV_APPLIED : KV_FAILED;
}

static bool is_over(const void *argument)
{
    const struct keeping *k = argument;
    return k->walk->over || atomic_load(&k->leasing->stopping);
}

static void paged(void *argument, const struct error *err)
{
    struct keeping *k = argument;
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    else if (!k->walk->over)
        error_set(&k->refusal, ERROR_STARTING, "the negotiator stops; ask again");
    keeping_answer(k);
}

void keeping_page_submit(struct keeping *k)
{
    if (k->limit == 0 || k->limit > KEEPING_LIST_MAX)
        k->limit = KEEPING_LIST_MAX;
    k->list = memory_array(KEEPING_LIST_MAX, sizeof *k->list);
    k->walk = memory_new(sizeof *k->walk);
    ledger_submit_long(k->leasing->options.ledger, page_rule, is_over, paged, k);
}
