/* changing_rules.c - what may be changed of a sandbox, and what its row says afterwards: the two rules on either side
 * of the call to its node. */
#include "negotiator/leasing/changing.h"
#include "negotiator/leasing/incidents/freeze.h"
#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/marks.h"
#include "negotiator/leasing/presented.h"
#include "shared/base/clock.h"

#include <string.h>

static const int64_t REFUSED_AGAIN_MS = 300000; /* its node cannot pause it */

/* --- what may be done --- */

static const char *action_of(const struct changing *changing)
{
    static const char *const ACTIONS[] = {[CHANGING_PAUSE] = "sandbox.pause",
                                          [CHANGING_RESUME] = "sandbox.resume",
                                          [CHANGING_RENEW] = "sandbox.renew",
                                          [CHANGING_UPDATE] = "sandbox.update"};
    return ACTIONS[changing->verb];
}

static bool audit(struct work *work, const struct changing *changing, const char *detail)
{
    bool done = changing->refusal.kind == ERROR_NONE;
    const struct sandbox *sandbox = &changing->sandbox;
    struct audit_record record = {.node = sandbox->node,
                                  .action = action_of(changing),
                                  .outcome = done                  ? "ok"
                                             : changing->by_itself ? "failed"
                                                                   : "refused",
                                  .principal = changing->by_itself ? sandbox->principal : NULL,
                                  .status = done ? 200 : error_http_status(changing->refusal.kind),
                                  .sandbox_id = sandbox->revision ? sandbox->id : changing->sandbox_id,
                                  .detail = done ? detail : changing->refusal.message};
    return store_audit(work, changing->by_itself ? NULL : &changing->caller, &record);
}

static bool is_open(struct changing *changing)
{
    const struct sandbox *sandbox = &changing->sandbox;
    if (!sandbox_is_live(sandbox))
        return error_set(&changing->refusal, ERROR_GONE, "sandbox %s has ended%s%s", sandbox->id,
                         sandbox->reason[0] ? ": " : "", sandbox->reason);
    return sandbox->state != SANDBOX_PROVISIONING ||
           error_set(&changing->refusal, ERROR_STARTING, "sandbox %s is still being made; ask again", sandbox->id);
}

static bool is_reachable(const struct work *work, struct changing *changing)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    char url[SANDBOX_URL_BYTES];
    enum node_life life = nodes->find(nodes->context, changing->sandbox.node, url);
    return life == NODE_ALIVE || life == NODE_SUSPECT ||
           error_set(&changing->refusal, ERROR_NODE_UNREACHABLE, "node %s, which has sandbox %s, does not answer",
                     changing->sandbox.node, changing->sandbox.id);
}

static bool is_name_free(struct work *work, struct changing *changing)
{
    char holder[RANDOM_ID_BYTES];
    const struct sandbox *sandbox = &changing->sandbox;
    if (changing->wanted.name[0] == '\0' || strcmp(changing->wanted.name, sandbox->name) == 0)
        return true;
    if (!store_get_name(work, sandbox->principal, changing->wanted.name, holder))
        return false;
    return holder[0] == '\0' || error_set(&changing->refusal, ERROR_CONFLICT, "the name %s is taken by sandbox %s",
                                          changing->wanted.name, holder);
}

bool changing_has_resources(const struct resources *resources)
{
    return resources->cpu_milli || resources->memory_mb || resources->disk_mb || resources->pids ||
           resources->open_files || resources->processes || resources->output_mb;
}

/* Whoever asks, it is about the owner's things. */
static struct policy_subject subject_of(const struct changing *changing)
{
    struct policy_subject who = policy_subject(&changing->caller, NULL);
    who.principal = changing->sandbox.principal;
    return who;
}

/* What the patch makes of its metadata is judged as what is given whole. */
static bool merge(struct changing *changing)
{
    const char *name;
    json_t *value;
    if (changing->metadata_patch == NULL)
        return true;
    json_decref(changing->merged);
    changing->merged = changing->sandbox.metadata ? json_copy(changing->sandbox.metadata) : json_object();
    json_object_foreach (changing->metadata_patch, name, value) {
        if (json_is_null(value))
            json_object_del(changing->merged, name);
        else
            json_object_set(changing->merged, name, value);
    }
    return wanted_check_metadata(changing->merged, false, &changing->refusal);
}

/* Who asks strictly wants to have done it. */
static bool is_otherwise(struct changing *changing)
{
    bool pauses = changing->verb == CHANGING_PAUSE, is_paused = changing->sandbox.state == SANDBOX_PAUSED;
    if (!changing->is_strict || (!pauses && changing->verb != CHANGING_RESUME) || pauses != is_paused)
        return true;
    return error_set(&changing->refusal, ERROR_CONFLICT, "sandbox %s is %s", changing->sandbox.id,
                     is_paused ? "paused already" : "not paused");
}

/* Whether its node has to know before the row says so: of a renewal only a sooner end than it has. */
static bool needs_node(const struct changing *changing)
{
    if (changing->verb == CHANGING_UPDATE)
        return changing_has_resources(&changing->wanted.resources) || changing->wanted.network;
    return changing->verb != CHANGING_RENEW || changing->expires_at < changing->sandbox.node_deadline;
}

static bool is_in_policy(const struct work *work, struct changing *changing)
{
    const struct policy_subject who = subject_of(changing);
    const struct policy_wish wish = {.network = changing->wanted.network};
    return policy_check(work->leasing, &who, &wish, &changing->refusal);
}

static bool reserve(struct work *work, struct changing *changing)
{
    const struct policy_subject who = subject_of(changing);
    if (changing->verb != CHANGING_UPDATE || !changing_has_resources(&changing->wanted.resources))
        return true;
    return quota_reserve(work, &who, &changing->sandbox, &changing->wanted.resources, &changing->reservation,
                         &changing->refusal);
}

/* Who shows a capability of the sandbox that may change its network is its principal, as role user. */
static bool admit(struct work *work, struct changing *changing)
{
    AUTO_PRESENTED presented = {.grace_s = CAPABILITY_LEEWAY_S - 1};
    const struct capability_claims *claims = &presented.claims;
    struct error *refusal = &changing->refusal;
    if (changing->token == NULL)
        return true;
    changing->is_stranger = true;
    if (!presented_judge(work, changing->token, &presented, refusal))
        return false;
    if (strcmp(claims->sandbox_id, changing->sandbox_id) != 0)
        return error_set(refusal, ERROR_UNAUTHENTICATED, "the token is not valid");
    if (marks_refuse(work->leasing, claims, work->now))
        return error_set(refusal, ERROR_TOKEN_REVOKED, "the token is revoked");
    struct principal *holder = &changing->caller.principal;
    *holder = (struct principal){.role = ROLE_USER};
    if (!text_copy(holder->name, sizeof holder->name, claims->principal) ||
        !text_copy(holder->actor, sizeof holder->actor, claims->actor))
        return error_set(refusal, ERROR_UNAUTHENTICATED, "the token is not valid");
    changing->is_stranger = false;
    return scope_allows(&claims->scopes, "network") ||
           error_set(refusal, ERROR_CAPABILITY_DENIED, "this needs scope network");
}

static bool edit(struct changing *changing)
{
    if (!changing->edit_network)
        return true;
    json_decref(changing->wanted.network);
    changing->wanted.network =
        changing->edit_network(changing->edit_cookie, changing->sandbox.network, &changing->refusal);
    return changing->wanted.network != NULL;
}

static bool check(struct work *work, struct changing *changing)
{
    if (!admit(work, changing))
        return false;
    const struct caller *caller = &changing->caller;
    if (!changing->by_itself && !caller_may(caller, ROLE_USER, &changing->refusal))
        return false;
    if (!store_get_sandbox(work, changing->sandbox_id, &changing->sandbox))
        return false;
    bool is_ours = changing->by_itself || changing->token || caller->principal.role == ROLE_ADMIN ||
                   strcmp(changing->sandbox.principal, caller->principal.name) == 0;
    if (changing->sandbox.revision == 0 || !is_ours)
        return error_set(&changing->refusal, ERROR_NOT_FOUND, "no sandbox %s", changing->sandbox_id);
    if (!edit(changing))
        return false;
    changing->needs_node = needs_node(changing);
    if (!changing->by_itself && !is_in_policy(work, changing))
        return false;
    bool wakes = changing->verb == CHANGING_RESUME && !changing->is_incidents;
    bool alters = (changing->verb == CHANGING_UPDATE || changing->verb == CHANGING_RENEW) && !changing->by_itself;
    if ((wakes && !freeze_allows(work, changing->sandbox.principal, &changing->refusal)) ||
        (alters && !freeze_lets_go(work, caller, changing->sandbox.principal, &changing->refusal)))
        return false;
    if (!is_open(changing) || !is_otherwise(changing) || !merge(changing) ||
        (changing->verb == CHANGING_RENEW && !renewing_check(work, changing)))
        return false;
    return is_name_free(work, changing) && (!changing->needs_node || is_reachable(work, changing)) &&
           reserve(work, changing);
}

static enum kv_outcome refuse(struct work *work, struct changing *changing)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work own = *work;
    own.change = change;
    return audit(&own, changing, "") ? store_apply(&own) : KV_FAILED;
}

enum kv_outcome changing_check_rule(struct kv *kv, void *argument, struct error *err)
{
    struct changing *changing = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(changing->leasing, kv, change, err);
    changing->refusal = (struct error){0};
    changing->skipped = false;
    sandbox_done(&changing->sandbox);
    if (!check(&work, changing)) {
        changing->skipped = changing->by_itself;                       /* the next look sees what it is */
        bool is_told = !changing->by_itself && !changing->is_stranger; /* strangers are summed */
        return changing->refusal.kind == ERROR_NONE ? KV_FAILED : is_told ? refuse(&work, changing) : KV_APPLIED;
    }
    changing->skipped = changing->by_itself && changing->sandbox.state != SANDBOX_ACTIVE;
    return KV_APPLIED;
}

/* --- what came of it --- */

static void take_limits(struct resources *resources, const struct resources *in_force)
{
    int64_t *const to[] = {&resources->cpu_milli,  &resources->memory_mb, &resources->disk_mb,  &resources->pids,
                           &resources->open_files, &resources->processes, &resources->output_mb};
    const int64_t from[] = {in_force->cpu_milli,  in_force->memory_mb, in_force->disk_mb,  in_force->pids,
                            in_force->open_files, in_force->processes, in_force->output_mb};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        *to[i] = from[i] ? from[i] : *to[i];
}

/* A name that was taken meanwhile: the limits are in force all the same, and the row says so. */
static bool rename_it(struct work *work, struct changing *changing)
{
    struct sandbox *sandbox = &changing->sandbox;
    const char *name = changing->wanted.name;
    if (name[0] == '\0' || strcmp(name, sandbox->name) == 0)
        return true;
    if (!is_name_free(work, changing))
        return changing->refusal.kind != ERROR_NONE;
    store_free_name(work, sandbox);
    memcpy(sandbox->name, name, sizeof sandbox->name);
    store_take_name(work, sandbox);
    return true;
}

static bool update(struct work *work, struct changing *changing)
{
    struct sandbox *sandbox = &changing->sandbox;
    const struct wanted *wanted = &changing->wanted;
    const struct resources before = sandbox->resources;
    take_limits(&sandbox->resources, &changing->in_force);
    if (!quota_adjust(work, sandbox, &before))
        return false;
    if (wanted->network) {
        json_decref(sandbox->network);
        sandbox->network = json_incref(wanted->network);
    }
    if (!rename_it(work, changing))
        return false;
    bool is_whole = changing->refusal.kind == ERROR_NONE;
    if (!is_whole && changing->needs_node)
        (void)error_prefix(&changing->refusal, "the %s changed, but nothing else",
                           wanted->network ? "network was" : "resources were");
    if (is_whole && wanted->on_idle_given)
        sandbox->on_idle = wanted->on_idle;
    json_t *metadata = changing->merged ? changing->merged : wanted->metadata;
    if (is_whole && metadata) {
        json_decref(sandbox->metadata);
        sandbox->metadata = json_incref(metadata);
    }
    return true;
}

static bool apply(struct work *work, struct changing *changing)
{
    struct sandbox *sandbox = &changing->sandbox;
    if (changing->verb == CHANGING_UPDATE && !update(work, changing))
        return false;
    if (changing->verb == CHANGING_RENEW && !renewing_apply(work, changing))
        return false;
    if (changing->verb == CHANGING_PAUSE || changing->verb == CHANGING_RESUME)
        sandbox_set_paused(sandbox, changing->verb == CHANGING_PAUSE, work->now);
    store_put_sandbox(work, sandbox);
    store_watch(work, sandbox, work->now); /* its leases end at other times now */
    char until[sizeof "until " + CLOCK_TEXT_BYTES] = "until ";
    if (changing->verb == CHANGING_RENEW)
        clock_format(until + strlen(until), changing->expires_at);
    return audit(work, changing, changing->by_itself ? "idle" : changing->verb == CHANGING_RENEW ? until : "");
}

/* The node said no. What nobody asked for is not tried at once again. */
static bool fail(struct work *work, struct changing *changing)
{
    const struct sandbox *sandbox = &changing->sandbox;
    enum error_kind kind = changing->failure.kind;
    bool is_gone = kind == ERROR_NOT_FOUND || kind == ERROR_GONE;
    error_set(&changing->refusal, is_gone ? ERROR_GONE : settle_kind(kind), "%s", changing->failure.message);
    if (changing->by_itself && changing->refusal.kind == ERROR_NODE_UNREACHABLE)
        return true; /* the next look tries it again, and sees whether the node is lost */
    if (changing->by_itself && sandbox_is_live(sandbox))
        store_watch(work, sandbox, work->now + REFUSED_AGAIN_MS);
    return audit(work, changing, "");
}

enum kv_outcome changing_apply_rule(struct kv *kv, void *argument, struct error *err)
{
    struct changing *changing = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(changing->leasing, kv, change, err);
    changing->refusal = (struct error){0};
    if (!store_get_sandbox(&work, changing->sandbox_id, &changing->sandbox))
        return KV_FAILED;
    if (changing->failure.kind != ERROR_NONE)
        return fail(&work, changing) ? store_apply(&work) : KV_FAILED;
    if (!is_open(changing) || !merge(changing))
        return refuse(&work, changing);
    if (!apply(&work, changing))
        return changing->refusal.kind != ERROR_NONE ? refuse(&work, changing) : KV_FAILED;
    return store_apply(&work);
}
