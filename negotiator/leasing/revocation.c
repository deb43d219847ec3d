#include "negotiator/leasing/revocation.h"

#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/revocations.h"
#include "negotiator/leasing/sharing/sharing.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

struct revoking *revoking_new(void)
{
    return memory_new(sizeof(struct revoking));
}

static void forget_answer(struct revoking *r)
{
    r->refusal = (struct error){0};
    free(TAKE(r->list));
    free(TAKE(r->followers));
    r->follower_count = 0;
    r->count = 0;
    r->next[0] = '\0';
    json_decref(r->nodes);
    r->nodes = NULL;
}

void revoking_free(struct revoking *r)
{
    if (r == NULL)
        return;
    forget_answer(r);
    if (r->token)
        explicit_bzero(r->token, strlen(r->token));
    free(r->token);
    free(r);
}

static bool is_by_key(const struct revoking *r)
{
    return r->caller.principal.name[0] != '\0';
}

static bool audit(struct work *work, const struct revoking *r, const struct mark *mark, const char *owner)
{
    bool done = r->refusal.kind == ERROR_NONE;
    const char *value = mark->value, *who = is_by_key(r) ? "" : "by a holder of the token: ";
    AUTO_FREE char *detail = done
                                 ? memory_printf("%s %s: %s%s", r->list->id, mark_kind_name(mark->kind), who, r->reason)
                                 : memory_printf("%s: %s", r->refusal.message, r->reason);
    struct audit_record record = {.action = r->share_thread[0] ? "share.end" : "revoke",
                                  .outcome = done ? "ok" : "refused",
                                  .status = done ? 200 : error_http_status(r->refusal.kind),
                                  .principal = owner,
                                  .thread_id = mark->kind == MARK_THREAD ? value : r->share_thread,
                                  .sandbox_id = mark->kind == MARK_SANDBOX ? value : "",
                                  .lease = mark->kind == MARK_LEASE ? value : "",
                                  .jti = mark->kind == MARK_JTI || mark->kind == MARK_FAMILY ? value : "",
                                  .links = mark->kind == MARK_LINK ? value : "",
                                  .scope = mark->kind == MARK_SCOPE ? value : "",
                                  .remote = r->caller.remote,
                                  .request_id = r->caller.request_id,
                                  .detail = detail};
    return store_audit(work, is_by_key(r) ? &r->caller : NULL, &record);
}

/* --- making one --- */

static bool make(struct work *work, struct revoking *r, struct revocation_target *target)
{
    if (!revocation_find_target(work, r, target))
        return false;
    struct revocation *made = r->list = memory_new(sizeof *made);
    r->count = 1;
    random_id(made->id, "rev");
    /* Before its own: who has that one has them too. */
    if (!sharing_follow(work, &target->mark, &r->followers, &r->follower_count))
        return false;
    marks_add(work, &target->mark);
    made->mark = target->mark;
    memcpy(made->reason, r->reason, sizeof made->reason);
    memcpy(made->by, r->caller.principal.name, sizeof made->by);
    made->created_ms = work->now;
    made->usable_until = target->usable_until;
    made->in_force = json_array_size(target->nodes) == 0;
    const char *owner = is_by_key(r) ? made->by : target->owner;
    revocation_put(work, made, owner, target->nodes);
    r->nodes = json_incref(target->nodes);
    return audit(work, r, &target->mark, owner);
}

static bool decide(struct work *work, struct revoking *r, struct revocation_target *target)
{
    switch (r->verb) {
    case REVOKING_MAKE:
        return make(work, r, target);
    case REVOKING_FIND:
        return revocation_find(work, r);
    case REVOKING_LIST:
        return revocation_list(work, r);
    }
    return error_set(work->err, ERROR_INTERNAL, "no such question");
}

/* What strangers try is summed, not recorded one by one. */
static enum kv_outcome refuse(struct work *work, const struct revoking *r)
{
    if (r->verb != REVOKING_MAKE || !is_by_key(r))
        return KV_APPLIED;
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    struct mark asked = {.kind = r->token ? MARK_ALL : r->kind};
    memcpy(asked.value, r->value, sizeof asked.value);
    return audit(&own, r, &asked, NULL) ? store_apply(&own) : KV_FAILED;
}

static enum kv_outcome revoking_rule(struct kv *kv, void *argument, struct error *err)
{
    struct revoking *r = argument;
    __attribute__((cleanup(revocation_target_done))) struct revocation_target target = {.nodes = NULL};
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(r->leasing, kv, change, err);
    forget_answer(r);
    if (!decide(&work, r, &target))
        return r->refusal.kind == ERROR_NONE ? KV_FAILED : refuse(&work, r);
    return r->verb == REVOKING_MAKE ? store_apply(&work) : KV_APPLIED;
}

static void revoking_done(void *argument, const struct error *err)
{
    struct revoking *r = argument;
    if (err->kind != ERROR_NONE)
        r->refusal = *err;
    if (r->refusal.kind == ERROR_UNAUTHENTICATED && !is_by_key(r))
        leasing_stranger(r->leasing, r->caller.remote);
    if (r->refusal.kind != ERROR_NONE || r->verb != REVOKING_MAKE) {
        r->answered(r->cookie, r);
        return;
    }
    struct leasing *leasing = r->leasing;
    for (size_t i = 0; i < r->follower_count; i++)
        marks_made(leasing, &r->followers[i], false);
    marks_made(leasing, &r->list->mark, true); /* what nodes answer comes to this thread later */
    if (r->list->in_force)
        r->answered(r->cookie, r);
    else
        revocations_wait(leasing, r, r->nodes);
}

void leasing_revoke(struct leasing *leasing, struct revoking *r)
{
    r->leasing = leasing;
    ledger_submit(leasing->options.ledger, revoking_rule, revoking_done, r);
}
