/** devices.h - the /dev of a sandbox: the stage's handful of harmless nodes, read-only, pseudo-terminals and shared
 * memory of its own. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Child's half, in the stage. /dev/shm is small until init gives it its size. */
bool devices_make(struct error *err) MUST_USE;
