#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/text.h"

#include <string.h>

enum { ENDED_AT_ONCE = 256 };

void leasing_report_done(struct leasing_report *report)
{
    json_decref(report->ended_known);
    json_decref(report->marks);
    report->ended_known = report->marks = NULL;
}

/* --- what the node says has ended --- */

static enum kv_outcome read_end(struct leasing_report *report, struct work *work, const json_t *entry)
{
    const char *id = json_string_value(json_object_get(entry, "id"));
    if (!random_is_id(id, "sbx"))
        return KV_APPLIED;
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(work, id, &sandbox))
        return KV_FAILED;
    enum kv_outcome outcome = KV_APPLIED;
    bool ours = sandbox.revision > 0 && strcmp(sandbox.node, report->node) == 0;
    if (ours && sandbox.state == SANDBOX_PROVISIONING)
        return KV_APPLIED; /* not acknowledged: the answer to `prepare` comes first, then this is said again */
    if (ours && !sandbox_has_ended(&sandbox)) {
        char reason[SANDBOX_REASON_BYTES];
        ending_reason(reason, json_string_value(json_object_get(entry, "reason")));
        outcome = ending_finish_alone(work, &sandbox, reason);
    }
    if (outcome == KV_APPLIED)
        json_array_append_new(report->ended_known, json_string(id));
    return outcome;
}

enum kv_outcome leasing_report_rule(struct kv *kv, struct leasing_report *report, struct error *err)
{
    const json_t *ended = json_object_get(report->message, "ended");
    struct work work = work_begin(report->leasing, kv, NULL, err); /* without a change: each end gets its own */
    leasing_report_done(report);
    report->ended_known = json_array();
    for (size_t i = 0; i < json_array_size(ended) && i < ENDED_AT_ONCE; i++) {
        /* One that cannot be recorded is not acknowledged, and so told again. All else that was said counts: a damaged
         * row keeps nothing from the node, and a store that fails fails the whole batch. */
        if (read_end(report, &work, json_array_get(ended, i)) == KV_CONFLICT)
            return KV_CONFLICT;
    }
    return KV_APPLIED;
}

/* --- once it is durable --- */

static void take_marks(struct leasing_report *report)
{
    const json_t *marks = json_object_get(report->message, "marks");
    const char *ledger_id = json_string_value(json_object_get(marks, "ledger_id"));
    json_int_t cursor = json_integer_value(json_object_get(marks, "cursor"));
    marks_heard(report->leasing, report->node, ledger_id, cursor > 0 ? (uint64_t)cursor : 0);
    report->marks = marks_page(report->leasing, report->node);
}

/* When the node made it, for that is what it says something about: somebody on the network may hold it back for as long
 * as it is taken. Never in the future, whatever the node's clock says. */
static int64_t made_at(const struct leasing_report *report)
{
    json_int_t told = json_integer_value(json_object_get(report->message, "time"));
    int64_t now = report->leasing->options.wall_ms();
    return told > 0 && told < now ? told : now;
}

void leasing_report_act(struct leasing_report *report)
{
    struct leasing *leasing = report->leasing;
    const json_t *says = json_object_get(report->message, "full");
    bool full = says == NULL || json_is_true(says); /* a node that does not say names all, always */
    struct presence_node *node = presence_node(&leasing->presence, report->node);
    presence_hear(node, report->incarnation, made_at(report));
    presence_take(node, report->message, full);
    reaper_look(leasing, node, full);
    take_marks(report);
    report->full_wanted = !node->has_list;
}
