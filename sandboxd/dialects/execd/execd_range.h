/** execd_range.h - the header Range as this dialect's daemon reads it: of several ranges the first that lies in the
 * file counts, and one that is malformed is told, not ignored. Pure. */
#pragma once

#include "shared/base/error.h"

#include <stdint.h>

enum execd_range {
    EXECD_RANGE_WHOLE, /* none is asked for; or the file is empty */
    EXECD_RANGE_PART,
    EXECD_RANGE_MALFORMED,
    EXECD_RANGE_BEYOND /* all begin behind the end */
};

/** Of a file of `size` bytes; *offset and *length (1..) of a PART, which is cut at the file's end. `text` NULL: none.
 */
enum execd_range execd_range_read(const char *text, uint64_t size, uint64_t *offset, uint64_t *length) MUST_USE;
