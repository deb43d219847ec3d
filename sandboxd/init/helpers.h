/** helpers.h - file helpers (sandboxd/helpers/files): processes like commands in rights, cgroup and seccomp program,
 * but of our own code and without execve. The front talks to each over the socket that came with FI_HELPER; closing it
 * ends the helper. */
#pragma once

#include "sandboxd/init/init.h"

#define HELPERS_NAME "init-files" /* as ps shows it */

/** FI_HELPER; `socket` (closed by the caller) is the helper's. What goes wrong is told there, as FILES_ERROR. */
void helpers_start(struct init *init, int socket);
/** clone3(2) of a process that is no command, into a cgroup run/e<*serial> of its own which goes with it: 0 in the
 * child, -1 with GONE, NO_CAPACITY, INTERNAL. */
pid_t helpers_clone(struct init *init, uint64_t *serial, struct error *err) MUST_USE;
/** Whether it is one that runs. */
bool helpers_has(struct init *init, pid_t pid) MUST_USE;
/** True when the reaped child was a helper. Of another, it tries again to remove what helpers left. */
bool helpers_reaped(struct init *init, pid_t pid) MUST_USE;
/** Before init ends: removes their cgroups. */
void helpers_clean_up(struct init *init);

/** Tells on a helper's socket why there is none. */
void helpers_refuse(int socket, const struct error *why);
