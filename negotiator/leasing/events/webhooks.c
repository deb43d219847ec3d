/* webhooks.c - what people ask about webhooks: one is made, changed, looked at, given another secret, and goes. */
#include "negotiator/leasing/events/webhook_row.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct webhook_question *webhook_question_new(void)
{
    return memory_new(sizeof(struct webhook_question));
}

static void drop_list(struct webhook_question *q)
{
    for (size_t i = 0; i < q->count; i++)
        webhook_done(&q->list[i]);
    free(TAKE(q->list));
    q->count = 0;
}

void webhook_question_free(struct webhook_question *q)
{
    if (q == NULL)
        return;
    drop_list(q);
    webhook_done(&q->webhook);
    json_decref(q->body);
    free(q);
}

/* --- records --- */

/* Of the URL no more than its host: a path or a query may be a secret of the receiver's. */
static void describe(const struct webhook *webhook, char *to, size_t size)
{
    const char *host = strstr(webhook->url, "://");
    host = host ? host + 3 : webhook->url;
    snprintf(to, size, "%s to %.*s", webhook->id, (int)strcspn(host, "/?#"), host);
}

static bool audit(struct work *work, const struct webhook_question *q, const char *action, int status, uint64_t *seq)
{
    char detail[512];
    describe(&q->webhook, detail, sizeof detail);
    bool done = q->refusal.kind == ERROR_NONE;
    struct audit_record record = {.action = action,
                                  .outcome = done ? "ok" : "refused",
                                  .status = done ? status : error_http_status(q->refusal.kind),
                                  .detail = done ? detail : q->refusal.message};
    bool told = store_audit(work, &q->caller, &record);
    if (told && seq)
        *seq = record.seq;
    return told;
}

/* --- which one --- */

/* Not the caller's: as if there were none. */
static bool find(struct work *work, struct webhook_question *q, enum role needed)
{
    if (!caller_may(&q->caller, needed, &q->refusal) || !webhook_get(work->kv, q->id, &q->webhook, work->err))
        return false;
    bool is_admin = q->caller.principal.role == ROLE_ADMIN && q->caller.owner[0] == '\0';
    bool is_own = strcmp(q->webhook.principal, caller_owner(&q->caller)) == 0;
    return (q->webhook.revision > 0 && (is_own || is_admin)) ||
           error_set(&q->refusal, ERROR_NOT_FOUND, "no webhook %s", q->id);
}

static bool count_one(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

static bool has_room(struct work *work, struct webhook_question *q, const char *owner)
{
    size_t own = 0, all = 0;
    if (!kv_range(work->kv, store_key("hookowned", owner, "").text, NULL, WEBHOOKS_MAX, count_one, &own, work->err) ||
        !kv_range(work->kv, "webhook/", "webhook0", WEBHOOKS_ALL_MAX, count_one, &all, work->err))
        return false;
    if (own >= WEBHOOKS_MAX)
        return error_set(&q->refusal, ERROR_QUOTA, "%s has %d webhooks already, the most one may have", owner,
                         WEBHOOKS_MAX);
    return all < WEBHOOKS_ALL_MAX ||
           error_set(&q->refusal, ERROR_QUOTA, "there are %d webhooks already, the most there may be",
                     WEBHOOKS_ALL_MAX);
}

/* --- changes --- */

/* What of everybody's may only be an admin's own. */
static bool check_all(struct webhook_question *q, const char *owner)
{
    bool is_admin = q->caller.principal.role == ROLE_ADMIN;
    return !q->all || (is_admin && strcmp(owner, q->caller.principal.name) == 0) ||
           error_set(&q->refusal, ERROR_FORBIDDEN, "all is an admin's, for a webhook of his own");
}

static bool take_fields(struct webhook_question *q)
{
    struct webhook *webhook = &q->webhook;
    bool fits = (q->url == NULL || text_copy(webhook->url, sizeof webhook->url, q->url)) &&
                (q->types == NULL || text_copy(webhook->types, sizeof webhook->types, q->types));
    if (q->url)
        webhook->is_admins = q->caller.principal.role == ROLE_ADMIN;
    if (q->has_all)
        webhook->all = q->all;
    if (q->has_enabled)
        webhook->enabled = q->enabled;
    if (q->has_enabled || q->url) { /* a fresh start: at once, and a day long */
        webhook->reason[0] = '\0';
        webhook->failing_since = webhook->next_at = 0;
        webhook->attempts = 0;
    }
    return fits || error_set(&q->refusal, ERROR_INVALID, "url or types is too long");
}

static bool make(struct work *work, struct webhook_question *q)
{
    const char *owner = caller_owner(&q->caller);
    webhook_done(&q->webhook);
    q->webhook = (struct webhook){.enabled = true, .secret = 1, .created_at = work->now, .last = json_array()};
    random_id(q->webhook.id, "whk");
    if (!caller_may(&q->caller, ROLE_USER, &q->refusal) || !check_all(q, owner) || !has_room(work, q, owner) ||
        !take_fields(q))
        return false;
    if (!text_copy(q->webhook.principal, sizeof q->webhook.principal, owner))
        return error_set(&q->refusal, ERROR_INVALID, "principal is too long");
    /* It begins behind the record of its own making. */
    if (!audit(work, q, "webhook.create", 201, &q->webhook.cursor))
        return false;
    webhook_put(work, &q->webhook);
    kv_change_put(work->change, store_key("hookowned", owner, q->webhook.id).text, "", 0);
    return true;
}

/* One of everybody's events is an admin's also when a key of lower role is the same principal's: it could send them
 * elsewhere. */
static bool find_to_change(struct work *work, struct webhook_question *q)
{
    if (!find(work, q, ROLE_USER))
        return false;
    return !q->webhook.all || q->caller.principal.role == ROLE_ADMIN ||
           error_set(&q->refusal, ERROR_FORBIDDEN, "webhook %s is of everybody's events: this needs role admin", q->id);
}

static bool modify(struct work *work, struct webhook_question *q)
{
    if (!find_to_change(work, q) || !check_all(q, q->webhook.principal) || !take_fields(q))
        return false;
    webhook_put(work, &q->webhook);
    return audit(work, q, "webhook.update", 200, NULL);
}

static bool rotate(struct work *work, struct webhook_question *q)
{
    if (!find_to_change(work, q))
        return false;
    q->webhook.secret++;
    q->webhook.old_until = q->grace_s > 0 ? work->now + q->grace_s * 1000 : 0;
    webhook_put(work, &q->webhook);
    return audit(work, q, "webhook.rotate", 200, NULL);
}

static bool drop(struct work *work, struct webhook_question *q)
{
    if (!find_to_change(work, q))
        return false;
    struct store_row row = store_key("webhook", q->id, NULL);
    kv_change_expect(work->change, row.text, q->webhook.revision);
    kv_change_delete(work->change, row.text);
    kv_change_delete(work->change, store_key("hookowned", q->webhook.principal, q->id).text);
    return audit(work, q, "webhook.delete", 204, NULL);
}

/* --- lists --- */

struct listing {
    struct work *work;
    struct webhook_question *q;
    size_t room;
    bool failed;
};

static bool list_one(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct listing *listing = cookie;
    struct webhook *webhook = &listing->q->list[listing->q->count];
    if (listing->q->count == listing->room)
        return false;
    listing->failed = !webhook_get(listing->work->kv, strrchr(key, '/') + 1, webhook, listing->work->err);
    listing->q->count += !listing->failed && webhook->revision > 0;
    return !listing->failed;
}

static bool list(struct work *work, struct webhook_question *q)
{
    struct listing listing = {.work = work, .q = q, .room = q->all ? WEBHOOKS_ALL_MAX : WEBHOOKS_MAX};
    drop_list(q);
    if (!caller_may(&q->caller, ROLE_VIEWER, &q->refusal))
        return false;
    if (q->all && q->caller.principal.role != ROLE_ADMIN)
        return error_set(&q->refusal, ERROR_FORBIDDEN, "all=1 needs role admin");
    q->list = memory_array(listing.room, sizeof *q->list);
    struct store_row of_owner = store_key("hookowned", caller_owner(&q->caller), "");
    return kv_range(work->kv, q->all ? "webhook/" : of_owner.text, NULL, listing.room, list_one, &listing, work->err) &&
           !listing.failed;
}

/* --- the rule --- */

static bool answer(struct work *work, struct webhook_question *q)
{
    switch (q->verb) {
    case WEBHOOK_MAKE:
        return make(work, q);
    case WEBHOOK_CHANGE:
        return modify(work, q);
    case WEBHOOK_ROTATE:
        return rotate(work, q);
    case WEBHOOK_DROP:
        return drop(work, q);
    case WEBHOOK_LIST:
        return list(work, q);
    case WEBHOOK_TEST:
        return find(work, q, ROLE_USER);
    case WEBHOOK_FIND:
    default:
        return find(work, q, ROLE_VIEWER);
    }
}

static const char *action_of(const struct webhook_question *q)
{
    static const char *const ACTIONS[] = {[WEBHOOK_MAKE] = "webhook.create",
                                          [WEBHOOK_CHANGE] = "webhook.update",
                                          [WEBHOOK_ROTATE] = "webhook.rotate",
                                          [WEBHOOK_DROP] = "webhook.delete",
                                          [WEBHOOK_LIST] = NULL,
                                          [WEBHOOK_FIND] = NULL,
                                          [WEBHOOK_TEST] = NULL};
    return ACTIONS[q->verb];
}

/* A refusal that changes nothing is told in a change of its own. */
static enum kv_outcome refuse(struct webhook_question *q, struct kv *kv, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    if (action_of(q) == NULL)
        return KV_APPLIED;
    return audit(&work, q, action_of(q), 0, NULL) ? store_apply(&work) : KV_FAILED;
}

static enum kv_outcome rule(struct kv *kv, void *argument, struct error *err)
{
    struct webhook_question *q = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    q->refusal = (struct error){0};
    if (answer(&work, q))
        return action_of(q) ? store_apply(&work) : KV_APPLIED;
    return q->refusal.kind == ERROR_NONE ? KV_FAILED : refuse(q, kv, err);
}

static void done(void *argument, const struct error *err)
{
    struct webhook_question *q = argument;
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    q->answered(q->cookie, q);
}

void leasing_ask_webhooks(struct leasing *leasing, struct webhook_question *q)
{
    q->leasing = leasing;
    ledger_submit(leasing->options.ledger, rule, done, q);
}
