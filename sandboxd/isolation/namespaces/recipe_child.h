/** recipe_child.h - the child's half of the recipe: from clone3 to the execve of init. */
#pragma once

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/isolation/namespaces/cgroups.h"

/** What the child takes with it. The descriptors are the parent's numbers; all others are closed at once. */
struct recipe_child {
    const struct isolation_plan *plan;
    const struct cgroup_slot *slot;
    int sync;     /* SEQPACKET: one byte to the parent once in the own cgroup namespace; then both lower layers come */
    int ready;    /* pipe to the parent: a struct error, or init's byte */
    int listener; /* bound */
    int seccomp;
};

/** Builds the sandbox from inside and becomes init. Does not allocate, does not log (style.md, 4: between clone and
 *  exec); a failure goes through the ready pipe. */
_Noreturn void recipe_child_run(const struct recipe_child *child);
