#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/presented.h"
#include "negotiator/leasing/sharing/sharing.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { SCAN_MAX = 200 }; /* rows one LIST looks at; the page then ends, with a cursor */

static void forget_answer(struct question *q)
{
    q->refusal = (struct error){0};
    sandbox_done(&q->sandbox);
    for (size_t i = 0; i < q->count; i++)
        sandbox_done(&q->list[i]);
    q->count = q->share_count = 0;
    q->next[0] = '\0';
    q->destroy = false;
    q->mark = (struct mark){.number = 0};
}

/* A sandbox that is not yours is not there, for reading and for ending it alike. */
static bool is_visible(const struct question *q, const struct sandbox *sandbox)
{
    return q->caller.principal.role == ROLE_ADMIN || strcmp(sandbox->principal, q->caller.principal.name) == 0;
}

/* The row knows of what came to the negotiator; the node, of what came to the sandbox. While that sleeps no idle time
 * runs, and when it wakes all of it is to come. */
static void show_expiry(const struct work *work, struct question *q)
{
    struct lease *lease = &q->lease;
    const struct presence_node *node = presence_find(&work->leasing->presence, q->sandbox.node);
    int64_t told = presence_expiry(presence_entry(node, q->sandbox.id), lease, work->now);
    int64_t woken = q->sandbox.active_since + lease->idle_timeout_s * 1000;
    int64_t expires = q->sandbox.state == SANDBOX_PAUSED ? lease->max_expires_at : told > woken ? told : woken;
    lease->expires_at = expires < lease->max_expires_at ? expires : lease->max_expires_at;
    presence_show(&work->leasing->presence, &q->sandbox);
}

static bool find_thread(struct work *work, struct question *q)
{
    if (!store_get_lease(work, caller_owner(&q->caller), q->thread_id, &q->lease))
        return false;
    if (q->lease.revision > 0 && !store_get_sandbox(work, q->lease.sandbox_id, &q->sandbox))
        return false;
    bool held = q->lease.revision > 0 && sandbox_is_live(&q->sandbox) && q->lease.max_expires_at > work->now;
    return held || error_set(&q->refusal, ERROR_NOT_FOUND, "thread %s has no sandbox", q->thread_id);
}

/* Who shows a capability of the thread speaks for the one it was issued to, or who shared it. */
static bool find_presented(struct work *work, struct question *q)
{
    AUTO_PRESENTED presented = {.grace_s = CAPABILITY_LEEWAY_S - 1};
    const struct capability_claims *claims = &presented.claims;
    if (!presented_judge(work, q->token, &presented, &q->refusal))
        return false;
    if (marks_refuse(work->leasing, claims, work->now))
        return error_set(&q->refusal, ERROR_TOKEN_REVOKED, "the token is revoked");
    if (strcmp(claims->thread_id, q->thread_id) != 0)
        return error_set(&q->refusal, ERROR_NOT_FOUND, "this is no token of thread %s", q->thread_id);
    if (!sharing_owner(work, claims, q->caller.owner))
        return false;
    if (!find_thread(work, q))
        return false;
    return strcmp(q->lease.id, claims->lease) == 0 ||
           error_set(&q->refusal, ERROR_NOT_FOUND, "the lease of this token has ended; negotiate again");
}

/* A capability, perhaps a narrow one in other hands, is for one thread: it tells nothing of what else its principal
 * has. */
static void hide_others(struct question *q)
{
    json_decref(q->sandbox.metadata);
    json_decref(q->sandbox.threads);
    json_decref(q->sandbox.volumes);
    json_decref(q->sandbox.entrypoint);
    json_decref(q->sandbox.origin);
    q->sandbox.metadata = q->sandbox.threads = q->sandbox.volumes = q->sandbox.entrypoint = q->sandbox.origin = NULL;
    sandbox_add_thread(&q->sandbox, q->thread_id);
}

/* No record: it is no use of anything, and comes every minute of every lease. */
static bool sign(struct work *work, struct question *q)
{
    if (q->token ? !find_presented(work, q) : !caller_may(&q->caller, ROLE_USER, &q->refusal) || !find_thread(work, q))
        return false;
    negotiate_touch(&q->lease, 0, work->now);
    store_put_lease(work, caller_owner(&q->caller), &q->lease);
    show_expiry(work, q); /* for the answer alone */
    if (q->token)
        hide_others(q);
    return true;
}

static bool find_sandbox(struct work *work, struct question *q)
{
    if (!store_get_sandbox(work, q->sandbox_id, &q->sandbox))
        return false;
    presence_show(&work->leasing->presence, &q->sandbox);
    return (q->sandbox.revision > 0 && is_visible(q, &q->sandbox)) ||
           error_set(&q->refusal, ERROR_NOT_FOUND, "no sandbox %s", q->sandbox_id);
}

/* Another sandbox's says no more than one that is broken. */
static bool find_shown(struct work *work, struct question *q)
{
    AUTO_PRESENTED presented = {.grace_s = CAPABILITY_LEEWAY_S - 1};
    const struct sandbox *sandbox = &presented.sandbox;
    if (!presented_judge(work, q->token, &presented, &q->refusal))
        return false;
    if (strcmp(presented.claims.sandbox_id, q->sandbox_id) != 0)
        return error_set(&q->refusal, ERROR_UNAUTHENTICATED, "the token is not valid");
    if (marks_refuse(work->leasing, &presented.claims, work->now))
        return error_set(&q->refusal, ERROR_TOKEN_REVOKED, "the token is revoked");
    if (!sandbox_is_live(sandbox))
        return error_set(&q->refusal, ERROR_GONE, "sandbox %s has ended: %s", sandbox->id, sandbox->reason);
    free(q->claims);
    q->claims = memory_copy(&presented.claims, sizeof presented.claims);
    q->sandbox = presented.sandbox;
    presented.sandbox = (struct sandbox){0};
    return true;
}

static bool audit(struct work *work, const struct question *q)
{
    bool done = q->refusal.kind == ERROR_NONE;
    struct audit_record record = {.node = q->sandbox.node,
                                  .action = q->verb == QUESTION_RELEASE ? "release" : "sandbox.delete",
                                  .outcome = done ? "ok" : "refused",
                                  .status = done ? 204 : error_http_status(q->refusal.kind),
                                  .thread_id = q->thread_id,
                                  .sandbox_id = q->sandbox.revision ? q->sandbox.id : q->sandbox_id,
                                  .lease = q->verb == QUESTION_RELEASE ? q->lease.id : "",
                                  .detail = q->refusal.message};
    return store_audit(work, &q->caller, &record);
}

static bool may_end(struct work *work, struct question *q)
{
    return freeze_lets_go(work, &q->caller, q->sandbox.principal, &q->refusal);
}

static bool release(struct work *work, struct question *q)
{
    if (!caller_may(&q->caller, ROLE_USER, &q->refusal) || !find_thread(work, q) || !may_end(work, q))
        return false;
    if (!ending_release(work, &q->sandbox, &q->lease, "released", &q->destroy, &q->mark))
        return false;
    bool is_marked = q->mark.number > 0;
    return (!is_marked || marks_may_add(work, &q->caller, q->mark.until, &q->charged, &q->refusal)) && audit(work, q);
}

static bool delete_sandbox(struct work *work, struct question *q)
{
    if (!caller_may(&q->caller, ROLE_USER, &q->refusal) || !find_sandbox(work, q) || !may_end(work, q))
        return false;
    if (sandbox_has_ended(&q->sandbox) || (q->is_strict && q->sandbox.state == SANDBOX_TERMINATING))
        return error_set(&q->refusal, ERROR_GONE, "sandbox %s has ended: %s", q->sandbox.id, q->sandbox.reason);
    if (q->sandbox.state == SANDBOX_TERMINATING)
        return audit(work, q);
    q->destroy = true;
    return ending_begin(work, &q->sandbox, "deleted") && audit(work, q);
}

/* --- lists --- */

struct listing {
    struct work *work;
    struct question *q;
    size_t seen;
    char last[RANDOM_ID_BYTES]; /* the last one looked at */
    char (*ids)[RANDOM_ID_BYTES];
    size_t id_count;
    bool more;
};

static bool note_id(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct listing *listing = cookie;
    const char *id = strrchr(key, '/');
    if (listing->id_count == SCAN_MAX) {
        listing->more = true;
        return false;
    }
    if (id && text_copy(listing->ids[listing->id_count], RANDOM_ID_BYTES, id + 1))
        listing->id_count++;
    return true;
}

static bool collect_ids(struct listing *listing)
{
    const struct question *q = listing->q;
    if (q->name[0]) {
        if (!store_get_name(listing->work, caller_owner(&q->caller), q->name, listing->ids[0]))
            return false;
        listing->id_count = listing->ids[0][0] ? 1 : 0;
        return true;
    }
    char first[KV_KEY_MAX_BYTES], end[KV_KEY_MAX_BYTES];
    bool all = q->caller.principal.role == ROLE_ADMIN && q->caller.owner[0] == '\0';
    const char *table = all ? "sandbox" : "owned/", *owner = all ? "" : caller_owner(&q->caller);
    /* '!' follows every id that begins the same; '0' follows '/'. */
    if (!text_format(first, sizeof first, "%s%s/%s%s", table, owner, q->cursor, q->cursor[0] ? "!" : "") ||
        !text_format(end, sizeof end, "%s%s0", table, owner))
        return error_set(listing->work->err, ERROR_INTERNAL, "a key does not fit");
    return kv_range(listing->work->kv, first, end, 0, note_id, listing, listing->work->err);
}

static bool is_listed(const struct question *q, const struct sandbox *sandbox)
{
    if (sandbox->revision == 0 || !is_visible(q, sandbox))
        return false;
    if (q->name[0] && strcmp(q->name, sandbox->name) != 0)
        return false;
    return q->states ? (q->states & 1U << sandbox->state) != 0 : !sandbox_has_ended(sandbox);
}

static bool fill_list(struct listing *listing)
{
    struct question *q = listing->q;
    for (size_t i = 0; i < listing->id_count; i++) {
        AUTO_SANDBOX sandbox = {0};
        if (q->count == q->limit) {
            listing->more = true;
            break;
        }
        if (!store_get_sandbox(listing->work, listing->ids[i], &sandbox))
            return false;
        memcpy(listing->last, listing->ids[i], sizeof listing->last);
        if (!is_listed(q, &sandbox))
            continue;
        presence_show(&listing->work->leasing->presence, &sandbox);
        q->list[q->count++] = sandbox;
        sandbox = (struct sandbox){0};
    }
    if (listing->more)
        memcpy(q->next, listing->last, sizeof q->next);
    return true;
}

static bool list_sandboxes(struct work *work, struct question *q)
{
    if (!caller_may(&q->caller, ROLE_VIEWER, &q->refusal))
        return false;
    if (q->limit == 0 || q->limit > QUESTION_LIST_MAX)
        q->limit = QUESTION_LIST_MAX;
    if (q->list == NULL)
        q->list = memory_array(QUESTION_LIST_MAX, sizeof *q->list);
    AUTO_FREE char(*ids)[RANDOM_ID_BYTES] = memory_array(SCAN_MAX, sizeof *ids);
    struct listing listing = {.work = work, .q = q, .ids = ids};
    return collect_ids(&listing) && fill_list(&listing);
}

/* --- the rule --- */

static bool look_at_thread(struct work *work, struct question *q)
{
    if (!caller_may(&q->caller, ROLE_VIEWER, &q->refusal) || !find_thread(work, q))
        return false;
    show_expiry(work, q);
    return true;
}

static bool decide(struct work *work, struct question *q)
{
    switch (q->verb) {
    case QUESTION_THREAD:
        return look_at_thread(work, q);
    case QUESTION_RELEASE:
        return release(work, q);
    case QUESTION_SIGN:
        return sign(work, q);
    case QUESTION_SANDBOX:
        return caller_may(&q->caller, ROLE_VIEWER, &q->refusal) && find_sandbox(work, q);
    case QUESTION_DELETE:
        return delete_sandbox(work, q);
    case QUESTION_LIST:
        return list_sandboxes(work, q);
    case QUESTION_PAGE:
        break; /* it goes another way */
    case QUESTION_SHOWN:
        return find_shown(work, q);
    case QUESTION_SHARES:
        return caller_may(&q->caller, ROLE_VIEWER, &q->refusal) && find_thread(work, q) && sharing_list(work, q);
    }
    return error_set(work->err, ERROR_INTERNAL, "no such question");
}

static bool changes_things(const struct question *q)
{
    return q->verb == QUESTION_RELEASE || q->verb == QUESTION_DELETE;
}

static enum kv_outcome refuse(struct work *work, struct question *q)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    q->destroy = false;
    q->mark = (struct mark){.number = 0};
    return audit(&own, q) ? store_apply(&own) : KV_FAILED;
}

static enum kv_outcome question_rule(struct kv *kv, void *argument, struct error *err)
{
    struct question *q = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    forget_answer(q);
    if (!decide(&work, q)) {
        if (q->refusal.kind == ERROR_NONE)
            return KV_FAILED;
        return changes_things(q) ? refuse(&work, q) : KV_APPLIED;
    }
    return changes_things(q) || q->verb == QUESTION_SIGN ? store_apply(&work) : KV_APPLIED;
}

static void question_done(void *argument, const struct error *err)
{
    struct question *q = argument;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    else if (q->destroy)
        settle_ended(q->leasing, &q->sandbox, &q->caller);
    else if (q->mark.number > 0)
        marks_made(q->leasing, &q->mark, true);
    if (q->token && q->refusal.kind == ERROR_UNAUTHENTICATED)
        leasing_stranger(q->leasing, q->caller.remote);
    q->answered(q->cookie, q);
}

void leasing_ask(struct leasing *leasing, struct question *q)
{
    q->leasing = leasing;
    if (q->verb == QUESTION_PAGE) {
        paging_submit(q);
        return;
    }
    ledger_submit(leasing->options.ledger, question_rule, question_done, q);
}
