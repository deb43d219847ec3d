/** terminate.h - the end of a sandbox: SIGTERM to all, SIGKILL after the grace, then init leaves, and the kernel with
 * it removes whatever is left of its pid namespace. */
#pragma once

#include "sandboxd/init/init.h"

#define TERMINATE_GRACE_MS 10000 /* where nobody says another */

/** Begins, or, when the end has begun, at most shortens the grace. */
void terminate_begin(struct init *init, uint64_t grace_ms, int exit_code);

/** The time at init->end_boot_ns has come. */
void terminate_go_on(struct init *init);

/** True when nothing is left to wait for. */
bool terminate_is_done(const struct init *init) MUST_USE;

/** Removes what cgroups are empty. */
void terminate_clean_up(struct init *init);
