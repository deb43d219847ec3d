/* dropping.c - the end of a snapshot: nobody sees it from the first moment on; its node is told until it says yes. */
#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/keeping/keeping_internal.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

static const char ROW[] = "snapshot/";
static const int64_t AGAIN_MS = 30000, AGAIN_MAX_MS = 600000; /* told again; the longer it takes, the less often */

void dropping_begin(struct work *work, struct snapshot *snapshot)
{
    snapshot_delist(work, snapshot);
    snapshot->state = SNAPSHOT_DELETING;
    snapshot->state_since = work->now;
    snapshot->due_at = work->now + AGAIN_MS;
    snapshot_put(work, snapshot);
}

/* --- its node's word --- */

struct dropping {
    struct leasing *leasing;
    char id[RANDOM_ID_BYTES];
};

static enum kv_outcome gone_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct dropping *dropping = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(dropping->leasing, kv, change, err);
    struct snapshot snapshot;
    if (!snapshot_get(&work, dropping->id, &snapshot))
        return KV_FAILED;
    if (snapshot.state == SNAPSHOT_DELETING) /* its due row finds nothing, then */
        snapshot_remove(&work, &snapshot);
    return store_apply(&work);
}

static void gone(void *argument, const struct error *err)
{
    AUTO_FREE struct dropping *dropping = argument;
    if (err->kind != ERROR_NONE) /* it is told again */
        log_error("leasing", "that snapshot %s is gone was not recorded: %s", dropping->id, err->message);
}

static void told(void *cookie, const json_t *reply UNUSED, const struct error *err)
{
    struct dropping *dropping = cookie;
    if (err->kind == ERROR_NONE) {
        ledger_submit(dropping->leasing->options.ledger, gone_rule, gone, dropping);
        return;
    }
    if (err->kind != ERROR_NODE_UNREACHABLE) /* a node that is away is no news */
        log_warn("leasing", "snapshot %s is not gone yet: %s", dropping->id, err->message);
    free(dropping);
}

void dropping_tell(struct leasing *leasing, const char *node, const char *id)
{
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    struct dropping *dropping = memory_new(sizeof *dropping);
    dropping->leasing = leasing;
    if (!text_copy(dropping->id, sizeof dropping->id, id) || atomic_load(&leasing->stopping)) {
        free(dropping);
        return;
    }
    nodes->call(nodes->context, node, json_pack("{s:s, s:s}", "call", "snapshot_drop", "snapshot", id), told, dropping);
}

/* --- what is due --- */

bool keeping_is_due(const char *due)
{
    int64_t at = 0;
    const char *row = store_due_row(due, &at);
    return row && text_starts_with(row, ROW);
}

/* Who asked for it was told that it failed, or is not there any more: this process has started since. */
static bool give_up(struct work *work, struct snapshot *snapshot)
{
    struct audit_record record = {.node = snapshot->node,
                                  .action = "snapshot.create",
                                  .outcome = "failed",
                                  .principal = snapshot->principal,
                                  .sandbox_id = snapshot->sandbox_id,
                                  .detail = "left half-made; it is deleted"};
    dropping_begin(work, snapshot);
    return store_audit(work, NULL, &record);
}

static bool look_again(struct work *work, struct snapshot *snapshot)
{
    int64_t wait = (work->now - snapshot->state_since) / 4;
    snapshot->due_at = work->now + (wait < AGAIN_MS ? AGAIN_MS : wait > AGAIN_MAX_MS ? AGAIN_MAX_MS : wait);
    snapshot_put(work, snapshot);
    return true;
}

static bool is_there(const struct work *work, const char *node)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    char url[SANDBOX_URL_BYTES];
    enum node_life life = nodes->find(nodes->context, node, url);
    return life == NODE_ALIVE || life == NODE_SUSPECT;
}

static bool decide(struct work *work, struct keeping_look *look, struct snapshot *snapshot)
{
    if (snapshot->state == SNAPSHOT_CREATING && taking_has(work->leasing, snapshot->id))
        return look_again(work, snapshot);
    look->drop = is_there(work, snapshot->node);
    return snapshot->state == SNAPSHOT_CREATING ? give_up(work, snapshot) : look_again(work, snapshot);
}

enum kv_outcome keeping_look_rule(struct kv *kv, struct keeping_look *look, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(look->leasing, kv, change, err);
    struct snapshot snapshot;
    int64_t at = 0;
    const char *row = store_due_row(look->due, &at);
    look->drop = false;
    kv_change_delete(change, look->due);
    if (row == NULL || !text_copy(look->id, sizeof look->id, row + strlen(ROW)))
        return store_apply(&work);
    if (!snapshot_get(&work, look->id, &snapshot))
        return KV_FAILED;
    memcpy(look->node, snapshot.node, sizeof look->node);
    bool counts = snapshot.revision > 0 && snapshot.state != SNAPSHOT_READY && snapshot.due_at == at;
    return !counts || decide(&work, look, &snapshot) ? store_apply(&work) : KV_FAILED;
}

void keeping_look_act(const struct keeping_look *look)
{
    if (look->drop)
        dropping_tell(look->leasing, look->node, look->id);
}

/* --- who asks for it --- */

static bool drop(struct work *work, struct keeping *k)
{
    if (!caller_may(&k->caller, ROLE_USER, &k->refusal) ||
        !snapshot_find(work, &k->caller, k->snapshot_id, &k->snapshot, &k->refusal) ||
        !freeze_lets_go(work, &k->caller, k->snapshot.principal, &k->refusal))
        return false;
    char detail[RANDOM_ID_BYTES + SANDBOX_NAME_BYTES + 16];
    if (!text_format(detail, sizeof detail, "%s, %s", k->snapshot.id, k->snapshot.name))
        detail[0] = '\0';
    dropping_begin(work, &k->snapshot);
    return keeping_audit(work, k, detail);
}

static enum kv_outcome drop_rule(struct kv *kv, void *argument, struct error *err)
{
    struct keeping *k = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(k->leasing, kv, change, err);
    k->refusal = (struct error){0};
    k->snapshot = (struct snapshot){.revision = 0};
    if (drop(&work, k))
        return store_apply(&work);
    return k->refusal.kind == ERROR_NONE ? KV_FAILED : keeping_refuse(&work, k);
}

static void dropped(void *argument, const struct error *err)
{
    struct keeping *k = argument;
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    if (k->refusal.kind == ERROR_NONE)
        dropping_tell(k->leasing, k->snapshot.node, k->snapshot.id);
    keeping_answer(k);
}

void dropping_submit(struct keeping *k)
{
    ledger_submit(k->leasing->options.ledger, drop_rule, dropped, k);
}
