/* paging.c - a principal's sandboxes, newest first, by offset, with a total. */
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/page_walk.h"
#include "shared/base/memory.h"

#include <string.h>

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

/* For page_walk_step. */
static bool look(struct work *work, void *cookie, const char *id, bool *is_wanted, int64_t *created_at)
{
    const struct question *q = cookie;
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(work, id, &sandbox))
        return false;
    *is_wanted = is_asked_for(q, &sandbox);
    *created_at = sandbox.created_at;
    return true;
}

static bool fill(struct work *work, struct question *q)
{
    struct page_walk *walk = q->walk;
    q->total = walk->count;
    q->is_cut = walk->is_cut;
    for (size_t i = q->offset; i < walk->count && q->count < q->limit; i++) {
        AUTO_SANDBOX sandbox = {0};
        if (!store_get_sandbox(work, walk->found[i].id, &sandbox))
            return false;
        if (!is_asked_for(q, &sandbox))
            continue;
        presence_show(&work->leasing->presence, &sandbox);
        q->list[q->count++] = sandbox;
        sandbox = (struct sandbox){0};
    }
    walk->over = true;
    return true;
}

static bool step(struct work *work, struct question *q)
{
    return q->walk->walked ? fill(work, q) : page_walk_step(work, q->walk, "owned", caller_owner(&q->caller), look, q);
}

static enum kv_outcome paging_rule(struct kv *kv, void *argument, struct error *err)
{
    struct question *q = argument;
    struct work work = work_begin(q->leasing, kv, NULL, err);
    if (!caller_may(&q->caller, ROLE_VIEWER, &q->refusal)) {
        q->walk->over = true;
        return KV_APPLIED;
    }
    return step(&work, q) ? KV_APPLIED : KV_FAILED;
}

static bool is_over(const void *argument)
{
    const struct question *q = argument;
    return q->walk->over || atomic_load(&q->leasing->stopping);
}

static void paging_done(void *argument, const struct error *err)
{
    struct question *q = argument;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    else if (!q->walk->over)
        error_set(&q->refusal, ERROR_STARTING, "the negotiator stops; ask again");
    q->answered(q->cookie, q);
}

void paging_submit(struct question *q)
{
    if (q->limit == 0 || q->limit > QUESTION_LIST_MAX)
        q->limit = QUESTION_LIST_MAX;
    q->list = memory_array(QUESTION_LIST_MAX, sizeof *q->list);
    q->walk = memory_new(sizeof *q->walk);
    ledger_submit_long(q->leasing->options.ledger, paging_rule, is_over, paging_done, q);
}
