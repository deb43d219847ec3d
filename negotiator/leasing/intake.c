#include "negotiator/leasing/intake.h"

#include "negotiator/leasing/leasing_internal.h"
#include "negotiator/leasing/sharing/sharing.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SPOOLS_MAX = 64, ROW_BYTES = SANDBOX_NODE_BYTES + INTAKE_SPOOL_BYTES + 8, STATUS_MAX = 999 };

enum place { HERE, ELSEWHERE, NOWHERE };

/* A sandbox that records of this shipment are about. */
struct seen {
    const char *id; /* borrowed from the message */
    enum place place;
    char node[SANDBOX_NODE_BYTES]; /* the node it is on, */
    char owner[PRINCIPAL_BYTES];   /* and whose it is; not of NOWHERE */
};

/* One run of the rule. */
struct taking {
    struct work work;
    struct intake *intake;
    struct seen *seen; /* INTAKE_RECORDS_MAX of them */
    size_t seen_count;
    uint64_t refused;
};

static const char *get_text(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));
    return text ? text : "";
}

/* --- the row of a spool --- */

static void format_row(char row[static ROW_BYTES], const struct intake *intake)
{
    (void)snprintf(row, ROW_BYTES, "spool/%s/%s", intake->node, intake->spool);
}

struct spools {
    size_t count;
    int64_t oldest_ms;
    char oldest[ROW_BYTES];
};

static bool count_spool(void *cookie, const char *key, const struct kv_value *value)
{
    struct spools *spools = cookie;
    const char *space = strchr(value->data, ' ');
    int64_t when = space ? strtoll(space, NULL, 10) : 0;
    if ((spools->count == 0 || when < spools->oldest_ms) && text_copy(spools->oldest, sizeof spools->oldest, key))
        spools->oldest_ms = when;
    return ++spools->count < SPOOLS_MAX;
}

/* A node begins a new spool when the old one was damaged, never goes back to an old one: of many, the one that was not
 * heard of for longest is forgotten, so that no node fills the ledger with them. */
static bool make_room(struct work *work, const struct intake *intake)
{
    struct spools spools = {0};
    char first[ROW_BYTES];
    (void)snprintf(first, sizeof first, "spool/%s/", intake->node);
    if (!kv_range(work->kv, first, NULL, 0, count_spool, &spools, work->err))
        return false;
    if (spools.count == SPOOLS_MAX)
        kv_change_delete(work->change, spools.oldest);
    return true;
}

/* The last n that is stored, 0 of a new spool. */
static bool read_row(struct taking *taking, uint64_t *last)
{
    struct work *work = &taking->work;
    char row[ROW_BYTES];
    AUTO_KV_VALUE value = {0};
    format_row(row, taking->intake);
    if (!kv_get(work->kv, row, &value, work->err))
        return false;
    kv_change_expect(work->change, row, value.revision);
    *last = 0;
    if (value.revision == 0)
        return make_room(work, taking->intake);
    if (text_parse_u64(value.data, strcspn(value.data, " "), INT64_MAX, last))
        return true;
    return error_set(work->err, ERROR_INTERNAL, "the row of a spool is damaged");
}

static void write_row(struct taking *taking, uint64_t last)
{
    char row[ROW_BYTES], text[64];
    format_row(row, taking->intake);
    int size = snprintf(text, sizeof text, "%" PRIu64 " %" PRId64, last, taking->work.now);
    kv_change_put(taking->work.change, row, text, (size_t)size);
}

/* --- whose sandbox --- */

static bool look_up(struct work *work, const char *node, const char *id, struct seen *seen)
{
    AUTO_SANDBOX sandbox = {0};
    seen->id = id;
    seen->place = NOWHERE;
    if (!random_is_id(id, "sbx"))
        return true;
    if (!store_get_sandbox(work, id, &sandbox))
        return false;
    if (sandbox.revision == 0)
        return true;
    seen->place = text_equal(sandbox.node, node) ? HERE : ELSEWHERE;
    memcpy(seen->node, sandbox.node, sizeof seen->node);
    memcpy(seen->owner, sandbox.principal, sizeof seen->owner);
    return true;
}

/* NULL: the store fails. */
static const struct seen *find_sandbox(struct taking *taking, const char *id)
{
    for (size_t i = taking->seen_count; i > 0; i--) {
        if (strcmp(taking->seen[i - 1].id, id) == 0)
            return &taking->seen[i - 1];
    }
    struct seen *seen = &taking->seen[taking->seen_count];
    if (!look_up(&taking->work, taking->intake->node, id, seen))
        return NULL;
    taking->seen_count++;
    return seen;
}

/* --- the records --- */

static bool append(struct taking *taking, struct audit_record *record)
{
    struct work *work = &taking->work;
    record->plane = record->plane ? record->plane : "negotiator";
    record->node = taking->intake->node;
    return audit_append(work->kv, work->change, &work->leasing->audit_key, record, work->err);
}

/* In place of a record that this node has no business to make. */
static bool refuse(struct taking *taking, const json_t *shipped, uint64_t n, const char *is, const char *what)
{
    AUTO_FREE char *detail =
        memory_printf("spool=%s n=%" PRIu64 " action=%.64s: sandbox %.64s is %s %.64s", taking->intake->spool, n,
                      get_text(shipped, "action"), get_text(shipped, "sandbox_id"), is, what);
    struct audit_record record = {
        .time_ms = taking->work.now, .action = "audit.refused", .outcome = "refused", .status = 403, .detail = detail};
    taking->refused++;
    return append(taking, &record);
}

/* Of the node, but never later than now: the future would keep retention waiting. */
static int64_t time_of(const struct taking *taking, const json_t *shipped)
{
    json_int_t told = json_integer_value(json_object_get(shipped, "time"));
    return told < 0 ? 0 : told > taking->work.now ? taking->work.now : told;
}

static int status_of(const json_t *shipped)
{
    json_int_t told = json_integer_value(json_object_get(shipped, "status"));
    return told < 0 ? 0 : told > STATUS_MAX ? STATUS_MAX : (int)told;
}

static bool store(struct taking *taking, const json_t *shipped, enum place place)
{
    const char *told = get_text(shipped, "detail");
    bool claims = get_text(shipped, "sandbox_id")[0] || get_text(shipped, "principal")[0];
    AUTO_FREE char *marked = place == NOWHERE && claims ? memory_printf("(not in the ledger) %s", told) : NULL;
    struct audit_record record = {.time_ms = time_of(taking, shipped),
                                  .plane = "sandboxd",
                                  .action = get_text(shipped, "action"),
                                  .outcome = get_text(shipped, "outcome"),
                                  .status = status_of(shipped),
                                  .principal = get_text(shipped, "principal"),
                                  .actor = get_text(shipped, "actor"),
                                  .thread_id = get_text(shipped, "thread_id"),
                                  .sandbox_id = get_text(shipped, "sandbox_id"),
                                  .lease = get_text(shipped, "lease"),
                                  .jti = get_text(shipped, "jti"),
                                  .links = get_text(shipped, "links"),
                                  .scope = get_text(shipped, "scope"),
                                  .remote = get_text(shipped, "remote"),
                                  .request_id = get_text(shipped, "request_id"),
                                  .detail = marked ? marked : told};
    return append(taking, &record);
}

static bool take_record(struct taking *taking, const json_t *shipped, uint64_t n)
{
    const struct seen *seen = find_sandbox(taking, get_text(shipped, "sandbox_id"));
    if (seen == NULL)
        return false;
    if (seen->place == ELSEWHERE)
        return refuse(taking, shipped, n, "on node", seen->node);
    /* Of a token of that sandbox: its owner, whom it is shared with, or nobody. */
    const char *principal = get_text(shipped, "principal");
    bool may_be = principal[0] == '\0' || strcmp(principal, seen->owner) == 0;
    if (seen->place == HERE && !may_be && !sharing_is_with(&taking->work, principal, seen->id, &may_be))
        return false;
    if (seen->place == HERE && !may_be)
        return refuse(taking, shipped, n, "of another principal than", principal);
    return store(taking, shipped, seen->place);
}

/* A node ships the oldest it has, and forgets only what was stored: when that is beyond what is stored here, the ledger
 * has lost what is between, with the copy that it was put back from. The node goes on; the hole is told. */
static bool tell_gap(struct taking *taking, uint64_t last, uint64_t first)
{
    AUTO_FREE char *detail =
        memory_printf("spool=%s n=%" PRIu64 " to %" PRIu64 " are not in this ledger, and the node has them no more",
                      taking->intake->spool, last + 1, first - 1);
    struct audit_record record = {
        .time_ms = taking->work.now, .action = "audit.gap", .outcome = "failed", .detail = detail};
    return append(taking, &record);
}

static uint64_t number_of(const json_t *shipped)
{
    json_int_t n = json_integer_value(json_object_get(shipped, "n"));
    return n > 0 ? (uint64_t)n : 0;
}

/* *last moves to the last n that is stored. */
static bool take_all(struct taking *taking, const json_t *records, uint64_t *last)
{
    size_t i;
    const json_t *shipped;
    json_array_foreach (records, i, shipped) {
        uint64_t n = number_of(shipped);
        if (n <= *last)
            continue; /* it came before */
        if (n > *last + 1 && i > 0)
            return true; /* a hole in the middle: up to there */
        if (n > *last + 1 && !tell_gap(taking, *last, n))
            return false;
        if (!take_record(taking, shipped, n))
            return false;
        *last = n;
    }
    return true;
}

/* --- the message --- */

static bool check_message(struct intake *intake, struct error *err)
{
    const json_t *records = json_object_get(intake->message, "records");
    const char *spool = json_string_value(json_object_get(intake->message, "spool"));
    size_t i;
    const json_t *shipped;
    if (spool == NULL || !random_is_id(spool, "spl") || !text_copy(intake->spool, sizeof intake->spool, spool))
        return error_set(err, ERROR_INVALID, "spool must be spl_ and 20 of a-z0-9");
    if (!json_is_array(records) || json_array_size(records) > INTAKE_RECORDS_MAX)
        return error_set(err, ERROR_INVALID, "records must be a list of at most %d", INTAKE_RECORDS_MAX);
    json_array_foreach (records, i, shipped) {
        if (!json_is_object(shipped) || number_of(shipped) == 0)
            return error_set(err, ERROR_INVALID, "each record must be an object with a number n from 1 on");
    }
    return true;
}

enum kv_outcome intake_rule(struct kv *kv, struct intake *intake, struct error *err)
{
    if (!check_message(intake, err))
        return KV_FAILED;
    AUTO(kv_change) *change = kv_change_new();
    AUTO_FREE struct seen *seen = memory_array(INTAKE_RECORDS_MAX, sizeof *seen);
    struct taking taking = {.work = work_begin(intake->leasing, kv, change, err), .intake = intake, .seen = seen};
    uint64_t before = 0;
    if (!read_row(&taking, &before))
        return KV_FAILED;
    uint64_t last = before;
    if (!take_all(&taking, json_object_get(intake->message, "records"), &last))
        return KV_FAILED;
    if (last > before)
        write_row(&taking, last);
    intake->upto = last;
    intake->refused = taking.refused;
    return last > before ? store_apply(&taking.work) : KV_APPLIED;
}
