/** freezer.h - stops all that runs in a cgroup (v2, cgroup.freeze), and lets it go on. Belongs to a loop. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/http/loop.h"

#include <stdbool.h>

#define FREEZER_BOUND_MS 5000 /* for all of it to stop */

struct freezer;

/** `freeze` and `events` (borrowed, as long as it lives) are cgroup.freeze and cgroup.events of one cgroup. */
struct freezer *freezer_new(struct loop *loop, int freeze, int events) MUST_USE;

/** What is awaited is forgotten; the cgroup stays as it is. NULL is allowed. */
void freezer_free(struct freezer *freezer);
DEFINE_AUTO(freezer)

/** Whether it was told to stop, by whomever; it may still be at it. */
bool freezer_is_set(const struct freezer *freezer) MUST_USE;

/** Stops it: stopped(cookie, NULL) once nothing in it runs, never inside of this call. Or an error, and it goes on:
 *  TIMEOUT when it has not stopped within FREEZER_BOUND_MS (a process waits in the kernel for what cannot be
 *  interrupted), INTERNAL. One at a time. */
void freezer_stop(struct freezer *freezer, void (*stopped)(void *cookie, const struct error *err), void *cookie);

/** It goes on, at once; `stopped` of a stop that is not complete is not called any more. INTERNAL. */
bool freezer_go_on(struct freezer *freezer, struct error *err) MUST_USE;
