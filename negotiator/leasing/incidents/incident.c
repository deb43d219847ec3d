#include "negotiator/leasing/incidents/incident.h"

#include "negotiator/leasing/incidents/incidents_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

struct incident_question *incident_question_new(void)
{
    return memory_new(sizeof(struct incident_question));
}

static void forget_answer(struct incident_question *q)
{
    q->refusal = (struct error){0};
    q->more = false;
    json_decref(TAKE(q->answer));
    json_decref(TAKE(q->frozen));
}

void incident_question_free(struct incident_question *q)
{
    if (q == NULL)
        return;
    forget_answer(q);
    free(q);
}

/* --- looking --- */

static bool find(struct work *work, struct incident_question *q)
{
    AUTO_INCIDENT incident = {.revision = 0};
    if (!incident_get(work, q->id, &incident))
        return false;
    if (incident.row == NULL)
        return error_set(&q->refusal, ERROR_NOT_FOUND, "no incident %s", q->id);
    q->answer = json_incref(incident.row);
    return true;
}

static int by_opening(const void *a, const void *b)
{
    json_int_t left = json_integer_value(json_object_get(*(json_t *const *)a, "opened_at"));
    json_int_t right = json_integer_value(json_object_get(*(json_t *const *)b, "opened_at"));
    return left < right ? 1 : left > right ? -1 : 0;
}

static bool list(struct work *work, struct incident_question *q)
{
    AUTO_INCIDENT_JSON *all = incident_all(work);
    if (all == NULL)
        return false;
    size_t count = json_array_size(all);
    AUTO_FREE json_t **sorted = memory_array(count + 1, sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        sorted[i] = json_array_get(all, i);
    qsort(sorted, count, sizeof *sorted, by_opening);
    q->answer = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append(q->answer, sorted[i]);
    return true;
}

static bool list_suspects(struct work *work, struct incident_question *q)
{
    if (!find(work, q))
        return false;
    json_decref(q->answer);
    q->answer = incident_suspects(work, q->id, q->sandbox_id, INCIDENT_SUSPECTS_MAX, &q->more);
    return q->answer != NULL;
}

/* --- evidence: which node to ask --- */

static bool find_node(struct work *work, struct incident_question *q)
{
    AUTO_SANDBOX sandbox = {0};
    AUTO_INCIDENT_JSON *suspect = NULL;
    uint64_t revision;
    char url[SANDBOX_URL_BYTES];
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    if (!find(work, q) || !incident_get_suspect(work, q->id, q->sandbox_id, &suspect, &revision))
        return false;
    if (revision == 0)
        return error_set(&q->refusal, ERROR_NOT_FOUND, "incident %s is not about sandbox %s", q->id, q->sandbox_id);
    if (!store_get_sandbox(work, q->sandbox_id, &sandbox))
        return false;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox))
        return error_set(&q->refusal, ERROR_GONE, "sandbox %s has ended", q->sandbox_id);
    enum node_life life = nodes->find(nodes->context, sandbox.node, url);
    if (life != NODE_ALIVE && life != NODE_SUSPECT)
        return error_set(&q->refusal, ERROR_NODE_UNREACHABLE, "node %s, which has sandbox %s, does not answer",
                         sandbox.node, q->sandbox_id);
    memcpy(q->node, sandbox.node, sizeof q->node);
    if (q->position[0])
        return true; /* its first page is recorded */
    AUTO_FREE char *detail = memory_printf("%s part=%s", q->id, q->part);
    return incident_audit(work, &q->caller, "incident.evidence", q->sandbox_id, NULL, detail);
}

static void node_answered(void *cookie, const json_t *reply, const struct error *err)
{
    struct incident_question *q = cookie;
    json_decref(TAKE(q->answer));
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    else
        q->answer = json_deep_copy(reply);
    json_object_del(q->answer, "ok"); /* of the node's messages, not of the evidence */
    q->answered(q->cookie, q);
}

static void ask_node(struct incident_question *q)
{
    const struct leasing_nodes *nodes = &q->leasing->options.nodes;
    nodes->call(nodes->context, q->node,
                settle_message(json_pack("{s:s, s:s, s:s, s:s}", "call", "evidence", "id", q->sandbox_id, "part",
                                         q->part, "position", q->position),
                               &q->caller),
                node_answered, q);
}

/* --- the rule --- */

static bool changes_things(const struct incident_question *q)
{
    return q->verb == INCIDENT_OPEN || q->verb == INCIDENT_CLOSE || q->verb == INCIDENT_EVIDENCE;
}

static bool decide(struct work *work, struct incident_question *q)
{
    if (!caller_may(&q->caller, ROLE_ADMIN, &q->refusal))
        return false;
    switch (q->verb) {
    case INCIDENT_OPEN:
        return incident_open(work, q);
    case INCIDENT_FIND:
        return find(work, q);
    case INCIDENT_LIST:
        return list(work, q);
    case INCIDENT_SUSPECTS:
        return list_suspects(work, q);
    case INCIDENT_CLOSE:
        return incident_close(work, q);
    case INCIDENT_EVIDENCE:
        return find_node(work, q);
    }
    return error_set(work->err, ERROR_INTERNAL, "no such question");
}

static enum kv_outcome refuse(struct work *work, const struct incident_question *q)
{
    static const char *const ACTIONS[] = {[INCIDENT_OPEN] = "incident.open",
                                          [INCIDENT_CLOSE] = "incident.close",
                                          [INCIDENT_EVIDENCE] = "incident.evidence"};
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    bool told = incident_audit(&own, &q->caller, ACTIONS[q->verb], q->sandbox_id, &q->refusal, "");
    return told ? store_apply(&own) : KV_FAILED;
}

static enum kv_outcome question_rule(struct kv *kv, void *argument, struct error *err)
{
    struct incident_question *q = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    forget_answer(q);
    if (!decide(&work, q)) {
        if (q->refusal.kind == ERROR_NONE)
            return KV_FAILED;
        return changes_things(q) ? refuse(&work, q) : KV_APPLIED;
    }
    return changes_things(q) ? store_apply(&work) : KV_APPLIED;
}

/* --- what follows --- */

/* What is frozen is read anew behind the change: one more rule, so that it is as durable as what it tells. */
static enum kv_outcome frozen_rule(struct kv *kv, void *argument, struct error *err)
{
    struct incident_question *q = argument;
    struct work work = work_begin(q->leasing, kv, NULL, err);
    json_decref(TAKE(q->frozen));
    q->frozen = freeze_read(&work);
    return q->frozen ? KV_APPLIED : KV_FAILED;
}

static void frozen_done(void *argument, const struct error *err)
{
    struct incident_question *q = argument;
    if (err->kind == ERROR_NONE)
        freeze_take(q->leasing, TAKE(q->frozen));
    incident_go(q->leasing, q->id);
    q->answered(q->cookie, q);
}

static void question_done(void *argument, const struct error *err)
{
    struct incident_question *q = argument;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    if (q->refusal.kind != ERROR_NONE)
        q->answered(q->cookie, q);
    else if (q->verb == INCIDENT_OPEN || q->verb == INCIDENT_CLOSE)
        ledger_submit(q->leasing->options.ledger, frozen_rule, frozen_done, q);
    else if (q->verb == INCIDENT_EVIDENCE)
        ask_node(q);
    else
        q->answered(q->cookie, q);
}

void leasing_incident(struct leasing *leasing, struct incident_question *q)
{
    q->leasing = leasing;
    ledger_submit(leasing->options.ledger, question_rule, question_done, q);
}
