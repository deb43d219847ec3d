/** copy_file.h - the bytes and the attributes of one open file, for copy.c. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** Copies `size` bytes; holes stay holes. */
bool copy_data(int from, int to, off_t size, struct error *err) MUST_USE;
/** Copies all `user.` attributes, and the file's capability, whose user namespace is told by id 0 of it on the host. */
bool copy_attributes(int from, int to, uint32_t uid_from, uint32_t uid_to, struct error *err) MUST_USE;
/** Fails with errno; no name of a user's is told. */
bool copy_fail(struct error *err, const char *what);
