/* watch_events.c - see watch_events.h. Few enough that going through them all costs less than an index. */
#include "sandboxd/helpers/files/watch_events.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

void watch_events_init(struct watch_events *events)
{
    *events = (struct watch_events){.all = memory_array(WATCH_EVENTS_MAX, sizeof events->all[0])};
}

void watch_events_free(struct waiting *event)
{
    free(event->path);
    free(event->from);
    *event = (struct waiting){0};
}

void watch_events_clear(struct watch_events *events)
{
    for (size_t i = 0; i < events->count; i++)
        watch_events_free(&events->all[events->first + i]);
    events->first = events->count = 0;
}

void watch_events_done(struct watch_events *events)
{
    watch_events_clear(events);
    free(events->all);
    events->all = NULL;
}

bool watch_events_is_full(const struct watch_events *events)
{
    return events->count == WATCH_EVENTS_MAX;
}

/* FNV-1a. */
static uint32_t hash_of(const char *path)
{
    uint32_t hash = 2166136261U;
    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * 16777619U;
    return hash;
}

/* Whether what waits already says it. */
static bool is_said(const struct watch_events *events, enum files_event event, const char *path, uint32_t hash)
{
    if (event != FILES_MODIFIED && event != FILES_CREATED)
        return false;
    for (size_t i = events->count; i-- > 0;) {
        const struct waiting *waiting = &events->all[events->first + i];
        if (waiting->event != 0 && waiting->hash == hash && strcmp(waiting->path, path) == 0)
            return waiting->event == FILES_CREATED || waiting->event == event;
    }
    return false;
}

void watch_events_add(struct watch_events *events, const struct waiting *event)
{
    uint32_t hash = hash_of(event->path);
    if (watch_events_is_full(events) || is_said(events, event->event, event->path, hash))
        return;
    if (events->first + events->count == WATCH_EVENTS_MAX) {
        memmove(events->all, events->all + events->first, events->count * sizeof events->all[0]);
        events->first = 0;
    }
    struct waiting *added = &events->all[events->first + events->count++];
    *added = *event;
    added->hash = hash;
    added->at_ns = clock_monotonic_ns();
    added->path = memory_string(event->path);
    added->from = memory_string(event->from);
}

bool watch_events_take_move(struct watch_events *events, uint32_t cookie, char **from, int *wd)
{
    for (size_t i = events->count; i-- > 0;) {
        struct waiting *waiting = &events->all[events->first + i];
        if (waiting->event != FILES_DELETED || waiting->cookie != cookie || cookie == 0)
            continue;
        *from = TAKE(waiting->path);
        *wd = waiting->wd;
        waiting->event = 0;
        return true;
    }
    return false;
}

uint64_t watch_events_due_ns(const struct watch_events *events)
{
    return events->count > 0 ? events->all[events->first].at_ns + WATCH_EVENTS_NS : 0;
}

/* All that waits goes with the oldest; but a move away that may still find its other half stays, and what follows it.
 */
bool watch_events_take(struct watch_events *events, uint64_t now_ns, struct waiting *event)
{
    if (events->count == 0)
        return false;
    const struct waiting *first = &events->all[events->first];
    bool is_half = first->event == FILES_DELETED && first->cookie != 0;
    if (is_half && now_ns < first->at_ns + WATCH_EVENTS_NS)
        return false;
    *event = *first;
    events->count--;
    events->first++;
    return true;
}
