/** cgroup_weights.h - who comes first on a processor: this process and what it starts (front, parley-egress, inits),
 *  before the commands of sandboxes. See sandboxd/DESIGN.md, "Cgroups". */
#pragma once

#include "sandboxd/isolation/namespaces/cgroup_layout.h"

/** Moves this process into "daemon" beside the slots, where cpu is a v1 hierarchy: there it, and the inits, which are
 * in none of the slots' cgroups, would be in another group than what they have to be weighed against. Nothing where v2
 * has cpu (the front and launcher are beside our folder, init is in its slot's). Whatever a host refuses stays as it
 * was: slower beside a sandbox that takes all processors, not weaker. After cgroup_layout_make; safe to repeat. */
void cgroup_weights_join(const struct cgroup_layout *layout);

/** Moves this process out again and removes "daemon" when nobody is left in it. Before cgroup_layout_remove. */
void cgroup_weights_leave(const struct cgroup_layout *layout);

/** What is in `folder` (O_DIRECTORY) runs on a processor when nobody beside it wants to (cpu.idle, Linux 5.15); among
 * several such all are equal. Nothing on an older kernel. */
void cgroup_weights_yield(int folder);
