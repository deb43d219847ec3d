#include "negotiator/leasing/sharing/sharing.h"

#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/keys/key_tokens.h"
#include "negotiator/leasing/marks.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

static const int64_t SHARE_ENDLESS_MS = (int64_t)366 * WANTED_DAY_S * 1000; /* of a lease without end */

static void forget_answer(struct negotiation *n)
{
    n->refusal = (struct error){0};
    n->hint = (struct hint_answer){0};
    n->created = n->must_wait = n->is_ahead = false;
    sandbox_done(&n->sandbox);
    n->lease = (struct lease){0};
    n->url[0] = '\0';
    n->share_until = 0;
}

/* --- what is shared --- */

/* The thread's own lease, of a sandbox that is there and can be reached. */
static bool find_shared(struct work *work, struct negotiation *n)
{
    const char *owner = caller_owner(&n->caller);
    if (!caller_may(&n->caller, ROLE_USER, &n->refusal) || !store_get_lease(work, owner, n->thread_id, &n->lease))
        return false;
    if (n->lease.revision > 0 && !store_get_sandbox(work, n->lease.sandbox_id, &n->sandbox))
        return false;
    bool held = n->lease.revision > 0 && sandbox_is_live(&n->sandbox) &&
                n->lease.max_expires_at >= work->now + NEGOTIATE_LEASE_MIN_MS;
    if (!held)
        return error_set(&n->refusal, ERROR_NOT_FOUND, "thread %s has no sandbox", n->thread_id);
    if (n->sandbox.state == SANDBOX_PROVISIONING)
        return error_set(&n->refusal, ERROR_STARTING, "sandbox %s is still being made; ask again", n->sandbox.id);
    if (strcmp(n->share.principal, owner) == 0)
        return error_set(&n->refusal, ERROR_INVALID, "principal %s has this sandbox already: it is its own", owner);
    return negotiate_is_reachable(work, n);
}

/* Who is to act is nobody in particular, or the one whom the sharer's key is bound to: else it could act as anybody. */
static bool may_name_actor(struct negotiation *n)
{
    char actor[WANTED_ACTOR_BYTES] = "";
    bool is_named = strchr(n->wanted.actor, ':') != NULL;
    return !is_named || (text_copy(actor, sizeof actor, n->wanted.actor) && caller_pin(&n->caller, actor, &n->refusal));
}

/* Neither who shares nor with whom. */
static bool is_unfrozen(struct work *work, struct negotiation *n)
{
    return negotiate_is_unfrozen(work, n) &&
           (n->share.principal[0] == '\0' || freeze_allows(work, n->share.principal, &n->refusal));
}

static bool set_until(const struct work *work, struct negotiation *n)
{
    int64_t asked = n->share.until_ms / 1000;
    int64_t longest = work->now + SHARE_ENDLESS_MS; /* its rows are forgotten at its end alone */
    int64_t end = (n->lease.max_expires_at < longest ? n->lease.max_expires_at : longest) / 1000;
    if (n->share.until_ms && n->share.until_ms <= work->now)
        return error_set(&n->refusal, ERROR_INVALID, "until must be in the future");
    if (n->caller.principal.expires_at && n->caller.principal.expires_at / 1000 < end)
        end = n->caller.principal.expires_at / 1000; /* what a key gives ends with it */
    n->share_until = asked && asked < end ? asked : end;
    return true;
}

static bool count_one(void *cookie, const struct share_found *found UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

static bool has_room(struct work *work, struct negotiation *n)
{
    size_t count = 0;
    if (!share_each(work, caller_owner(&n->caller), NULL, true, count_one, &count))
        return false;
    return count < SHARES_MAX || error_set(&n->refusal, ERROR_QUOTA, "%s shares %zu times, the most allowed; end one",
                                           caller_owner(&n->caller), count);
}

/* --- the grant --- */

/* Nobody shares more than policy gives to who does it, nor more than it would give to who is to act. */
static void set_scopes(const struct work *work, struct negotiation *n)
{
    struct scope_set own, actors, both;
    struct policy_subject sharer = policy_subject(&n->caller, NULL),
                          holder = policy_subject(&n->caller, n->claims.actor);
    policy_scopes(work->leasing, &sharer, &own);
    policy_scopes(work->leasing, &holder, &actors);
    scope_intersect(&both, &own, &actors);
    scope_intersect(&n->claims.scopes, &n->wanted.scopes, &both);
    scope_copy(&n->claims.root_scopes, &n->claims.scopes);
}

static bool claim(struct work *work, struct negotiation *n)
{
    struct capability_claims *claims = &n->claims;
    char jti[RANDOM_ID_BYTES], sub[PRINCIPAL_BYTES];
    *claims = (struct capability_claims){.epoch = n->sandbox.epoch};
    random_id(jti, "tok");
    bool fits = n->share.principal[0] ? text_copy(sub, sizeof sub, n->share.principal)
                                      : text_format(sub, sizeof sub, SHARE_PREFIX "%s", jti);
    fits = fits && text_copy(claims->issuer, sizeof claims->issuer, n->leasing->deployment) &&
           text_copy(claims->sandbox_id, sizeof claims->sandbox_id, n->sandbox.id) &&
           text_copy(claims->principal, sizeof claims->principal, sub) &&
           text_copy(claims->jti, sizeof claims->jti, jti) && text_copy(claims->family, sizeof claims->family, jti) &&
           text_copy(claims->thread_id, sizeof claims->thread_id, n->thread_id) &&
           text_copy(claims->lease, sizeof claims->lease, n->lease.id) &&
           text_copy(claims->actor, sizeof claims->actor, n->wanted.actor[0] ? n->wanted.actor : "human");
    if (!fits)
        return error_set(work->err, ERROR_INTERNAL, "a share's claims do not fit");
    set_scopes(work, n);
    return claims->scopes.count > 0 || error_set(&n->refusal, ERROR_FORBIDDEN,
                                                 "none of these scopes may be shared by %s", caller_owner(&n->caller));
}

static void set_times(struct work *work, struct negotiation *n)
{
    negotiate_times(work, n);
    if (n->claims.expires_at > n->share_until)
        n->claims.expires_at = n->share_until;
    if (n->share.principal[0] == '\0') /* it cannot be renewed: that is its end */
        n->share_until = n->claims.expires_at;
}

static bool give(struct work *work, const struct negotiation *n)
{
    struct family family = {.share_until = n->share_until};
    bool fits = text_copy(family.owner, sizeof family.owner, caller_owner(&n->caller)) &&
                text_copy(family.id, sizeof family.id, n->claims.family) &&
                text_copy(family.principal, sizeof family.principal, n->claims.principal) &&
                text_copy(family.thread_id, sizeof family.thread_id, n->thread_id) &&
                text_copy(family.sandbox_id, sizeof family.sandbox_id, n->sandbox.id);
    if (!fits)
        return error_set(work->err, ERROR_INTERNAL, "a share's row does not fit");
    family_issue(work, &n->claims, &family);
    share_put(work, &family);
    struct capability_claims longest; /* it hangs on the sharer's key however often the other one renews it */
    capability_claims_copy(&longest, &n->claims);
    longest.expires_at = n->share_until;
    return key_tokens_note(work, &n->caller, &longest);
}

static bool audit(struct work *work, const struct negotiation *n)
{
    bool granted = n->refusal.kind == ERROR_NONE;
    char scope[SCOPE_TEXT_BYTES] = "", detail[sizeof n->refusal.message];
    if (granted)
        scope_format(&n->claims.scopes, scope);
    if (!granted || !text_format(detail, sizeof detail, "to %s", n->claims.principal))
        memcpy(detail, n->refusal.message, sizeof detail);
    struct audit_record record = {.node = n->sandbox.node,
                                  .action = "share",
                                  .outcome = granted ? "ok" : "refused",
                                  .status = granted ? 201 : error_http_status(n->refusal.kind),
                                  .actor = granted ? n->claims.actor : "",
                                  .thread_id = n->thread_id,
                                  .sandbox_id = n->sandbox.id,
                                  .lease = n->lease.id,
                                  .jti = granted ? n->claims.jti : "",
                                  .scope = scope,
                                  .detail = detail};
    return store_audit(work, &n->caller, &record);
}

/* --- the rule --- */

/* False: n->refusal says no, or (when it is empty) the store failed. */
static bool decide(struct work *work, struct negotiation *n)
{
    if (!find_shared(work, n) || !is_unfrozen(work, n) || !may_name_actor(n) || !set_until(work, n) ||
        !has_room(work, n) || !claim(work, n))
        return false;
    set_times(work, n);
    if (!negotiate_is_usable(work, n) || !give(work, n))
        return false;
    n->created = true;
    return audit(work, n);
}

static enum kv_outcome refuse(struct work *work, struct negotiation *n)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    return audit(&own, n) ? store_apply(&own) : KV_FAILED;
}

static enum kv_outcome share_rule(struct kv *kv, void *argument, struct error *err)
{
    struct negotiation *n = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(n->leasing, kv, change, err);
    forget_answer(n);
    if (decide(&work, n))
        return store_apply(&work);
    return n->refusal.kind == ERROR_NONE ? KV_FAILED : holding_wants(n) ? KV_APPLIED : refuse(&work, n);
}

static void share_done(void *argument, const struct error *err)
{
    struct negotiation *n = argument;
    if (err->kind != ERROR_NONE)
        n->refusal = *err;
    if (n->refusal.kind != ERROR_NONE && holding_wants(n))
        holding_add(n->leasing, n);
    else
        negotiate_answer(n);
}

void share_submit(struct negotiation *n)
{
    ledger_submit(n->leasing->options.ledger, share_rule, share_done, n);
}

bool leasing_share(struct leasing *leasing, struct negotiation *n, struct error *err)
{
    const struct share_wish *share = &n->share;
    if (!lease_is_thread_id(n->thread_id))
        return error_set(err, ERROR_INVALID, "a thread id is 1 to %d of A-Za-z0-9._:-, and not . or ..",
                         CAPABILITY_THREAD_BYTES - 1);
    if (share->principal[0] &&
        (!principal_is_name(share->principal) || text_starts_with(share->principal, SHARE_PREFIX)))
        return error_set(err, ERROR_INVALID, "principal must be the name of one; without it, whoever holds the token");
    if (!n->wanted.scopes_given || n->wanted.scopes.count == 0)
        return error_set(err, ERROR_INVALID, "scopes must name what is shared, such as [\"shell:ro\"]");
    if (share->until_ms && share->principal[0] == '\0')
        return error_set(err, ERROR_INVALID,
                         "until goes with a principal, who can refresh: any other share ends with "
                         "its token, after ttl");
    if (!wanted_check(&n->wanted, &leasing->options.limits, err))
        return false;
    n->leasing = leasing;
    n->share.is_wanted = true;
    share_submit(n);
    return true;
}

/* --- what the other rules ask --- */

bool sharing_owner(struct work *work, const struct capability_claims *claims, char owner[static PRINCIPAL_BYTES])
{
    struct family family;
    if (!family_get(work, claims->family, &family))
        return false;
    bool is_shared = family.revision > 0 && family.owner[0] && strcmp(family.principal, claims->principal) == 0;
    return text_copy(owner, PRINCIPAL_BYTES, is_shared ? family.owner : claims->principal) ||
           error_set(work->err, ERROR_INTERNAL, "a principal's name is too long");
}

struct listing {
    struct question *q;
    bool fits;
};

static bool list_one(void *cookie, const struct share_found *found)
{
    struct listing *listing = cookie;
    struct question *q = listing->q;
    const struct family *family = &found->family;
    struct share *share = &q->shares[q->share_count];
    *share =
        (struct share){.expires_at = family->expires_at, .until = family->share_until, .created_ms = found->created_ms};
    listing->fits = text_copy(share->id, sizeof share->id, family->id) &&
                    text_copy(share->principal, sizeof share->principal, family->principal) &&
                    text_copy(share->actor, sizeof share->actor, family->actor) &&
                    text_copy(share->jti, sizeof share->jti, family->jti) &&
                    text_copy(share->scope, sizeof share->scope, family->scope);
    q->share_count += listing->fits;
    return true;
}

bool sharing_list(struct work *work, struct question *q)
{
    struct listing listing = {.q = q, .fits = true};
    if (q->shares == NULL)
        q->shares = memory_array(SHARES_MAX, sizeof *q->shares);
    return share_each(work, caller_owner(&q->caller), q->thread_id, false, list_one, &listing);
}

bool sharing_drop(struct work *work, const char *owner, const char *thread_id, const char *id, struct family *family,
                  bool *found)
{
    *found = false;
    if (!family_get(work, id, family))
        return false;
    *found = family->revision > 0 && family->owner[0] && strcmp(family->owner, owner) == 0 &&
             strcmp(family->thread_id, thread_id) == 0;
    if (*found)
        share_delete(work, family);
    return true;
}

/* --- marks about who shared --- */

struct following {
    struct work *work;
    const struct mark *mark;
    const char *owner;
    struct mark *marks;
    size_t count;
};

/* Would it refuse the share, if that were its owner's own? */
static bool follow_one(void *cookie, const struct share_found *found)
{
    struct following *following = cookie;
    const struct family *family = &found->family;
    AUTO_SANDBOX sandbox = {0};
    struct capability_claims claims;
    struct work *work = following->work;
    if (!store_get_sandbox(work, family->sandbox_id, &sandbox) ||
        !family_claims(family, &sandbox, work->leasing->deployment, &claims, work->err))
        return false;
    bool reached = mark_refuses(following->mark, &claims, work->now);
    if (reached || !text_copy(claims.principal, sizeof claims.principal, following->owner) ||
        !mark_refuses(following->mark, &claims, work->now))
        return true;
    struct mark *also = &following->marks[following->count++];
    *also = (struct mark){.kind = MARK_FAMILY, .before = MARK_ANY_TIME, .until = family->until};
    memcpy(also->value, family->id, sizeof family->id);
    marks_add(work, also);
    return true;
}

bool sharing_follow(struct work *work, const struct mark *mark, struct mark **marks, size_t *count)
{
    const char *owner = mark->kind == MARK_PRINCIPAL ? mark->value : mark->principal;
    *marks = NULL;
    *count = 0;
    if (owner[0] == '\0')
        return true; /* it is about everybody's tokens */
    struct following following = {
        .work = work, .mark = mark, .owner = owner, .marks = memory_array(SHARES_MAX, sizeof *following.marks)};
    bool done = share_each(work, owner, NULL, false, follow_one, &following);
    *marks = following.marks;
    *count = following.count;
    return done;
}
