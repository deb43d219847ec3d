/** errand.h - a deed of a child process, for what may wait for a disk: the launcher's one thread never does. The child
 * has the launcher's rights and a copy of its memory, none of its descriptors but stderr, and dies with it. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct errand;

/** Forks and runs `deed` of `context` there. NULL on failure. */
struct errand *errand_start(bool (*deed)(void *context, struct error *err), void *context, struct error *err) MUST_USE;

/** The same, with up to ERRAND_KEPT_MAX descriptors of `keep` (which stay the caller's): there they are ERRAND_KEPT_FD
 *  and the ones behind it. */
#define ERRAND_KEPT_MAX 4
#define ERRAND_KEPT_FD  4
struct errand *errand_start_keeping(bool (*deed)(void *context, struct error *err), void *context, const int *keep,
                                    size_t count, struct error *err) MUST_USE;

/** Readable (poll) when it has ended. */
int errand_fd(const struct errand *errand) MUST_USE;

/** What the deed returned, and its error; waits if need be. Frees it. */
bool errand_finish(struct errand *errand, struct error *err) MUST_USE;

/** Kills it and frees it. NULL is allowed. */
void errand_cancel(struct errand *errand);
