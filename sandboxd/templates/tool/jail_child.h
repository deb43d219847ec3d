/** jail_child.h - the child's half of jail.h. */
#pragma once

#include "sandboxd/templates/tool/jail.h"

/** What was cloned runs this. `ready` is the parent's word, which brings the mounts. */
struct jail_child {
    const struct jail_plan *plan;
    int channel;
    int output; /* what its programs' stdout becomes; -1 for JAIL_PARSE */
};
_Noreturn void jail_child_run(const struct jail_child *child);

/* What the parent sends before the child begins: these mounts, detached, in this order. */
enum jail_mount { JAIL_MOUNT_ROOTFS, JAIL_MOUNT_FOLDER, JAIL_MOUNTS_MAX };
