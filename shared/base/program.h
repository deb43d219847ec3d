/** program.h - where the file of the running program lies: what was installed with it lies beside it. */
#pragma once

#include "shared/base/cleanup.h"

/** The folder, without a slash at its end (/proc/self/exe, proc(5)); "" when it cannot be known. The caller frees. */
char *program_folder(void) MUST_USE;

/** The path of `name` in that folder, there or not. The caller frees. */
char *program_beside(const char *name) MUST_USE;
