/** mapping.h - a new user namespace with the subordinate ids of who calls. The kernel lets an ordinary user map its own
 * id alone; newuidmap(1) and newgidmap(1), which have the right, do the rest by what /etc/subuid and /etc/subgid say.
 */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/** Moves this process, which has one thread, into a new user namespace with room for up to `slots_max` slots
 *  (id_map.h). ERROR_FORBIDDEN: too few ids, and the command that gives more; ERROR_NOT_FOUND: the two programs are not
 *  there. */
bool mapping_make(uint32_t slots_max, struct error *err) MUST_USE;
