/** jail_rights.h - what a jailed child gives up. Child's half. */
#pragma once

#include "shared/base/error.h"

#include <stdint.h>

/** Becomes uid and gid 0 of its user namespace; ends with its parent; undumpable. */
bool jail_rights_become_root(int channel, struct error *err) MUST_USE;
/** rlimits: no core, files of at most `file_bytes`, 4 GiB of addresses a process, 2000 processes. */
bool jail_rights_limit(uint64_t file_bytes, struct error *err) MUST_USE;
/** Leaves CHOWN, DAC_OVERRIDE and FOWNER of its own namespace, and a filter of system calls for files and memory. */
bool jail_rights_for_parsing(struct error *err) MUST_USE;
/** Leaves what a package manager in its own namespace needs. */
bool jail_rights_for_packages(struct error *err) MUST_USE;
