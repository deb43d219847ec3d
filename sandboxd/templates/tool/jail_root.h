/** jail_root.h - the three roots that a jailed child can have. Child's half; it is root of its own user namespace. */
#pragma once

#include "shared/base/error.h"

/** An empty folder, read-only. */
bool jail_root_empty(struct error *err) MUST_USE;
/** The host's /usr read-only, a minimal /etc, /proc, /dev, /tmp; the detached mount `rootfs` at /target. */
bool jail_root_tools(int rootfs, struct error *err) MUST_USE;
/** The detached mount `rootfs` itself, with /proc and /dev. */
bool jail_root_target(int rootfs, struct error *err) MUST_USE;
