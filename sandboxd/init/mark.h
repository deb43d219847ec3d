/** mark.h - telling a command and all it starts by a supplementary group that nobody else has: fork(2) and execve(2)
 *  hand it on, and without CAP_SETGID nobody lays it down (setgroups(2)). For kernels and places where init has no v2
 *  cgroup of its own: a guest's. proc(5) tells each process's groups; what is found is signalled one by one, so unlike
 *  cgroup.kill this takes its time, and a process that is in no pid namespace of ours can never be meant. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MARKS 4096 /* different ones */

/** The first of MARKS groups: of a random place far above all that are given to people, or, where the user namespace
 *  has no such, 60100. ERROR_INTERNAL: neither is to be had. Needs CAP_SETGID, and leaves this process without groups.
 */
bool mark_choose(gid_t *first, struct error *err) MUST_USE;

/** How many living processes have one of the `count` groups from `first` on; each of them is sent `number` (0: none).
 * One that forks and leaves without end may be missed. */
size_t mark_signal(gid_t first, size_t count, int number);

/** Kills them all, also who is always another process than a moment ago: all of `user` are stopped at once (kill(2),
 * -1), those with a mark are killed, and the others go on; also those of `user` that are no command's, and those that
 * were stopped before. Blocks until they are gone, 50 ms at most. False when some did not die of it yet. Needs CAP_KILL
 * and CAP_SETUID. */
bool mark_kill(gid_t first, size_t count, uid_t user);
