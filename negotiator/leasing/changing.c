#include "negotiator/leasing/changing.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <search.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const json_int_t MIB = 1024 * 1024;

struct changing *changing_new(void)
{
    return memory_new(sizeof(struct changing));
}

void changing_free(struct changing *changing)
{
    if (changing == NULL)
        return;
    wanted_done(&changing->wanted);
    json_decref(changing->metadata_patch);
    json_decref(changing->merged);
    if (changing->token)
        sodium_memzero(changing->token, strlen(changing->token));
    free(changing->token);
    if (changing->edit_free)
        changing->edit_free(changing->edit_cookie);
    sandbox_done(&changing->sandbox);
    free(changing);
}

static void answer(struct changing *changing)
{
    quota_unreserve(changing->leasing, &changing->reservation);
    if (changing->answered)
        changing->answered(changing->cookie, changing);
    else
        changing_free(changing);
}

/* --- one at a time --- */

struct turn {
    char id[RANDOM_ID_BYTES];
    struct changing *first, **last; /* who wait for it; owned */
    unsigned count;
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct turn *)a)->id, ((const struct turn *)b)->id);
}

static struct turn *find_turn(const struct changes *changes, const char *id)
{
    struct turn sought = {.count = 0};
    if (!text_copy(sought.id, sizeof sought.id, id))
        return NULL;
    void *const *found = tfind(&sought, &changes->root, compare);
    return found ? *found : NULL;
}

static void begin_turn(struct changes *changes, const char *id)
{
    struct turn *turn = memory_new(sizeof *turn);
    turn->last = &turn->first;
    if (!text_copy(turn->id, sizeof turn->id, id) || tsearch(turn, &changes->root, compare) == NULL)
        abort(); /* ids are ours; and memory ended */
}

static void free_turn(void *held)
{
    struct turn *turn = held;
    for (struct changing *next, *each = turn->first; each; each = next) {
        next = each->next;
        error_set(&each->refusal, ERROR_STARTING, "the negotiator stops; ask again");
        answer(each);
    }
    free(turn);
}

void changes_done(struct changes *changes)
{
    tdestroy(changes->root, free_turn);
    changes->root = NULL;
}

static void check_submit(struct changing *changing);

/* The next one's rules run again: what he asked for may be another matter by now. */
static void end_turn(struct leasing *leasing, const char *id)
{
    struct turn *turn = find_turn(&leasing->changes, id);
    struct changing *next = turn->first;
    if (next == NULL) {
        tdelete(turn, &leasing->changes.root, compare);
        free(turn);
        return;
    }
    turn->first = next->next;
    if (turn->first == NULL)
        turn->last = &turn->first;
    turn->count--;
    next->next = NULL;
    next->has_turn = true;
    check_submit(next);
}

static void finish(struct changing *changing)
{
    struct leasing *leasing = changing->leasing;
    if (changing->has_turn)
        end_turn(leasing, changing->sandbox_id);
    answer(changing);
}

/* --- its way --- */

static void applied(void *argument, const struct error *err)
{
    struct changing *changing = argument;
    if (err->kind != ERROR_NONE)
        changing->refusal = *err;
    if (changing->by_itself && changing->refusal.kind != ERROR_NONE)
        log_warn("leasing", "sandbox %s is idle and cannot be paused: %s", changing->sandbox_id,
                 changing->refusal.message);
    finish(changing);
}

static int64_t in_mib(const json_t *bytes)
{
    return (json_integer_value(bytes) + MIB - 1) / MIB;
}

static int64_t amount(const json_t *limits, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(limits, name));
    return value > 0 ? value : 0;
}

static void read_limits(struct resources *to, const json_t *limits)
{
    *to = (struct resources){.cpu_milli = amount(limits, "cpu_milli"),
                             .memory_mb = in_mib(json_object_get(limits, "memory_bytes")),
                             .disk_mb = in_mib(json_object_get(limits, "disk_bytes")),
                             .pids = amount(limits, "pids"),
                             .open_files = amount(limits, "open_files"),
                             .processes = amount(limits, "commands"),
                             .output_mb = in_mib(json_object_get(limits, "output_bytes"))};
}

static void node_answered(void *cookie, const json_t *reply, const struct error *err)
{
    struct changing *changing = cookie;
    changing->failure = *err;
    changing->in_force = changing->wanted.resources;
    const json_t *limits = json_object_get(reply, "limits");
    if (json_is_object(limits))
        read_limits(&changing->in_force, limits);
    ledger_submit(changing->leasing->options.ledger, changing_apply_rule, applied, changing);
}

static json_t *message_of(const struct changing *changing)
{
    if (changing->wanted.network)
        return json_pack("{s:s, s:s, s:O}", "call", "network", "id", changing->sandbox_id, "network",
                         changing->wanted.network);
    static const char *const CALLS[] = {[CHANGING_PAUSE] = "pause",
                                        [CHANGING_RESUME] = "resume",
                                        [CHANGING_RENEW] = "deadline",
                                        [CHANGING_UPDATE] = "limits"};
    const struct resources *resources = &changing->wanted.resources;
    json_t *message = json_pack("{s:s, s:s}", "call", CALLS[changing->verb], "id", changing->sandbox_id);
    if (changing->verb == CHANGING_RENEW)
        json_object_set_new(message, "deadline", json_integer(changing->expires_at));
    if (changing->verb != CHANGING_UPDATE)
        return message;
    json_t *limits =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "cpu_milli", (json_int_t)resources->cpu_milli, "memory_bytes",
                  resources->memory_mb * MIB, "disk_bytes", resources->disk_mb * MIB, "pids",
                  (json_int_t)resources->pids, "open_files", (json_int_t)resources->open_files, "commands",
                  (json_int_t)resources->processes, "output_bytes", resources->output_mb * MIB);
    json_object_update(message, limits);
    json_decref(limits);
    return message;
}

static void start(struct changing *changing)
{
    struct leasing *leasing = changing->leasing;
    const struct leasing_nodes *nodes = &leasing->options.nodes;
    if (atomic_load(&leasing->stopping)) {
        error_set(&changing->refusal, ERROR_STARTING, "the negotiator stops; ask again");
        finish(changing);
    } else if (changing->needs_node) {
        nodes->call(nodes->context, changing->sandbox.node, settle_message(message_of(changing), &changing->caller),
                    node_answered, changing);
    } else {
        ledger_submit(leasing->options.ledger, changing_apply_rule, applied, changing);
    }
}

static void wait_for_turn(struct turn *turn, struct changing *changing)
{
    if (turn->count >= CHANGING_WAITERS_MAX) {
        error_set(&changing->refusal, ERROR_RATE_LIMITED, "%d changes wait for sandbox %s; ask again later",
                  CHANGING_WAITERS_MAX, changing->sandbox_id);
        answer(changing);
        return;
    }
    *turn->last = changing;
    turn->last = &changing->next;
    turn->count++;
}

static void checked(void *argument, const struct error *err)
{
    struct changing *changing = argument;
    struct changes *changes = &changing->leasing->changes;
    struct turn *turn = find_turn(changes, changing->sandbox_id);
    if (err->kind != ERROR_NONE)
        changing->refusal = *err;
    if (changing->is_stranger && changing->refusal.kind == ERROR_UNAUTHENTICATED)
        leasing_stranger(changing->leasing, changing->caller.remote);
    if (changing->refusal.kind != ERROR_NONE || changing->skipped || (changing->by_itself && turn)) {
        finish(changing);
        return;
    }
    if (turn && !changing->has_turn) {
        wait_for_turn(turn, changing);
        return;
    }
    if (turn == NULL)
        begin_turn(changes, changing->sandbox_id);
    changing->has_turn = true;
    start(changing);
}

static void check_submit(struct changing *changing)
{
    ledger_submit(changing->leasing->options.ledger, changing_check_rule, checked, changing);
}

bool leasing_change(struct leasing *leasing, struct changing *changing, struct error *err)
{
    if (!wanted_check(&changing->wanted, &leasing->options.limits, err))
        return false;
    if (!wanted_check_metadata(changing->metadata_patch, true, err))
        return false;
    if (changing->wanted.network && changing_has_resources(&changing->wanted.resources))
        return error_set(err, ERROR_INVALID, "network and resources are changed one after the other: ask twice");
    changing->leasing = leasing;
    check_submit(changing);
    return true;
}

void changing_sleep(struct leasing *leasing, const char *sandbox_id)
{
    struct changing *changing = changing_new();
    changing->leasing = leasing;
    changing->verb = CHANGING_PAUSE;
    changing->by_itself = true;
    if (!text_copy(changing->sandbox_id, sizeof changing->sandbox_id, sandbox_id) || atomic_load(&leasing->stopping))
        changing_free(changing);
    else
        check_submit(changing);
}
