/* renewing.c - another end for a living sandbox: its leases' and its own are moved, sooner or later than before. */
#include "negotiator/leasing/changing.h"
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/leasing_internal.h"

#include <string.h>

static bool is_renewable(struct changing *changing)
{
    const struct sandbox *sandbox = &changing->sandbox;
    return !life_is_endless(sandbox->deadline) ||
           error_set(&changing->refusal, ERROR_CONFLICT, "sandbox %s has no end that could be moved", sandbox->id);
}

bool renewing_check(const struct work *work, struct changing *changing)
{
    struct policy_subject who = policy_subject(&changing->caller, NULL);
    int64_t ahead_s = (changing->expires_at - work->now) / 1000;
    if (ahead_s < 1)
        return error_set(&changing->refusal, ERROR_INVALID, "expires_at must be at least a second from now");
    if (ahead_s > LIFE_NUMBER_MAX_S)
        return error_set(&changing->refusal, ERROR_INVALID, "expires_at must be at most 100 years from now");
    who.principal = changing->sandbox.principal;
    const struct policy_wish wish = {.lifetime_s = ahead_s};
    return is_renewable(changing) && policy_check(work->leasing, &who, &wish, &changing->refusal);
}

static void move(struct work *work, const struct changing *changing, struct lease *lease)
{
    const char *principal = changing->sandbox.principal;
    lease->max_expires_at = changing->expires_at;
    if (lease->expires_at > lease->max_expires_at)
        lease->expires_at = lease->max_expires_at;
    negotiate_touch(lease, 0, work->now);
    store_put_lease(work, principal, lease);
    family_renote_lease(work, principal, lease);
}

bool renewing_apply(struct work *work, struct changing *changing)
{
    struct sandbox *sandbox = &changing->sandbox;
    size_t i;
    json_t *thread;
    if (!is_renewable(changing)) /* somebody joined it without an end meanwhile */
        return false;
    json_array_foreach (sandbox->threads, i, thread) {
        struct lease lease;
        const char *id = json_string_value(thread);
        if (id == NULL || !store_get_lease(work, sandbox->principal, id, &lease))
            return false;
        if (lease.revision > 0 && strcmp(lease.sandbox_id, sandbox->id) == 0)
            move(work, changing, &lease);
    }
    sandbox->deadline = changing->expires_at;
    if (changing->needs_node && sandbox->node_deadline > sandbox->deadline)
        sandbox->node_deadline = sandbox->deadline; /* as the node has said yes to; all else the next look tells it */
    return true;
}
