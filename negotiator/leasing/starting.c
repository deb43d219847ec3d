#include "negotiator/leasing/starting.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <search.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct starting_entry *)a)->id, ((const struct starting_entry *)b)->id);
}

static void dismiss(struct negotiation *negotiation, const char *why)
{
    negotiation->next = NULL;
    error_set(&negotiation->refusal, ERROR_STARTING, "%s", why);
    negotiate_answer(negotiation);
}

/* What asked is freed by its answer only: nothing here knows it. */
static void free_entry(void *held)
{
    static const char WHY[] = "the negotiator stops; ask again";
    struct starting_entry *entry = held;
    if (entry->creator)
        dismiss(entry->creator, WHY);
    for (struct negotiation *next, *each = entry->waiters; each; each = next) {
        next = each->next;
        dismiss(each, WHY);
    }
    free(entry);
}

void starting_done(struct starting *starting)
{
    tdestroy(starting->root, free_entry);
    starting->root = NULL;
}

static bool name_it(struct starting_entry *entry, const char *id)
{
    return text_copy(entry->id, sizeof entry->id, id);
}

struct starting_entry *starting_find(const struct starting *starting, const char *id)
{
    struct starting_entry sought = {0};
    if (!name_it(&sought, id))
        return NULL;
    void *const *found = tfind(&sought, &starting->root, compare);
    return found ? *found : NULL;
}

struct starting_entry *starting_entry(struct starting *starting, const char *id)
{
    struct starting_entry *entry = starting_find(starting, id);
    if (entry)
        return entry;
    entry = memory_new(sizeof *entry);
    entry->last = &entry->waiters;
    if (!name_it(entry, id) || tsearch(entry, &starting->root, compare) == NULL)
        abort(); /* ids are ours; and memory ended */
    return entry;
}

static void drop_abandoned(struct starting_entry *entry)
{
    entry->last = &entry->waiters;
    while (*entry->last) {
        struct negotiation *each = *entry->last;
        if (!each->is_abandoned(each->cookie)) {
            entry->last = &each->next;
            continue;
        }
        *entry->last = each->next;
        entry->count--;
        dismiss(each, "nobody waits any more");
    }
}

bool starting_wait(struct starting_entry *entry, struct negotiation *negotiation)
{
    drop_abandoned(entry);
    if (entry->count >= STARTING_WAITERS_MAX)
        return false;
    negotiation->next = NULL;
    *entry->last = negotiation;
    entry->last = &negotiation->next;
    entry->count++;
    return true;
}

struct starting_entry *starting_take(struct starting *starting, const char *id)
{
    struct starting_entry *entry = starting_find(starting, id);
    if (entry)
        tdelete(entry, &starting->root, compare);
    return entry;
}
