#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/log.h"
#include "shared/base/text.h"

#include <string.h>

static const int64_t DEADLINE_SLACK_MS = 1000;   /* a node counts on another clock */
static const int64_t SOON_MS = 3000;             /* by then the node has told more */
static const int64_t START_GRACE_MS = 60000;     /* the longest `heartbeat_every` that clients are told */
static const int64_t NEVER_RETURNED_MS = 120000; /* after its deadline: the node has ended it by then, if it lives */
static const uint32_t EPOCH_MAX = UINT32_MAX / 2;
static const int64_t HOUR_MS = 3600000;
/* Records of one node: it may name as many ids as it likes. The last ones say so; those of one round are decided on
 * before any of them is counted. */
enum { UNKNOWN_AN_HOUR = 1024, UNKNOWN_LAST = 64 };

/* One run of the rule. */
struct run {
    struct work work;
    struct look *look;
    struct presence_node *node;   /* NULL: nothing was heard of it */
    struct presence_entry *entry; /* NULL: the node did not name it */
    int64_t wake;                 /* as the ledger has it; INT64_MAX not under watch */
    bool changed;                 /* the change has more than when to look again */
};

void look_done(struct look *look)
{
    sandbox_done(&look->sandbox);
    look->act = LOOK_NOTHING;
    look->mark = (struct mark){.number = 0};
}

/* Nothing is written when what is there already says so. */
static bool again_at(struct run *run, int64_t at)
{
    bool is_noted = run->look->due[0] == '\0' && !run->changed && run->wake > run->work.now && run->wake <= at;
    if (!is_noted)
        store_watch(&run->work, &run->look->sandbox, at);
    return true;
}

static bool finish(struct run *run)
{
    run->look->act = LOOK_LOST;
    return ending_finish_recorded(&run->work, &run->look->sandbox, "node_lost");
}

/* --- what the ledger does not have as living on that node --- */

/* How many more of this hour are told of. */
static unsigned room_for_unknown(const struct presence_node *node, int64_t now)
{
    return node->unknown_hour == now / HOUR_MS ? UNKNOWN_AN_HOUR - node->unknown_told : UNKNOWN_AN_HOUR;
}

static bool decide_unknown(struct run *run)
{
    const struct sandbox *sandbox = &run->look->sandbox;
    struct sandbox forgotten = {.revision = 0};
    memcpy(forgotten.node, run->look->node, sizeof forgotten.node);
    memcpy(forgotten.id, run->look->id, sizeof forgotten.id);
    if (run->wake != INT64_MAX)
        store_unwatch(&run->work, &forgotten);
    unsigned room = run->entry && !run->entry->unknown ? room_for_unknown(run->node, run->work.now) : 0;
    if (room == 0)
        return true;
    char detail[256];
    bool elsewhere = sandbox->revision > 0;
    if (!text_format(detail, sizeof detail, "left alone: it ends at its own deadline%s%s%s",
                     elsewhere ? "; the ledger has it on node " : "", elsewhere ? sandbox->node : "",
                     room <= UNKNOWN_LAST ? "; there are very many: more are not told of in this hour" : ""))
        detail[0] = '\0';
    struct audit_record record = {.node = run->look->node,
                                  .action = "sandbox.unknown",
                                  .outcome = "ok",
                                  .sandbox_id = run->look->id,
                                  .detail = detail};
    run->look->act = LOOK_UNKNOWN;
    return store_audit(&run->work, NULL, &record);
}

/* Its row is its tombstone: a node that has it all the same is told, and told again. */
static bool decide_ended(struct run *run)
{
    if (run->entry == NULL) {
        if (run->wake != INT64_MAX)
            store_unwatch(&run->work, &run->look->sandbox);
        return true;
    }
    run->look->act = LOOK_DESTROY;
    return again_at(run, run->work.now + ENDING_DESTROY_AGAIN_MS);
}

/* --- one that is being made --- */

/* This process has started since, or could not record that it was made: nobody will ever ask for it again. */
static bool give_up_untold(struct run *run)
{
    struct look *look = run->look;
    look->act = LOOK_DESTROY;
    return ending_begin(&run->work, &look->sandbox, "nobody was told of it") &&
           ending_record_lease(&run->work, &look->sandbox, NULL, look->sandbox.reason);
}

static bool decide_provisioning(struct run *run)
{
    const struct starting_entry *entry = starting_find(&run->look->leasing->starting, run->look->id);
    if (run->look->sandbox.told_once && (entry == NULL || entry->creator == NULL))
        return give_up_untold(run);
    if (entry == NULL || !entry->called)
        run->look->act = LOOK_PREPARE;
    return again_at(run, run->work.now + ENDING_DESTROY_AGAIN_MS);
}

/* --- one that lives --- */

struct held {
    int64_t next;       /* when the first of those that go on may end */
    struct lease ended; /* one that is over; revision 0: none. The next look takes the next one */
    const char *reason;
    unsigned count; /* leases, also those that are over */
    unsigned idle;  /* of these: those that a sandbox that would rather sleep keeps */
};

/* What the node told last says until when a lease is used, as long as it tells: only a heartbeat of after that moment
 * proves that nobody used it meanwhile. */
static bool has_told_since(const struct run *run, int64_t moment)
{
    return run->node && run->node->has_list && run->node->heard_ms >= moment;
}

/* Before that nobody can be called idle: it may have been long in the making, and while this process was away nobody
 * could give it a sign of life. */
static int64_t first_end(const struct run *run, const struct lease *lease)
{
    int64_t idle = lease->idle_timeout_s * 1000, started = run->look->leasing->started_ms;
    int64_t made = run->look->sandbox.active_since + idle;
    int64_t heard = started <= run->work.now ? started + (idle < START_GRACE_MS ? idle : START_GRACE_MS) : 0;
    return made > heard ? made : heard;
}

static void hold_until(const struct run *run, struct held *held, int64_t ends)
{
    int64_t next = ends > run->work.now ? ends : run->work.now + SOON_MS;
    held->next = next < held->next ? next : held->next;
}

static void look_at_lease(const struct run *run, const struct lease *lease, struct held *held)
{
    const struct sandbox *sandbox = &run->look->sandbox;
    int64_t now = run->work.now;
    int64_t ends = presence_expiry(run->entry, lease, now), first = first_end(run, lease);
    if (first > ends)
        ends = first < lease->max_expires_at ? first : lease->max_expires_at;
    bool is_old = lease->max_expires_at <= now, is_asleep = sandbox->state == SANDBOX_PAUSED;
    bool is_idle = !is_asleep && ends <= now && has_told_since(run, ends);
    if (is_old || (is_idle && sandbox->on_idle == ON_IDLE_STOP)) {
        held->ended = *lease;
        held->reason = is_old ? "max_lifetime" : "idle_timeout";
        return;
    }
    held->idle += is_idle;
    hold_until(run, held, is_idle || is_asleep ? lease->max_expires_at : ends);
}

static bool look_at_leases(struct run *run, struct held *held)
{
    size_t i;
    json_t *thread;
    const struct sandbox *sandbox = &run->look->sandbox;
    json_array_foreach (sandbox->threads, i, thread) {
        struct lease lease;
        const char *thread_id = json_string_value(thread);
        if (thread_id == NULL || !store_get_lease(&run->work, sandbox->principal, thread_id, &lease))
            return false;
        if (lease.revision == 0 || strcmp(lease.sandbox_id, sandbox->id) != 0)
            continue;
        held->count++;
        look_at_lease(run, &lease, held);
    }
    return true;
}

static bool end_lease(struct run *run, const struct held *held)
{
    struct look *look = run->look;
    bool last = false;
    if (!ending_release(&run->work, &look->sandbox, &held->ended, held->reason, &last, &look->mark) ||
        !ending_record_lease(&run->work, &look->sandbox, &held->ended, held->reason))
        return false;
    look->act = last ? LOOK_DESTROY : LOOK_MARK;
    if (!last)
        store_watch(&run->work, &look->sandbox, run->work.now);
    return true;
}

/* --- whether it sleeps --- */

static bool disagrees_on_pause(const struct run *run)
{
    const struct presence_entry *entry = run->entry;
    return entry && entry->says_paused && entry->is_paused != (run->look->sandbox.state == SANDBOX_PAUSED);
}

/* The node thawed it for somebody who used it, or its answer to `pause` was lost. What it said before we knew better is
 * no news. */
static bool follow_pause(struct run *run)
{
    struct sandbox *sandbox = &run->look->sandbox;
    if (!disagrees_on_pause(run) || !presence_is_after(run->node, sandbox->state_since, run->work.now))
        return true;
    sandbox_set_paused(sandbox, run->entry->is_paused, run->work.now);
    store_put_sandbox(&run->work, sandbox);
    run->changed = true;
    struct audit_record record = {.node = sandbox->node,
                                  .action = run->entry->is_paused ? "sandbox.pause" : "sandbox.resume",
                                  .outcome = "ok",
                                  .principal = sandbox->principal,
                                  .sandbox_id = sandbox->id,
                                  .detail = run->entry->is_paused ? "as its node says" : "somebody used it"};
    return store_audit(&run->work, NULL, &record);
}

/* All its leases are idle, and it would rather sleep than end. */
static bool fall_asleep(struct run *run)
{
    run->look->act = LOOK_PAUSE;
    return again_at(run, run->work.now + ENDING_DESTROY_AGAIN_MS);
}

/* --- how long its node keeps it unaided --- */

static int64_t unattended_ms(const struct work *work)
{
    return work->leasing->options.limits.unattended_max_s * 1000;
}

int64_t reconcile_unaided_until(const struct work *work, const struct sandbox *sandbox)
{
    int64_t longest = work->now + unattended_ms(work);
    return sandbox->deadline < longest ? sandbox->deadline : longest;
}

/* A quarter of it is over, of one that is to live on. */
static bool is_to_be_moved(const struct run *run)
{
    const struct sandbox *sandbox = &run->look->sandbox;
    return sandbox->node_deadline > sandbox->deadline ||
           (sandbox->node_deadline < sandbox->deadline &&
            sandbox->node_deadline <= run->work.now + unattended_ms(&run->work) / 4 * 3);
}

/* The row says it before the node hears it: so the node never ends it later than the ledger knows. */
static bool move_node_deadline(struct run *run)
{
    struct sandbox *sandbox = &run->look->sandbox;
    if (!is_to_be_moved(run))
        return false;
    sandbox->node_deadline = reconcile_unaided_until(&run->work, sandbox);
    store_put_sandbox(&run->work, sandbox);
    run->changed = true;
    return true;
}

/* When that is due again. */
static int64_t next_move(const struct run *run)
{
    const struct sandbox *sandbox = &run->look->sandbox;
    return sandbox->node_deadline < sandbox->deadline ? sandbox->node_deadline - unattended_ms(&run->work) / 4 * 3
                                                      : INT64_MAX;
}

static bool decide_active(struct run *run)
{
    struct look *look = run->look;
    struct held held = {.next = look->sandbox.deadline};
    if (!look_at_leases(run, &held))
        return false;
    if (held.count == 0) { /* its last thread has another sandbox by now */
        look->act = LOOK_DESTROY;
        return ending_begin(&run->work, &look->sandbox, "released") &&
               ending_record_lease(&run->work, &look->sandbox, NULL, "released");
    }
    if (held.ended.revision > 0)
        return end_lease(run, &held);
    const bool has_moved = move_node_deadline(run);
    int64_t soon = run->work.now + SOON_MS, moved = next_move(run), next = held.next < moved ? held.next : moved;
    const int64_t deadline = look->sandbox.node_deadline;
    bool is_other = has_moved || (run->entry && run->entry->deadline_ms + DEADLINE_SLACK_MS < deadline);
    bool is_silent = run->entry == NULL && run->node && run->node->has_list;
    if (is_other)
        look->act = LOOK_DEADLINE;
    else if (held.idle == held.count)
        return fall_asleep(run);
    if (is_other || is_silent || disagrees_on_pause(run) || next <= run->work.now)
        next = next > run->work.now && next < soon ? next : soon;
    return again_at(run, next);
}

/* A ledger that was put back from a copy may have an older one. */
static void raise_epoch(struct run *run)
{
    struct sandbox *sandbox = &run->look->sandbox;
    if (run->entry == NULL || run->entry->epoch <= sandbox->epoch || run->entry->epoch > EPOCH_MAX)
        return;
    sandbox->epoch = run->entry->epoch;
    store_put_sandbox(&run->work, sandbox);
    run->changed = true;
}

/* What was heard by a clock that was set back since is before and after nothing. */
static bool is_missing(const struct run *run)
{
    const struct sandbox *sandbox = &run->look->sandbox;
    return run->node && run->node->heard_ms <= run->work.now &&
           presence_lacks(run->node, sandbox->id, sandbox->state_since, sandbox->incarnation);
}

static bool decide_living(struct run *run)
{
    const struct leasing_nodes *nodes = &run->look->leasing->options.nodes;
    const struct sandbox *sandbox = &run->look->sandbox;
    char url[SANDBOX_URL_BYTES];
    enum node_life life = nodes->find(nodes->context, sandbox->node, url);
    bool is_lost = life == NODE_LOST || life == NODE_UNKNOWN;
    int64_t given_up = sandbox->node_deadline + NEVER_RETURNED_MS;
    if (is_lost && given_up <= run->work.now)
        return finish(run);
    if (is_lost && run->node)
        run->node->has_list = false; /* when it returns it is asked for all it has, and all is looked at */
    if (is_lost)
        return again_at(run, given_up);
    raise_epoch(run);
    if (sandbox->state == SANDBOX_PROVISIONING)
        return decide_provisioning(run);
    if (is_missing(run))
        return finish(run);
    if (sandbox->state == SANDBOX_TERMINATING) {
        run->look->act = LOOK_DESTROY;
        return again_at(run, run->work.now + ENDING_DESTROY_AGAIN_MS);
    }
    return follow_pause(run) && decide_active(run);
}

static bool decide(struct run *run)
{
    const struct sandbox *sandbox = &run->look->sandbox;
    if (sandbox->revision == 0 || strcmp(sandbox->node, run->look->node) != 0)
        return decide_unknown(run);
    return sandbox_has_ended(sandbox) ? decide_ended(run) : decide_living(run);
}

enum kv_outcome look_rule(struct kv *kv, struct look *look, struct error *err)
{
    int64_t due = 0;
    AUTO(kv_change) *change = kv_change_new();
    struct run run = {.work = work_begin(look->leasing, kv, change, err), .look = look};
    look_done(look);
    if (!store_get_wake(&run.work, look->node, look->id, &run.wake))
        return KV_FAILED;
    if (look->due[0])
        kv_change_delete(change, look->due);
    if (look->due[0] && (store_due_row(look->due, &due) == NULL || due != run.wake))
        return store_apply(&run.work); /* another look was arranged meanwhile */
    run.node = presence_find(&look->leasing->presence, look->node);
    run.entry = presence_entry(run.node, look->id);
    look->version = run.entry ? run.entry->version : 0;
    if (!store_get_sandbox(&run.work, look->id, &look->sandbox) || !decide(&run))
        return KV_FAILED;
    return store_apply(&run.work);
}

/* --- once it is durable --- */

static void prepare_once(struct leasing *leasing, const struct sandbox *sandbox)
{
    struct starting_entry *entry = starting_entry(&leasing->starting, sandbox->id);
    if (entry->called || atomic_load(&leasing->stopping))
        return;
    entry->called = true;
    settle_prepare(leasing, sandbox, NULL);
}

static void tell_lost(struct leasing *leasing, const char *id)
{
    struct error lost = {0};
    error_set(&lost, ERROR_NODE_UNREACHABLE, "the node of this sandbox did not return");
    settle_tell(leasing, id, &lost);
}

static void note_unknown(const struct look *look, struct presence_entry *entry)
{
    struct presence_node *node = presence_node(&look->leasing->presence, look->node);
    int64_t hour = look->leasing->options.wall_ms() / HOUR_MS;
    log_warn("leasing", "node %s has a sandbox that is not in the ledger, left alone sandbox=%s", look->node, look->id);
    if (node->unknown_hour != hour)
        node->unknown_told = 0;
    node->unknown_hour = hour;
    if (node->unknown_told < UNKNOWN_AN_HOUR) /* several are looked at in one batch */
        node->unknown_told++;
    if (entry)
        entry->unknown = true;
}

void look_act(struct look *look)
{
    struct leasing *leasing = look->leasing;
    const struct sandbox *sandbox = &look->sandbox;
    struct presence_entry *entry = presence_entry(presence_find(&leasing->presence, look->node), look->id);
    presence_looked(entry, look->version);
    switch (look->act) {
    case LOOK_NOTHING:
        break;
    case LOOK_PREPARE:
        prepare_once(leasing, sandbox);
        break;
    case LOOK_DESTROY:
        settle_destroy(leasing, sandbox, NULL);
        break;
    case LOOK_PAUSE:
        changing_sleep(leasing, look->id);
        break;
    case LOOK_DEADLINE:
        settle_deadline(leasing, sandbox->node, sandbox->id, sandbox->node_deadline);
        break;
    case LOOK_LOST:
        tell_lost(leasing, look->id);
        break;
    case LOOK_MARK:
        marks_made(leasing, &look->mark, true);
        break;
    case LOOK_UNKNOWN:
        note_unknown(look, entry);
        break;
    }
}
