#include "negotiator/leasing/families.h"
#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/keys/key_tokens.h"
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/marks.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value ? value : fallback;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A conflict runs the rule again, a waiter comes back: nothing of an earlier run may shine through. */
static void forget_answer(struct negotiation *n)
{
    n->refusal = (struct error){0};
    n->created = n->must_wait = n->is_ahead = false;
    n->hint = (struct hint_answer){.given = n->wanted.hint[0] != '\0'};
    sandbox_done(&n->sandbox);
    n->lease = (struct lease){0};
    n->retry_after_s = 0;
    n->url[0] = '\0';
}

/* --- the grant --- */

static void grant_scopes(const struct work *work, const struct negotiation *n, struct scope_set *to)
{
    struct scope_set allowed;
    struct policy_subject who = policy_subject(&n->caller, n->wanted.actor);
    policy_scopes(work->leasing, &who, &allowed);
    if (n->wanted.scopes_given)
        scope_meet(to, &n->wanted.scopes, &allowed);
    else
        scope_by_default(to, &allowed);
}

void negotiate_times(struct work *work, struct negotiation *n)
{
    const struct wanted_limits *limits = &work->leasing->options.limits;
    struct capability_claims *claims = &n->claims;
    struct policy_subject who = policy_subject(&n->caller, claims->actor);
    int64_t ttl = smaller(or_default(n->wanted.ttl_s, limits->ttl_default_s), policy_ttl_max(work->leasing, &who));
    claims->issued_at = marks_iat(work, claims);
    if (claims->long_lived) /* also past its lease, which a renewal may move: it ends with that all the same */
        claims->expires_at = claims->issued_at + policy_long_ttl(work->leasing, &who, limits->long_ttl_max_s);
    else
        claims->expires_at = smaller(claims->issued_at + ttl, n->lease.max_expires_at / 1000);
    if (n->wanted.expires_at_s)
        claims->expires_at = smaller(claims->expires_at, n->wanted.expires_at_s);
    if (n->caller.principal.expires_at) /* what a key gives ends with it */
        claims->expires_at = smaller(claims->expires_at, n->caller.principal.expires_at / 1000);
}

bool negotiate_is_usable(const struct work *work, struct negotiation *n)
{
    n->is_ahead = n->claims.issued_at > work->now / 1000 + MARKS_AHEAD_MAX_S;
    if (n->is_ahead)
        return error_set(&n->refusal, ERROR_RATE_LIMITED,
                         "tokens of this thread were revoked several times in this second; ask again in a moment");
    return n->claims.expires_at > n->claims.issued_at ||
           error_set(&n->refusal, ERROR_GONE, "the lease of thread %s is at its end", n->thread_id);
}

static void claim(struct work *work, struct negotiation *n)
{
    struct capability_claims *claims = &n->claims;
    *claims = (struct capability_claims){.epoch = n->sandbox.epoch, .long_lived = n->wanted.is_long};
    char jti[RANDOM_ID_BYTES];
    random_id(jti, "tok");
    bool fits = text_copy(claims->issuer, sizeof claims->issuer, n->leasing->deployment) &&
                text_copy(claims->sandbox_id, sizeof claims->sandbox_id, n->sandbox.id) &&
                text_copy(claims->principal, sizeof claims->principal, caller_owner(&n->caller)) &&
                text_copy(claims->jti, sizeof claims->jti, jti) &&
                text_copy(claims->family, sizeof claims->family, jti) &&
                text_copy(claims->thread_id, sizeof claims->thread_id, n->thread_id) &&
                text_copy(claims->lease, sizeof claims->lease, n->lease.id) &&
                text_copy(claims->actor, sizeof claims->actor, n->wanted.actor[0] ? n->wanted.actor : "human");
    if (fits) /* always: all were bounded to these sizes before; without scopes a token is of no use */
        grant_scopes(work, n, &claims->scopes);
    scope_copy(&claims->root_scopes, &claims->scopes);
    negotiate_times(work, n);
}

static bool give(struct work *work, const struct negotiation *n)
{
    family_issue(work, &n->claims, NULL);
    return key_tokens_note(work, &n->caller, &n->claims) && negotiate_audit(work, n);
}

bool negotiate_grant(struct work *work, struct negotiation *n)
{
    claim(work, n);
    return give(work, n);
}

bool negotiate_audit(struct work *work, const struct negotiation *n)
{
    bool granted = n->refusal.kind == ERROR_NONE;
    char scope[SCOPE_TEXT_BYTES] = "";
    if (granted)
        scope_format(&n->claims.scopes, scope);
    int status = granted ? (n->created ? 201 : 200) : error_http_status(n->refusal.kind);
    char detail[64] = "";
    if (granted && n->created && n->sandbox.snapshot[0] &&
        !text_format(detail, sizeof detail, "began with snapshot %s", n->sandbox.snapshot))
        detail[0] = '\0';
    struct audit_record record = {.node = n->sandbox.node,
                                  .action = "negotiate",
                                  .outcome = granted ? "ok" : "refused",
                                  .status = status,
                                  .actor = n->wanted.actor[0] ? n->wanted.actor : "human",
                                  .thread_id = n->thread_id,
                                  .sandbox_id = n->sandbox.id,
                                  .lease = n->lease.id,
                                  .jti = granted ? n->claims.jti : "",
                                  .scope = scope,
                                  .detail = granted ? detail : n->refusal.message};
    return store_audit(work, &n->caller, &record);
}

bool negotiate_remember(struct work *work, const struct negotiation *n, struct once once)
{
    if (n->idempotency[0] == '\0' || once.revision > 0)
        return true;
    if (!text_copy(once.body_hash, sizeof once.body_hash, n->body_hash) ||
        !text_copy(once.sandbox_id, sizeof once.sandbox_id, n->sandbox.id))
        return error_set(work->err, ERROR_INTERNAL, "an Idempotency-Key's row does not fit");
    store_put_once(work, n->idempotency, &once);
    return true;
}

bool negotiate_is_unfrozen(struct work *work, struct negotiation *n)
{
    const char *who = n->caller.principal.name, *owner = caller_owner(&n->caller);
    return key_tokens_allow(work, &n->caller, &n->refusal) && freeze_allows(work, owner, &n->refusal) &&
           (strcmp(who, owner) == 0 || freeze_allows(work, who, &n->refusal));
}

/* --- attaching --- */

struct lease negotiate_lease(const struct work *work, const struct negotiation *n, uint64_t replaced)
{
    const struct wanted_limits *limits = &work->leasing->options.limits;
    struct lease lease = {.created_at = work->now, .revision = replaced, .has_long = n->wanted.is_long};
    random_id(lease.id, "lse");
    memcpy(lease.thread_id, n->thread_id, sizeof lease.thread_id);
    memcpy(lease.sandbox_id, n->sandbox.id, sizeof lease.sandbox_id);
    struct policy_subject who = policy_subject(&n->caller, n->wanted.actor);
    lease.idle_timeout_s = policy_idle_timeout(work->leasing, &who, n->wanted.idle_timeout_s, limits->idle_timeout_s);
    int64_t lifetime = policy_lifetime(work->leasing, &who, n->wanted.max_lifetime_s, limits->max_lifetime_s);
    /* Of the sandbox, too: else a lease after another would be a longer life. */
    int64_t hardest = life_end(n->sandbox.created_at, policy_lifetime(work->leasing, &who, LIFE_ENDLESS_S, 0));
    lease.max_expires_at = smaller(life_end(work->now, lifetime), hardest);
    lease.expires_at = smaller(life_end(work->now, lease.idle_timeout_s), lease.max_expires_at);
    return lease;
}

void negotiate_touch(struct lease *lease, int64_t idle_timeout_s, int64_t now)
{
    if (idle_timeout_s > lease->idle_timeout_s)
        lease->idle_timeout_s = idle_timeout_s;
    int64_t expires = smaller(life_end(now, lease->idle_timeout_s), lease->max_expires_at);
    if (expires > lease->expires_at)
        lease->expires_at = expires;
}

void negotiate_show_paused(struct negotiation *n)
{
    if (n->sandbox.state == SANDBOX_PAUSED)
        n->lease.expires_at = n->lease.max_expires_at;
}

static bool join(struct work *work, struct negotiation *n)
{
    struct sandbox *sandbox = &n->sandbox;
    if (json_array_size(sandbox->threads) >= SANDBOX_THREADS_MAX)
        return error_set(&n->refusal, ERROR_QUOTA, "sandbox %s already serves %d threads", sandbox->id,
                         SANDBOX_THREADS_MAX);
    n->lease = negotiate_lease(work, n, n->lease.revision);
    if (n->lease.max_expires_at < work->now + NEGOTIATE_LEASE_MIN_MS)
        return error_set(&n->refusal, ERROR_GONE, "sandbox %s is at the end of its longest life", sandbox->id);
    if (n->lease.max_expires_at > sandbox->deadline)
        sandbox->deadline = n->lease.max_expires_at; /* the node is told by the look below */
    sandbox_add_thread(sandbox, n->thread_id);
    family_note_lease(work, sandbox->principal, &n->lease);
    store_put_sandbox(work, sandbox);
    store_watch(work, sandbox, work->now);
    return true;
}

bool negotiate_is_reachable(const struct work *work, struct negotiation *n)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    enum node_life life = nodes->find(nodes->context, n->sandbox.node, n->url);
    if ((life == NODE_ALIVE || life == NODE_SUSPECT) && n->url[0])
        return true;
    return error_set(&n->refusal, ERROR_NODE_UNREACHABLE, "node %s, which has sandbox %s, does not answer",
                     n->sandbox.node, n->sandbox.id);
}

/* What a lease that is there already is prolonged to is asked as what a new one would be. */
static bool may_live_so(const struct work *work, struct negotiation *n, bool joining)
{
    struct policy_subject who = policy_subject(&n->caller, n->wanted.actor);
    const struct policy_wish wish = {.is_long = n->wanted.is_long,
                                     .idle_s = n->wanted.idle_timeout_s,
                                     .lifetime_s = joining ? n->wanted.max_lifetime_s : 0};
    return policy_check(work->leasing, &who, &wish, &n->refusal);
}

/* Attaches to n->sandbox: with the lease that is in n->lease, or with a new one. */
static bool attach(struct work *work, struct negotiation *n, bool joining, struct once once)
{
    char names[160];
    if (wanted_differs(&n->wanted, &n->sandbox, names, sizeof names))
        return error_set(&n->refusal, ERROR_CONFLICT, "sandbox %s is otherwise than asked for in: %s", n->sandbox.id,
                         names);
    if (!may_live_so(work, n, joining) || !negotiate_is_reachable(work, n))
        return false; /* also of one that is being made: nobody knows for how long */
    if (n->sandbox.state == SANDBOX_PROVISIONING) {
        n->must_wait = true;
        return true;
    }
    if (joining && !join(work, n))
        return false;
    negotiate_touch(&n->lease, n->wanted.idle_timeout_s, work->now);
    n->lease.has_long |= n->wanted.is_long;
    store_put_lease(work, caller_owner(&n->caller), &n->lease);
    negotiate_show_paused(n);
    claim(work, n);
    return negotiate_is_usable(work, n) && negotiate_remember(work, n, once) && give(work, n);
}

/* --- deciding --- */

/* Whether a hint means this sandbox. */
static bool is_meant(const struct wanted *wanted, const struct sandbox *sandbox)
{
    return text_equal(wanted->hint, sandbox->id) || text_equal(wanted->hint, sandbox->name);
}

/* The caller's living sandbox of that id or name, in `target`; else n->hint.reason says why not. */
static bool find_hinted(struct work *work, struct negotiation *n, struct sandbox *target, bool *usable)
{
    char id[RANDOM_ID_BYTES];
    bool is_id = random_is_id(n->wanted.hint, "sbx");
    *usable = false;
    n->hint.reason = "not_found";
    if (is_id && !text_copy(id, sizeof id, n->wanted.hint))
        return true;
    if (!is_id &&
        (!sandbox_is_name(n->wanted.hint) || !store_get_name(work, caller_owner(&n->caller), n->wanted.hint, id)))
        return work->err->kind == ERROR_NONE;
    if (id[0] == '\0')
        return true;
    if (!store_get_sandbox(work, id, target))
        return false;
    if (target->revision == 0 || strcmp(target->principal, caller_owner(&n->caller)) != 0)
        return true;
    n->hint.reason = "ended";
    if (!sandbox_is_live(target))
        return true;
    *usable = true;
    n->hint.reason = NULL;
    return true;
}

static bool refuse_hint(struct negotiation *n, enum error_kind kind)
{
    return error_set(&n->refusal, kind, "the required sandbox %s cannot be had: %s", n->wanted.hint, n->hint.reason);
}

static bool decide_held(struct work *work, struct negotiation *n, struct once once)
{
    if (n->hint.given) {
        n->hint.honored = is_meant(&n->wanted, &n->sandbox);
        n->hint.reason = n->hint.honored ? NULL : "thread_has_sandbox";
        if (!n->hint.honored && n->wanted.hint_required)
            return refuse_hint(n, ERROR_CONFLICT);
    }
    if (n->wanted.mode == WANTED_CREATE_ONLY)
        return error_set(&n->refusal, ERROR_CONFLICT, "thread %s already has sandbox %s", n->thread_id, n->sandbox.id);
    return attach(work, n, false, once);
}

static bool decide_free(struct work *work, struct negotiation *n, uint64_t stale, struct once once)
{
    AUTO_SANDBOX target = {0};
    bool usable = false;
    if (n->hint.given && !find_hinted(work, n, &target, &usable))
        return false;
    if (n->hint.given && !usable && n->wanted.hint_required)
        return refuse_hint(n, ERROR_NOT_FOUND);
    if (usable && n->wanted.mode != WANTED_CREATE_ONLY) {
        n->hint.honored = true;
        sandbox_done(&n->sandbox);
        n->sandbox = target;
        target = (struct sandbox){0};
        n->lease = (struct lease){.revision = stale};
        return attach(work, n, true, once);
    }
    if (usable) {
        n->hint.reason = "create_only";
        if (n->wanted.hint_required)
            return refuse_hint(n, ERROR_CONFLICT);
    }
    if (n->wanted.mode == WANTED_ATTACH_ONLY)
        return error_set(&n->refusal, ERROR_NOT_FOUND, "thread %s has no sandbox", n->thread_id);
    return creating_decide(work, n, stale, once);
}

/* The same Idempotency-Key and body as before: a fresh token for the same sandbox, or why that cannot be. */
static bool decide_again(struct work *work, struct negotiation *n, bool held, struct once once)
{
    if (strcmp(once.body_hash, n->body_hash) != 0)
        return error_set(&n->refusal, ERROR_CONFLICT, "this Idempotency-Key came before with another body");
    if (held && strcmp(n->sandbox.id, once.sandbox_id) == 0) {
        n->hint.honored = n->hint.given && is_meant(&n->wanted, &n->sandbox);
        n->hint.reason = n->hint.honored ? NULL : "idempotency_key";
        return attach(work, n, false, once);
    }
    if (!store_get_sandbox(work, once.sandbox_id, &n->sandbox))
        return false;
    return error_set(&n->refusal, ERROR_GONE, "sandbox %s of this Idempotency-Key is gone: %s", once.sandbox_id,
                     n->sandbox.reason[0] ? n->sandbox.reason : "released");
}

/* One of its owner's leases on it that still holds, if there is any. */
static bool find_holder(struct work *work, struct negotiation *n)
{
    size_t i;
    json_t *thread;
    json_array_foreach (n->sandbox.threads, i, thread) {
        const char *id = json_string_value(thread);
        if (id == NULL || !store_get_lease(work, n->sandbox.principal, id, &n->lease))
            return false;
        bool holds = n->lease.revision > 0 && strcmp(n->lease.sandbox_id, n->sandbox.id) == 0 &&
                     n->lease.max_expires_at >= work->now + NEGOTIATE_LEASE_MIN_MS;
        if (holds && text_copy(n->thread_id, sizeof n->thread_id, id))
            return true;
    }
    return error_set(&n->refusal, ERROR_GONE, "sandbox %s is at its end", n->sandbox.id);
}

/* Who knows the sandbox, not its thread. */
static bool decide_by_id(struct work *work, struct negotiation *n)
{
    struct caller *caller = &n->caller;
    n->thread_id[0] = '\0';
    if (!store_get_sandbox(work, n->sandbox_id, &n->sandbox))
        return false;
    bool is_ours = strcmp(n->sandbox.principal, caller_owner(caller)) == 0;
    if (n->sandbox.revision == 0 || (!is_ours && caller->principal.role != ROLE_ADMIN))
        return error_set(&n->refusal, ERROR_NOT_FOUND, "no sandbox %s", n->sandbox_id);
    if (!sandbox_is_live(&n->sandbox))
        return error_set(&n->refusal, ERROR_GONE, "sandbox %s has ended%s%s", n->sandbox.id,
                         n->sandbox.reason[0] ? ": " : "", n->sandbox.reason);
    if (!is_ours && !text_copy(caller->owner, sizeof caller->owner, n->sandbox.principal))
        return error_set(work->err, ERROR_INTERNAL, "a principal's name does not fit");
    return negotiate_is_unfrozen(work, n) && find_holder(work, n) &&
           attach(work, n, false, (struct once){.revision = 0});
}

static bool may_end_then(const struct work *work, struct negotiation *n)
{
    return n->wanted.expires_at_s == 0 || n->wanted.expires_at_s > work->now / 1000 ||
           error_set(&n->refusal, ERROR_INVALID, "a token must end at least a second from now");
}

/* False: n->refusal says no, or (when it is empty) the store failed. */
static bool decide(struct work *work, struct negotiation *n)
{
    struct once once = {.revision = 0};
    if (!may_end_then(work, n))
        return false;
    if (!caller_may(&n->caller, ROLE_USER, &n->refusal) || !negotiate_is_unfrozen(work, n) ||
        !caller_pin(&n->caller, n->wanted.actor, &n->refusal))
        return false;
    if (n->sandbox_id[0])
        return decide_by_id(work, n);
    if (n->idempotency[0] && !store_get_once(work, n->idempotency, &once))
        return false;
    if (!store_get_lease(work, caller_owner(&n->caller), n->thread_id, &n->lease))
        return false;
    if (n->lease.revision > 0 && !store_get_sandbox(work, n->lease.sandbox_id, &n->sandbox))
        return false;
    bool held = n->lease.revision > 0 && sandbox_is_live(&n->sandbox) &&
                n->lease.max_expires_at >= work->now + NEGOTIATE_LEASE_MIN_MS;
    if (once.revision > 0)
        return decide_again(work, n, held, once);
    return held ? decide_held(work, n, once) : decide_free(work, n, n->lease.revision, once);
}

/* A refusal is recorded, and nothing else that was gathered on the way to it. */
static enum kv_outcome refuse(struct work *work, struct negotiation *n)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    n->created = false;
    return negotiate_audit(&own, n) ? store_apply(&own) : KV_FAILED;
}

static enum kv_outcome negotiate_rule(struct kv *kv, void *argument, struct error *err)
{
    struct negotiation *n = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(n->leasing, kv, change, err);
    forget_answer(n);
    if (!decide(&work, n))
        return n->refusal.kind == ERROR_NONE ? KV_FAILED : holding_wants(n) ? KV_APPLIED : refuse(&work, n);
    return n->must_wait ? KV_APPLIED : store_apply(&work);
}

/* --- after it is durable --- */

void negotiate_answer(struct negotiation *n)
{
    n->answered(n->cookie, n);
}

static void tell_starting(struct negotiation *n)
{
    if (!n->told)
        n->starting(n->cookie);
    n->told = true;
}

static void wait_for(struct starting_entry *entry, struct negotiation *n)
{
    if (starting_wait(entry, n)) {
        tell_starting(n);
        return;
    }
    error_set(&n->refusal, ERROR_RATE_LIMITED, "%d wait for sandbox %s to be made; ask again later",
              STARTING_WAITERS_MAX, n->sandbox.id);
    const struct leasing_refusal refusal = {.caller = &n->caller,
                                            .action = "negotiate",
                                            .thread_id = n->thread_id,
                                            .sandbox_id = n->sandbox.id,
                                            .err = &n->refusal};
    leasing_refused(n->leasing, &refusal);
    negotiate_answer(n);
}

static void negotiate_done(void *argument, const struct error *err)
{
    struct negotiation *n = argument;
    struct leasing *leasing = n->leasing;
    n->placed[0] = '\0';
    if (err->kind != ERROR_NONE)
        n->refusal = *err;
    if (n->refusal.kind != ERROR_NONE && holding_wants(n)) {
        holding_add(leasing, n);
        return;
    }
    if (n->refusal.kind != ERROR_NONE || (!n->must_wait && !n->created)) {
        negotiate_answer(n);
        return;
    }
    struct starting_entry *entry = starting_entry(&leasing->starting, n->sandbox.id);
    if (n->must_wait) {
        wait_for(entry, n);
        return;
    }
    tell_starting(n);
    entry->creator = n;
    entry->called = true;
    settle_prepare(leasing, &n->sandbox, &n->caller);
}

void negotiate_submit(struct negotiation *n)
{
    ledger_submit(n->leasing->options.ledger, negotiate_rule, negotiate_done, n);
}
