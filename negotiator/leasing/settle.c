#include "negotiator/leasing/keeping/volumes.h"
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

/* One call of `prepare`, from the question to the rule that settles the sandbox's fate. */
struct settling {
    struct leasing *leasing;
    char id[RANDOM_ID_BYTES];
    char isolation[SANDBOX_WORD_BYTES];        /* as the node says */
    char isolation_detail[SANDBOX_WORD_BYTES]; /* likewise */
    char storage[SANDBOX_WORD_BYTES];          /* likewise */
    int64_t disk_mb;                           /* likewise: what its storage gives when nothing was asked for */
    bool was_warm;                             /* likewise */
    bool begins_with;                          /* something that may have gone meanwhile: a template, or a snapshot */
    struct error failure;                      /* of the node */
    /* Set anew by each run of the rule. */
    struct error outcome;   /* what those who wait are told; ERROR_NONE: it is active */
    struct sandbox destroy; /* set when the node must take it down again */
};

static const json_int_t MIB = 1024 * 1024;
enum { DESTROY_REASON_BYTES = 63 }; /* of `destroy` (shared/node_protocol/DESIGN.md) */

static void settling_free(struct settling *settling)
{
    sandbox_done(&settling->destroy);
    free(settling);
}

/* --- calls --- */

json_t *settle_message(json_t *message, const struct caller *caller)
{
    if (caller && caller->request_id[0])
        json_object_set_new(message, "request_id", json_string(caller->request_id));
    if (caller && caller->traceparent[0])
        json_object_set_new(message, "traceparent", json_string(caller->traceparent));
    return message;
}

void settle_destroy(struct leasing *leasing, const struct sandbox *sandbox, const struct caller *caller)
{
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    /* A node keeps a word, not the sentence of a failure. */
    size_t length = text_utf8_prefix(sandbox->reason, strnlen(sandbox->reason, DESTROY_REASON_BYTES));
    nodes->call(nodes->context, sandbox->node,
                settle_message(json_pack("{s:s, s:s, s:s%}", "call", "destroy", "id", sandbox->id, "reason",
                                         sandbox->reason, length),
                               caller),
                NULL, NULL);
}

void settle_deadline(struct leasing *leasing, const char *node, const char *id, int64_t deadline)
{
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    nodes->call(nodes->context, node,
                json_pack("{s:s, s:s, s:I}", "call", "deadline", "id", id, "deadline", (json_int_t)deadline), NULL,
                NULL);
}

enum error_kind settle_kind(enum error_kind kind)
{
    switch ((int)kind) {
    case ERROR_INVALID:
    case ERROR_FORBIDDEN:
    case ERROR_CONFLICT:
    case ERROR_NO_CAPACITY:
    case ERROR_DISK_FULL:
    case ERROR_INTERNAL:
        return kind;
    default:
        return ERROR_NODE_UNREACHABLE;
    }
}

static enum kv_outcome settle_rule(struct kv *kv, void *argument, struct error *err);
static void settle_done(void *argument, const struct error *err);

static void prepared(void *cookie, const json_t *reply, const struct error *err)
{
    struct settling *settling = cookie;
    const json_t *made = json_object_get(reply, "sandbox");
    const char *isolation = json_string_value(json_object_get(made, "isolation"));
    if (!text_copy(settling->storage, sizeof settling->storage, json_string_value(json_object_get(made, "storage"))))
        settling->storage[0] = '\0'; /* it only tells people something */
    if (!text_copy(settling->isolation_detail, sizeof settling->isolation_detail,
                   json_string_value(json_object_get(made, "isolation_detail"))))
        settling->isolation_detail[0] = '\0'; /* likewise, and not every node's */
    settling->was_warm = json_is_true(json_object_get(made, "warm"));
    settling->disk_mb = json_integer_value(json_object_get(made, "disk_bytes")) / MIB;
    bool is_gone = err->kind == ERROR_NOT_FOUND && settling->begins_with;
    if (err->kind != ERROR_NONE)
        error_set(&settling->failure, is_gone ? ERROR_NOT_FOUND : settle_kind(err->kind), "%s", err->message);
    else if (!text_copy(settling->isolation, sizeof settling->isolation, isolation))
        error_set(&settling->failure, ERROR_NODE_UNREACHABLE, "the node's answer to prepare has no isolation");
    if (settling->failure.kind != ERROR_NONE && atomic_load(&settling->leasing->stopping)) {
        settling_free(settling); /* the next start asks again */
        return;
    }
    ledger_submit(settling->leasing->options.ledger, settle_rule, settle_done, settling);
}

void settle_prepare(struct leasing *leasing, const struct sandbox *sandbox, const struct caller *caller)
{
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    struct settling *settling = memory_new(sizeof *settling);
    settling->leasing = leasing;
    memcpy(settling->id, sandbox->id, sizeof settling->id);
    settling->begins_with = sandbox->snapshot[0] || !text_equal(sandbox->template_name, "base");
    nodes->call(nodes->context, sandbox->node, settle_message(preparing_message(leasing, sandbox), caller), prepared,
                settling);
}

/* --- the rule --- */

static struct negotiation *creator_of(const struct settling *settling)
{
    struct starting_entry *entry = starting_find(&settling->leasing->starting, settling->id);
    return entry ? entry->creator : NULL;
}

/* It was deleted, or failed, while it was being made. */
static bool settle_late(struct work *work, struct settling *settling, const struct sandbox *sandbox)
{
    error_set(&settling->outcome, ERROR_GONE, "sandbox %s ended while it was being made: %s", settling->id,
              sandbox->revision ? sandbox->reason : "deleted");
    settling->destroy = sandbox_brief(sandbox);
    struct negotiation *creator = creator_of(settling);
    if (creator == NULL)
        return true;
    creator->refusal = settling->outcome;
    return negotiate_audit(work, creator);
}

static bool settle_failed(struct work *work, struct settling *settling, struct sandbox *sandbox)
{
    char reason[SANDBOX_REASON_BYTES];
    settling->outcome = settling->failure;
    if (!text_format(reason, sizeof reason, "failed: %.180s", settling->failure.message))
        return error_set(work->err, ERROR_INTERNAL, "a reason does not fit");
    if (!volumes_unmake(work, sandbox) || !ending_finish(work, sandbox, SANDBOX_FAILED, reason))
        return false;
    settling->destroy = sandbox_brief(sandbox); /* the node may have made it and only its answer was lost */
    struct negotiation *creator = creator_of(settling);
    if (creator)
        creator->refusal = settling->outcome;
    struct audit_record record = {.node = sandbox->node,
                                  .action = "sandbox.failed",
                                  .outcome = "failed",
                                  .principal = sandbox->principal,
                                  .sandbox_id = sandbox->id,
                                  .detail = sandbox->reason};
    return creator ? negotiate_audit(work, creator) : store_audit(work, NULL, &record);
}

/* A sign of life, or a revocation of the lease, may have come meanwhile. */
static bool read_lease_again(struct work *work, struct negotiation *creator)
{
    struct lease lease;
    if (!store_get_lease(work, creator->sandbox.principal, creator->thread_id, &lease))
        return false;
    if (lease.revision > 0 && strcmp(lease.sandbox_id, creator->sandbox.id) == 0)
        creator->lease = lease;
    return true;
}

/* An incident may have been opened meanwhile: the sandbox is there, but nothing is issued for it. */
static bool grant_creator(struct work *work, struct settling *settling, struct negotiation *creator)
{
    creator->refusal = (struct error){0};
    if (negotiate_is_unfrozen(work, creator))
        return negotiate_grant(work, creator);
    settling->outcome = creator->refusal;
    return creator->refusal.kind != ERROR_NONE && negotiate_audit(work, creator);
}

static bool settle_active(struct work *work, struct settling *settling, struct sandbox *sandbox)
{
    const struct leasing_nodes *nodes = &work->leasing->options.nodes;
    sandbox->state = SANDBOX_ACTIVE;
    sandbox->active_since = sandbox->state_since = work->now;
    sandbox->incarnation = nodes->incarnation(nodes->context, sandbox->node);
    if (!text_copy(sandbox->isolation, sizeof sandbox->isolation, settling->isolation))
        return error_set(work->err, ERROR_INTERNAL, "an isolation's name does not fit");
    memcpy(sandbox->isolation_detail, settling->isolation_detail, sizeof sandbox->isolation_detail);
    memcpy(sandbox->storage, settling->storage, sizeof sandbox->storage);
    sandbox->was_warm = settling->was_warm;
    const struct resources before = sandbox->resources;
    if (settling->disk_mb > 0)
        sandbox->resources.disk_mb = settling->disk_mb;
    store_put_sandbox(work, sandbox);
    if (!volumes_made(work, sandbox) || !quota_adjust(work, sandbox, &before))
        return false;
    struct negotiation *creator = creator_of(settling);
    if (creator && !read_lease_again(work, creator))
        return false;
    /* It has one lease yet, the creator's; after a restart that is to be looked up. */
    store_watch(work, sandbox, creator ? creator->lease.expires_at : work->now);
    struct audit_record record = {.node = sandbox->node,
                                  .action = "sandbox.finished",
                                  .outcome = "ok",
                                  .principal = sandbox->principal,
                                  .sandbox_id = sandbox->id,
                                  .detail = "made after a restart"};
    if (creator == NULL)
        return store_audit(work, NULL, &record);
    enum node_life life = nodes->find(nodes->context, sandbox->node, creator->url);
    (void)life; /* it has just answered */
    return grant_creator(work, settling, creator);
}

static enum kv_outcome settle_rule(struct kv *kv, void *argument, struct error *err)
{
    struct settling *settling = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(settling->leasing, kv, change, err);
    settling->outcome = (struct error){0};
    sandbox_done(&settling->destroy);
    AUTO_SANDBOX other = {0};
    struct negotiation *creator = creator_of(settling);
    struct sandbox *sandbox = creator ? &creator->sandbox : &other;
    if (!store_get_sandbox(&work, settling->id, sandbox))
        return KV_FAILED;
    bool settled = false;
    if (!sandbox_is_live(sandbox))
        settled = settle_late(&work, settling, sandbox);
    else if (settling->failure.kind != ERROR_NONE && sandbox->state == SANDBOX_PROVISIONING)
        settled = settle_failed(&work, settling, sandbox);
    else
        settled = settle_active(&work, settling, sandbox);
    return settled ? store_apply(&work) : KV_FAILED;
}

/* --- who waits --- */

static void answer_creator(struct starting_entry *entry, const struct error *outcome)
{
    struct negotiation *creator = TAKE(entry->creator);
    if (creator == NULL)
        return;
    creator->refusal = *outcome;
    negotiate_answer(creator);
}

/* Each asks the rules again, now that the sandbox is there: many answers, one sync. */
static void wake_waiters(struct starting_entry *entry, const struct error *outcome)
{
    for (struct negotiation *next, *each = TAKE(entry->waiters); each; each = next) {
        next = each->next;
        each->next = NULL;
        if (outcome->kind == ERROR_NONE && !each->is_abandoned(each->cookie)) {
            negotiate_submit(each);
            continue;
        }
        each->refusal = *outcome;
        if (outcome->kind == ERROR_NONE)
            error_set(&each->refusal, ERROR_STARTING, "nobody waits any more");
        negotiate_answer(each);
    }
}

void settle_tell(struct leasing *leasing, const char *id, const struct error *outcome)
{
    AUTO_FREE struct starting_entry *entry = starting_take(&leasing->starting, id);
    if (entry == NULL)
        return;
    answer_creator(entry, outcome);
    wake_waiters(entry, outcome);
}

/* A node that was asked to make it answers; and its answer is told. */
static void tell_unless_called(struct leasing *leasing, const struct sandbox *sandbox)
{
    const struct starting_entry *entry = starting_find(&leasing->starting, sandbox->id);
    struct error gone = {0};
    error_set(&gone, ERROR_GONE, "sandbox %s ended before it was made: %s", sandbox->id, sandbox->reason);
    if (entry && !entry->called)
        settle_tell(leasing, sandbox->id, &gone);
}

void settle_ended(struct leasing *leasing, const struct sandbox *sandbox, const struct caller *caller)
{
    tell_unless_called(leasing, sandbox);
    settle_destroy(leasing, sandbox, caller);
}

static void settle_done(void *argument, const struct error *err)
{
    struct settling *settling = argument;
    struct leasing *leasing = settling->leasing;
    /* When the store failed the row is provisioning still: the next look at it has it asked for again. */
    const struct error *outcome = err->kind != ERROR_NONE ? err : &settling->outcome;
    settle_tell(leasing, settling->id, outcome);
    if (err->kind == ERROR_NONE && settling->destroy.id[0])
        settle_destroy(leasing, &settling->destroy, NULL);
    settling_free(settling);
}
