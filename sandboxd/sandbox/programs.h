/** programs.h - what commands find as descriptor FRONT_INIT_PROGRAM: a copy of each program that a sandbox was given.
 *  Locks, watches and file positions reach all who share a file, so no two sandboxes share one, and no two commands an
 *  open file. Belongs to the sandbox's loop. */
#pragma once

#include "sandboxd/sandbox/sandbox_internal.h"

#define PROGRAMS_MAX 8 /* copies that a sandbox keeps; beyond them the one longest unused goes */

/** Opens the sandbox's copy of `program` (a sealed memfd), O_RDONLY, for one command; -1 with NO_CAPACITY, INTERNAL. */
int programs_open(struct sandbox *sandbox, int program, struct error *err) MUST_USE;
void programs_free(struct sandbox *sandbox);
