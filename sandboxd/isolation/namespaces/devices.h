/** devices.h - the /dev of a sandbox: a handful of harmless nodes, pseudo-terminals and shared memory of its own. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/** Child's half, before the pivot (the nodes are bound from the host's /dev); `memory_bytes` bounds /dev/shm. */
bool devices_make(uint64_t memory_bytes, struct error *err) MUST_USE;
