/* volume_questions.c - what people ask about volumes: which there are; that one goes. */
#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/keeping/volumes_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

struct volumes_question *volumes_question_new(void)
{
    return memory_new(sizeof(struct volumes_question));
}

static void free_list(struct volumes_question *q)
{
    for (size_t i = 0; i < q->count; i++)
        json_decref(q->list[i].used_by);
    free(q->list);
    q->list = NULL;
    q->count = 0;
}

void volumes_question_free(struct volumes_question *q)
{
    if (q == NULL)
        return;
    free_list(q);
    free(q);
}

/* --- those that are being deleted --- */

bool volumes_is_dropped(const struct leasing *leasing, const char *principal, const char *name)
{
    const struct volumes_question *each = leasing->dropped_volumes;
    while (each && (strcmp(each->name, name) != 0 || strcmp(caller_owner(&each->caller), principal) != 0))
        each = each->later;
    return each != NULL;
}

static void remove_one(struct leasing *leasing, const struct volumes_question *q)
{
    struct volumes_question **at = &leasing->dropped_volumes;
    while (*at && *at != q)
        at = &(*at)->later;
    if (*at)
        *at = q->later;
}

/* --- LIST --- */

struct listing {
    struct work *work;
    struct volumes_question *q;
    bool damaged;
};

static bool note(void *cookie, const char *key, const struct kv_value *value)
{
    struct listing *listing = cookie;
    struct volumes_question *q = listing->q;
    listing->damaged = !volume_parse(&q->list[q->count], strrchr(key, '/') + 1, value, listing->work->err);
    q->count += !listing->damaged;
    return !listing->damaged;
}

static bool list(struct work *work, struct volumes_question *q)
{
    struct listing listing = {.work = work, .q = q};
    const char *owner = caller_owner(&q->caller);
    if (!caller_may(&q->caller, ROLE_VIEWER, &q->refusal))
        return false;
    free_list(q);
    q->list = memory_array(VOLUMES_LIST_MAX, sizeof *q->list);
    if (!kv_range(work->kv, store_key("volume", owner, "").text, NULL, VOLUMES_LIST_MAX, note, &listing, work->err) ||
        listing.damaged)
        return false;
    for (size_t i = 0; i < q->count; i++) {
        if (!volume_used_by(work, owner, q->list[i].name, VOLUMES_USED_MAX, &q->list[i].used_by))
            return false;
    }
    return true;
}

static enum kv_outcome list_rule(struct kv *kv, void *argument, struct error *err)
{
    struct volumes_question *q = argument;
    struct work work = work_begin(q->leasing, kv, NULL, err);
    q->refusal = (struct error){0};
    return list(&work, q) || q->refusal.kind != ERROR_NONE ? KV_APPLIED : KV_FAILED;
}

static void listed(void *argument, const struct error *err)
{
    struct volumes_question *q = argument;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    q->answered(q->cookie, q);
}

/* --- DROP --- */

static bool audit(struct work *work, const struct volumes_question *q)
{
    bool done = q->refusal.kind == ERROR_NONE;
    struct audit_record record = {.node = q->volume.node,
                                  .action = "volume.delete",
                                  .outcome = done ? "ok" : "refused",
                                  .status = done ? 204 : error_http_status(q->refusal.kind),
                                  .detail = done ? q->name : q->refusal.message};
    return store_audit(work, &q->caller, &record);
}

static bool check(struct work *work, struct volumes_question *q)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    const char *owner = caller_owner(&q->caller);
    char url[SANDBOX_URL_BYTES];
    json_t *used = NULL;
    if (!caller_may(&q->caller, ROLE_USER, &q->refusal) || !freeze_lets_go(work, &q->caller, owner, &q->refusal) ||
        !volume_get(work, owner, q->name, &q->volume))
        return false;
    if (q->volume.revision == 0)
        return error_set(&q->refusal, ERROR_NOT_FOUND, "no volume %s", q->name);
    if (volumes_is_dropped(work->leasing, owner, q->name))
        return error_set(&q->refusal, ERROR_CONFLICT, "volume %s is being deleted", q->name);
    if (!volume_used_by(work, owner, q->name, 1, &used))
        return false;
    const char *first = json_string_value(json_array_get(used, 0));
    if (first)
        error_set(&q->refusal, ERROR_CONFLICT, "sandbox %s has volume %s", first, q->name);
    json_decref(used);
    enum node_life life = nodes->find(nodes->context, q->volume.node, url);
    bool is_away = q->refusal.kind == ERROR_NONE && life != NODE_ALIVE && life != NODE_SUSPECT;
    if (is_away)
        error_set(&q->refusal, ERROR_NODE_UNREACHABLE, "node %s, which has volume %s, does not answer", q->volume.node,
                  q->name);
    return q->refusal.kind == ERROR_NONE;
}

static enum kv_outcome check_rule(struct kv *kv, void *argument, struct error *err)
{
    struct volumes_question *q = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    q->refusal = (struct error){0};
    if (check(&work, q))
        return KV_APPLIED;
    return q->refusal.kind == ERROR_NONE ? KV_FAILED : audit(&work, q) ? store_apply(&work) : KV_FAILED;
}

/* What the node does not have is gone. */
static bool finish(struct work *work, struct volumes_question *q)
{
    enum error_kind kind = q->failure.kind;
    if (kind != ERROR_NONE && kind != ERROR_NOT_FOUND)
        error_set(&q->refusal, settle_kind(kind), "%s", q->failure.message);
    else if (!volume_get(work, caller_owner(&q->caller), q->name, &q->volume))
        return false;
    else if (q->volume.revision > 0)
        volume_remove(work, caller_owner(&q->caller), &q->volume);
    return audit(work, q);
}

static enum kv_outcome finish_rule(struct kv *kv, void *argument, struct error *err)
{
    struct volumes_question *q = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    q->refusal = (struct error){0};
    return finish(&work, q) ? store_apply(&work) : KV_FAILED;
}

static void finished(void *argument, const struct error *err)
{
    struct volumes_question *q = argument;
    remove_one(q->leasing, q);
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    q->answered(q->cookie, q);
}

static void node_answered(void *cookie, const json_t *reply UNUSED, const struct error *err)
{
    struct volumes_question *q = cookie;
    q->failure = *err;
    ledger_submit(q->leasing->options.ledger, finish_rule, finished, q);
}

void volume_call_drop(struct leasing *leasing, const char *node, const char *principal, const char *name,
                      void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie)
{
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    char owner[LEASING_OWNER_BYTES];
    leasing_owner(leasing, principal, owner);
    nodes->call(nodes->context, node, json_pack("{s:s, s:s, s:s}", "call", "volume_drop", "owner", owner, "name", name),
                done, cookie);
}

/* Rules that ran in one batch with the check may have given it to a sandbox: so it is checked again once nobody can
 * take it any more. */
static enum kv_outcome recheck_rule(struct kv *kv, void *argument, struct error *err)
{
    struct volumes_question *q = argument;
    remove_one(q->leasing, q);
    enum kv_outcome outcome = check_rule(kv, q, err);
    q->later = q->leasing->dropped_volumes;
    q->leasing->dropped_volumes = q;
    return outcome;
}

static void rechecked(void *argument, const struct error *err)
{
    struct volumes_question *q = argument;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    if (q->refusal.kind != ERROR_NONE || atomic_load(&q->leasing->stopping)) {
        if (q->refusal.kind == ERROR_NONE)
            error_set(&q->refusal, ERROR_STARTING, "the negotiator stops; ask again");
        remove_one(q->leasing, q);
        q->answered(q->cookie, q);
        return;
    }
    volume_call_drop(q->leasing, q->volume.node, caller_owner(&q->caller), q->name, node_answered, q);
}

static void checked(void *argument, const struct error *err)
{
    struct volumes_question *q = argument;
    struct leasing *leasing = q->leasing;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    if (q->refusal.kind != ERROR_NONE) {
        q->answered(q->cookie, q);
        return;
    }
    if (volumes_is_dropped(leasing, caller_owner(&q->caller), q->name)) {
        error_set(&q->refusal, ERROR_CONFLICT, "volume %s is being deleted", q->name);
        q->answered(q->cookie, q);
        return;
    }
    q->later = leasing->dropped_volumes; /* from now on nobody takes it */
    leasing->dropped_volumes = q;
    ledger_submit(leasing->options.ledger, recheck_rule, rechecked, q);
}

void leasing_ask_volumes(struct leasing *leasing, struct volumes_question *q)
{
    q->leasing = leasing;
    if (q->verb == VOLUMES_LIST)
        ledger_submit(leasing->options.ledger, list_rule, listed, q);
    else
        ledger_submit(leasing->options.ledger, check_rule, checked, q);
}
