/** sandboxes.h - the launcher's sandboxes: made, adopted, ended; each has a slot, a folder, a record and a life.
 * Nothing here blocks or polls: the loop calls sandboxes_init_ended when a pidfd says so and sandboxes_wake when it is
 * time. */
#pragma once

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/launcher/records.h"
#include "sandboxd/launcher/slots.h"

#define SANDBOXES_ENDED_KEPT 512 /* ends that are told again to a new front; older ones are forgotten */

/** One sandbox, living or on its way out. */
struct sandbox {
    struct record record;            /* record.id is "" for remains of which nothing is known */
    struct isolation_sandbox handle; /* stats are open only until they were handed to the front, but for `oom` */
    bool ending;                     /* killed; gone when its cgroups can be removed */
    uint64_t retry_boot_ns;          /* while ending: when to try that again */
    unsigned tries;
    char reason[FRONT_LAUNCHER_NAME_BYTES]; /* as asked for, or "" */
    uint64_t destroy_request;               /* of this front, for its answer; 0 none */
};

struct sandbox_end {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char reason[FRONT_LAUNCHER_NAME_BYTES];
    uint32_t epoch;
    uint64_t destroy_request;
};

/** Who looks at a pidfd: called with each new init. To be told once: it stays readable, and closing ours does not end
 *  the watch while the front has a copy. */
struct sandboxes_watch {
    bool (*add)(void *context, uint32_t slot, int pidfd, struct error *err);
    void *context;
};

/** What it works with; texts and descriptors are borrowed. */
struct sandboxes_house {
    const struct isolation_backend *backend;
    const char *run_folder, *record_folder, *skeleton;
    gid_t front_group; /* may reach init's sockets */
    int init_program;
    uint32_t max;
    struct sandboxes_watch watch;
};

/** Embedded; zero before sandboxes_start. Private but for reading. */
struct sandboxes {
    struct sandboxes_house house;
    struct slots *slots;
    struct sandbox *by_slot[SLOTS_COUNT];
    uint32_t count;
    struct sandbox_end ended[SANDBOXES_ENDED_KEPT]; /* a ring; number n is at n % SANDBOXES_ENDED_KEPT */
    uint64_t ended_count;                           /* ever */
};

/** Adopts what lives, ends what is half-made, damaged or orphaned. */
bool sandboxes_start(struct sandboxes *all, const struct sandboxes_house *house, struct slots *slots,
                     struct error *err) MUST_USE;

/** Lets go of all, ending none. */
void sandboxes_done(struct sandboxes *all);

/** By id, living or ending; NULL. */
struct sandbox *sandboxes_find(struct sandboxes *all, const char *id) MUST_USE;

/** How the sandbox `id` ended, of those still kept; NULL. */
const struct sandbox_end *sandboxes_find_end(const struct sandboxes *all, const char *id) MUST_USE;

/** Makes a sandbox as told; the policy has said yes. NULL: nothing of it is left. ERROR_NO_CAPACITY, or what failed. */
struct sandbox *sandboxes_create(struct sandboxes *all, const struct fl_prepare *prepare,
                                 const struct fl_limits *limits, struct error *err) MUST_USE;

bool sandboxes_move_deadline(struct sandboxes *all, struct sandbox *sandbox, int64_t deadline_wall_ms,
                             struct error *err) MUST_USE;

/** The key epoch in force, for good; a lower one changes nothing. */
bool sandboxes_raise_epoch(struct sandboxes *all, struct sandbox *sandbox, uint32_t epoch, struct error *err) MUST_USE;

/** Kills it; a reason given before stays. May free it when it can be removed at once. */
void sandboxes_end(struct sandboxes *all, struct sandbox *sandbox, const char *reason);

/** init of this slot ended: the pidfd is readable. */
void sandboxes_init_ended(struct sandboxes *all, uint32_t slot);

/** Opens the stats of a living sandbox again (for a new front); ERROR_NOT_FOUND when it just ended. */
bool sandboxes_open_stats(struct sandboxes *all, struct sandbox *sandbox, struct error *err) MUST_USE;
/** Closes them but for what the end needs. */
void sandboxes_close_stats(struct sandbox *sandbox);

/** When sandboxes_wake is due, CLOCK_BOOTTIME ns; 0 never. */
uint64_t sandboxes_next_wake(const struct sandboxes *all) MUST_USE;
/** Ends what is 15 s past its hard deadline (init has one of its own), and tries removals again. */
void sandboxes_wake(struct sandboxes *all, uint64_t now_boot_ns);
