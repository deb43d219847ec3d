/* reaper.c - what is due, and what a node's list brings about: looks in rounds, a bounded number each, one rule a row,
 * so that other rules get their turn and each change is durable by itself. Nothing is looked at because time goes by:
 * rows under `due/` say when, and one alarm waits for the first of them. */
#include "negotiator/leasing/keeping/keeping.h"
#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 };
static const int64_t FAILED_AGAIN_MS = 15000; /* the store failed: not at once again */
static const int64_t POSTPONED_MS = 60000;    /* a row that cannot be read: so that it keeps no other one waiting */

enum round_kind {
    ROUND_DUE,  /* what is due */
    ROUND_HELD, /* all that the ledger has on a node */
    ROUND_TOLD  /* what the node told that the ledger was not asked about */
};

struct round {
    struct leasing *leasing;
    enum round_kind kind;
    char node[SANDBOX_NODE_BYTES]; /* not of ROUND_DUE */
    /* Set anew by each run of the rule. */
    char *keys[AT_ONCE]; /* ROUND_DUE: owned */
    char ids[AT_ONCE][RANDOM_ID_BYTES];
    size_t count;
    int64_t next;
    /* Between the runs. */
    char after[RANDOM_ID_BYTES]; /* ROUND_HELD: where to go on */
    size_t outstanding;
    bool failed;
};

struct item {
    struct look look;
    struct keeping_look keeping; /* of a due row about a snapshot */
    struct round *round;
};

static void round_go_on(struct round *round);

/* --- one row --- */

static void item_over(struct item *item)
{
    struct round *round = item->round;
    look_done(&item->look);
    free(item);
    if (--round->outstanding == 0)
        round_go_on(round);
}

static enum kv_outcome postpone_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct item *item = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(item->look.leasing, kv, change, err);
    store_postpone(&work, item->look.due, work.now + POSTPONED_MS);
    return store_apply(&work);
}

static void postpone_done(void *argument, const struct error *err)
{
    struct item *item = argument;
    item->round->failed |= err->kind != ERROR_NONE;
    item_over(item);
}

static void item_failed(struct item *item, const struct error *err)
{
    struct leasing *leasing = item->look.leasing;
    const char *what = item->look.due[0] ? item->look.due : item->look.id;
    log_error("leasing", "what is due cannot be done: %s row=%s", err->message, what);
    if (item->look.due[0] && !atomic_load(&leasing->stopping)) {
        ledger_submit(leasing->options.ledger, postpone_rule, postpone_done, item);
        return;
    }
    presence_postpone(presence_find(&leasing->presence, item->look.node), item->look.id,
                      leasing->options.wall_ms() + POSTPONED_MS);
    item_over(item);
}

static enum kv_outcome forget_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct item *item = argument;
    AUTO(kv_change) *change = kv_change_new();
    struct work work = work_begin(item->look.leasing, kv, change, err);
    return store_forget(&work, item->look.due) ? store_apply(&work) : KV_FAILED;
}

static void forget_done(void *argument, const struct error *err)
{
    struct item *item = argument;
    if (err->kind != ERROR_NONE)
        item_failed(item, err);
    else
        item_over(item);
}

static enum kv_outcome item_rule(struct kv *kv, void *argument, struct error *err)
{
    struct item *item = argument;
    return look_rule(kv, &item->look, err);
}

static void item_done(void *argument, const struct error *err)
{
    struct item *item = argument;
    if (err->kind != ERROR_NONE) {
        item_failed(item, err);
        return;
    }
    look_act(&item->look);
    item_over(item);
}

static enum kv_outcome keeping_rule(struct kv *kv, void *argument, struct error *err)
{
    struct item *item = argument;
    return keeping_look_rule(kv, &item->keeping, err);
}

static void keeping_looked(void *argument, const struct error *err)
{
    struct item *item = argument;
    if (err->kind != ERROR_NONE) {
        item_failed(item, err);
        return;
    }
    keeping_look_act(&item->keeping);
    item_over(item);
}

/* "watch/<node>/<id>" */
static bool read_watch(struct look *look, const char *row)
{
    static const char WATCH[] = "watch/";
    const char *node = row + strlen(WATCH), *slash = strchr(node, '/');
    if (!slash)
        return false;
    return text_format(look->node, sizeof look->node, "%.*s", (int)(slash - node), node) &&
           text_copy(look->id, sizeof look->id, slash + 1);
}

static void submit_due(struct round *round, const char *due)
{
    struct item *item = memory_new(sizeof *item);
    int64_t at = 0;
    const char *row = store_due_row(due, &at);
    item->round = round;
    item->look.leasing = round->leasing;
    bool fits = text_copy(item->look.due, sizeof item->look.due, due); /* a key: it does */
    if (fits && keeping_is_due(due)) {
        item->keeping = (struct keeping_look){.leasing = round->leasing, .due = item->look.due};
        ledger_submit(round->leasing->options.ledger, keeping_rule, keeping_looked, item);
        return;
    }
    bool is_look = fits && row && text_starts_with(row, "watch/") && read_watch(&item->look, row);
    ledger_submit(round->leasing->options.ledger, is_look ? item_rule : forget_rule, is_look ? item_done : forget_done,
                  item);
}

static void submit_id(struct round *round, const char *id)
{
    struct item *item = memory_new(sizeof *item);
    item->round = round;
    item->look.leasing = round->leasing;
    memcpy(item->look.node, round->node, sizeof item->look.node);
    memcpy(item->look.id, id, sizeof item->look.id);
    ledger_submit(round->leasing->options.ledger, item_rule, item_done, item);
}

/* --- a round --- */

static void forget_keys(struct round *round)
{
    for (size_t i = 0; i < round->count; i++)
        free(TAKE(round->keys[i]));
    round->count = 0;
}

static enum kv_outcome round_rule(struct kv *kv, void *argument, struct error *err)
{
    struct round *round = argument;
    struct work work = work_begin(round->leasing, kv, NULL, err);
    bool read = true;
    forget_keys(round);
    if (round->kind == ROUND_DUE)
        read = store_list_due(&work, round->keys, AT_ONCE, &round->count, &round->next);
    else if (round->kind == ROUND_HELD)
        read = store_list_watched(&work, round->node, round->after, round->ids, AT_ONCE, &round->count);
    return read ? KV_APPLIED : KV_FAILED;
}

static void round_end(struct round *round, int64_t next)
{
    struct leasing *leasing = round->leasing;
    if (round->kind == ROUND_DUE) {
        leasing->reaper.runs = false;
        if (next != INT64_MAX && !atomic_load(&leasing->stopping))
            reaper_arm(leasing, next);
    }
    forget_keys(round);
    free(round);
}

static void round_done(void *argument, const struct error *err);

static void round_submit(struct round *round)
{
    ledger_submit(round->leasing->options.ledger, round_rule, round_done, round);
}

static void walk(struct round *round, enum round_kind kind)
{
    round->kind = kind;
    round->after[0] = '\0';
    round_submit(round);
}

/* What the ledger has on the node, then what the node told beyond that; and anew when it told more meanwhile. */
static void walk_over(struct round *round)
{
    struct presence_node *node = presence_find(&round->leasing->presence, round->node);
    bool failed = round->failed || atomic_load(&round->leasing->stopping);
    if (!failed && round->kind == ROUND_HELD) {
        walk(round, ROUND_TOLD);
    } else if (!failed && node->walk_again) {
        node->walk_again = node->pick_again = false;
        walk(round, ROUND_HELD);
    } else if (!failed && node->pick_again) {
        node->pick_again = false;
        walk(round, ROUND_TOLD);
    } else {
        node->has_list = node->has_list && !failed; /* it is asked for all it has: then all is looked at after all */
        node->is_walked = node->walk_again = node->pick_again = false;
        round_end(round, INT64_MAX);
    }
}

static void pick_told(struct round *round)
{
    struct presence_node *node = presence_find(&round->leasing->presence, round->node);
    const struct presence_entry *entry = NULL;
    while (round->count < AT_ONCE && (entry = presence_pick(node)) != NULL)
        memcpy(round->ids[round->count++], entry->id, sizeof entry->id);
}

static void round_over(struct round *round)
{
    if (round->kind != ROUND_DUE)
        walk_over(round);
    else
        round_end(round, round->failed ? round->leasing->options.wall_ms() + FAILED_AGAIN_MS : round->next);
}

static void round_done(void *argument, const struct error *err)
{
    struct round *round = argument;
    if (err->kind != ERROR_NONE) {
        log_error("leasing", "what is due cannot be read: %s", err->message);
        round->failed = true;
    }
    if (!round->failed && round->kind == ROUND_TOLD)
        pick_told(round);
    if (round->failed || round->count == 0 || atomic_load(&round->leasing->stopping)) {
        round_over(round);
        return;
    }
    round->outstanding = round->count;
    if (round->kind == ROUND_HELD)
        memcpy(round->after, round->ids[round->count - 1], sizeof round->after);
    for (size_t i = 0; i < round->count; i++) {
        if (round->kind == ROUND_DUE)
            submit_due(round, round->keys[i]);
        else
            submit_id(round, round->ids[i]);
    }
}

static void round_go_on(struct round *round)
{
    if (round->failed)
        round_over(round);
    else
        round_submit(round);
}

/* --- what begins one --- */

static void look_at_due(struct leasing *leasing)
{
    if (leasing->reaper.runs || atomic_load(&leasing->stopping))
        return; /* one that runs ends with a look at what is due by then */
    struct round *round = memory_new(sizeof *round);
    *round = (struct round){.leasing = leasing, .kind = ROUND_DUE};
    leasing->reaper.runs = true;
    round_submit(round);
}

static void on_alarm(void *argument, int64_t now UNUSED)
{
    struct leasing *leasing = argument;
    leasing->reaper.is_armed = false;
    look_at_due(leasing);
}

void reaper_arm(struct leasing *leasing, int64_t at)
{
    struct reaper *reaper = &leasing->reaper;
    if (reaper->is_armed && reaper->at <= at)
        return;
    *reaper = (struct reaper){.at = at, .is_armed = true, .runs = reaper->runs};
    ledger_alarm_move(leasing->options.ledger, at, on_alarm, leasing);
}

static enum kv_outcome nothing_rule(struct kv *kv UNUSED, void *argument UNUSED, struct error *err UNUSED)
{
    return KV_APPLIED;
}

static void start_done(void *argument, const struct error *err UNUSED)
{
    look_at_due(argument);
}

void reaper_start(struct leasing *leasing)
{
    hourly_start(leasing);
    ledger_submit(leasing->options.ledger, nothing_rule, start_done, leasing); /* the rest is the ledger thread's */
}

void reaper_look(struct leasing *leasing, struct presence_node *node, bool all)
{
    if (node->is_walked) {
        node->walk_again |= all;
        node->pick_again = true;
        return;
    }
    if ((!all && node->unlooked == NULL) || atomic_load(&leasing->stopping))
        return;
    struct round *round = memory_new(sizeof *round);
    *round = (struct round){.leasing = leasing};
    memcpy(round->node, node->name, sizeof round->node);
    node->is_walked = true;
    walk(round, all ? ROUND_HELD : ROUND_TOLD);
}
