/* opening.c - one is opened: what its selectors mean, who is frozen, and its row. */
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/incidents/incidents_internal.h"
#include "negotiator/leasing/keys/api_key.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

/* What one selector leads to; "" nothing, or more than one. */
struct meaning {
    char owner[PRINCIPAL_BYTES];
    char sandbox[RANDOM_ID_BYTES];
};

static bool refuse_unknown(struct incident_question *q, const struct incident_selector *selector)
{
    return error_set(&q->refusal, ERROR_NOT_FOUND, "no such %s: %.100s", mark_kind_name(selector->kind),
                     selector->value);
}

static bool take(struct work *work, struct meaning *to, const char *owner, const char *sandbox)
{
    return (text_copy(to->owner, sizeof to->owner, owner) && text_copy(to->sandbox, sizeof to->sandbox, sandbox)) ||
           error_set(work->err, ERROR_INTERNAL, "a row's names do not fit");
}

static bool find_sandbox(struct work *work, struct incident_question *q, const struct incident_selector *selector,
                         struct meaning *to)
{
    AUTO_SANDBOX sandbox = {0};
    if (!store_get_sandbox(work, selector->value, &sandbox))
        return false;
    return sandbox.revision > 0 ? take(work, to, sandbox.principal, sandbox.id) : refuse_unknown(q, selector);
}

static bool find_thread(struct work *work, struct incident_question *q, const struct incident_selector *selector,
                        struct meaning *to)
{
    struct lease lease;
    if (!lease_is_thread_id(selector->value))
        return refuse_unknown(q, selector);
    if (!store_get_lease(work, selector->principal, selector->value, &lease))
        return false;
    return lease.revision > 0 ? take(work, to, selector->principal, lease.sandbox_id) : refuse_unknown(q, selector);
}

static bool find_lease(struct work *work, struct incident_question *q, const struct incident_selector *selector,
                       struct meaning *to)
{
    char owner[PRINCIPAL_BYTES];
    struct lease lease = {.revision = 0};
    if (!family_of_lease(work, selector->value, owner, &lease))
        return false;
    return owner[0] ? take(work, to, owner, lease.sandbox_id) : refuse_unknown(q, selector);
}

/* One that is not in the ledger is revoked all the same. */
static bool find_token(struct work *work, const struct incident_selector *selector, struct meaning *to)
{
    struct family family;
    char id[CAPABILITY_ID_BYTES] = "";
    int64_t expires_at = 0;
    if (selector->kind == MARK_JTI && !family_of_token(work, selector->value, id, &expires_at))
        return false;
    if (!family_get(work, selector->kind == MARK_JTI && id[0] ? id : selector->value, &family))
        return false;
    return family.revision == 0 || take(work, to, family.principal, family.sandbox_id);
}

static bool find_key(struct work *work, struct incident_question *q, const struct incident_selector *selector,
                     struct meaning *to)
{
    struct api_key key;
    if (!api_key_get(work->kv, selector->value, &key, work->err))
        return false;
    if (key.revision == 0)
        return error_set(&q->refusal, ERROR_NOT_FOUND, "no such key: %.40s", selector->value);
    return take(work, to, key.principal, "");
}

static bool find_meaning(struct work *work, struct incident_question *q, const struct incident_selector *selector,
                         struct meaning *to)
{
    switch (selector->kind) {
    case MARK_SANDBOX:
        return find_sandbox(work, q, selector, to);
    case MARK_THREAD:
        return find_thread(work, q, selector, to);
    case MARK_LEASE:
        return find_lease(work, q, selector, to);
    case MARK_JTI:
    case MARK_FAMILY:
        return find_token(work, selector, to);
    case MARK_PRINCIPAL:
        return take(work, to, selector->value, "");
    case MARK_SCOPE:
        return take(work, to, selector->principal, "");
    case MARK_KINDS:
        return find_key(work, q, selector, to);
    case MARK_LINK:
    case MARK_ALL:
    default:
        return true;
    }
}

/* --- the freeze --- */

static void freeze(struct work *work, struct incident *incident, const char *who)
{
    json_t *frozen = json_object_get(incident->row, "frozen");
    size_t i;
    const json_t *each;
    json_array_foreach (frozen, i, each) {
        if (text_equal(json_string_value(each), who))
            return;
    }
    json_array_append_new(frozen, json_string(who));
    freeze_add(work, who, incident->id);
}

/* Whom a selector is about; a scope or `all` is about everybody. */
static void freeze_for(struct work *work, const struct incident_question *q, struct incident *incident,
                       const struct incident_selector *selector, const struct meaning *meaning)
{
    bool is_wide = selector->kind == MARK_ALL || selector->kind == MARK_SCOPE;
    if (q->freeze == INCIDENT_FREEZE_ALL || (q->freeze == INCIDENT_FREEZE_MATCHING && is_wide && !meaning->owner[0]))
        freeze(work, incident, FREEZE_EVERYBODY);
    else if (q->freeze == INCIDENT_FREEZE_MATCHING && meaning->owner[0])
        freeze(work, incident, meaning->owner);
}

/* --- the row --- */

static bool check_selector(struct incident_question *q, const struct incident_selector *selector)
{
    struct mark mark = {.kind = selector->kind, .epoch = selector->kind == MARK_SANDBOX};
    if (!text_copy(mark.value, sizeof mark.value, selector->value) ||
        !text_copy(mark.principal, sizeof mark.principal, selector->principal))
        return error_set(&q->refusal, ERROR_INVALID, "a selector is too long");
    bool has_owner = selector->principal[0] != '\0';
    if (selector->kind == MARK_KINDS)
        return (!has_owner && random_is_id(selector->value, "key")) ||
               error_set(&q->refusal, ERROR_INVALID, "a key is meant by its id: key_ and 20 of a-z0-9");
    if (has_owner && selector->kind != MARK_THREAD && selector->kind != MARK_SCOPE)
        return error_set(&q->refusal, ERROR_INVALID, "principal goes with a thread or a scope, not with a %s",
                         mark_kind_name(selector->kind));
    if (has_owner && !principal_is_name(selector->principal))
        return error_set(&q->refusal, ERROR_INVALID, "principal is not a name");
    if (selector->kind == MARK_PRINCIPAL && !principal_is_name(selector->value))
        return error_set(&q->refusal, ERROR_INVALID, "principal is not a name");
    return mark_check(&mark, &q->refusal);
}

static bool add_selector(struct work *work, struct incident_question *q, struct incident *incident,
                         const struct incident_selector *selector)
{
    struct meaning meaning = {.owner = ""};
    if (!check_selector(q, selector) || !find_meaning(work, q, selector, &meaning))
        return false;
    freeze_for(work, q, incident, selector, &meaning);
    json_array_append_new(json_object_get(incident->row, "selectors"),
                          json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", incident_kind_name(selector->kind), "value",
                                    selector->value, "principal", selector->principal, "owner", meaning.owner,
                                    "sandbox", meaning.sandbox));
    return true;
}

static bool is_room(struct work *work, struct incident_question *q)
{
    AUTO_INCIDENT_JSON *all = incident_all(work);
    size_t open = 0, i;
    const json_t *each;
    if (all == NULL)
        return false;
    json_array_foreach (all, i, each)
        open += incident_is(each, "state", "open");
    if (json_array_size(all) >= INCIDENT_LIST_MAX)
        return error_set(&q->refusal, ERROR_QUOTA, "%d incidents are kept, the most there may be", INCIDENT_LIST_MAX);
    return open < INCIDENT_OPEN_MAX ||
           error_set(&q->refusal, ERROR_QUOTA, "%d incidents are open; close one first", INCIDENT_OPEN_MAX);
}

static json_t *new_row(const struct work *work, const struct incident_question *q, const char *id)
{
    static const char *const FREEZES[] = {
        [INCIDENT_FREEZE_NONE] = "none", [INCIDENT_FREEZE_MATCHING] = "matching", [INCIDENT_FREEZE_ALL] = "all"};
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:[], s:b, s:b, s:[], s:[], s:i, s:s, s:I, s:s, s:s, s:s}", "id", id,
                     "state", "open", "step", "gather", "reason", q->text, "freeze", FREEZES[q->freeze], "frozen",
                     "revoke", q->revoke, "pause", q->pause, "selectors", "revocations", "suspects", 0, "cursor", "",
                     "opened_at", (json_int_t)work->now, "opened_by", q->caller.principal.name, "remote",
                     q->caller.remote, "request_id", q->caller.request_id);
}

static bool audit_opening(struct work *work, const struct incident_question *q, const struct incident *incident)
{
    AUTO_TEXT detail = {0};
    text_append_format(&detail, "%s freeze=%s revoke=%d pause=%d", incident->id, incident_text(incident->row, "freeze"),
                       q->revoke, q->pause);
    for (size_t i = 0; i < q->selector_count; i++)
        text_append_format(&detail, " %s=%s", incident_kind_name(q->selectors[i].kind), q->selectors[i].value);
    text_append_format(&detail, ": %s", q->text);
    return incident_audit(work, &q->caller, "incident.open", "", NULL, detail.data);
}

bool incident_open(struct work *work, struct incident_question *q)
{
    AUTO_INCIDENT incident = {.revision = 0};
    if (q->selector_count == 0)
        return error_set(&q->refusal, ERROR_INVALID, "at least one selector must be given");
    if (!is_room(work, q))
        return false;
    random_id(incident.id, "inc");
    incident.row = new_row(work, q, incident.id);
    for (size_t i = 0; i < q->selector_count; i++) {
        if (!add_selector(work, q, &incident, &q->selectors[i]))
            return false;
    }
    incident_put(work, &incident);
    memcpy(q->id, incident.id, sizeof q->id);
    q->answer = json_incref(incident.row);
    return audit_opening(work, q, &incident);
}
