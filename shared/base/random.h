/** random.h - randomness from the kernel, and the ids made of it. */
#pragma once

#include "shared/base/cleanup.h"

#include <stddef.h>
#include <stdint.h>

void random_bytes(void *to, size_t size);

/** Uniform in 0..bound-1; bound > 0. */
uint32_t random_below(uint32_t bound) MUST_USE;

/** An id: a prefix of at most 3 letters, "_", and 20 of [a-z0-9] (103 random bits): "sbx_4k2...". */
#define RANDOM_ID_BYTES 25 /* with the NUL */
void random_id(char to[static RANDOM_ID_BYTES], const char *prefix);

/** True for what random_id(prefix) can have made. */
_Bool random_is_id(const char *text, const char *prefix) MUST_USE;
