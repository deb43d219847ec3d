/** watch_events.h - events on their way: kept for WATCH_EVENTS_NS, in which the same of the same file becomes one, and
 * the two halves of a move find each other. */
#pragma once

#include "sandboxd/helpers/files/helper.h"

#define WATCH_EVENTS_NS  50000000
#define WATCH_EVENTS_MAX 1024 /* then they go at once */

struct waiting {
    enum files_event event; /* 0: nothing any more; DELETED with a cookie: a move away whose other half may come */
    bool is_folder;
    uint32_t cookie;
    int wd; /* of a folder that moved away; else -1 */
    uint32_t hash;
    char *path, *from; /* below the watched thing */
    uint64_t at_ns;    /* CLOCK_MONOTONIC */
};

struct watch_events {
    struct waiting *all; /* WATCH_EVENTS_MAX; those from `first` on, by time */
    size_t first, count;
};

void watch_events_init(struct watch_events *events);
/** Drops what waits. */
void watch_events_clear(struct watch_events *events);
void watch_events_done(struct watch_events *events);

/** One more of `event`, of which there must be room (watch_events_is_full); texts are copied. A second MODIFIED, or one
 *  of what was CREATED, and a second CREATED are one. `wd`, `cookie`: as above, else -1 and 0. */
void watch_events_add(struct watch_events *events, const struct waiting *event);
bool watch_events_is_full(const struct watch_events *events) MUST_USE;

/** The move away with that cookie: takes it out, its path (the caller frees) in *from, *wd. False: none waits. */
bool watch_events_take_move(struct watch_events *events, uint32_t cookie, char **from, int *wd) MUST_USE;

/** When something is due, CLOCK_MONOTONIC ns; 0: nothing waits. */
uint64_t watch_events_due_ns(const struct watch_events *events) MUST_USE;
/** The oldest event that is to be told by `now_ns` (UINT64_MAX: all), copied to *event, which the caller then owns
 * (watch_events_free); false: none. */
bool watch_events_take(struct watch_events *events, uint64_t now_ns, struct waiting *event) MUST_USE;
void watch_events_free(struct waiting *event);
