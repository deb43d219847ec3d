/** cgroups.h - the cgroups of one slot: v2 "s<slot>/{init,run}" for freezing, killing and (where v2 has the
 * controllers) limits; "s<slot>" in each v1 controller. Limits lie on what commands run in, never on init. */
#pragma once

#include "sandboxd/init/inherit.h"
#include "sandboxd/isolation/isolation.h"
#include "sandboxd/isolation/namespaces/cgroup_layout.h"

/** What a sandbox's birth needs of its cgroups; close with cgroup_slot_close. */
struct cgroup_slot {
    int top;                    /* s<slot>, O_DIRECTORY: what init is cloned into */
    int leaf;                   /* s<slot>/init/cgroup.procs, O_WRONLY: where it goes once it has its namespace */
    int run;                    /* s<slot>/run, O_DIRECTORY: init's own */
    int join[INHERIT_JOIN_MAX]; /* v1 cgroup.procs, O_WRONLY */
    size_t join_count;
};

#define CGROUP_SLOT_NONE ((struct cgroup_slot){.top = -1, .leaf = -1, .run = -1})

void cgroup_slot_close(struct cgroup_slot *slot);
#define AUTO_CGROUP_SLOT __attribute__((cleanup(cgroup_slot_close))) struct cgroup_slot

/** Makes what a birth cannot begin without: top and leaf, for the sandbox's root, `owner` outside. ERROR_CONFLICT when
 *  the slot has some already. */
bool cgroup_slot_make(const struct cgroup_layout *layout, uint32_t slot, uid_t owner, struct cgroup_slot *made,
                      struct error *err) MUST_USE;

/** Makes the rest, while the child is at work: `run`, given to `owner`, and the v1 cgroups,
 *  without limits. On failure `made` holds what there is. */
bool cgroup_slot_complete(const struct cgroup_layout *layout, uint32_t slot, uid_t owner, struct cgroup_slot *made,
                          struct error *err) MUST_USE;

/** Once init is in its leaf: the v2 controllers, for `run`. ERROR_STARTING before that. Safe to repeat. */
bool cgroup_slot_control(const struct cgroup_layout *layout, uint32_t slot, struct error *err) MUST_USE;

/** Sets the limits, at any time after that. ERROR_INVALID when more memory is in use and cannot be reclaimed: then the
 *  memory limit is as it was. */
bool cgroup_slot_limit(const struct cgroup_layout *layout, uint32_t slot, const struct isolation_limits *limits,
                       struct error *err) MUST_USE;

/** Opens the descriptors of struct isolation_sandbox. */
bool cgroup_slot_open_stats(const struct cgroup_layout *layout, uint32_t slot, int stats[ISOLATION_STATS],
                            struct error *err) MUST_USE;

/** The slot's `run`, O_DIRECTORY, the caller's; -1 with err. */
int cgroup_slot_open_run(const struct cgroup_layout *layout, uint32_t slot, struct error *err) MUST_USE;

/** Whether `pid` is in the slot's `init`. */
bool cgroup_slot_has_init(const struct cgroup_layout *layout, uint32_t slot, pid_t pid) MUST_USE;

/** The pid of the slot's init; 0 when there is none. */
pid_t cgroup_slot_init(const struct cgroup_layout *layout, uint32_t slot) MUST_USE;

bool cgroup_slot_kill(const struct cgroup_layout *layout, uint32_t slot, struct error *err) MUST_USE;
bool cgroup_slot_remove(const struct cgroup_layout *layout, uint32_t slot, struct error *err) MUST_USE;
size_t cgroup_slot_list(const struct cgroup_layout *layout, uint32_t *slots, size_t max);
