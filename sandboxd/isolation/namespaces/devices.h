/** devices.h - the /dev of a sandbox: a handful of harmless nodes, pseudo-terminals and shared memory of its own. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Child's half, before the pivot (the nodes are bound from the host's /dev). /dev/shm is small until init gives it its
 *  size. */
bool devices_make(struct error *err) MUST_USE;
