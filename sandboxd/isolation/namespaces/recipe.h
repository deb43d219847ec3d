/** recipe.h - how a sandbox is born: one clone3, the parent's half and the child's half, in their order. */
#pragma once

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/isolation/namespaces/cgroups.h"

/** Clones init and builds all around it; returns once it listens. `seccomp` is the filter's memfd. The slot's cgroups
 *  were made. On failure the child is dead and reaped; cgroups and socket are the caller's to remove. */
bool recipe_run(const struct cgroup_layout *layout, const struct cgroup_slot *slot, const struct isolation_plan *plan,
                int seccomp, struct isolation_sandbox *made, struct error *err) MUST_USE;

/** Field 22 of /proc/<pid>/stat (proc_pid_stat(5)); 0 when there is no such process. */
uint64_t recipe_start_time(pid_t pid) MUST_USE;
