/** memory.h - heap memory that is never NULL: running out ends the program, so every size that comes from
 *  outside is bounded before it reaches here. All results are freed with free(). */
#pragma once

#include "shared/base/cleanup.h"

#include <stdarg.h>
#include <stddef.h>

/** `size` zeroed bytes. */
void *memory_new(size_t size) __attribute__((malloc, returns_nonnull)) MUST_USE;

/** `count` zeroed elements of `size` bytes; an overflowing product ends the program. */
void *memory_array(size_t count, size_t size) __attribute__((malloc, returns_nonnull)) MUST_USE;

/** realloc; bytes beyond the old size are not zeroed. */
void *memory_resize(void *old, size_t size) __attribute__((returns_nonnull)) MUST_USE;

/** A copy of `size` bytes, followed by a NUL that is not counted. */
void *memory_copy(const void *from, size_t size) __attribute__((malloc, returns_nonnull)) MUST_USE;

/** A copy of a string; NULL stays NULL. */
char *memory_string(const char *text) MUST_USE;

/** A formatted string. */
char *memory_printf(const char *format, ...) __attribute__((format(printf, 1, 2), malloc, returns_nonnull)) MUST_USE;
