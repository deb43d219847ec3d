#include "negotiator/leasing/lost.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static bool may_lose(struct losing *losing)
{
    const struct leasing_nodes *nodes = &losing->leasing->options.nodes;
    char url[SANDBOX_URL_BYTES];
    switch (nodes->find(nodes->context, losing->node, url)) {
    case NODE_UNKNOWN:
        return error_set(&losing->refusal, ERROR_NOT_FOUND, "there is no such node");
    case NODE_ALIVE:
        return error_set(&losing->refusal, ERROR_CONFLICT, "the node is alive%s",
                         losing->ended ? " again; some of its sandboxes were ended" : "; drain it instead");
    case NODE_SUSPECT:
    case NODE_LOST:
    default:
        return true;
    }
}

/* What was asked and what came of it; the last change. */
static enum kv_outcome record(struct losing *losing, struct kv *kv, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(losing->leasing, kv, change, err);
    bool refused = losing->refusal.kind != ERROR_NONE;
    char detail[96];
    snprintf(detail, sizeof detail, "%zu sandboxes ended as node_lost", losing->ended);
    struct audit_record record = {.node = losing->node,
                                  .action = "node.lost",
                                  .outcome = refused ? "refused" : "ok",
                                  .status = refused ? error_http_status(losing->refusal.kind) : 200,
                                  .detail = refused ? losing->refusal.message : detail};
    return store_audit(&work, &losing->caller, &record) ? store_apply(&work) : KV_FAILED;
}

static enum kv_outcome end_one(const struct work *work, struct losing *losing, const char *id)
{
    AUTO_SANDBOX sandbox = {0};
    struct work own = *work;
    if (!store_get_sandbox(&own, id, &sandbox))
        return KV_FAILED;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox) || strcmp(sandbox.node, losing->node) != 0)
        return KV_APPLIED;
    enum kv_outcome outcome = ending_finish_alone(work, &sandbox, "node_lost");
    if (outcome == KV_APPLIED)
        memcpy(losing->ids[losing->count++], id, RANDOM_ID_BYTES);
    return outcome;
}

/* A conflict runs it again from its start: what the run before it ended in this batch is then no longer under watch,
 * but is told of all the same. */
static enum kv_outcome lose_rule(struct kv *kv, void *argument, struct error *err)
{
    struct losing *losing = argument;
    struct work work = work_begin(losing->leasing, kv, NULL, err);
    char ids[LOSING_AT_ONCE][RANDOM_ID_BYTES];
    size_t count = 0;
    losing->more = false;
    losing->refusal = (struct error){0};
    if (!may_lose(losing))
        return record(losing, kv, err);
    if (losing->count < LOSING_AT_ONCE &&
        !store_list_watched(&work, losing->node, losing->after, ids, LOSING_AT_ONCE - losing->count, &count))
        return KV_FAILED;
    for (size_t i = 0; i < count; i++) {
        /* One whose row is damaged keeps no other from its end; a store that fails fails the whole batch. */
        if (end_one(&work, losing, ids[i]) == KV_CONFLICT)
            return KV_CONFLICT;
    }
    losing->more = count > 0 || losing->count > 0;
    if (count > 0)
        memcpy(losing->after, ids[count - 1], RANDOM_ID_BYTES);
    return losing->more ? KV_APPLIED : record(losing, kv, err);
}

static void lose_done(void *argument, const struct error *err)
{
    struct losing *losing = argument;
    struct error lost = {0};
    error_set(&lost, ERROR_NODE_UNREACHABLE, "the node of this sandbox was given up");
    for (size_t i = 0; err->kind == ERROR_NONE && i < losing->count; i++)
        settle_tell(losing->leasing, losing->ids[i], &lost);
    losing->ended += err->kind == ERROR_NONE ? losing->count : 0;
    losing->count = 0;
    if (err->kind == ERROR_NONE && losing->more) {
        ledger_submit(losing->leasing->options.ledger, lose_rule, lose_done, losing);
        return;
    }
    if (err->kind != ERROR_NONE)
        losing->refusal = *err;
    losing->answered(losing->cookie);
}

void leasing_lose(struct leasing *leasing, struct losing *losing)
{
    losing->leasing = leasing;
    ledger_submit(leasing->options.ledger, lose_rule, lose_done, losing);
}
