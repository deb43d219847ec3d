/* terminal_holders.c - see terminal_holders.h. */
#include "sandboxd/sandbox/terminal_holders.h"

#include "sandboxd/sandbox/registry.h"
#include "shared/base/memory.h"

#include <pthread.h>
#include <string.h>

enum { ID_BYTES = 64, SWEEP_FROM = 256 };

/* One that is neither fresh nor held is not in the list. */
struct entry {
    struct entry *next;
    char sandbox_id[ID_BYTES], id[RANDOM_ID_BYTES];
    bool is_fresh;
    int64_t made_ms;
    struct terminal_plan plan; /* while fresh */
    struct terminal_holder holder;
};

struct terminal_holders {
    struct registry *registry;
    pthread_mutex_t lock;
    struct entry *first;
    size_t count, sweep_at; /* entries; and how many there must be for a look at their sandboxes */
};

void terminal_plan_done(struct terminal_plan *plan)
{
    free(TAKE(plan->cwd));
    free(TAKE(plan->line));
}

struct terminal_holders *terminal_holders_new(struct registry *registry)
{
    struct terminal_holders *terminals = memory_new(sizeof *terminals);
    terminals->registry = registry;
    terminals->sweep_at = SWEEP_FROM;
    pthread_mutex_init(&terminals->lock, NULL);
    return terminals;
}

static void take_out(struct terminal_holders *terminals, struct entry **at)
{
    struct entry *entry = *at;
    *at = entry->next;
    terminals->count--;
    terminal_plan_done(&entry->plan);
    free(entry);
}

void terminal_holders_free(struct terminal_holders *terminals)
{
    if (!terminals)
        return;
    while (terminals->first)
        take_out(terminals, &terminals->first);
    pthread_mutex_destroy(&terminals->lock);
    free(terminals);
}

/* Where it is, or the list's end. */
static struct entry **find(struct terminal_holders *terminals, const char *sandbox_id, const char *id)
{
    struct entry **at = &terminals->first;
    while (*at && (strcmp((*at)->id, id) != 0 || strcmp((*at)->sandbox_id, sandbox_id) != 0))
        at = &(*at)->next;
    return at;
}

static struct entry *add(struct terminal_holders *terminals, const char *sandbox_id, const char *id)
{
    struct entry *entry = memory_new(sizeof *entry);
    strncpy(entry->sandbox_id, sandbox_id, sizeof entry->sandbox_id - 1);
    strncpy(entry->id, id, sizeof entry->id - 1);
    entry->next = terminals->first;
    terminals->first = entry;
    terminals->count++;
    return entry;
}

static bool is_living(struct registry *registry, const char *sandbox_id)
{
    AUTO_REGISTRY_VIEW view = {0};
    return registry_find(registry, sandbox_id, &view) && view.state != REGISTRY_ENDED;
}

/* Each time there are twice as many, so that it costs little an entry. */
static void sweep(struct terminal_holders *terminals)
{
    if (terminals->count < terminals->sweep_at)
        return;
    for (struct entry **at = &terminals->first; *at;) {
        if ((*at)->is_fresh && !is_living(terminals->registry, (*at)->sandbox_id))
            take_out(terminals, at);
        else
            at = &(*at)->next;
    }
    terminals->sweep_at = terminals->count * 2 > SWEEP_FROM ? terminals->count * 2 : SWEEP_FROM;
}

/* How many of the sandbox wait, once those are gone that have waited too long. */
static unsigned count_fresh(struct terminal_holders *terminals, const char *sandbox_id, int64_t now_ms)
{
    unsigned count = 0;
    for (struct entry **at = &terminals->first; *at;) {
        if ((*at)->is_fresh && now_ms - (*at)->made_ms >= TERMINAL_HOLDERS_KEPT_MS) {
            take_out(terminals, at);
            continue;
        }
        count += (*at)->is_fresh && strcmp((*at)->sandbox_id, sandbox_id) == 0;
        at = &(*at)->next;
    }
    return count;
}

bool terminal_holders_add(struct terminal_holders *terminals, const char *sandbox_id, struct terminal_plan *plan,
                          int64_t now_ms, char id[static RANDOM_ID_BYTES], struct error *err)
{
    random_id(id, "pty");
    pthread_mutex_lock(&terminals->lock);
    sweep(terminals);
    bool has_room = count_fresh(terminals, sandbox_id, now_ms) < TERMINAL_HOLDERS_FRESH;
    if (has_room) {
        struct entry *entry = add(terminals, sandbox_id, id);
        entry->is_fresh = true;
        entry->made_ms = now_ms;
        entry->plan = *plan;
        *plan = (struct terminal_plan){0};
    }
    pthread_mutex_unlock(&terminals->lock);
    return has_room || error_set(err, ERROR_NO_CAPACITY, "%d terminals of this sandbox wait for their first socket",
                                 TERMINAL_HOLDERS_FRESH);
}

bool terminal_holders_is_fresh(struct terminal_holders *terminals, const char *sandbox_id, const char *id)
{
    pthread_mutex_lock(&terminals->lock);
    const struct entry *entry = *find(terminals, sandbox_id, id);
    bool is_fresh = entry && entry->is_fresh;
    pthread_mutex_unlock(&terminals->lock);
    return is_fresh;
}

bool terminal_holders_hold(struct terminal_holders *terminals, const char *sandbox_id, const char *id,
                           const struct terminal_holder *holder, bool takes_over, struct terminal_holder *before,
                           bool *is_fresh, struct terminal_plan *plan, struct error *err)
{
    pthread_mutex_lock(&terminals->lock);
    struct entry *entry = *find(terminals, sandbox_id, id);
    bool is_held = entry && entry->holder.loop;
    bool is_taken = !is_held || takes_over;
    if (is_taken) {
        entry = entry ? entry : add(terminals, sandbox_id, id);
        *before = entry->holder;
        *is_fresh = entry->is_fresh;
        *plan = entry->plan;
        entry->plan = (struct terminal_plan){0};
        entry->is_fresh = false;
        entry->holder = *holder;
    }
    pthread_mutex_unlock(&terminals->lock);
    return is_taken || error_set(err, ERROR_CONFLICT, "another client is connected to terminal %s", id);
}

void terminal_holders_leave(struct terminal_holders *terminals, const char *sandbox_id, const char *id,
                            const struct terminal_holder *holder)
{
    pthread_mutex_lock(&terminals->lock);
    struct entry **at = find(terminals, sandbox_id, id);
    if (*at && (*at)->holder.loop == holder->loop && (*at)->holder.number == holder->number)
        take_out(terminals, at);
    pthread_mutex_unlock(&terminals->lock);
}

bool terminal_holders_drop(struct terminal_holders *terminals, const char *sandbox_id, const char *id)
{
    pthread_mutex_lock(&terminals->lock);
    struct entry **at = find(terminals, sandbox_id, id);
    bool is_fresh = *at && (*at)->is_fresh;
    if (is_fresh)
        take_out(terminals, at);
    pthread_mutex_unlock(&terminals->lock);
    return is_fresh;
}
