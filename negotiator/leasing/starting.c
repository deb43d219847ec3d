#include "negotiator/leasing/starting.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <search.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct starting_entry *)a)->id, ((const struct starting_entry *)b)->id);
}

static void free_entry(void *held)
{
    struct starting_entry *entry = held;
    negotiation_free(entry->creator);
    for (struct negotiation *next, *each = entry->waiters; each; each = next) {
        next = each->next;
        negotiation_free(each);
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

void starting_wait(struct starting_entry *entry, struct negotiation *negotiation)
{
    negotiation->next = NULL;
    *entry->last = negotiation;
    entry->last = &negotiation->next;
}

struct starting_entry *starting_take(struct starting *starting, const char *id)
{
    struct starting_entry *entry = starting_find(starting, id);
    if (entry)
        tdelete(entry, &starting->root, compare);
    return entry;
}
