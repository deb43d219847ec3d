/* creating.c - a negotiation that finds nothing to attach to: a new sandbox, its name and its place. */
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/keeping/snapshot.h"
#include "negotiator/leasing/keeping/volumes.h"
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/naming.h"
#include "shared/base/text.h"

#include <string.h>

enum { NAME_TRIES = 16, NAME_TRIES_PLAIN = 8 };

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value ? value : fallback;
}

static bool name_it(struct work *work, struct negotiation *n)
{
    char holder[RANDOM_ID_BYTES];
    const char *owner = caller_owner(&n->caller);
    if (n->wanted.name[0]) {
        memcpy(n->sandbox.name, n->wanted.name, sizeof n->sandbox.name);
        if (!store_get_name(work, owner, n->sandbox.name, holder))
            return false;
        return holder[0] == '\0' ||
               error_set(&n->refusal, ERROR_CONFLICT, "the name %s is taken by sandbox %s", n->sandbox.name, holder);
    }
    for (int i = 0; i < NAME_TRIES; i++) {
        naming_pick(n->sandbox.name, i >= NAME_TRIES_PLAIN);
        if (!store_get_name(work, owner, n->sandbox.name, holder))
            return false;
        if (holder[0] == '\0')
            return true;
    }
    return error_set(&n->refusal, ERROR_QUOTA, "no free name was found; give one");
}

static bool fill_sandbox(struct work *work, struct negotiation *n)
{
    const struct wanted *wanted = &n->wanted;
    const struct resources *fallback = &work->leasing->options.limits.resources;
    struct sandbox *sandbox = &n->sandbox;
    random_id(sandbox->id, "sbx");
    sandbox->state = SANDBOX_PROVISIONING;
    sandbox->created_at = sandbox->state_since = work->now;
    sandbox->epoch = 1;
    sandbox->resources = (struct resources){.cpu_milli = or_default(wanted->resources.cpu_milli, fallback->cpu_milli),
                                            .memory_mb = or_default(wanted->resources.memory_mb, fallback->memory_mb),
                                            .disk_mb = or_default(wanted->resources.disk_mb, fallback->disk_mb),
                                            .pids = or_default(wanted->resources.pids, fallback->pids),
                                            .open_files = wanted->resources.open_files,
                                            .processes = wanted->resources.processes,
                                            .output_mb = wanted->resources.output_mb};
    sandbox->on_idle = wanted->on_idle;
    sandbox->told_once = wanted->told_once;
    sandbox->env = json_incref(wanted->env);
    sandbox->metadata = json_incref(wanted->metadata);
    sandbox->volumes = json_array_size(wanted->volumes) > 0 ? json_incref(wanted->volumes) : NULL;
    sandbox->network = json_incref(wanted->network);
    sandbox->ports = json_array_size(wanted->ports) > 0 ? json_incref(wanted->ports) : NULL;
    sandbox->entrypoint = json_incref(wanted->entrypoint);
    sandbox->origin = json_object_size(wanted->origin) > 0 ? json_incref(wanted->origin) : NULL;
    sandbox_add_thread(sandbox, n->thread_id);
    return text_copy(sandbox->principal, sizeof sandbox->principal, caller_owner(&n->caller)) &&
           text_copy(sandbox->template_name, SANDBOX_WORD_BYTES,
                     wanted->template_name[0] ? wanted->template_name : "base") &&
           text_copy(sandbox->isolation, SANDBOX_WORD_BYTES, wanted->isolation[0] ? wanted->isolation : "auto") &&
           text_copy(sandbox->idempotency, sizeof sandbox->idempotency, n->idempotency);
}

/* What it begins with: a template that its role may have, as it is, or as somebody left it in a snapshot. */
static bool begin_with(struct work *work, struct negotiation *n)
{
    struct snapshot snapshot = {.revision = 0};
    struct sandbox *sandbox = &n->sandbox;
    struct policy_subject who = policy_subject(&n->caller, n->wanted.actor);
    if (n->wanted.snapshot[0]) {
        if (!snapshot_find(work, &n->caller, n->wanted.snapshot, &snapshot, &n->refusal))
            return false;
        memcpy(sandbox->snapshot, snapshot.id, sizeof sandbox->snapshot);
        memcpy(sandbox->snapshot_name, snapshot.name, sizeof sandbox->snapshot_name);
        memcpy(sandbox->template_name, snapshot.template_name, sizeof sandbox->template_name);
        memcpy(sandbox->node, snapshot.node, sizeof sandbox->node);
    }
    sandbox->has_root = policy_gives_root(work->leasing, &who);
    struct policy_wish wish = policy_wish(&n->wanted);
    wish.template_name = sandbox->template_name;
    return policy_check(work->leasing, &who, &wish, &n->refusal);
}

/* What was not said is as policy lets it be, and then there is room for it. */
static bool measure(struct work *work, struct negotiation *n)
{
    struct sandbox *sandbox = &n->sandbox;
    struct policy_subject who = policy_subject(&n->caller, n->wanted.actor);
    if (sandbox->resources.disk_mb == 0)
        sandbox->resources.disk_mb = quota_disk_mb(work->leasing, &who);
    sandbox->volume_mb = policy_volume_mb(work->leasing, &who);
    return quota_take(work, &who, sandbox, &n->retry_after_s, &n->refusal);
}

/* "auto" is the first that policy allows and that there is room for. */
static bool place_anyhow(const struct work *work, struct negotiation *n, struct placement where)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    struct policy_subject who = policy_subject(&n->caller, n->wanted.actor);
    const json_t *levels = policy_isolations(work->leasing, &who);
    size_t i;
    json_t *each;
    n->placed_isolation[0] = '\0';
    if (levels == NULL || !text_equal(where.isolation, "auto"))
        return nodes->place(nodes->context, &where, n->placed, &n->placed_epoch, &n->refusal);
    json_array_foreach (levels, i, each) {
        n->refusal = (struct error){0};
        where.isolation = json_string_value(each);
        if (nodes->place(nodes->context, &where, n->placed, &n->placed_epoch, &n->refusal))
            return text_copy(n->placed_isolation, sizeof n->placed_isolation, where.isolation);
    }
    return false;
}

/* Once, however often a conflict runs the rule again: the node counts each place as used. */
static bool place(const struct work *work, struct negotiation *n)
{
    const char *node = n->sandbox.node; /* "": any will do */
    const struct placement where = {.isolation = n->sandbox.isolation,
                                    .template_name = n->sandbox.snapshot[0] ? NULL : n->sandbox.template_name,
                                    .node = node[0] ? node : NULL};
    if (node[0] && strcmp(node, n->placed) != 0)
        n->placed[0] = '\0';
    if (n->placed[0] == '\0' && !place_anyhow(work, n, where)) {
        n->placed[0] = '\0';
        if (node[0])
            (void)error_prefix(&n->refusal, "%s%s lies on one node",
                               n->sandbox.snapshot[0] ? "snapshot " : "its volume", n->wanted.snapshot);
        return false;
    }
    memcpy(n->sandbox.node, n->placed, sizeof n->sandbox.node);
    if (n->placed_isolation[0])
        memcpy(n->sandbox.isolation, n->placed_isolation, sizeof n->sandbox.isolation);
    n->sandbox.node_epoch = n->placed_epoch;
    return true;
}

bool creating_decide(struct work *work, struct negotiation *n, uint64_t stale, struct once once)
{
    struct sandbox *sandbox = &n->sandbox;
    sandbox_done(sandbox);
    if (!fill_sandbox(work, n))
        return error_set(work->err, ERROR_INTERNAL, "a sandbox's row does not fit");
    if (!begin_with(work, n) || !volumes_place(work, sandbox, &n->refusal) || !name_it(work, n) || !measure(work, n) ||
        !place(work, n)) {
        sandbox_done(sandbox); /* its id never was */
        return false;
    }
    n->lease = negotiate_lease(work, n, stale);
    sandbox->deadline = n->lease.max_expires_at;
    sandbox->node_deadline = reconcile_unaided_until(work, sandbox);
    n->created = true;
    store_put_sandbox(work, sandbox);
    store_put_lease(work, sandbox->principal, &n->lease);
    family_note_lease(work, sandbox->principal, &n->lease);
    store_take_name(work, sandbox);
    store_own(work, sandbox);
    store_watch(work, sandbox, work->now + ENDING_DESTROY_AGAIN_MS);
    return volumes_take(work, sandbox) && negotiate_remember(work, n, once);
}
