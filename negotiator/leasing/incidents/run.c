/* run.c - the steps of an incident, one after the other, each durable before the next. */
#include "negotiator/leasing/incidents/incident_run.h"
#include "negotiator/leasing/keys/keying.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

static const int64_t AGAIN_MS = 500, STORE_AGAIN_MS = 15000;

static void step(struct incident_run *run);

/* --- from step to step --- */

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
        ledger_submit(run->leasing->options.ledger, incident_note_rule, noted, run);
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

static void finished(struct incident_act *act)
{
    if (--act->run->under_way == 0)
        note(act->run);
}

/* The words of `pause` and `resume` in a suspect's row. */
static const char *result_of(const struct incident_act *act, const struct error *refusal)
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
    struct incident_act *act = cookie;
    act->result = result_of(act, &changing->refusal);
    memcpy(act->why, changing->refusal.message, sizeof act->why);
    changing_free(changing);
    finished(act);
}

static void change(struct incident_act *act)
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
    struct incident_act *act = cookie;
    if (r->refusal.kind != ERROR_NONE)
        log_warn("leasing", "incident %s: tokens of sandbox %s were not revoked: %s", act->run->id, act->sandbox_id,
                 r->refusal.message);
    revoking_free(r);
    if (atomic_load(&act->run->leasing->stopping))
        return;
    change(act);
}

static void start_act(struct incident_act *act)
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
        ledger_submit(run->leasing->options.ledger, incident_find_rule, found, run);
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
