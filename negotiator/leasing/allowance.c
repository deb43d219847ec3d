#include "negotiator/leasing/allowance.h"

#include "shared/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, SWEEP_MIN = 1024, HOUR_MS = 3600000 };

/* Levels count units times HOUR_MS, so that nothing is rounded however often it is asked. */
struct entry {
    struct entry *next;
    char *who;
    int64_t level, per_hour, as_of;
};

struct allowance {
    struct entry *buckets[BUCKETS];
    size_t count, sweep_at; /* entries; with so many, those that have drained go */
};

struct allowance *allowance_new(void)
{
    struct allowance *allowance = memory_new(sizeof *allowance);
    allowance->sweep_at = SWEEP_MIN;
    return allowance;
}

static void entry_free(struct entry *entry)
{
    free(entry->who);
    free(entry);
}

void allowance_free(struct allowance *allowance)
{
    if (allowance == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct entry *next, *each = allowance->buckets[i]; each; each = next) {
            next = each->next;
            entry_free(each);
        }
    }
    free(allowance);
}

static void drain(struct entry *entry, int64_t now)
{
    int64_t elapsed = now > entry->as_of ? now - entry->as_of : 0;
    bool is_empty = elapsed >= entry->level / entry->per_hour + 1;
    entry->level = is_empty ? 0 : entry->level - elapsed * entry->per_hour;
    entry->as_of = now;
}

static void sweep(struct allowance *allowance, int64_t now)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct entry **link = &allowance->buckets[i], *each; (each = *link) != NULL;) {
            drain(each, now);
            if (each->level > 0) {
                link = &each->next;
                continue;
            }
            *link = each->next;
            entry_free(each);
            allowance->count--;
        }
    }
    allowance->sweep_at = 2 * allowance->count > SWEEP_MIN ? 2 * allowance->count : SWEEP_MIN;
}

static struct entry **slot_of(struct allowance *allowance, const char *who)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: names that an admin gave, or random ids of ours */
    for (const char *c = who; *c; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    struct entry **slot = &allowance->buckets[(hash ^ (hash >> 32)) % BUCKETS];
    while (*slot && strcmp((*slot)->who, who) != 0)
        slot = &(*slot)->next;
    return slot;
}

static struct entry *find(struct allowance *allowance, const char *who, int64_t now)
{
    struct entry **slot = slot_of(allowance, who);
    if (*slot)
        return *slot;
    if (allowance->count >= allowance->sweep_at) {
        sweep(allowance, now);
        slot = slot_of(allowance, who);
    }
    struct entry *entry = *slot = memory_new(sizeof *entry);
    entry->who = memory_string(who);
    entry->as_of = now;
    allowance->count++;
    return entry;
}

bool allowance_take(struct allowance *allowance, const char *who, struct allowance_limit limit, int64_t cost,
                    int64_t now)
{
    struct entry *entry = find(allowance, who, now);
    entry->per_hour = limit.per_hour;
    drain(entry, now);
    if (cost > limit.most || entry->level > (limit.most - cost) * HOUR_MS)
        return false;
    entry->level += cost * HOUR_MS;
    return true;
}
