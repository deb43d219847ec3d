/** proc.h - the /proc of a sandbox: of its own pid namespace, without what is the host's (proc(5)). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Which of the names that are to be covered this kernel has, and lets others read or write: what is root's alone is so
 *  inside too, where nobody is the host's root. A bit each; asked once, by the launcher. */
uint64_t proc_find_covers(void) MUST_USE;

/** Child's half, in the stage (stage.h): mounts it in the new root, and covers those. Before the old root goes: a fresh
 *  proc is allowed only where a whole one is to be seen. */
bool proc_make(uint64_t covers, struct error *err) MUST_USE;
