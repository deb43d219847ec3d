/** capabilities.h - what init starts with; it gives its capabilities up itself, when it becomes (init/rights.h). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

/** Child's half, right before execve: nothing inheritable or ambient, no_new_privs, not dumpable. */
bool capabilities_seal(struct error *err) MUST_USE;

/** Child's half: rlimits, umask, own session, own keyring. */
bool process_attributes_reset(struct error *err) MUST_USE;
