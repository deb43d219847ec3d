/* asking.c - the document shown, set and explained. */
#include "negotiator/leasing/policy/policy_internal.h"
#include "negotiator/leasing/policy/quotas.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

static const char ROW[] = "meta/policy";

struct policy_question *policy_question_new(void)
{
    return memory_new(sizeof(struct policy_question));
}

void policy_question_free(struct policy_question *question)
{
    if (question == NULL)
        return;
    wanted_done(&question->wanted);
    json_decref(question->document);
    json_decref(question->findings);
    json_decref(question->settings);
    free(question);
}

/* --- the row --- */

/* What a row says; the caller owns the document. */
struct stored {
    json_t *document; /* NULL: there is none */
    int64_t version, set_at;
    char set_by[PRINCIPAL_BYTES];
    uint64_t revision;
};

static bool parse(struct stored *stored, const struct kv_value *value, struct error *err)
{
    json_t *json = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    json_int_t version = 0, set_at = 0;
    const char *set_by = NULL;
    bool read = json &&
                json_unpack(json, "{s:I, s:I, s:s, s:O}", "version", &version, "set_at", &set_at, "set_by", &set_by,
                            "document", &stored->document) == 0 &&
                text_copy(stored->set_by, sizeof stored->set_by, set_by);
    json_decref(json);
    stored->version = version;
    stored->set_at = set_at;
    stored->revision = value->revision;
    return read || error_set(err, ERROR_INTERNAL, "the row of the policy is damaged");
}

static bool get(struct work *work, struct stored *stored)
{
    AUTO_KV_VALUE value = {0};
    *stored = (struct stored){.document = NULL};
    return kv_get(work->kv, ROW, &value, work->err) && (value.revision == 0 || parse(stored, &value, work->err));
}

static void take(struct policies *policies, json_t *document, int64_t version, int64_t set_at, const char *set_by)
{
    pthread_rwlock_wrlock(&policies->lock);
    json_decref(policies->document);
    policies->document = document;
    policies->version = version;
    policies->set_at = set_at;
    if (!text_copy(policies->set_by, sizeof policies->set_by, set_by))
        policies->set_by[0] = '\0'; /* cannot be: it is a principal's name */
    pthread_rwlock_unlock(&policies->lock);
}

/* One that this program does not understand says more or less than it would hold to: it is no policy. */
bool policies_load(struct work *work)
{
    struct stored stored;
    struct error why = {0};
    if (!get(work, &stored)) {
        json_decref(stored.document);
        return false;
    }
    if (stored.document && !policy_document_check(stored.document, &why)) {
        json_decref(stored.document);
        return error_set(work->err, ERROR_INTERNAL, "the stored policy does not hold here: %s", why.message);
    }
    if (stored.document)
        take(work->leasing->policies, stored.document, stored.version, stored.set_at, stored.set_by);
    return true;
}

/* --- set --- */

static bool audit(struct work *work, const struct policy_question *q, const char *before)
{
    char detail[2 * POLICY_DIGEST_BYTES + 64];
    bool done = q->refusal.kind == ERROR_NONE;
    if (!text_format(detail, sizeof detail, "version %lld, blake2b %s%s%s", (long long)q->version, q->digest,
                     before[0] ? ", before " : "", before))
        return error_set(work->err, ERROR_INTERNAL, "a record does not fit");
    struct audit_record record = {.action = "policy.set",
                                  .outcome = done ? "ok" : "refused",
                                  .status = done ? 200 : error_http_status(q->refusal.kind),
                                  .detail = done ? detail : q->refusal.message};
    return store_audit(work, &q->caller, &record);
}

static void put(struct work *work, const struct policy_question *q, uint64_t revision)
{
    json_t *json = json_pack("{s:I, s:I, s:s, s:O}", "version", (json_int_t)q->version, "set_at", (json_int_t)work->now,
                             "set_by", q->caller.principal.name, "document", q->document);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_expect(work->change, ROW, revision);
    kv_change_put(work->change, ROW, text, strlen(text));
}

static bool set(struct work *work, struct policy_question *q, int64_t expected)
{
    struct stored stored;
    char before[POLICY_DIGEST_BYTES] = "";
    if (!get(work, &stored)) {
        json_decref(stored.document);
        return false;
    }
    if (stored.document)
        policy_document_digest(stored.document, before);
    json_decref(stored.document);
    if (!q->any_version && stored.version != expected)
        error_set(&q->refusal, ERROR_PRECONDITION, "the policy is version %lld, not %lld: look at it again",
                  (long long)stored.version, (long long)expected);
    q->version = stored.version + 1;
    q->set_at = work->now;
    policy_document_digest(q->document, q->digest);
    if (q->refusal.kind == ERROR_NONE)
        put(work, q, stored.revision);
    return audit(work, q, before);
}

struct setting {
    struct policy_question *q;
    int64_t expected;
};

static enum kv_outcome set_rule(struct kv *kv, void *argument, struct error *err)
{
    struct setting *setting = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(setting->q->leasing, kv, change, err);
    setting->q->refusal = (struct error){0};
    return set(&work, setting->q, setting->expected) ? store_apply(&work) : KV_FAILED;
}

static void answer(struct policy_question *q, const struct error *err)
{
    if (err->kind != ERROR_NONE)
        q->refusal = *err;
    q->answered(q->cookie, q);
}

static void set_done(void *argument, const struct error *err)
{
    AUTO_FREE struct setting *setting = argument;
    struct policy_question *q = setting->q;
    if (err->kind == ERROR_NONE && q->refusal.kind == ERROR_NONE)
        take(q->leasing->policies, json_deep_copy(q->document), q->version, q->set_at, q->caller.principal.name);
    memcpy(q->set_by, q->caller.principal.name, sizeof q->set_by);
    answer(q, err);
}

/* --- shown --- */

static void show(struct policy_question *q)
{
    const struct policies *policies = q->leasing->policies;
    q->document = json_deep_copy(policies->document);
    q->settings = json_deep_copy(policies->settings);
    q->version = policies->version;
    q->set_at = policies->set_at;
    memcpy(q->set_by, policies->set_by, sizeof q->set_by);
    policy_document_digest(q->document ? q->document : q->settings, q->digest);
}

/* --- explained --- */

static void note_used(void *cookie, const struct policy_finding *finding, int64_t used)
{
    static const char *const VERDICTS[] = {[POLICY_YES] = "yes", [POLICY_CUT] = "cut", [POLICY_NO] = "no"};
    json_t *json =
        json_pack("{s:s, s:s, s:O?, s:O?, s:s}", "rule", finding->rule, "verdict", VERDICTS[finding->verdict], "asked",
                  finding->asked, "allowed", finding->allowed, "where", finding->where);
    if (used >= 0)
        json_object_set_new(json, "used", json_integer(used));
    json_array_append_new(cookie, json);
}

static void note(void *cookie, const struct policy_finding *finding)
{
    note_used(cookie, finding, -1);
}

/* Others' rules are the admin's to know. */
static bool may_ask(struct policy_question *q)
{
    const struct caller *caller = &q->caller;
    if (!caller_may(caller, ROLE_USER, &q->refusal))
        return false;
    bool is_other = q->role_given && q->role != caller->principal.role;
    return !is_other || caller->principal.role == ROLE_ADMIN ||
           error_set(&q->refusal, ERROR_FORBIDDEN, "only an admin may ask about another role than his own");
}

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value ? value : fallback;
}

static bool explain(struct work *work, struct policy_question *q)
{
    const struct resources *fallback = &work->leasing->options.limits.resources, *asked = &q->wanted.resources;
    struct policy_subject who = policy_subject(&q->caller, q->wanted.actor);
    const struct policy_wish wish = policy_wish(&q->wanted);
    bool is_himself = strcmp(who.principal, q->caller.principal.name) == 0;
    who.role = q->role_given ? q->role : is_himself ? who.role : ROLE_USER;
    if (!is_himself || q->role_given)
        who.limits = QUOTA_NONE; /* those are of the key that asks */
    struct resources resources = {.cpu_milli = or_default(asked->cpu_milli, fallback->cpu_milli),
                                  .memory_mb = or_default(asked->memory_mb, fallback->memory_mb),
                                  .disk_mb = or_default(asked->disk_mb, fallback->disk_mb)};
    if (resources.disk_mb == 0)
        resources.disk_mb = quota_disk_mb(work->leasing, &who);
    json_decref(q->findings);
    q->findings = json_array();
    policy_explain(work->leasing, &who, &wish, note, q->findings);
    return quota_explain(work, &who, &resources, note_used, q->findings);
}

static enum kv_outcome read_rule(struct kv *kv, void *argument, struct error *err)
{
    struct policy_question *q = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(q->leasing, kv, change, err);
    q->refusal = (struct error){0};
    if (q->verb == POLICY_SHOW)
        show(q);
    else if (may_ask(q) && !explain(&work, q))
        return KV_FAILED;
    return KV_APPLIED;
}

static void read_done(void *argument, const struct error *err)
{
    struct policy_question *q = argument;
    const struct leasing_refusal refusal = {.caller = &q->caller, .action = "read", .err = &q->refusal};
    if (q->refusal.kind != ERROR_NONE)
        leasing_refused(q->leasing, &refusal);
    answer(q, err);
}

bool leasing_ask_policy(struct leasing *leasing, struct policy_question *q, struct error *err)
{
    q->leasing = leasing;
    if (q->verb == POLICY_WHY && !wanted_check(&q->wanted, &leasing->options.limits, err))
        return false;
    if (q->verb != POLICY_SET) {
        ledger_submit(leasing->options.ledger, read_rule, read_done, q);
        return true;
    }
    if (!policy_document_check(q->document, err))
        return false;
    struct setting *setting = memory_new(sizeof *setting);
    *setting = (struct setting){.q = q, .expected = q->version};
    ledger_submit(leasing->options.ledger, set_rule, set_done, setting);
    return true;
}
