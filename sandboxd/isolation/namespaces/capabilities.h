/** capabilities.h - what init may keep of its user namespace's powers (capabilities(7)). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Child's half, right before execve: leaves SETUID, SETGID, SETPCAP and KILL in the bounding set, nothing inheritable
 *  or ambient, sets no_new_privs and not dumpable. As uid 0, execve makes those four permitted and effective. */
bool capabilities_limit(struct error *err) MUST_USE;

/** Child's half: rlimits, umask, own session, own keyring, signals at their defaults. */
bool process_attributes_reset(struct error *err) MUST_USE;
