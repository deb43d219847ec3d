/** deadline.h - all that happens at a time: the hard deadline, timeouts of commands, the end of a grace. One timerfd of
 *  CLOCK_BOOTTIME, so that none of it waits for a machine that slept. */
#pragma once

#include "sandboxd/init/init.h"

/** With no hard deadline yet. */
bool deadline_open(struct init *init, struct error *err) MUST_USE;

/** Something is due then (boot time, ns; 0: nothing). */
void deadline_consider(struct init *init, uint64_t due_boot_ns);

/** Moves the hard deadline; 0 none. Ignored once the sandbox is ending. */
void deadline_set_hard(struct init *init, uint64_t boot_ns);
