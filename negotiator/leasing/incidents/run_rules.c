/* run_rules.c - what of an incident is to be done next, and what came of what was. */
#include "negotiator/leasing/incidents/incident_run.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { ATTEMPTS_MAX = 120 }; /* at a sandbox that is still being made */
static const int64_t KEEP_MS = 90 * (int64_t)86400000;

/* --- what is to be done --- */

static void take_caller(struct incident_run *run, const struct incident *incident)
{
    bool closes = incident_is(incident->row, "state", "closed");
    const char *who = incident_text(incident->row, closes ? "closed_by" : "opened_by");
    run->caller = (struct caller){.principal.role = ROLE_ADMIN};
    const char *reason = incident_text(incident->row, "reason");
    bool fits =
        text_copy(run->caller.principal.name, sizeof run->caller.principal.name, who) &&
        text_copy(run->caller.remote, sizeof run->caller.remote, incident_text(incident->row, "remote")) &&
        text_copy(run->caller.request_id, sizeof run->caller.request_id, incident_text(incident->row, "request_id")) &&
        text_format(run->reason, sizeof run->reason, "incident %s: %s", run->id, reason);
    (void)fits; /* they were bounded before; else "" */
}

static void set_step(struct incident *incident, const char *name)
{
    json_object_set_new(incident->row, "step", json_string(name));
    json_object_set_new(incident->row, "cursor", json_string(""));
}

/* The next selector; those without a revocation yet. */
static bool find_revocation(struct incident_run *run, struct incident *incident)
{
    size_t done = json_array_size(json_object_get(incident->row, "revocations"));
    const json_t *selector = json_array_get(json_object_get(incident->row, "selectors"), done);
    if (selector == NULL) {
        set_step(incident, "pause");
        run->todo = RUN_STEP;
        return true;
    }
    run->todo = RUN_REVOKE;
    run->selector = (struct incident_selector){.kind = MARK_ALL};
    bool is_key = incident_is(selector, "kind", "key");
    run->selector.kind = is_key ? MARK_KINDS : MARK_ALL;
    return (is_key || mark_kind_parse(incident_text(selector, "kind"), &run->selector.kind)) &&
           text_copy(run->selector.value, sizeof run->selector.value, incident_text(selector, "value")) &&
           text_copy(run->selector.principal, sizeof run->selector.principal, incident_text(selector, "principal"));
}

static void add_act(struct incident_run *run, const json_t *suspect, bool wants_change)
{
    struct incident_act *act = &run->acts[run->act_count++];
    const json_t *sandbox = json_object_get(suspect, "sandbox");
    *act = (struct incident_act){.run = run, .wants_change = wants_change};
    act->was_paused = incident_is(sandbox, "state", "paused");
    if (!text_copy(act->sandbox_id, sizeof act->sandbox_id, incident_text(sandbox, "id")))
        run->act_count--; /* no row of ours */
}

/* The next suspects; of a pause those that wait for it, of a close all: they are to be forgotten. */
static bool find_acts(struct incident_run *run, struct work *work, struct incident *incident)
{
    bool more = false, pauses = incident_is(incident->row, "step", "pause");
    bool resumes = json_is_true(json_object_get(incident->row, "resume"));
    const char *after = incident_text(incident->row, "cursor");
    AUTO_INCIDENT_JSON *page = incident_suspects(work, run->id, after, INCIDENT_AT_ONCE, &more);
    if (page == NULL)
        return false;
    size_t i;
    const json_t *each;
    run->verb = pauses ? CHANGING_PAUSE : CHANGING_RESUME;
    run->todo = RUN_ACTS;
    json_array_foreach (page, i, each) {
        if (!pauses)
            add_act(run, each, resumes && incident_is(each, "pause", "paused"));
        else if (incident_is(each, "pause", "pending"))
            add_act(run, each, true);
    }
    if (run->act_count > 0)
        return true;
    run->todo = RUN_STEP;
    if (more) {
        const json_t *last = json_array_get(page, json_array_size(page) - 1);
        json_object_set(incident->row, "cursor", json_object_get(json_object_get(last, "sandbox"), "id"));
    } else {
        set_step(incident, pauses ? "done" : "closed");
    }
    return true;
}

static bool sum_up(struct work *work, const struct incident_run *run, const struct incident *incident)
{
    bool is_done = incident_is(incident->row, "step", "done");
    AUTO_FREE char *detail =
        memory_printf("%s step=%s revocations=%zu suspects=%lld", run->id, incident_text(incident->row, "step"),
                      json_array_size(json_object_get(incident->row, "revocations")),
                      (long long)json_integer_value(json_object_get(incident->row, "suspects")));
    if (!is_done)
        store_forget_at(work, work->now + KEEP_MS, store_key("incident", run->id, NULL).text);
    return incident_audit(work, &run->caller, is_done ? "incident.contained" : "incident.closed", "", NULL, detail);
}

static bool find_work(struct incident_run *run, struct work *work, struct incident *incident)
{
    const char *at = incident_text(incident->row, "step");
    run->revokes = json_is_true(json_object_get(incident->row, "revoke"));
    if (strcmp(at, "gather") == 0) {
        run->todo = RUN_STEP;
        return incident_gather(work, incident);
    }
    if (strcmp(at, "revoke") == 0)
        return find_revocation(run, incident) || error_set(work->err, ERROR_INTERNAL, "a selector is damaged");
    if (strcmp(at, "pause") == 0 || strcmp(at, "resume") == 0)
        return find_acts(run, work, incident);
    run->todo = RUN_OVER;
    return true;
}

enum kv_outcome incident_find_rule(struct kv *kv, void *argument, struct error *err)
{
    struct incident_run *run = argument;
    AUTO_INCIDENT incident = {.revision = 0};
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(run->leasing, kv, change, err);
    run->act_count = 0;
    if (!incident_get(&work, run->id, &incident))
        return KV_FAILED;
    run->todo = RUN_OVER;
    if (incident.row == NULL)
        return KV_APPLIED;
    take_caller(run, &incident);
    if (!find_work(run, &work, &incident))
        return KV_FAILED;
    if (run->todo != RUN_STEP)
        return KV_APPLIED;
    incident_put(&work, &incident);
    bool over = incident_is(incident.row, "step", "done") || incident_is(incident.row, "step", "closed");
    return !over || sum_up(&work, run, &incident) ? store_apply(&work) : KV_FAILED;
}

/* --- what came of it --- */

static bool note_act(struct work *work, struct incident_run *run, struct incident *incident,
                     const struct incident_act *act)
{
    AUTO_INCIDENT_JSON *row = NULL;
    uint64_t revision;
    bool pauses = run->verb == CHANGING_PAUSE;
    if (!incident_get_suspect(work, run->id, act->sandbox_id, &row, &revision))
        return false;
    if (revision == 0)
        return true;
    json_int_t attempts = json_integer_value(json_object_get(row, "attempts")) + 1;
    bool again = text_equal(act->result, "pending") && attempts < ATTEMPTS_MAX;
    run->wait |= again;
    json_object_set_new(row, "attempts", json_integer(attempts));
    if (act->result)
        json_object_set_new(row, pauses ? "pause" : "resume",
                            json_string(text_equal(act->result, "pending") && !again ? "failed" : act->result));
    if (act->why[0])
        json_object_set_new(row, pauses ? "pause_error" : "resume_error", json_string(act->why));
    else
        json_object_del(row, pauses ? "pause_error" : "resume_error");
    incident_put_suspect(work, run->id, act->sandbox_id, row);
    if (!pauses) {
        store_forget_at(work, work->now + KEEP_MS, store_key("suspect", run->id, act->sandbox_id).text);
        json_object_set_new(incident->row, "cursor", json_string(act->sandbox_id));
    }
    return true;
}

enum kv_outcome incident_note_rule(struct kv *kv, void *argument, struct error *err)
{
    struct incident_run *run = argument;
    AUTO_INCIDENT incident = {.revision = 0};
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(run->leasing, kv, change, err);
    run->wait = false;
    if (!incident_get(&work, run->id, &incident))
        return KV_FAILED;
    if (incident.row == NULL)
        return KV_APPLIED;
    for (size_t i = 0; i < run->act_count; i++) {
        if (!note_act(&work, run, &incident, &run->acts[i]))
            return KV_FAILED;
    }
    if (run->revocation)
        json_array_append(json_object_get(incident.row, "revocations"), run->revocation);
    incident_put(&work, &incident);
    return store_apply(&work);
}
