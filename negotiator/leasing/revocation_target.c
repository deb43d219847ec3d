/* revocation_target.c - what a selector means: whose tokens, on which nodes, until when. */
#include "negotiator/leasing/allowance.h"
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/presented.h"
#include "negotiator/leasing/revocations.h"
#include "negotiator/leasing/sharing/sharing.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    OWNED_MAX = 1000,         /* sandboxes that are looked at one by one; of more, every node counts */
    HOLDERS_REVOKE = 32,      /* tokens and links of one family, without an API key: at once, and an hour */
    USERS_REVOKE = 200,       /* times one principal: the same */
    USERS_REVOKE_SCOPES = 32, /* at once; one an hour */
};
static const int64_t EVER_S = INT64_MAX / 4;

struct finding {
    struct work *work;
    struct revoking *r;
    struct revocation_target *target;
    const char *only; /* the principal whose tokens it may reach; "" everybody's */
};

void revocation_target_done(struct revocation_target *target)
{
    json_decref(target->nodes);
    target->nodes = NULL;
}

/* --- how often --- */

static bool take(const struct finding *f, const char *what, const char *whose, struct allowance_limit limit)
{
    struct revoking *r = f->r;
    char who[CAPABILITY_ID_BYTES + PRINCIPAL_BYTES];
    snprintf(who, sizeof who, "%s/%s", what, whose);
    if (!r->charged)
        r->charged = allowance_take(f->work->leasing->allowance, who, limit, 1, f->work->now);
    return r->charged;
}

/* Marks of scopes cannot be looked up: each is asked about every token of its principal, so they are few. */
static bool may_user(const struct finding *f)
{
    struct revoking *r = f->r;
    bool is_scope = r->token == NULL && r->kind == MARK_SCOPE;
    int64_t most = is_scope ? USERS_REVOKE_SCOPES : USERS_REVOKE;
    struct allowance_limit limit = {.most = most, .per_hour = is_scope ? 1 : most};
    return r->caller.principal.role == ROLE_ADMIN ||
           take(f, is_scope ? "scope" : "revoke", r->caller.principal.name, limit) ||
           error_set(&r->refusal, ERROR_RATE_LIMITED,
                     "%s has revoked %s%d times lately; ask again later, or revoke more at once: a family, a thread, a "
                     "sandbox",
                     r->caller.principal.name, is_scope ? "scopes " : "", (int)most);
}

static bool refuse_unknown(const struct finding *f)
{
    return error_set(&f->r->refusal, ERROR_NOT_FOUND, "no such %s", mark_kind_name(f->r->kind));
}

/* When the last token is over that is there now, whoever's. */
static int64_t any_token_until(const struct finding *f)
{
    return marks_longest(f->work->leasing, NULL, f->work->now);
}

/* --- where it can be used --- */

static void add_node(const struct finding *f, const char *node)
{
    size_t i;
    json_t *each;
    json_array_foreach (f->target->nodes, i, each) {
        if (text_equal(json_string_value(each), node))
            return;
    }
    json_array_append_new(f->target->nodes, json_string(node));
}

/* Tokens of it are in use up to `until` (s) on its node, while it is there. */
static bool add_sandbox(const struct finding *f, const char *id, int64_t until)
{
    AUTO_SANDBOX sandbox = {0};
    struct revocation_target *target = f->target;
    if (!store_get_sandbox(f->work, id, &sandbox))
        return false;
    if (until > sandbox.deadline / 1000)
        until = sandbox.deadline / 1000; /* no token of it lives longer */
    if (sandbox.revision == 0 || sandbox_has_ended(&sandbox) || until <= f->work->now / 1000)
        return true;
    add_node(f, sandbox.node);
    if (until > target->usable_until)
        target->usable_until = until;
    return true;
}

struct node_walk {
    char node[SANDBOX_NODE_BYTES];
    bool found;
};

static bool note_node(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct node_walk *walk = cookie;
    const char *name = strchr(key, '/') + 1;
    walk->found = text_format(walk->node, sizeof walk->node, "%.*s", (int)strcspn(name, "/"), name);
    return false;
}

/* Every node with a sandbox that has not ended: one look a node, however many sandboxes it has. */
static bool add_all_nodes(const struct finding *f, int64_t until)
{
    char first[KV_KEY_MAX_BYTES] = "watch/";
    for (;;) {
        struct node_walk walk = {.found = false};
        if (!kv_range(f->work->kv, first, "watch0", 1, note_node, &walk, f->work->err))
            return false;
        if (!walk.found)
            return true;
        add_node(f, walk.node);
        f->target->usable_until = until;
        snprintf(first, sizeof first, "watch/%s0", walk.node); /* '0' follows '/' */
    }
}

struct owned_walk {
    char (*ids)[RANDOM_ID_BYTES];
    size_t count;
};

/* A share's row: the sandbox is its value. */
static bool note_shared(void *cookie, const char *key UNUSED, const struct kv_value *value)
{
    struct owned_walk *walk = cookie;
    if (text_copy(walk->ids[walk->count], RANDOM_ID_BYTES, value->data))
        walk->count++;
    return walk->count < OWNED_MAX;
}

static bool note_owned(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct owned_walk *walk = cookie;
    const char *id = strrchr(key, '/');
    if (id && text_copy(walk->ids[walk->count], RANDOM_ID_BYTES, id + 1))
        walk->count++;
    return walk->count < OWNED_MAX;
}

/* The nodes of a principal's sandboxes, and of those that others share with it. */
static bool add_owned(const struct finding *f, const char *principal, int64_t until)
{
    char first[KV_KEY_MAX_BYTES], shared[KV_KEY_MAX_BYTES];
    AUTO_FREE char(*ids)[RANDOM_ID_BYTES] = memory_array(OWNED_MAX, sizeof *ids);
    struct owned_walk walk = {.ids = ids};
    if (!text_format(first, sizeof first, "owned/%s/", principal) ||
        !text_format(shared, sizeof shared, "shareto/%s/", principal))
        return error_set(f->work->err, ERROR_INTERNAL, "a key does not fit");
    if (!kv_range(f->work->kv, first, NULL, OWNED_MAX, note_owned, &walk, f->work->err) ||
        (walk.count < OWNED_MAX && !kv_range(f->work->kv, shared, NULL, OWNED_MAX, note_shared, &walk, f->work->err)))
        return false;
    if (walk.count == OWNED_MAX)
        return add_all_nodes(f, until);
    for (size_t i = 0; i < walk.count; i++) {
        if (!add_sandbox(f, ids[i], until))
            return false;
    }
    return true;
}

/* All that it may reach. */
static bool add_reach(const struct finding *f, int64_t until)
{
    return f->only[0] ? add_owned(f, f->only, until) : add_all_nodes(f, until);
}

/* --- the selectors --- */

/* A token whose issue is not in the ledger, or is another principal's, which is not told: it may be anywhere. */
static bool find_unknown(const struct finding *f)
{
    return add_reach(f, any_token_until(f));
}

static bool find_family(const struct finding *f, const char *id, int64_t expires_at, bool *known)
{
    struct family family;
    if (!family_get(f->work, id, &family))
        return false;
    bool is_sharer = strcmp(family.owner, f->only) == 0;
    *known = family.revision > 0 && (f->only[0] == '\0' || is_sharer || strcmp(family.principal, f->only) == 0);
    if (!*known)
        return true;
    if (f->only[0] && is_sharer) /* its tokens bear another's name */
        memcpy(f->target->mark.principal, family.principal, sizeof family.principal);
    int64_t until = expires_at ? expires_at : family.until;
    f->target->mark.until = until;
    return add_sandbox(f, family.sandbox_id, until);
}

static bool find_token(const struct finding *f)
{
    char family[CAPABILITY_ID_BYTES];
    int64_t expires_at = 0;
    bool known = false, is_family = f->r->kind == MARK_FAMILY;
    if (!is_family && !family_of_token(f->work, f->r->value, family, &expires_at))
        return false;
    if ((is_family || expires_at > 0) && !find_family(f, is_family ? f->r->value : family, expires_at, &known))
        return false;
    return known || find_unknown(f);
}

/* One of the thread's, by its owner: all its tokens. */
static bool find_share(const struct finding *f)
{
    struct family family;
    struct mark *mark = &f->target->mark;
    const struct revoking *r = f->r;
    bool found = false;
    if (!sharing_drop(f->work, caller_owner(&r->caller), r->share_thread, r->value, &family, &found))
        return false;
    if (!found)
        return error_set(&f->r->refusal, ERROR_NOT_FOUND, "no such share of thread %s", r->share_thread);
    mark->principal[0] = '\0';
    mark->until = family.until;
    return add_sandbox(f, family.sandbox_id, family.until);
}

/* Its tokens are dead for good, so what goes on of it goes on under a new id. */
static bool find_lease(const struct finding *f)
{
    struct work *work = f->work;
    char principal[PRINCIPAL_BYTES];
    struct lease noted = {.revision = 0}, lease;
    if (!family_of_lease(work, f->r->value, principal, &noted))
        return false;
    if (principal[0] == '\0' || (f->only[0] && strcmp(principal, f->only) != 0))
        return refuse_unknown(f);
    if (!store_get_lease(work, principal, noted.thread_id, &lease))
        return false;
    if (lease.revision > 0 && strcmp(lease.id, f->r->value) == 0) {
        f->target->mark.until = marks_longest(work->leasing, &lease, work->now);
        random_id(lease.id, "lse");
        lease.has_long = false;
        store_put_lease(work, principal, &lease);
        family_note_lease(work, principal, &lease);
    }
    return add_sandbox(f, noted.sandbox_id, f->target->mark.until);
}

static bool find_sandbox(const struct finding *f)
{
    AUTO_SANDBOX sandbox = {0};
    struct mark *mark = &f->target->mark;
    if (!store_get_sandbox(f->work, f->r->value, &sandbox))
        return false;
    if (sandbox.revision == 0 || (f->only[0] && strcmp(sandbox.principal, f->only) != 0))
        return refuse_unknown(f);
    mark->epoch = ++sandbox.epoch;
    if (sandbox_has_ended(&sandbox))
        return true;
    store_put_sandbox(f->work, &sandbox);
    return add_sandbox(f, f->r->value, mark->until);
}

static bool find_thread(const struct finding *f)
{
    struct lease lease;
    const char *owner = caller_owner(&f->r->caller);
    if (!store_get_lease(f->work, owner, f->r->value, &lease))
        return false;
    return lease.revision > 0 ? add_sandbox(f, lease.sandbox_id, marks_longest(f->work->leasing, &lease, f->work->now))
                              : refuse_unknown(f);
}

static bool find_principal(const struct finding *f)
{
    const struct principal *who = &f->r->caller.principal;
    if (who->role != ROLE_ADMIN && strcmp(f->r->value, who->name) != 0)
        return error_set(&f->r->refusal, ERROR_FORBIDDEN, "only an admin revokes what others hold");
    return add_owned(f, f->r->value, any_token_until(f));
}

static bool find_by_kind(const struct finding *f)
{
    switch (f->r->kind) {
    case MARK_JTI:
        return find_token(f);
    case MARK_FAMILY:
        return f->r->share_thread[0] ? find_share(f) : find_token(f);
    case MARK_LINK:
        return find_unknown(f);
    case MARK_LEASE:
        return find_lease(f);
    case MARK_SANDBOX:
        return find_sandbox(f);
    case MARK_THREAD:
        return find_thread(f);
    case MARK_PRINCIPAL:
        return find_principal(f);
    case MARK_SCOPE:
    case MARK_ALL:
        return add_reach(f, any_token_until(f));
    case MARK_KINDS:
        break;
    }
    return error_set(f->work->err, ERROR_INTERNAL, "no such selector");
}

/* Said again and again it would fill the ledger; and of one token any number of links can be made. */
static bool may_stranger(const struct finding *f, const struct capability_claims *claims)
{
    bool forbidden = false;
    if (!marks_forbid(f->work, claims, &forbidden))
        return false;
    if (forbidden)
        return error_set(&f->r->refusal, ERROR_TOKEN_REVOKED, "the token is revoked already");
    return take(f, "holder", claims->family, (struct allowance_limit){HOLDERS_REVOKE, HOLDERS_REVOKE}) ||
           error_set(&f->r->refusal, ERROR_RATE_LIMITED,
                     "%d tokens of this family were given up without an API key; ask again later, or have the family "
                     "revoked with its owner's key",
                     HOLDERS_REVOKE);
}

/* Whoever holds a token may give it up, also one that is over or under a former key. */
static bool find_presented(const struct finding *f)
{
    struct mark *mark = &f->target->mark;
    AUTO_PRESENTED presented = {.grace_s = EVER_S, .any_epoch = true};
    const struct capability_claims *claims = &presented.claims;
    if (!presented_judge(f->work, f->r->token, &presented, &f->r->refusal))
        return false;
    if (f->r->caller.principal.name[0] == '\0' ? !may_stranger(f, claims) : !may_user(f))
        return false;
    bool is_link = claims->link_count > 0;
    mark->kind = is_link ? MARK_LINK : MARK_JTI;
    mark->until = claims->expires_at;
    mark->before = MARK_ANY_TIME;
    return ((text_copy(mark->value, sizeof mark->value,
                       is_link ? claims->link_ids[claims->link_count - 1] : claims->jti) &&
             text_copy(mark->principal, sizeof mark->principal, claims->principal) &&
             text_copy(f->target->owner, sizeof f->target->owner, claims->principal)) ||
            error_set(f->work->err, ERROR_INTERNAL, "a token's mark does not fit")) &&
           add_sandbox(f, claims->sandbox_id, claims->expires_at);
}

/* --- the mark --- */

/* Whatever was or will be issued of these is meant: a time says nothing. */
static bool is_of_any_time(enum mark_kind kind)
{
    return kind == MARK_JTI || kind == MARK_FAMILY || kind == MARK_LINK || kind == MARK_LEASE;
}

static bool takes_principal(enum mark_kind kind)
{
    return kind != MARK_LEASE && kind != MARK_SANDBOX && kind != MARK_PRINCIPAL;
}

static bool fill_mark(const struct finding *f)
{
    const struct revoking *r = f->r;
    struct mark *mark = &f->target->mark;
    const char *whose = r->kind == MARK_THREAD ? caller_owner(&r->caller) : takes_principal(r->kind) ? f->only : "";
    mark->kind = r->kind;
    mark->until = any_token_until(f);
    if (!text_copy(mark->value, sizeof mark->value, r->value) ||
        !text_copy(mark->principal, sizeof mark->principal, whose))
        return error_set(f->work->err, ERROR_INTERNAL, "a mark does not fit");
    return mark_check(mark, &f->r->refusal);
}

static bool set_before(const struct finding *f)
{
    struct revoking *r = f->r;
    struct mark *mark = &f->target->mark;
    if (is_of_any_time(r->kind)) {
        mark->before = MARK_ANY_TIME;
        return r->before_ms == 0 ||
               error_set(&r->refusal, ERROR_INVALID, "before says nothing about a %s", mark_kind_name(r->kind));
    }
    if (r->before_ms > f->work->now)
        return error_set(&r->refusal, ERROR_INVALID, "before must not be in the future");
    mark->before = r->before_ms ? r->before_ms / 1000 : marks_before(f->work->leasing, mark, f->work->now);
    return true;
}

static bool find_selected(struct finding *f)
{
    struct revoking *r = f->r;
    const struct caller *caller = &r->caller;
    if (!caller_may(caller, ROLE_USER, &r->refusal))
        return false;
    if (caller->owner[0] && !takes_principal(r->kind))
        return error_set(&r->refusal, ERROR_INVALID, "?principal= says nothing about a %s", mark_kind_name(r->kind));
    f->only = caller->principal.role == ROLE_ADMIN ? caller->owner : caller->principal.name;
    return fill_mark(f) && set_before(f) && find_by_kind(f) && may_user(f);
}

bool revocation_find_target(struct work *work, struct revoking *r, struct revocation_target *target)
{
    struct finding finding = {.work = work, .r = r, .target = target, .only = ""};
    *target = (struct revocation_target){.nodes = json_array()};
    return r->token ? find_presented(&finding) : find_selected(&finding);
}
