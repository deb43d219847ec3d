/* sweep.c - what no heartbeat brings about: the ends of what a lost node had, and forgetting where no node is left. */
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { ROWS_AT_ONCE = 512 };
static const int64_t NEVER_RETURNED_MS = 120000; /* after its deadline: the node has ended it by then, if it lives */

void leasing_sweep_done(struct leasing_sweep *sweep)
{
    json_decref(sweep->ended);
    sweep->ended = NULL;
}

static enum kv_outcome end_lost(struct leasing_sweep *sweep, const struct work *work, const char *id)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    AUTO_SANDBOX sandbox = {0};
    char url[SANDBOX_URL_BYTES];
    struct work own = *work;
    if (!store_get_sandbox(&own, id, &sandbox))
        return KV_FAILED;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox))
        return KV_APPLIED;
    enum node_life life = nodes->find(nodes->context, sandbox.node, url);
    if (life == NODE_ALIVE || life == NODE_SUSPECT)
        return KV_APPLIED; /* its heartbeats decide */
    json_array_append_new(sweep->ended, json_string(id));
    return ending_finish_alone(work, &sandbox, "node_lost");
}

enum kv_outcome leasing_sweep_rule(struct kv *kv, struct leasing_sweep *sweep, struct error *err)
{
    struct leasing *leasing = sweep->leasing;
    struct work work = work_begin(leasing, kv, NULL, err);
    AUTO_FREE struct watched *list = NULL;
    size_t count = 0;
    if (sweep->ended == NULL) /* a conflict runs this again: what the run before it ended stays told */
        sweep->ended = json_array();
    if (!store_list_overdue(&work, leasing->sweep_from, ROWS_AT_ONCE, work.now - NEVER_RETURNED_MS, &list, &count,
                            sweep->next, sizeof sweep->next))
        return KV_FAILED;
    enum kv_outcome outcome = KV_APPLIED;
    for (size_t i = 0; i < count && outcome == KV_APPLIED; i++)
        outcome = end_lost(sweep, &work, list[i].id);
    return outcome == KV_APPLIED ? store_forget_due(&work) : outcome;
}

void leasing_sweep_act(struct leasing_sweep *sweep)
{
    size_t i;
    json_t *id;
    struct error lost = {0};
    memcpy(sweep->leasing->sweep_from, sweep->next, sizeof sweep->next);
    error_set(&lost, ERROR_NODE_UNREACHABLE, "the node of this sandbox did not return");
    json_array_foreach (sweep->ended, i, id)
        settle_tell(sweep->leasing, json_string_value(id), &lost);
    strangers_flush(sweep->leasing, false);
}
