/** cgroup_keep.h - keeps a cgroup for sandboxes that live longer than the launcher: a service of its own, that the launcher's
 *  restart and upgrade leave alone. A service manager puts a service that it starts again into that one's cgroup, which
 *  cgroup v2 forbids while cgroups with controllers are in it (cgroups(7), "no internal processes"). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Moves this process into the leaf `keeper` of its own v2 cgroup, so that others can be made beside it, with
 *  controllers. Safe to repeat. ERROR_NOT_FOUND without a v2 hierarchy, ERROR_CONFLICT in a cgroup that has
 *  others in it, or is the root. `root` as in cgroup_layout_find. */
bool cgroup_keep(const char *root, struct error *err) MUST_USE;
