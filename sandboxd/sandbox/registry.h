/** registry.h - which sandboxes this node has or had, and whose loop each belongs to: what authorisation and routing
 * need to know from any thread. Everything else about a sandbox belongs to its loop alone (sandbox.h).
 *
 *  One read-write lock, held for a look-up and a copy of some hundred bytes, never across a call. That is the one thing
 *  the loops share: an entry changes a few times in a sandbox's life, so readers do not meet writers in practice. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/capability/keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGISTRY_ENDED_MAX     10000                   /* ended sandboxes remembered at most, oldest dropped first */
#define REGISTRY_ENDED_KEPT_MS (INT64_C(24) * 3600000) /* and no longer than this (protocol.md, 2 "Lives") */

enum registry_state { REGISTRY_LIVE, REGISTRY_ENDING, REGISTRY_ENDED };

/** A copy of what is known of one sandbox. Holds its root key: wipe with registry_view_done. */
struct registry_view {
    char id[FRONT_LAUNCHER_ID_BYTES];
    enum registry_state state;
    unsigned owner; /* index of the loop it belongs to */
    uint32_t epoch; /* lowest key epoch in force */
    struct key root;
    char reason[FRONT_LAUNCHER_NAME_BYTES]; /* why it ends or ended */
    int64_t created_ms, deadline_ms;        /* UTC */
    int64_t active_ms, ended_ms;            /* UTC: last sign of life; end, 0 while it lives */
    char name[FRONT_LAUNCHER_NAME_BYTES];   /* host name inside */
    char template_name[FRONT_LAUNCHER_NAME_BYTES], isolation[FRONT_LAUNCHER_NAME_BYTES];
    char storage[FRONT_LAUNCHER_NAME_BYTES];
    struct fl_limits limits;   /* in force */
    char isolation_detail[64]; /* "", "rootless", "rootless; no limit of memory, cpu" */
    bool was_warm;             /* taken from the pool when it was made */
    bool is_guest;             /* a front of its own serves it */
    bool paused;               /* nothing in it runs until it is used or resumed */
};

/** What a sandbox used by now. */
struct registry_usage {
    uint64_t cpu_ms, memory_bytes, disk_bytes, pids;
};

void registry_view_done(struct registry_view *view);
#define AUTO_REGISTRY_VIEW __attribute__((cleanup(registry_view_done))) struct registry_view

struct registry;

/** `loops` is how many loops share the sandboxes out. */
struct registry *registry_new(unsigned loops) MUST_USE;
void registry_free(struct registry *registry);
DEFINE_AUTO(registry)

/** Which loop a sandbox of this id belongs to, known or not. */
unsigned registry_owner(const struct registry *registry, const char *id) MUST_USE;

/** A sandbox the launcher told of: added, or its limits and deadline brought up to date; the epoch never falls. An
 *  ended one is not revived: false. `now_ms` UTC. */
bool registry_put(struct registry *registry, const struct fl_sandbox *sandbox, int64_t now_ms) MUST_USE;

/** False when the id is unknown; *view is untouched then. */
bool registry_find(struct registry *registry, const char *id, struct registry_view *view) MUST_USE;

/** The value of a variable that a living sandbox's commands find: its template's, and before that its own. False: it
 * has none of that name, or it does not fit. */
bool registry_variable(struct registry *registry, const char *id, const char *name, char *to, size_t size) MUST_USE;

/** Where a living sandbox's commands start, and the uid that they have. False: it is not known. */
bool registry_start_of(struct registry *registry, const char *id, char workdir[static FRONT_LAUNCHER_PATH_BYTES],
                       uint32_t *uid) MUST_USE;

/** What the owning loop hangs on a living sandbox's entry, and finds there again; NULL when there is none. Only that
 *  loop may call these. */
void registry_set_seat(struct registry *registry, const char *id, void *seat);
void *registry_seat(struct registry *registry, const char *id) MUST_USE;

/** Key of the right size for verifying tokens of unknown sandboxes: no token fits it. */
const struct key *registry_decoy(const struct registry *registry) MUST_USE;

/** A sign of life; none while it is paused. */
void registry_touch(struct registry *registry, const char *id, int64_t now_ms);

/** From here to the registry_detach of the same id somebody is attached to it, which is a sign of life all the while.
 */
void registry_attach(struct registry *registry, const char *id);
void registry_detach(struct registry *registry, const char *id, int64_t now_ms);

/** It is being ended for `reason`; the first reason stays. */
void registry_ending(struct registry *registry, const char *id, const char *reason);

/** It is gone. The reason given by registry_ending wins. One that was unknown (it ended under an earlier front) is
 * known as ended from now on. False when it had ended. */
bool registry_ended(struct registry *registry, const struct fl_ended *ended, int64_t now_ms) MUST_USE;

/** A higher lowest epoch is in force; it never falls. */
void registry_raise_epoch(struct registry *registry, const char *id, uint32_t epoch);

/** It is paused from here on, or goes on, which is a sign of life as its pausing was: in between there is none. */
void registry_set_paused(struct registry *registry, const char *id, bool is_paused, int64_t now_ms);

/** What it used by now. */
void registry_used(struct registry *registry, const char *id, const struct registry_usage *usage);

/** Sandboxes that live or are ending. */
size_t registry_count(struct registry *registry) MUST_USE;

/** How many there are by state; those that live are paused or not. */
struct registry_counts {
    size_t running, paused, ending, ended;
};
void registry_counts(struct registry *registry, struct registry_counts *counts);

/** One line of a heartbeat. */
struct registry_line {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char reason[FRONT_LAUNCHER_NAME_BYTES];
    int64_t active_ms, deadline_ms, ended_ms;
    uint32_t epoch;
    bool paused;
    struct registry_usage usage; /* as registry_used said last */
};

enum registry_lines_of {
    REGISTRY_LIVING,    /* all that live or are ending */
    REGISTRY_CHANGED,   /* those whose active_ms (by a second), deadline_ms, epoch, paused or disk (by a MiB) is not as
                           registry_told said */
    REGISTRY_UNREPORTED /* those that ended and are not yet known to have ended (registry_reported) */
};

/** The caller frees *lines; returns their count, at most `max`. */
size_t registry_lines(struct registry *registry, enum registry_lines_of which, size_t max,
                      struct registry_line **lines) MUST_USE;

/** The negotiator knows these lines. One thread, which also asks for REGISTRY_CHANGED. */
void registry_told(struct registry *registry, const struct registry_line *lines, size_t count);

/** The negotiator knows of this end. */
void registry_reported(struct registry *registry, const char *id);
