#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { ENDED_AT_ONCE = 256 };
static const int64_t DEADLINE_SLACK_MS = 1000; /* a node counts on another clock */

/* One run: what the report says, by id. */
struct reading {
    struct work work; /* without a change: each subject gets its own */
    struct leasing_report *report;
    json_t *told; /* borrowed entries of the report's `sandboxes`, by id; owned object */
};

static void reading_done(struct reading *reading)
{
    json_decref(reading->told);
}

void leasing_report_done(struct leasing_report *report)
{
    json_decref(report->ended_known);
    json_decref(report->calls);
    json_decref(report->unknown);
    report->ended_known = report->calls = report->unknown = NULL;
}

static void add_call(struct leasing_report *report, const char *call, const char *id, int64_t deadline)
{
    json_array_append_new(report->calls,
                          json_pack("{s:s, s:s, s:I}", "call", call, "id", id, "deadline", (json_int_t)deadline));
}

/* --- what the node says has ended --- */

static enum kv_outcome read_end(struct reading *reading, const json_t *entry)
{
    const char *id = json_string_value(json_object_get(entry, "id"));
    const char *reason = json_string_value(json_object_get(entry, "reason"));
    if (!random_is_id(id, "sbx"))
        return KV_APPLIED;
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(&reading->work, id, &sandbox))
        return KV_FAILED;
    enum kv_outcome outcome = KV_APPLIED;
    bool ours = sandbox.revision > 0 && strcmp(sandbox.node, reading->report->node) == 0;
    if (ours && sandbox.state == SANDBOX_PROVISIONING)
        return KV_APPLIED; /* not acknowledged: the answer to `prepare` comes first, then this is said again */
    if (ours && !sandbox_has_ended(&sandbox))
        outcome = ending_finish_alone(&reading->work, &sandbox, reason && reason[0] ? reason : "ended");
    if (outcome == KV_APPLIED)
        json_array_append_new(reading->report->ended_known, json_string(id));
    return outcome;
}

static enum kv_outcome read_ends(struct reading *reading)
{
    const json_t *ended = json_object_get(reading->report->message, "ended");
    for (size_t i = 0; i < json_array_size(ended) && i < ENDED_AT_ONCE; i++) {
        enum kv_outcome outcome = read_end(reading, json_array_get(ended, i));
        if (outcome != KV_APPLIED)
            return outcome;
    }
    return KV_APPLIED;
}

/* --- what the ledger has on the node --- */

static void prepare_again(struct reading *reading, const struct sandbox *sandbox)
{
    const struct starting_entry *entry = starting_find(&reading->work.leasing->starting, sandbox->id);
    if (entry == NULL || !entry->called)
        add_call(reading->report, "prepare", sandbox->id, 0);
}

struct lease_look {
    int64_t seen;       /* the node's last sign of life, ms */
    int64_t wake;       /* the earliest end of a lease that goes on */
    struct lease ended; /* one that ran out; revision 0: none. The next look takes the next one */
    const char *reason;
    unsigned held; /* leases, also those that ran out */
};

static bool look_at_leases(struct work *work, const struct sandbox *sandbox, struct lease_look *look)
{
    size_t i;
    json_t *thread;
    look->wake = sandbox->deadline;
    json_array_foreach (sandbox->threads, i, thread) {
        struct lease lease;
        const char *thread_id = json_string_value(thread);
        if (thread_id == NULL || !store_get_lease(work, sandbox->principal, thread_id, &lease))
            return false;
        if (lease.revision == 0 || strcmp(lease.sandbox_id, sandbox->id) != 0)
            continue;
        look->held++;
        int64_t used_until = look->seen + lease.idle_timeout_s * 1000;
        int64_t ends = used_until > lease.expires_at ? used_until : lease.expires_at;
        ends = ends < lease.max_expires_at ? ends : lease.max_expires_at;
        if (ends <= work->now) {
            look->ended = lease;
            look->reason = lease.max_expires_at <= work->now ? "max_lifetime" : "idle_timeout";
            look->wake = work->now;
        } else if (ends > lease.expires_at) {
            lease.expires_at = ends;
            store_put_lease(work, sandbox->principal, &lease);
        }
        look->wake = ends < look->wake ? ends : look->wake;
    }
    return true;
}

/* Its last thread has another sandbox by now. */
static enum kv_outcome end_unheld(struct reading *reading, struct work *work, struct sandbox *sandbox)
{
    struct audit_record record = {.node = sandbox->node,
                                  .action = "lease.end",
                                  .outcome = "ok",
                                  .principal = sandbox->principal,
                                  .sandbox_id = sandbox->id,
                                  .detail = "released"};
    if (!ending_begin(work, sandbox, "released") || !store_audit(work, NULL, &record))
        return KV_FAILED;
    enum kv_outcome outcome = store_apply(work);
    if (outcome == KV_APPLIED)
        add_call(reading->report, "destroy", sandbox->id, 0);
    return outcome;
}

/* Ends a lease that ran out, or notes when to look again. */
static enum kv_outcome look_at_active(struct reading *reading, struct sandbox *sandbox, int64_t seen)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work work = reading->work;
    work.change = change;
    struct lease_look look = {.seen = seen};
    if (!look_at_leases(&work, sandbox, &look))
        return KV_FAILED;
    bool last = false;
    if (look.held == 0)
        return end_unheld(reading, &work, sandbox);
    if (look.ended.revision == 0) {
        store_watch(&work, sandbox, look.wake);
        return store_apply(&work);
    }
    /* Of a lease there may be a prolonged one in the change already: only of others, their keys differ. */
    struct audit_record record = {.node = sandbox->node,
                                  .action = "lease.end",
                                  .outcome = "ok",
                                  .principal = sandbox->principal,
                                  .thread_id = look.ended.thread_id,
                                  .sandbox_id = sandbox->id,
                                  .lease = look.ended.id,
                                  .detail = look.reason};
    if (!ending_release(&work, sandbox, &look.ended, look.reason, &last) || !store_audit(&work, NULL, &record))
        return KV_FAILED;
    enum kv_outcome outcome = store_apply(&work);
    if (outcome == KV_APPLIED && last)
        add_call(reading->report, "destroy", sandbox->id, 0);
    return outcome;
}

static enum kv_outcome look_again_later(struct reading *reading, const struct sandbox *sandbox)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work work = reading->work;
    work.change = change;
    store_watch(&work, sandbox, work.now + ENDING_DESTROY_AGAIN_MS);
    return store_apply(&work);
}

/* The node has it. */
static enum kv_outcome read_present(struct reading *reading, const struct watched *watched, const json_t *entry)
{
    int64_t deadline = json_integer_value(json_object_get(entry, "deadline"));
    int64_t seen = json_integer_value(json_object_get(entry, "active_at"));
    if (deadline + DEADLINE_SLACK_MS < watched->deadline)
        add_call(reading->report, "deadline", watched->id, watched->deadline);
    if (watched->wake > reading->work.now)
        return KV_APPLIED;
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(&reading->work, watched->id, &sandbox))
        return KV_FAILED;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox))
        return KV_APPLIED;
    if (sandbox.state == SANDBOX_PROVISIONING) {
        prepare_again(reading, &sandbox);
        return KV_APPLIED;
    }
    if (sandbox.state == SANDBOX_TERMINATING) {
        add_call(reading->report, "destroy", watched->id, 0);
        return look_again_later(reading, &sandbox);
    }
    /* A node's clock is not ours: a sign of life in the future counts as now. */
    return look_at_active(reading, &sandbox, seen < reading->work.now ? seen : reading->work.now);
}

/* The node does not have it. What changed after the heartbeat before this one may not have reached it yet. */
static enum kv_outcome read_absent(struct reading *reading, const struct watched *watched)
{
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(&reading->work, watched->id, &sandbox))
        return KV_FAILED;
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox))
        return KV_APPLIED;
    if (sandbox.state == SANDBOX_PROVISIONING) {
        prepare_again(reading, &sandbox);
        return KV_APPLIED;
    }
    /* Made by an earlier start of the node: what a start took over is in its first heartbeat. */
    bool is_of_before = sandbox.incarnation > 0 && sandbox.incarnation < reading->report->incarnation;
    int64_t previous = reading->report->previous_seen_ms;
    if (!is_of_before && (previous == 0 || sandbox.state_since >= previous))
        return KV_APPLIED;
    return ending_finish_alone(&reading->work, &sandbox, "node_lost");
}

static enum kv_outcome read_watched(struct reading *reading)
{
    AUTO_FREE struct watched *list = NULL;
    size_t count = 0;
    if (!store_list_watched(&reading->work, reading->report->node, &list, &count))
        return KV_FAILED;
    for (size_t i = 0; i < count; i++) {
        json_t *entry = json_object_get(reading->told, list[i].id);
        enum kv_outcome outcome = entry ? read_present(reading, &list[i], entry) : read_absent(reading, &list[i]);
        if (outcome != KV_APPLIED)
            return outcome;
        json_object_del(reading->told, list[i].id);
    }
    return KV_APPLIED;
}

/* What is left is on the node and not under watch: ended here (the row is its tombstone), or never heard of. */
static enum kv_outcome read_others(struct reading *reading)
{
    const char *id;
    json_t *entry;
    json_object_foreach (reading->told, id, entry) {
        AUTO_SANDBOX sandbox = {0};
        if (!store_get_sandbox(&reading->work, id, &sandbox))
            return KV_FAILED;
        if (sandbox.revision == 0)
            json_array_append_new(reading->report->unknown, json_string(id));
        else if (sandbox_has_ended(&sandbox) && strcmp(sandbox.node, reading->report->node) == 0)
            add_call(reading->report, "destroy", id, 0);
    }
    return KV_APPLIED;
}

static void index_told(struct reading *reading)
{
    size_t i;
    json_t *entry;
    json_array_foreach (json_object_get(reading->report->message, "sandboxes"), i, entry) {
        const char *id = json_string_value(json_object_get(entry, "id"));
        if (random_is_id(id, "sbx"))
            json_object_set(reading->told, id, entry);
    }
}

enum kv_outcome leasing_report_rule(struct kv *kv, struct leasing_report *report, struct error *err)
{
    leasing_report_done(report);
    report->ended_known = json_array();
    report->calls = json_array();
    report->unknown = json_array();
    __attribute__((cleanup(reading_done))) struct reading reading = {
        .work = work_begin(report->leasing, kv, NULL, err), .report = report, .told = json_object()};
    index_told(&reading);
    enum kv_outcome outcome = read_ends(&reading);
    if (outcome == KV_APPLIED)
        outcome = read_watched(&reading);
    if (outcome == KV_APPLIED)
        outcome = read_others(&reading);
    if (outcome == KV_APPLIED)
        outcome = store_forget_due(&reading.work);
    return outcome;
}

/* --- once it is durable --- */

/* The row is read anew: what a sandbox needs to be made is more than fits a call's notice. */
struct again {
    struct leasing *leasing;
    char id[RANDOM_ID_BYTES];
    struct sandbox sandbox;
};

static enum kv_outcome again_rule(struct kv *kv, void *argument, struct error *err)
{
    struct again *again = argument;
    struct work work = work_begin(again->leasing, kv, NULL, err);
    return store_get_sandbox(&work, again->id, &again->sandbox) ? KV_APPLIED : KV_FAILED;
}

static void again_done(void *argument, const struct error *err)
{
    struct again *again = argument;
    bool made = err->kind == ERROR_NONE && again->sandbox.revision > 0 && again->sandbox.state == SANDBOX_PROVISIONING;
    struct starting_entry *entry = made ? starting_entry(&again->leasing->starting, again->id) : NULL;
    if (entry && !entry->called) {
        entry->called = true;
        settle_prepare(again->leasing, &again->sandbox);
    }
    sandbox_done(&again->sandbox);
    free(again);
}

static void ask_again(struct leasing *leasing, const char *id)
{
    struct again *again = memory_new(sizeof *again);
    again->leasing = leasing;
    if (!text_copy(again->id, sizeof again->id, id)) {
        free(again);
        return;
    }
    ledger_submit(leasing->options.ledger, again_rule, again_done, again);
}

static void act(struct leasing_report *report, const json_t *call)
{
    struct leasing *leasing = report->leasing;
    const char *name = json_string_value(json_object_get(call, "call"));
    struct sandbox sandbox = {0};
    if (!text_copy(sandbox.id, sizeof sandbox.id, json_string_value(json_object_get(call, "id"))) ||
        !text_copy(sandbox.node, sizeof sandbox.node, report->node) ||
        !text_copy(sandbox.reason, sizeof sandbox.reason, "ended"))
        return;
    if (strcmp(name, "destroy") == 0)
        settle_destroy(leasing, &sandbox);
    else if (strcmp(name, "deadline") == 0)
        settle_deadline(leasing, report->node, sandbox.id, json_integer_value(json_object_get(call, "deadline")));
    else
        ask_again(leasing, sandbox.id);
}

void leasing_report_act(struct leasing_report *report)
{
    size_t i;
    json_t *call;
    json_array_foreach (report->calls, i, call)
        act(report, call);
}
