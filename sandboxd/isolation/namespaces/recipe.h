/** recipe.h - how a sandbox is born: one clone3, the parent's half and the child's half, in their order. */
#pragma once

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/isolation/namespaces/cgroups.h"
#include "sandboxd/isolation/namespaces/namespaces.h"
#include "sandboxd/isolation/namespaces/stage.h"

/** What start found, for all births; descriptors are borrowed. */
struct recipe_host {
    const struct cgroup_layout *layout;
    int seccomp;     /* the filter's memfd */
    uint64_t covers; /* see proc.h */
    bool is_rootless; /* what is not ours is neither idmapped nor, for want of that, written over */
    const struct stage *stage;
    const struct namespaces_guest *guest; /* NULL: init, in the sandbox's own root */
};

#define RECIPE_LAYERS 5 /* root, area, the template's /usr if the host's, of a guest its bundle and the host's /usr */

/** Clones init into `slot`, which was made, gives it what only root can make, completes the slot meanwhile, and returns
 *  while the child builds: made->init_pid, ->init_start, ->init and ->birth are set. On failure the child is dead and
 *  reaped; cgroups and socket are the caller's to remove. */
bool recipe_begin(const struct recipe_host *host, struct cgroup_slot *slot, const struct isolation_plan *plan,
                  struct isolation_sandbox *made, struct error *err) MUST_USE;

/** Reads what the child, or init, says next: 1 it is a message of `type`, 0 nothing there yet, -1 it failed. A barrier
 * is passed over by who waits for more. */
int recipe_hear(const struct isolation_sandbox *sandbox, uint32_t type, struct error *err) MUST_USE;

/** Field 22 of /proc/<pid>/stat (proc_pid_stat(5)); 0 when there is no such process. */
uint64_t recipe_start_time(pid_t pid) MUST_USE;
