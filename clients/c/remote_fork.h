/** remote_fork.h - new sandboxes that begin with a snapshot's files, several at once, each for a thread of its own. */
#pragma once

#include "clients/c/grant.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define REMOTE_FORKS_MAX 1000

/** What is wanted; all is borrowed. */
struct remote_fork_wanted {
    const char *snapshot;             /* its id or name */
    const char *const *threads;       /* `count` of them; NULL: "<stem>-fork-<K>", those that have no sandbox yet */
    const char *stem;                 /* not looked at when threads are given */
    size_t count;                     /* 1..REMOTE_FORKS_MAX */
    const json_t *more;               /* as of grant_request: resources, volumes ...; NULL */
    bool (*is_stopped)(void *cookie); /* asked now and then: begin no more, wait for none; may be NULL */
    void *cookie;
};

/** One of them. */
struct remote_fork {
    char *thread;
    struct grant grant; /* kept in the cache too; empty when it was not made */
    struct error error; /* why not. GONE: it was stopped, and may or may not be made */
};

/** Makes them all, or tells of each why not, in `forks` (of `count`, zero before; the caller's to free with
 *  remote_forks_done). Returns how many were made. The errors of a negotiation; CONFLICT: the thread has a sandbox. A
 *  copy that takes long is waited for, 10 minutes. Blocks. */
size_t remote_fork_all(const struct place *place, const struct remote_fork_wanted *wanted, struct remote_fork *forks);

void remote_forks_done(struct remote_fork *forks, size_t count);
