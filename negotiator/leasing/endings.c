#include "negotiator/leasing/keeping/volumes.h"
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

void ending_set_reason(struct sandbox *sandbox, const char *reason)
{
    size_t length = text_utf8_prefix(reason, strnlen(reason, sizeof sandbox->reason - 1));
    memcpy(sandbox->reason, reason, length);
    sandbox->reason[length] = '\0';
}

/* A thread whose lease is already another sandbox's, or gone, is not ours to end. */
static bool free_threads(struct work *work, struct sandbox *sandbox)
{
    size_t i;
    json_t *thread;
    json_array_foreach (sandbox->threads, i, thread) {
        struct lease lease;
        const char *thread_id = json_string_value(thread);
        if (thread_id == NULL || !store_get_lease(work, sandbox->principal, thread_id, &lease))
            return false;
        if (lease.revision > 0 && strcmp(lease.sandbox_id, sandbox->id) == 0)
            store_delete_lease(work, sandbox->principal, &lease);
    }
    json_decref(sandbox->threads);
    sandbox->threads = NULL;
    return true;
}

/* What an ending sandbox gives up at once; it may be called twice. */
static bool give_up(struct work *work, struct sandbox *sandbox)
{
    char holder[RANDOM_ID_BYTES];
    if (!store_get_name(work, sandbox->principal, sandbox->name, holder) || !free_threads(work, sandbox))
        return false;
    if (strcmp(holder, sandbox->id) == 0)
        store_free_name(work, sandbox);
    return true;
}

bool ending_begin(struct work *work, struct sandbox *sandbox, const char *reason)
{
    if (!give_up(work, sandbox))
        return false;
    sandbox->state = SANDBOX_TERMINATING;
    sandbox->state_since = work->now;
    ending_set_reason(sandbox, reason);
    store_put_sandbox(work, sandbox);
    store_watch(work, sandbox, work->now + ENDING_DESTROY_AGAIN_MS);
    return true;
}

bool ending_finish(struct work *work, struct sandbox *sandbox, enum sandbox_state state, const char *reason)
{
    if (!give_up(work, sandbox))
        return false;
    /* What never came to be may be asked for again under the same Idempotency-Key. */
    if (state == SANDBOX_FAILED && sandbox->idempotency[0])
        store_delete_once(work, sandbox->idempotency, sandbox->created_at);
    if (!sandbox_has_ended(sandbox) && !quota_release(work, sandbox))
        return false;
    bool was_told_to = sandbox->state == SANDBOX_TERMINATING;
    sandbox->state = state;
    sandbox->state_since = sandbox->ended_at = work->now;
    if (!was_told_to)
        ending_set_reason(sandbox, reason);
    volumes_release(work, sandbox);
    store_put_sandbox(work, sandbox);
    store_unwatch(work, sandbox);
    char row[64];
    snprintf(row, sizeof row, "sandbox/%s", sandbox->id);
    store_forget_at(work, work->now + (int64_t)WANTED_DAY_S * 1000, row);
    return true;
}

bool ending_finish_recorded(struct work *work, struct sandbox *sandbox, const char *reason)
{
    struct audit_record record = {.node = sandbox->node,
                                  .action = "sandbox.end",
                                  .outcome = "ok",
                                  .principal = sandbox->principal,
                                  .sandbox_id = sandbox->id,
                                  .detail = sandbox->reason};
    return ending_finish(work, sandbox, SANDBOX_TERMINATED, reason) && store_audit(work, NULL, &record);
}

enum kv_outcome ending_finish_alone(const struct work *work, struct sandbox *sandbox, const char *reason)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    return ending_finish_recorded(&own, sandbox, reason) ? store_apply(&own) : KV_FAILED;
}

bool ending_record_lease(struct work *work, const struct sandbox *sandbox, const struct lease *lease,
                         const char *reason)
{
    struct audit_record record = {.node = sandbox->node,
                                  .action = "lease.end",
                                  .outcome = "ok",
                                  .principal = sandbox->principal,
                                  .thread_id = lease ? lease->thread_id : "",
                                  .sandbox_id = sandbox->id,
                                  .lease = lease ? lease->id : "",
                                  .detail = reason};
    return store_audit(work, NULL, &record);
}

/* protocol.md, 2 "Lives". */
void ending_reason(char to[static SANDBOX_REASON_BYTES], const char *told)
{
    static const char *const KNOWN[] = {"released", "idle_timeout", "max_lifetime", "revoked",
                                        "deleted",  "node_lost",    "oom"};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        if (text_equal(told, KNOWN[i]) && text_copy(to, SANDBOX_REASON_BYTES, told))
            return;
    }
    if (told == NULL || told[0] == '\0')
        told = "no reason was told";
    const char *rest = text_starts_with(told, "failed: ") ? told + strlen("failed: ") : told;
    int length = (int)text_utf8_prefix(rest, strnlen(rest, SANDBOX_REASON_BYTES - sizeof "failed: "));
    if (!text_format(to, SANDBOX_REASON_BYTES, "failed: %.*s", length, rest))
        to[0] = '\0'; /* cannot be: it was cut */
}

static bool has_other_lease(struct work *work, const struct sandbox *sandbox, const char *thread_id, bool *has)
{
    size_t i;
    json_t *thread;
    *has = false;
    json_array_foreach (sandbox->threads, i, thread) {
        struct lease other;
        const char *id = json_string_value(thread);
        if (id == NULL || strcmp(id, thread_id) == 0)
            continue;
        if (!store_get_lease(work, sandbox->principal, id, &other))
            return false;
        if (other.revision > 0 && strcmp(other.sandbox_id, sandbox->id) == 0)
            *has = true;
    }
    return true;
}

/* Its tokens stay what they were made, on a sandbox that goes on. */
static void mark_lease(struct work *work, const struct lease *lease, struct mark *mark)
{
    *mark = (struct mark){
        .kind = MARK_LEASE, .before = MARK_ANY_TIME, .until = marks_longest(work->leasing, lease, work->now)};
    if (text_copy(mark->value, sizeof mark->value, lease->id)) /* an id: it fits */
        marks_add(work, mark);
}

bool ending_release(struct work *work, struct sandbox *sandbox, const struct lease *lease, const char *reason,
                    bool *last, struct mark *mark)
{
    bool others = false;
    *mark = (struct mark){.number = 0};
    if (!has_other_lease(work, sandbox, lease->thread_id, &others))
        return false;
    *last = !others;
    if (!others)
        return ending_begin(work, sandbox, reason);
    sandbox_remove_thread(sandbox, lease->thread_id);
    store_delete_lease(work, sandbox->principal, lease);
    store_put_sandbox(work, sandbox);
    mark_lease(work, lease, mark);
    return true;
}
