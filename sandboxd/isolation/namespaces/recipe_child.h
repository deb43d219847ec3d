/** recipe_child.h - the child's half of the recipe: from clone3 to the execve of init. */
#pragma once

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/isolation/namespaces/recipe.h"

/** What the child takes with it. The descriptors are the parent's numbers; all others are closed at once. */
struct recipe_child {
    const struct isolation_plan *plan;
    const struct recipe_host *host;
    int leaf;    /* see struct cgroup_slot */
    int control; /* SEQPACKET: the mounts come by it, then listener, `run` and the v1 cgroups; then it is init's */
};

/** Builds the sandbox from inside and becomes init. Does not allocate, does not log (style.md, 4: between clone and
 *  exec); a failure is told as LI_FAILED. */
_Noreturn void recipe_child_run(const struct recipe_child *child);
