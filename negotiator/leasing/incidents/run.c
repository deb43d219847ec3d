/* run.c - the steps of an incident, one after the other, each durable before the next. */
#include "negotiator/leasing/changing.h"
#include "negotiator/leasing/incidents/incidents_internal.h"
#include "negotiator/leasing/keys/keying.h"
#include "negotiator/leasing/revocation.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS_MAX = 120 }; /* at a sandbox that is still being made */
static const int64_t AGAIN_MS = 500, STORE_AGAIN_MS = 15000, KEEP_MS = 90 * (int64_t)86400000;

/* One sandbox on its way: revoked first, so that no token wakes it again, then paused; or resumed. */
struct act {
    struct incident_run *run;
    char sandbox_id[RANDOM_ID_BYTES];
    bool wants_change; /* resume: it is only to be forgotten */
    bool was_paused;
    const char *result; /* static */
    char why[ERROR_MESSAGE_BYTES];
};

struct incident_run {
    struct incident_run *next; /* leasing->incident_runs */
    struct leasing *leasing;
    char id[RANDOM_ID_BYTES];
    struct caller caller; /* who opened, or closed it */
    char reason[REVOCATION_REASON_BYTES];
    bool is_over, has_failed;
    /* What the last rule found to do. */
    enum { RUN_STEP, RUN_REVOKE, RUN_ACTS, RUN_OVER } todo;
    enum changing_verb verb;
    struct incident_selector selector;
    bool revokes;
    struct act acts[INCIDENT_AT_ONCE];
    size_t act_count, under_way;
    bool wait;          /* before the next look: something was not ready */
    json_t *revocation; /* owned: of the selector */
};

static void step(struct incident_run *run);

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
    struct act *act = &run->acts[run->act_count++];
    const json_t *sandbox = json_object_get(suspect, "sandbox");
    *act = (struct act){.run = run, .wants_change = wants_change};
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

static enum kv_outcome find_rule(struct kv *kv, void *argument, struct error *err)
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

static bool note_act(struct work *work, struct incident_run *run, struct incident *incident, const struct act *act)
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

static enum kv_outcome note_rule(struct kv *kv, void *argument, struct error *err)
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

static void again(void *argument, int64_t now_ms UNUSED)
{
    step(argument);
}

static void go_on(struct incident_run *run, const struct error *err)
{
    struct leasing *leasing = run->leasing;
    if (err->kind != ERROR_NONE)
        log_error("leasing", "incident %s does not get on: %s", run->id, err->message);
    if (err->kind != ERROR_NONE || run->wait)
        ledger_alarm(leasing->options.ledger,
                     leasing->options.wall_ms() + (err->kind != ERROR_NONE ? STORE_AGAIN_MS : AGAIN_MS), again, run);
    else
        step(run);
}

static void noted(void *argument, const struct error *err)
{
    struct incident_run *run = argument;
    json_decref(TAKE(run->revocation));
    go_on(run, err);
}

static void note(struct incident_run *run)
{
    if (!atomic_load(&run->leasing->stopping)) /* else the next start does it once more */
        ledger_submit(run->leasing->options.ledger, note_rule, noted, run);
}

/* --- revoking --- */

static json_t *tell_revocation(const struct incident_run *run, const struct revoking *r)
{
    json_t *told =
        json_pack("{s:s, s:s}", "kind", incident_kind_name(run->selector.kind), "value", run->selector.value);
    json_t *missing = json_array();
    bool made = r->refusal.kind == ERROR_NONE && r->count == 1;
    for (size_t i = 0; made && i < r->list->missing_count && i < REVOCATION_NODES_MAX; i++)
        json_array_append_new(missing, json_string(r->list->missing[i]));
    json_object_set_new(told, "id", made ? json_string(r->list->id) : json_null());
    json_object_set_new(told, "in_force", json_boolean(made && r->list->in_force));
    json_object_set_new(told, "missing", missing);
    if (!made)
        json_object_set_new(told, "error", json_string(r->refusal.message));
    return told;
}

static void revoked(void *cookie, struct revoking *r)
{
    struct incident_run *run = cookie;
    json_decref(run->revocation);
    run->revocation = tell_revocation(run, r);
    revoking_free(r);
    note(run);
}

static struct revoking *new_revoking(const struct incident_run *run, enum mark_kind kind, const char *value)
{
    struct revoking *r = revoking_new();
    r->verb = REVOKING_MAKE;
    r->caller = run->caller;
    r->kind = kind;
    memcpy(r->reason, run->reason, sizeof r->reason);
    if (!text_copy(r->value, sizeof r->value, value))
        r->value[0] = '\0'; /* refused then */
    return r;
}

/* Its families are marked by then, and the marks are on their way. One that is gone was deleted by a run before this.
 */
static void key_deleted(void *cookie, struct keying *keying)
{
    struct incident_run *run = cookie;
    bool is_gone = keying->refusal.kind == ERROR_NONE || keying->refusal.kind == ERROR_NOT_FOUND;
    json_decref(run->revocation);
    run->revocation = json_pack("{s:s, s:s, s:n, s:b, s:[]}", "kind", "key", "value", run->selector.value, "id",
                                "in_force", is_gone, "missing");
    if (!is_gone)
        json_object_set_new(run->revocation, "error", json_string(keying->refusal.message));
    keying_free(keying);
    note(run);
}

static void delete_key(struct incident_run *run)
{
    struct keying *keying = keying_new();
    keying->verb = KEYING_DELETE;
    keying->caller = run->caller;
    keying->answered = key_deleted;
    keying->cookie = run;
    if (!text_copy(keying->id, sizeof keying->id, run->selector.value))
        keying->id[0] = '\0'; /* not found then */
    leasing_key(run->leasing, keying);
}

static void revoke_selected(struct incident_run *run)
{
    struct revoking *r = new_revoking(run, run->selector.kind, run->selector.value);
    memcpy(r->caller.owner, run->selector.principal, sizeof r->caller.owner);
    r->answered = revoked;
    r->cookie = run;
    leasing_revoke(run->leasing, r);
}

/* --- pausing and resuming --- */

static void finished(struct act *act)
{
    if (--act->run->under_way == 0)
        note(act->run);
}

/* The words of `pause` and `resume` in a suspect's row. */
static const char *result_of(const struct act *act, const struct error *refusal)
{
    switch ((int)refusal->kind) {
    case ERROR_NONE:
        return act->run->verb == CHANGING_RESUME ? "resumed" : act->was_paused ? "already" : "paused";
    case ERROR_STARTING:
        return "pending";
    case ERROR_NODE_UNREACHABLE:
        return "unreachable";
    case ERROR_GONE:
    case ERROR_NOT_FOUND:
        return "ended";
    default:
        return "failed";
    }
}

static void changed(void *cookie, struct changing *changing)
{
    struct act *act = cookie;
    act->result = result_of(act, &changing->refusal);
    memcpy(act->why, changing->refusal.message, sizeof act->why);
    changing_free(changing);
    finished(act);
}

static void change(struct act *act)
{
    struct error err = {0};
    struct changing *changing = changing_new();
    changing->verb = act->run->verb;
    changing->is_incidents = true;
    changing->caller = act->run->caller;
    changing->answered = changed;
    changing->cookie = act;
    memcpy(changing->sandbox_id, act->sandbox_id, sizeof changing->sandbox_id);
    if (leasing_change(act->run->leasing, changing, &err))
        return;
    changing->refusal = err; /* cannot be: it wants nothing that has bounds */
    changed(act, changing);
}

/* Any token that is left, a share's for one, would wake it with its next use. */
static void shut(void *cookie, struct revoking *r)
{
    struct act *act = cookie;
    if (r->refusal.kind != ERROR_NONE)
        log_warn("leasing", "incident %s: tokens of sandbox %s were not revoked: %s", act->run->id, act->sandbox_id,
                 r->refusal.message);
    revoking_free(r);
    if (atomic_load(&act->run->leasing->stopping))
        return;
    change(act);
}

static void start_act(struct act *act)
{
    struct incident_run *run = act->run;
    if (!act->wants_change) {
        finished(act);
    } else if (run->verb == CHANGING_PAUSE && run->revokes) {
        struct revoking *r = new_revoking(run, MARK_SANDBOX, act->sandbox_id);
        r->answered = shut;
        r->cookie = act;
        leasing_revoke(run->leasing, r);
    } else {
        change(act);
    }
}

/* --- its way --- */

static void end(struct incident_run *run)
{
    for (struct incident_run **at = &run->leasing->incident_runs; *at; at = &(*at)->next) {
        if (*at != run)
            continue;
        *at = run->next;
        break;
    }
    json_decref(run->revocation);
    free(run);
}

static void found(void *argument, const struct error *err)
{
    struct incident_run *run = argument;
    run->wait = false;
    if (err->kind != ERROR_NONE) {
        go_on(run, err);
        return;
    }
    switch (run->todo) {
    case RUN_STEP:
        step(run);
        return;
    case RUN_REVOKE:
        run->act_count = 0;
        if (run->selector.kind == MARK_KINDS)
            delete_key(run);
        else
            revoke_selected(run);
        return;
    case RUN_ACTS:
        run->under_way = run->act_count + 1; /* one more: so that none is over before all have begun */
        for (size_t i = 0; i < run->act_count; i++)
            start_act(&run->acts[i]);
        if (--run->under_way == 0)
            note(run);
        return;
    case RUN_OVER:
        end(run);
        return;
    }
}

static void step(struct incident_run *run)
{
    if (!atomic_load(&run->leasing->stopping))
        ledger_submit(run->leasing->options.ledger, find_rule, found, run);
}

void incident_go(struct leasing *leasing, const char *id)
{
    struct incident_run *run = memory_new(sizeof *run);
    run->leasing = leasing;
    run->next = leasing->incident_runs;
    leasing->incident_runs = run;
    if (text_copy(run->id, sizeof run->id, id))
        step(run);
}

void incidents_done(struct leasing *leasing)
{
    while (leasing->incident_runs)
        end(leasing->incident_runs);
    json_decref(TAKE(leasing->incident_ids));
}

/* --- at the start --- */

bool incidents_load(struct work *work)
{
    struct leasing *leasing = work->leasing;
    AUTO_INCIDENT_JSON *all = incident_all(work);
    json_t *frozen = all ? freeze_read(work) : NULL;
    size_t i;
    const json_t *each;
    if (frozen == NULL)
        return false;
    freeze_take(leasing, frozen);
    json_decref(leasing->incident_ids);
    leasing->incident_ids = json_array();
    json_array_foreach (all, i, each) {
        if (!incident_is(each, "step", "done") && !incident_is(each, "step", "closed"))
            json_array_append(leasing->incident_ids, json_object_get(each, "id"));
    }
    return true;
}

static enum kv_outcome nothing_rule(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

/* On the ledger thread, which they belong to. */
static void go_on_all(void *argument, const struct error *err UNUSED)
{
    struct leasing *leasing = argument;
    size_t i;
    const json_t *each;
    json_array_foreach (leasing->incident_ids, i, each)
        incident_go(leasing, json_string_value(each));
    json_decref(TAKE(leasing->incident_ids));
}

void incidents_start(struct leasing *leasing)
{
    ledger_submit(leasing->options.ledger, nothing_rule, go_on_all, leasing);
}
