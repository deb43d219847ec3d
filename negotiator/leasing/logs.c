#include "negotiator/leasing/logs.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

struct logs_question *logs_question_new(void)
{
    return memory_new(sizeof(struct logs_question));
}

void logs_question_free(struct logs_question *question)
{
    if (question == NULL)
        return;
    json_decref(question->answer);
    free(question);
}

/* --- the rule: which node to ask --- */

static bool audit(struct work *work, const struct logs_question *q)
{
    AUTO_FREE char *detail = memory_printf("process=%s", q->process);
    struct audit_record record = {.node = q->node,
                                  .action = "sandbox.logs",
                                  .outcome = "ok",
                                  .status = 200,
                                  .sandbox_id = q->sandbox_id,
                                  .detail = detail};
    return store_audit(work, &q->caller, &record);
}

static bool find_node(struct work *work, struct logs_question *q)
{
    AUTO_SANDBOX sandbox = {0};
    const struct principal *who = &q->caller.principal;
    if (!caller_may(&q->caller, ROLE_USER, &q->refusal) || !store_get_sandbox(work, q->sandbox_id, &sandbox))
        return false;
    if (sandbox.revision == 0 || (who->role != ROLE_ADMIN && strcmp(sandbox.principal, who->name) != 0))
        return error_set(&q->refusal, ERROR_NOT_FOUND, "no sandbox %s", q->sandbox_id);
    if (!sandbox_is_live(&sandbox))
        return error_set(&q->refusal, ERROR_GONE, "sandbox %s has ended: %s", sandbox.id, sandbox.reason);
    if (sandbox.state == SANDBOX_PROVISIONING)
        return error_set(&q->refusal, ERROR_STARTING, "sandbox %s is still being made", sandbox.id);
    memcpy(q->node, sandbox.node, sizeof q->node);
    return audit(work, q);
}

static enum kv_outcome logs_rule(struct kv *kv, void *argument, struct error *err)
{
    struct logs_question *q = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    q->refusal = (struct error){0};
    if (find_node(&work, q))
        return store_apply(&work);
    return q->refusal.kind == ERROR_NONE ? KV_FAILED : KV_APPLIED;
}

/* --- the node's word --- */

/* Not more than what is known, nor of other kinds: nodes are believed in their own things alone. */
static json_t *read_answer(const json_t *reply)
{
    int running = 0, truncated = 0;
    json_t *out = NULL, *errors = NULL, *code = NULL;
    if (json_unpack((json_t *)(uintptr_t)reply, "{s:b, s:o, s:o, s:o, s:b}", "running", &running, "exit_code", &code,
                    "stdout", &out, "stderr", &errors, "truncated", &truncated) != 0 ||
        !json_is_string(out) || !json_is_string(errors) || !(json_is_integer(code) || json_is_null(code)))
        return NULL;
    return json_pack("{s:b, s:O, s:O, s:O, s:b}", "running", running, "exit_code", code, "stdout", out, "stderr",
                     errors, "truncated", truncated);
}

static enum error_kind refusal_kind(enum error_kind of_node)
{
    return of_node == ERROR_NOT_FOUND || of_node == ERROR_GONE ? of_node : settle_kind(of_node);
}

static void node_answered(void *cookie, const json_t *reply, const struct error *err)
{
    struct logs_question *q = cookie;
    bool is_lacking = err->kind == ERROR_NOT_FOUND && q->may_lack;
    if (err->kind == ERROR_NONE)
        q->answer = read_answer(reply);
    else if (!is_lacking)
        error_set(&q->refusal, refusal_kind(err->kind), "%s", err->message);
    if (err->kind == ERROR_NONE && q->answer == NULL)
        error_set(&q->refusal, ERROR_BAD_GATEWAY, "node %s does not know this question", q->node);
    q->answered(q->cookie, q);
}

static void logs_done(void *argument, const struct error *err)
{
    struct logs_question *q = argument;
    const struct leasing_nodes *nodes = &q->leasing->options.nodes;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    if (q->refusal.kind != ERROR_NONE) {
        q->answered(q->cookie, q);
        return;
    }
    json_t *message = json_pack("{s:s, s:s, s:s, s:I}", "call", "logs", "id", q->sandbox_id, "process", q->process,
                                "tail_bytes", (json_int_t)q->tail_bytes);
    nodes->call(nodes->context, q->node, settle_message(message, &q->caller), node_answered, q);
}

void leasing_logs(struct leasing *leasing, struct logs_question *q)
{
    q->leasing = leasing;
    ledger_submit(leasing->options.ledger, logs_rule, logs_done, q);
}
