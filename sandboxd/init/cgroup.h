/** cgroup.h - the v2 directory of one command, run/e<serial>: it holds the command and all it starts, whatever they do
 *  with sessions and process groups. `run` is the descriptor of its parent. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** Makes the directory and opens it (O_CLOEXEC); -1 with ERROR_NO_CAPACITY or ERROR_INTERNAL. */
int cgroup_make(int run, uint64_t serial, struct error *err) MUST_USE;
/** clone3(2) into the cgroup open at `directory`: 0 in the child, -1 with ERROR_NO_CAPACITY or ERROR_INTERNAL. */
pid_t cgroup_clone(int directory, struct error *err) MUST_USE;

/** Kills all in it at once; false where it cannot be done this way (cgroup.kill needs Linux 5.14). */
bool cgroup_kill(int run, uint64_t serial);
/** The same for `run` as a whole. */
bool cgroup_kill_all(int run);

/** Removes it; false while a process is in it. Also true when it is gone already. */
bool cgroup_remove(int run, uint64_t serial);

/** cgroup.events: EPOLLPRI when it becomes empty. -1 when it cannot be opened. */
int cgroup_open_events(int run, uint64_t serial) MUST_USE;

/** Moves a process of ours into it. */
bool cgroup_move(int run, uint64_t serial, pid_t pid) MUST_USE;
/** Whether the process is in it. */
bool cgroup_has(int run, uint64_t serial, pid_t pid) MUST_USE;

/** CPU time all processes in it have used, also those that are gone; 0 when unknown. */
uint64_t cgroup_cpu_us(int run, uint64_t serial) MUST_USE;
