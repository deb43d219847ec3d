/* taking.c - a snapshot of a living sandbox: its row is durable before its node is asked, so that nothing half-made is
 * forgotten; ready when the node has said yes; whatever else comes of it, it is deleted again. */
#include "negotiator/leasing/keeping/keeping_internal.h"
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/naming.h"
#include "negotiator/leasing/presented.h"
#include "shared/base/text.h"

#include <string.h>

enum { NAME_TRIES = 16, NAME_TRIES_PLAIN = 8 };
/* Then it is looked at whether this process still takes it: one of before our start nobody waits for. */
static const int64_t LOOKED_AT_MS = 30000;

/* --- those that are under way, in the order they came --- */

bool taking_has(const struct leasing *leasing, const char *id)
{
    const struct keeping *each = leasing->taken;
    while (each && strcmp(each->snapshot.id, id) != 0)
        each = each->later;
    return each != NULL;
}

static void remove_one(struct leasing *leasing, const struct keeping *k)
{
    struct keeping **at = &leasing->taken;
    while (*at && *at != k)
        at = &(*at)->later;
    if (*at)
        *at = k->later;
}

static void add_one(struct leasing *leasing, struct keeping *k)
{
    struct keeping **at = &leasing->taken;
    while (*at)
        at = &(*at)->later;
    k->later = NULL;
    *at = k;
}

/* Of that principal; NULL: of all. */
static unsigned waiting(const struct leasing *leasing, const char *node, const char *principal)
{
    unsigned count = 0;
    for (const struct keeping *each = leasing->taken; each; each = each->later)
        count += !each->is_called && strcmp(each->snapshot.node, node) == 0 &&
                 (principal == NULL || strcmp(each->snapshot.principal, principal) == 0);
    return count;
}

/* Those of a node that were asked for and have no answer yet: all, of that sandbox, of that principal. */
struct calls {
    unsigned all, of_sandbox, of_principal;
};

static struct calls count_calls(const struct keeping *k)
{
    struct calls calls = {0};
    for (const struct keeping *each = k->leasing->taken; each; each = each->later) {
        if (!each->is_called || strcmp(each->snapshot.node, k->snapshot.node) != 0)
            continue;
        calls.all++;
        calls.of_sandbox += strcmp(each->sandbox_id, k->sandbox_id) == 0;
        calls.of_principal += strcmp(each->snapshot.principal, k->snapshot.principal) == 0;
    }
    return calls;
}

/* Another principal that waits for the same node, and of whom it makes none. */
static bool others_wait(const struct keeping *k)
{
    for (const struct keeping *each = k->leasing->taken; each; each = each->later) {
        if (!each->is_called && strcmp(each->snapshot.node, k->snapshot.node) == 0 &&
            strcmp(each->snapshot.principal, k->snapshot.principal) != 0 && count_calls(each).of_principal == 0)
            return true;
    }
    return false;
}

/* A node makes a few at a time, and one of a sandbox; who has one under way lets others go first. */
static bool may_call(const struct keeping *k)
{
    const struct calls calls = count_calls(k);
    return calls.all < KEEPING_AT_ONCE && calls.of_sandbox == 0 && (calls.of_principal == 0 || !others_wait(k));
}

/* --- who may, and of what --- */

/* Who shows a capability of the sandbox speaks for the one it was issued to. */
static bool judge(struct work *work, struct keeping *k, struct sandbox *sandbox)
{
    AUTO_PRESENTED presented = {.grace_s = CAPABILITY_LEEWAY_S - 1};
    const struct capability_claims *claims = &presented.claims;
    if (!presented_judge(work, k->token, &presented, &k->refusal))
        return false;
    if (marks_refuse(work->leasing, claims, work->now))
        return error_set(&k->refusal, ERROR_TOKEN_REVOKED, "the token is revoked");
    if (strcmp(claims->sandbox_id, k->sandbox_id) != 0)
        return error_set(&k->refusal, ERROR_NOT_FOUND, "this is no token of sandbox %s", k->sandbox_id);
    capability_links_format(claims, k->links);
    if (!text_copy(k->caller.principal.name, PRINCIPAL_BYTES, claims->principal) ||
        !text_copy(k->actor, sizeof k->actor, claims->actor) || !text_copy(k->jti, sizeof k->jti, claims->jti) ||
        !text_copy(k->lease, sizeof k->lease, claims->lease) ||
        !text_copy(k->thread_id, sizeof k->thread_id, claims->thread_id))
        return error_set(work->err, ERROR_INTERNAL, "a claim does not fit");
    if (!scope_allows(&claims->scopes, "snapshot"))
        return error_set(&k->refusal, ERROR_CAPABILITY_DENIED, "a snapshot needs scope snapshot");
    *sandbox = presented.sandbox;
    presented.sandbox = (struct sandbox){0};
    return true;
}

static bool find_own(struct work *work, struct keeping *k, struct sandbox *sandbox)
{
    const struct caller *caller = &k->caller;
    if (!caller_may(caller, ROLE_USER, &k->refusal) || !store_get_sandbox(work, k->sandbox_id, sandbox))
        return false;
    bool is_ours = caller->principal.role == ROLE_ADMIN || strcmp(sandbox->principal, caller->principal.name) == 0;
    return (sandbox->revision > 0 && is_ours) ||
           error_set(&k->refusal, ERROR_NOT_FOUND, "no sandbox %s", k->sandbox_id);
}

static bool is_open(const struct work *work, struct keeping *k, const struct sandbox *sandbox)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    char url[SANDBOX_URL_BYTES];
    if (!sandbox_is_live(sandbox))
        return error_set(&k->refusal, ERROR_GONE, "sandbox %s has ended%s%s", k->sandbox_id,
                         sandbox->reason[0] ? ": " : "", sandbox->reason);
    if (sandbox->state == SANDBOX_PROVISIONING)
        return error_set(&k->refusal, ERROR_STARTING, "sandbox %s is still being made; ask again", k->sandbox_id);
    enum node_life life = nodes->find(nodes->context, sandbox->node, url);
    if (life != NODE_ALIVE && life != NODE_SUSPECT)
        return error_set(&k->refusal, ERROR_NODE_UNREACHABLE, "node %s, which has sandbox %s, does not answer",
                         sandbox->node, k->sandbox_id);
    unsigned own = waiting(work->leasing, sandbox->node, sandbox->principal);
    if (own >= KEEPING_WAITERS_OF_ONE)
        return error_set(&k->refusal, ERROR_RATE_LIMITED, "%u snapshots of %s wait for node %s; ask again later", own,
                         sandbox->principal, sandbox->node);
    return waiting(work->leasing, sandbox->node, NULL) < KEEPING_WAITERS_MAX ||
           error_set(&k->refusal, ERROR_RATE_LIMITED, "%d snapshots wait for node %s; ask again later",
                     KEEPING_WAITERS_MAX, sandbox->node);
}

static bool has_room(struct work *work, struct keeping *k, const char *owner)
{
    size_t count = 0, most = work->leasing->options.policy.snapshots_max;
    if (!snapshot_count(work, owner, most, &count))
        return false;
    return count < most ||
           error_set(&k->refusal, ERROR_QUOTA, "%s has %zu snapshots, the most allowed; delete one", owner, most);
}

static bool name_it(struct work *work, struct keeping *k)
{
    char holder[RANDOM_ID_BYTES];
    struct snapshot *snapshot = &k->snapshot;
    if (k->name[0]) {
        memcpy(snapshot->name, k->name, sizeof snapshot->name);
        if (!snapshot_get_name(work, snapshot->principal, snapshot->name, holder))
            return false;
        return holder[0] == '\0' ||
               error_set(&k->refusal, ERROR_CONFLICT, "the name %s is taken by snapshot %s", snapshot->name, holder);
    }
    for (int i = 0; i < NAME_TRIES; i++) {
        naming_pick(snapshot->name, i >= NAME_TRIES_PLAIN);
        if (!snapshot_get_name(work, snapshot->principal, snapshot->name, holder))
            return false;
        if (holder[0] == '\0')
            return true;
    }
    return error_set(&k->refusal, ERROR_QUOTA, "no free name was found; give one");
}

static bool fill(struct work *work, struct keeping *k, const struct sandbox *sandbox)
{
    struct snapshot *snapshot = &k->snapshot;
    *snapshot = (struct snapshot){.state = SNAPSHOT_CREATING,
                                  .created_at = work->now,
                                  .state_since = work->now,
                                  .due_at = work->now + LOOKED_AT_MS};
    random_id(snapshot->id, "snp");
    return (text_copy(snapshot->principal, sizeof snapshot->principal, sandbox->principal) &&
            text_copy(snapshot->node, sizeof snapshot->node, sandbox->node) &&
            text_copy(snapshot->sandbox_id, sizeof snapshot->sandbox_id, sandbox->id) &&
            text_copy(snapshot->template_name, sizeof snapshot->template_name, sandbox->template_name)) ||
           error_set(work->err, ERROR_INTERNAL, "a snapshot's row does not fit");
}

static bool begin(struct work *work, struct keeping *k)
{
    AUTO_SANDBOX sandbox = {0};
    if (k->token ? !judge(work, k, &sandbox) : !find_own(work, k, &sandbox))
        return false;
    if (!is_open(work, k, &sandbox) || !has_room(work, k, sandbox.principal) || !fill(work, k, &sandbox) ||
        !name_it(work, k))
        return false;
    snapshot_enlist(work, &k->snapshot);
    snapshot_put(work, &k->snapshot);
    return true;
}

static enum kv_outcome begin_rule(struct kv *kv, void *argument, struct error *err)
{
    struct keeping *k = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(k->leasing, kv, change, err);
    k->refusal = (struct error){0};
    k->snapshot = (struct snapshot){.revision = 0};
    if (begin(&work, k))
        return store_apply(&work);
    return k->refusal.kind == ERROR_NONE ? KV_FAILED : keeping_refuse(&work, k);
}

/* --- what came of it --- */

static bool finish(struct work *work, struct keeping *k)
{
    struct snapshot *snapshot = &k->snapshot;
    char detail[RANDOM_ID_BYTES + SANDBOX_NAME_BYTES + 16];
    snapshot->state = SNAPSHOT_READY;
    snapshot->state_since = work->now;
    snapshot->due_at = 0;
    snapshot->size_bytes = k->size_bytes;
    memcpy(snapshot->storage, k->storage, sizeof snapshot->storage);
    if (k->template_name[0])
        memcpy(snapshot->template_name, k->template_name, sizeof snapshot->template_name);
    snapshot_put(work, snapshot);
    if (!text_format(detail, sizeof detail, "%s, %s", snapshot->id, snapshot->name))
        detail[0] = '\0';
    return keeping_audit(work, k, detail);
}

/* Only its answer may have been lost. */
static bool fail(struct work *work, struct keeping *k)
{
    enum error_kind kind = k->failure.kind;
    bool is_gone = kind == ERROR_NOT_FOUND || kind == ERROR_GONE;
    error_set(&k->refusal, is_gone ? ERROR_GONE : settle_kind(kind), "%s", k->failure.message);
    dropping_begin(work, &k->snapshot);
    return keeping_audit(work, k, "");
}

static enum kv_outcome finish_rule(struct kv *kv, void *argument, struct error *err)
{
    struct keeping *k = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(k->leasing, kv, change, err);
    k->refusal = (struct error){0};
    char id[RANDOM_ID_BYTES];
    memcpy(id, k->snapshot.id, sizeof id);
    if (!snapshot_get(&work, id, &k->snapshot))
        return KV_FAILED;
    if (k->snapshot.revision == 0 || k->snapshot.state != SNAPSHOT_CREATING) {
        error_set(err, ERROR_INTERNAL, "the row of snapshot %s is not what it was", id);
        return KV_FAILED;
    }
    bool done = k->failure.kind == ERROR_NONE ? finish(&work, k) : fail(&work, k);
    return done ? store_apply(&work) : KV_FAILED;
}

static void start_next(struct leasing *leasing);

static void finished(void *argument, const struct error *err)
{
    struct keeping *k = argument;
    struct leasing *leasing = k->leasing;
    remove_one(leasing, k); /* when the store failed, what is due finds it half-made */
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    else if (k->refusal.kind != ERROR_NONE)
        dropping_tell(leasing, k->snapshot.node, k->snapshot.id);
    keeping_answer(k);
    start_next(leasing);
}

/* --- its way --- */

static void copy_word(char to[static SANDBOX_WORD_BYTES], const json_t *reply, const char *name)
{
    if (!text_copy(to, SANDBOX_WORD_BYTES, json_string_value(json_object_get(reply, name))))
        to[0] = '\0'; /* it only tells people something */
}

static void node_answered(void *cookie, const json_t *reply, const struct error *err)
{
    struct keeping *k = cookie;
    json_int_t size = json_integer_value(json_object_get(reply, "size_bytes"));
    json_int_t running = json_integer_value(json_object_get(reply, "running"));
    k->failure = *err;
    k->size_bytes = size > 0 ? size : 0;
    k->running = running > 0 ? running : 0;
    copy_word(k->template_name, reply, "template");
    copy_word(k->storage, reply, "storage");
    ledger_submit(k->leasing->options.ledger, finish_rule, finished, k);
}

static void call(struct keeping *k)
{
    const struct leasing_nodes *nodes = &k->leasing->options.nodes;
    k->is_called = true;
    nodes->call(nodes->context, k->snapshot.node,
                settle_message(
                    json_pack("{s:s, s:s, s:s}", "call", "snapshot", "id", k->sandbox_id, "snapshot", k->snapshot.id),
                    &k->caller),
                node_answered, k);
}

static void start_next(struct leasing *leasing)
{
    for (struct keeping *each = leasing->taken; each && !atomic_load(&leasing->stopping); each = each->later) {
        if (!each->is_called && may_call(each))
            call(each);
    }
}

static void begun(void *argument, const struct error *err)
{
    struct keeping *k = argument;
    if (err->kind != ERROR_NONE)
        k->refusal = *err;
    if (k->token && k->refusal.kind == ERROR_UNAUTHENTICATED)
        leasing_stranger(k->leasing, k->caller.remote);
    if (k->refusal.kind != ERROR_NONE) {
        keeping_answer(k);
        return;
    }
    add_one(k->leasing, k);
    start_next(k->leasing);
}

void taking_submit(struct keeping *k)
{
    ledger_submit(k->leasing->options.ledger, begin_rule, begun, k);
}

void keeping_done(struct leasing *leasing)
{
    for (struct keeping *next, *each = leasing->taken; each; each = next) {
        next = each->later;
        error_set(&each->refusal, ERROR_STARTING, "the negotiator stops; ask again");
        keeping_answer(each);
    }
    leasing->taken = NULL;
}
