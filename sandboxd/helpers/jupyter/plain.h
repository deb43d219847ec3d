/** plain.h - text of a kernel made fit for a frame: UTF-8, and without a terminal's colours. */
#pragma once

#include "shared/base/text.h"

#include <stddef.h>

/** Appends `size` bytes; what is not UTF-8 (RFC 3629) becomes U+FFFD, one for each byte. */
void plain_append_utf8(struct text *to, const char *from, size_t size);

/** As above, but the beginning of a character at the very end is left for later: returns the bytes taken, at least
 *  size - 3. */
size_t plain_append_stream(struct text *to, const char *from, size_t size) MUST_USE;

/** Appends without escape sequences (ECMA-48: CSI, OSC and the two-byte ones). */
void plain_append_uncoloured(struct text *to, const char *from, size_t size);
