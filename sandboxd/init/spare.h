/** spare.h - a child made in advance: cloned into a cgroup of its own, all rights given up, the seccomp program loaded.
 *  It waits for a command, so that nothing of this stands between a START and its execve, where it was two thirds of
 *  the time. It runs as the commands' user, but is not dumpable: they can end it, not look into it. Without one a
 *  command's child is made when it is needed. */
#pragma once

#include "sandboxd/init/child.h"
#include "sandboxd/init/command.h"

/** What holds for a child of this init; `start` NULL: for one that is no command yet, or a helper. */
struct child_plan child_plan_of(const struct init *init, const struct fi_start *start) MUST_USE;

/** Makes it when there is none and the sandbox is not ending. A failure has no consequence. */
void spare_make(struct init *init);
/** Has it become `command`, whose pid and serial it sets; false when there is none, it was ended, or it is not as
 * `plan` wants it: then the next one will be, unless that is for a command as root. */
bool spare_take(struct init *init, struct command *command, const struct child_plan *plan,
                const struct child_order *order, int memory) MUST_USE;
/** A child was reaped that is no command; whether it is the spare. */
bool spare_reaped(struct init *init, pid_t pid);
