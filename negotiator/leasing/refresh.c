/* refresh.c - a token for its successor (protocol.md, 2): rotation, the same answer to a lost reply, and leaks. */
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/keys/key_tokens.h"
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/presented.h"
#include "negotiator/leasing/sharing/sharing.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { GRACE_S = 60 /* past its exp a token can still be refreshed */ };
static const int64_t SPENT_MS = 30000; /* a spent token is good for that long */

/* One refresh on its way through the ledger thread. */
struct refreshing {
    struct negotiation *n;
    bool charged; /* for its mark */
    /* Set anew by each run of the rule. */
    char owner[PRINCIPAL_BYTES];       /* of the thread and the lease */
    char old_jti[CAPABILITY_ID_BYTES]; /* of what was presented, once its MAC held */
    struct mark mark;                  /* number 0: none was made */
    bool is_leak;
};

static void forget_answer(struct refreshing *r)
{
    struct negotiation *n = r->n;
    n->refusal = (struct error){0};
    n->hint = (struct hint_answer){0};
    n->created = n->must_wait = n->is_ahead = false;
    sandbox_done(&n->sandbox);
    n->lease = (struct lease){0};
    n->url[0] = r->old_jti[0] = r->owner[0] = '\0';
    n->share_until = 0;
    r->mark.number = 0;
    r->is_leak = false;
}

/* A key that is pinned to another actor than the token's renews it only when it was shared: who did did not know it. */
static bool is_actors(const struct refreshing *r, const struct capability_claims *claims)
{
    char actor[WANTED_ACTOR_BYTES] = "";
    bool shared = strcmp(r->owner, claims->principal) != 0;
    return shared ||
           (text_copy(actor, sizeof actor, claims->actor) && caller_pin(&r->n->caller, actor, &r->n->refusal));
}

/* What was presented must be this thread's, whole, of a living lease, and not revoked. Nothing is revoked by a no. */
static bool judge(struct work *work, struct refreshing *r, struct presented *presented)
{
    struct negotiation *n = r->n;
    const struct capability_claims *claims = &presented->claims;
    bool forbidden = false;
    if (!presented_judge(work, n->current_token, presented, &n->refusal))
        return false;
    memcpy(r->old_jti, claims->jti, sizeof r->old_jti);
    if (claims->link_count > 0)
        return error_set(&n->refusal, ERROR_UNAUTHENTICATED,
                         "an attenuated token cannot be refreshed; use the one it was made from");
    if (text_starts_with(claims->principal, SHARE_PREFIX))
        return error_set(&n->refusal, ERROR_NOT_FOUND,
                         "a share for whoever holds its token cannot be refreshed; ask for another one");
    if (strcmp(claims->principal, n->caller.principal.name) != 0 || strcmp(claims->thread_id, n->thread_id) != 0)
        return error_set(&n->refusal, ERROR_NOT_FOUND, "this is no token of thread %s", n->thread_id);
    if (!sharing_owner(work, claims, r->owner) || !is_actors(r, claims) ||
        !store_get_lease(work, r->owner, n->thread_id, &n->lease))
        return false;
    bool lives = n->lease.revision > 0 && strcmp(n->lease.id, claims->lease) == 0 &&
                 strcmp(n->lease.sandbox_id, claims->sandbox_id) == 0 && sandbox_is_live(&presented->sandbox) &&
                 n->lease.max_expires_at >= work->now + NEGOTIATE_LEASE_MIN_MS;
    if (!lives)
        return error_set(&n->refusal, ERROR_NOT_FOUND, "the lease of this token has ended; negotiate again");
    /* The mark that a spent token got is from 30 s later on, and does not count here. */
    if (!marks_forbid(work, claims, &forbidden))
        return false;
    if (forbidden)
        return error_set(&n->refusal, ERROR_TOKEN_REVOKED, "the token is revoked");
    n->sandbox = presented->sandbox;
    presented->sandbox = (struct sandbox){0};
    return true;
}

/* The family of the token, when the ledger knows both: one that was put back from a copy may not. */
static bool find_family(struct work *work, struct refreshing *r, const struct capability_claims *claims,
                        struct family *family)
{
    char id[CAPABILITY_ID_BYTES] = "";
    int64_t expires_at = 0;
    if (!family_of_token(work, claims->jti, id, &expires_at) || !family_get(work, claims->family, family))
        return false;
    bool known = expires_at > 0 && family->revision > 0 && strcmp(id, claims->family) == 0;
    return known || error_set(&r->n->refusal, ERROR_UNAUTHENTICATED,
                              "the ledger does not know this token any more; negotiate again");
}

static bool audit(struct work *work, const struct refreshing *r)
{
    const struct negotiation *n = r->n;
    bool granted = n->refusal.kind == ERROR_NONE;
    char scope[SCOPE_TEXT_BYTES] = "", detail[sizeof n->refusal.message];
    if (granted)
        scope_format(&n->claims.scopes, scope);
    if (!granted || !text_format(detail, sizeof detail, "from %s", r->old_jti))
        memcpy(detail, n->refusal.message, sizeof detail);
    struct audit_record record = {.node = n->sandbox.node,
                                  .action = "refresh",
                                  .outcome = granted ? "ok" : "refused",
                                  .status = granted ? 200 : error_http_status(n->refusal.kind),
                                  .actor = granted ? n->claims.actor : "",
                                  .thread_id = n->thread_id,
                                  .sandbox_id = n->sandbox.id,
                                  .lease = n->lease.id,
                                  .jti = granted ? n->claims.jti : r->old_jti,
                                  .scope = scope,
                                  .detail = detail};
    return store_audit(work, &n->caller, &record);
}

/* The old one is good for a while more: what it was sent with may be on its way. */
static void spend(struct work *work, struct refreshing *r, const struct capability_claims *old)
{
    r->mark = (struct mark){.kind = MARK_JTI, .before = MARK_ANY_TIME};
    r->mark.from_ms = work->now + SPENT_MS;
    r->mark.until = old->expires_at;
    if ((old->expires_at + CAPABILITY_LEEWAY_S) * 1000 <= r->mark.from_ms)
        return; /* it runs out by then by itself */
    memcpy(r->mark.value, old->jti, sizeof old->jti);
    marks_add(work, &r->mark);
}

static void narrow(const struct work *work, const struct negotiation *n, const struct capability_claims *old,
                   struct scope_set *to)
{
    struct scope_set allowed, asked;
    struct policy_subject who = policy_subject(&n->caller, n->claims.actor);
    policy_scopes(work->leasing, &who, &allowed);
    if (n->wanted.scopes_given)
        scope_intersect(&asked, &n->wanted.scopes, &old->scopes);
    else
        scope_copy(&asked, &old->scopes);
    scope_meet(to, &asked, &allowed);
}

static bool rotate(struct work *work, struct refreshing *r, const struct capability_claims *old,
                   const struct family *family)
{
    struct negotiation *n = r->n;
    struct capability_claims *claims = &n->claims;
    char jti[RANDOM_ID_BYTES];
    random_id(jti, "tok");
    capability_claims_copy(claims, old);
    claims->epoch = n->sandbox.epoch;
    if (!text_copy(claims->jti, sizeof claims->jti, jti))
        return error_set(work->err, ERROR_INTERNAL, "a token's claims do not fit");
    if (n->caller.principal.actor[0])
        memcpy(claims->actor, n->caller.principal.actor, sizeof claims->actor);
    narrow(work, n, old, &claims->scopes);
    scope_copy(&claims->root_scopes, &claims->scopes);
    negotiate_times(work, n);
    if (n->share_until && claims->expires_at > n->share_until)
        claims->expires_at = n->share_until;
    if (!negotiate_is_usable(work, n) || !marks_may_add(work, &n->caller, old->expires_at, &r->charged, &n->refusal))
        return false;
    family_issue(work, claims, family);
    spend(work, r, old);
    return key_tokens_note(work, &n->caller, claims);
}

static bool refuse_leak(struct work *work, struct refreshing *r, const struct family *family)
{
    r->is_leak = true;
    r->mark = (struct mark){.kind = MARK_FAMILY, .before = MARK_ANY_TIME, .until = family->until};
    memcpy(r->mark.value, family->id, sizeof family->id);
    marks_add(work, &r->mark);
    error_set(&r->n->refusal, ERROR_TOKEN_REUSED,
              "this token and its successor were both used before: one of them is in other hands; the family is "
              "revoked, negotiate again");
    return audit(work, r);
}

/* False: n->refusal says no, or (when it is empty) the store failed. */
static bool decide(struct work *work, struct refreshing *r)
{
    struct negotiation *n = r->n;
    struct family family;
    AUTO_PRESENTED presented = {.grace_s = GRACE_S};
    const struct capability_claims *old = &presented.claims;
    if (!caller_may(&n->caller, ROLE_USER, &n->refusal) || !negotiate_is_unfrozen(work, n) ||
        !judge(work, r, &presented) || !freeze_allows(work, n->sandbox.principal, &n->refusal) ||
        !find_family(work, r, old, &family))
        return false;
    bool is_current = strcmp(old->jti, family.jti) == 0, is_previous = strcmp(old->jti, family.previous) == 0;
    if (!is_current && !is_previous)
        return refuse_leak(work, r, &family);
    n->share_until = family.share_until;
    if (!negotiate_is_reachable(work, n)) /* nothing is spent for a node that cannot be used */
        return false;
    if (is_current ? !rotate(work, r, old, &family)
                   : !family_claims(&family, &n->sandbox, work->leasing->deployment, &n->claims, work->err))
        return false;
    negotiate_touch(&n->lease, 0, work->now);
    store_put_lease(work, r->owner, &n->lease);
    negotiate_show_paused(n);
    return audit(work, r);
}

static enum kv_outcome refuse(struct work *work, struct refreshing *r)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    r->mark.number = 0;
    return audit(&own, r) ? store_apply(&own) : KV_FAILED;
}

static enum kv_outcome refresh_rule(struct kv *kv, void *argument, struct error *err)
{
    struct refreshing *r = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(r->n->leasing, kv, change, err);
    forget_answer(r);
    if (decide(&work, r))
        return store_apply(&work);
    return r->n->refusal.kind == ERROR_NONE ? KV_FAILED : holding_wants(r->n) ? KV_APPLIED : refuse(&work, r);
}

static void refresh_done(void *argument, const struct error *err)
{
    AUTO_FREE struct refreshing *r = argument;
    struct negotiation *n = r->n;
    if (err->kind != ERROR_NONE)
        n->refusal = *err;
    else if (r->mark.number > 0)
        marks_made(n->leasing, &r->mark, r->is_leak);
    if (n->refusal.kind != ERROR_NONE && holding_wants(n))
        holding_add(n->leasing, n);
    else
        negotiate_answer(n);
}

void refresh_submit(struct negotiation *n)
{
    struct refreshing *r = memory_new(sizeof *r);
    r->n = n;
    ledger_submit(n->leasing->options.ledger, refresh_rule, refresh_done, r);
}

bool leasing_refresh(struct leasing *leasing, struct negotiation *n, struct error *err)
{
    if (!lease_is_thread_id(n->thread_id))
        return error_set(err, ERROR_INVALID, "a thread id is 1 to %d of A-Za-z0-9._:-, and not . or ..",
                         CAPABILITY_THREAD_BYTES - 1);
    if (n->current_token == NULL)
        return error_set(err, ERROR_INVALID, "current_token must be the token to refresh");
    if (!wanted_check(&n->wanted, &leasing->options.limits, err))
        return false;
    n->leasing = leasing;
    refresh_submit(n);
    return true;
}
