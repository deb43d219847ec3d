/** family.h - a command and all it starts, whatever they do with sessions, process groups and parents. A serial names
 *  it. Held together by a v2 cgroup run/e<serial> (cgroup.h) where init has one, else by a mark (mark.h): what a guest
 *  does. Then there is no event when it becomes empty, its CPU time is not known, and no process can join it. */
#pragma once

#include "sandboxd/init/init.h"

/** Whether this init holds families by marks. */
bool family_is_marked(const struct init *init) MUST_USE;

/** Makes a family and clones this process as its first member: 0 in the child; -1 with ERROR_NO_CAPACITY or
 *  ERROR_INTERNAL, and then nothing is left of it. *serial is set on success, in both processes. */
pid_t family_clone(struct init *init, uint64_t *serial, struct error *err) MUST_USE;

/** The group that the child has to take before it gives its rights up; 0: none. */
gid_t family_mark(const struct init *init, uint64_t serial) MUST_USE;

/** Makes a family of a process of another one. ERROR_INTERNAL; always where families are marked. */
bool family_take(struct init *init, uint64_t *serial, pid_t pid, struct error *err) MUST_USE;

/** Whether the process is in it. */
bool family_has(const struct init *init, uint64_t serial, pid_t pid) MUST_USE;

/** Kills all in it; false where the first process may not have been reached (cgroup.kill needs Linux 5.14; a mark is
 *  taken a moment after the clone). */
bool family_kill(const struct init *init, uint64_t serial);

/** Signals all families as a whole: SIGKILL, or SIGTERM and what comes with it. */
void family_signal_all(const struct init *init, int number);

/** Whether a process of any family is there; only where they are marked. */
bool family_is_any(const struct init *init) MUST_USE;

/** Removes it; false while a process is in it. Also true when it is gone already. */
bool family_remove(const struct init *init, uint64_t serial);

/** EPOLLPRI when it becomes empty. -1 when that cannot be watched. */
int family_open_events(const struct init *init, uint64_t serial) MUST_USE;

/** CPU time all processes in it have used, also those that are gone; 0 when unknown. */
uint64_t family_cpu_us(const struct init *init, uint64_t serial) MUST_USE;
