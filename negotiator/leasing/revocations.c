/* revocations.c - revocations that not every node has acknowledged, and who waits for that. */
#include "negotiator/leasing/revocations.h"

#include "negotiator/leasing/marks.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNHEARD_PREFIX "unheard/"
static const int64_t PRUNE_EVERY_MS = 60000;

struct unheard {
    struct unheard *previous, *next;
    char id[RANDOM_ID_BYTES];
    uint64_t number;
    int64_t until;            /* s: after that no token is left that it could refuse */
    json_t *nodes;            /* owned: names of those that have not acknowledged it */
    struct revoking *waiting; /* owned; NULL nobody waits */
};

/* In the order of their numbers, and so in that in which waiting ends: each waits equally long. */
struct revocations {
    struct unheard *first, *last;
    struct unheard *first_waiting; /* nobody waits for one before it */
    bool is_armed;                 /* an alarm is set */
    int64_t pruned_ms;
};

struct revocations *revocations_new(void)
{
    return memory_new(sizeof(struct revocations));
}

static void take_out(struct revocations *all, struct unheard *each)
{
    if (all->first_waiting == each)
        all->first_waiting = each->next;
    *(each->previous ? &each->previous->next : &all->first) = each->next;
    *(each->next ? &each->next->previous : &all->last) = each->previous;
    json_decref(each->nodes);
    free(each);
}

static void answer(struct revoking *r)
{
    r->answered(r->cookie, r);
}

void revocations_free(struct revocations *all)
{
    if (all == NULL)
        return;
    while (all->first) {
        struct revoking *r = TAKE(all->first->waiting);
        take_out(all, all->first);
        if (r)
            answer(r);
    }
    free(all);
}

static struct unheard *add(struct revocations *all, const char *id, uint64_t number, int64_t until, json_t *nodes)
{
    struct unheard *fresh = memory_new(sizeof *fresh);
    *fresh = (struct unheard){.previous = all->last, .number = number, .until = until, .nodes = nodes};
    if (!text_copy(fresh->id, sizeof fresh->id, id))
        fresh->id[0] = '\0'; /* a row of ours: it fits */
    *(all->last ? &all->last->next : &all->first) = fresh;
    all->last = fresh;
    return fresh;
}

/* --- at the start --- */

static int by_number(const void *a, const void *b)
{
    uint64_t left = (*(struct unheard *const *)a)->number, right = (*(struct unheard *const *)b)->number;
    return left < right ? -1 : left > right;
}

/* Rows come by their random ids. */
static void sort(struct revocations *all, size_t count)
{
    AUTO_FREE struct unheard **list = memory_array(count + 1, sizeof *list);
    size_t i = 0;
    for (struct unheard *each = all->first; each; each = each->next)
        list[i++] = each;
    qsort(list, count, sizeof *list, by_number);
    for (i = 0; i < count; i++) {
        list[i]->previous = i ? list[i - 1] : NULL;
        list[i]->next = i + 1 < count ? list[i + 1] : NULL;
    }
    all->first = count ? list[0] : NULL;
    all->last = count ? list[count - 1] : NULL;
}

struct loading {
    struct revocations *all;
    size_t count;
    int64_t now_s;
};

static bool load_row(void *cookie, const char *key, const struct kv_value *value)
{
    struct loading *loading = cookie;
    json_t *json = json_loadb(value->data, value->size, 0, NULL);
    json_t *nodes = json_object_get(json, "nodes");
    json_int_t number = json_integer_value(json_object_get(json, "n"));
    json_int_t until = json_integer_value(json_object_get(json, "until"));
    if (json_is_array(nodes) && number > 0 && until > loading->now_s) {
        add(loading->all, key + strlen(UNHEARD_PREFIX), (uint64_t)number, until, json_incref(nodes));
        loading->count++;
    }
    json_decref(json);
    return true;
}

bool revocations_load(struct work *work)
{
    struct loading loading = {.all = work->leasing->revocations, .now_s = work->now / 1000};
    while (loading.all->first)
        take_out(loading.all, loading.all->first);
    bool read = kv_range(work->kv, UNHEARD_PREFIX, NULL, 0, load_row, &loading, work->err);
    sort(loading.all, loading.count);
    return read;
}

/* --- answers --- */

struct heard {
    struct leasing *leasing;
    char key[sizeof UNHEARD_PREFIX + RANDOM_ID_BYTES];
};

static enum kv_outcome heard_rule(struct kv *kv, void *argument, struct error *err)
{
    const struct heard *heard = argument;
    AUTO(kv_change) *change = kv_change_new();
    kv_change_delete(change, heard->key);
    return kv_apply(kv, change, err);
}

/* When it failed, the next start finds the row, and the nodes acknowledge it once more. */
static void heard_done(void *argument, const struct error *err UNUSED)
{
    free(argument);
}

static void settle(struct leasing *leasing, struct unheard *each)
{
    struct heard *heard = memory_new(sizeof *heard);
    heard->leasing = leasing;
    snprintf(heard->key, sizeof heard->key, UNHEARD_PREFIX "%s", each->id);
    struct revoking *r = TAKE(each->waiting);
    take_out(leasing->revocations, each);
    ledger_submit(leasing->options.ledger, heard_rule, heard_done, heard);
    if (r == NULL)
        return;
    r->list->in_force = true;
    r->list->missing_count = 0;
    answer(r);
}

/* Whether that was the last one missing. */
static bool strike_out(const struct unheard *each, const char *node)
{
    for (size_t i = json_array_size(each->nodes); i-- > 0;) {
        if (text_equal(json_string_value(json_array_get(each->nodes, i)), node))
            json_array_remove(each->nodes, i);
    }
    return json_array_size(each->nodes) == 0;
}

void revocations_acknowledged(struct leasing *leasing, const char *node, uint64_t after, uint64_t upto)
{
    struct revocations *all = leasing->revocations;
    for (struct unheard *previous, *each = all->last; each && each->number > after; each = previous) {
        previous = each->previous;
        if (each->number <= upto && strike_out(each, node))
            settle(leasing, each);
    }
}

/* --- waiting --- */

static void give_up(void *argument, int64_t now_ms);

static void arm(struct leasing *leasing)
{
    struct revocations *all = leasing->revocations;
    while (all->first_waiting && all->first_waiting->waiting == NULL)
        all->first_waiting = all->first_waiting->next;
    if (all->is_armed || all->first_waiting == NULL)
        return;
    all->is_armed = true;
    ledger_alarm(leasing->options.ledger, all->first_waiting->waiting->give_up_ms, give_up, leasing);
}

/* Of tokens that are over nothing is missing any more; their rows go when they are due. */
static void prune(struct revocations *all, int64_t now_ms)
{
    if (now_ms < all->pruned_ms + PRUNE_EVERY_MS)
        return;
    all->pruned_ms = now_ms;
    for (struct unheard *next, *each = all->first; each; each = next) {
        next = each->next;
        if (each->waiting == NULL && each->until * 1000 < now_ms)
            take_out(all, each);
    }
}

static void give_up(void *argument, int64_t now_ms)
{
    struct leasing *leasing = argument;
    struct revocations *all = leasing->revocations;
    all->is_armed = false;
    struct unheard *each = all->first_waiting;
    while (each && (each->waiting == NULL || each->waiting->give_up_ms <= now_ms)) {
        struct revoking *r = TAKE(each->waiting);
        if (r) {
            revocation_judge(leasing, r->list, each->nodes, now_ms);
            answer(r);
        }
        each = each->next;
    }
    all->first_waiting = each;
    prune(all, now_ms);
    arm(leasing);
}

void revocations_wait(struct leasing *leasing, struct revoking *r, json_t *nodes)
{
    struct revocations *all = leasing->revocations;
    const struct revocation *made = r->list;
    struct unheard *fresh = add(all, made->id, made->mark.number, made->usable_until, json_copy(nodes));
    fresh->waiting = r;
    r->give_up_ms = leasing->options.wall_ms() + REVOCATION_WAIT_MS;
    if (all->first_waiting == NULL)
        all->first_waiting = fresh;
    arm(leasing);
}
