/** lines.h - runs another program and reads what it says, a line at a time. */
#pragma once

#include "shared/base/error.h"

/** Runs argv[0] (by PATH, without a slash in it) and calls `take` with each line of its stdout, without its end; the
 *  line may be changed. Its stderr is ours, or nobody's when `is_quiet`. ERROR_NOT_FOUND when it cannot be run,
 *  ERROR_INTERNAL when it did not end by itself; its exit status otherwise says what it says, and is not looked at. */
bool lines_of(const char *const argv[], bool is_quiet, void (*take)(void *cookie, char *line), void *cookie,
              struct error *err) MUST_USE;
