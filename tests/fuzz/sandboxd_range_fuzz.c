/* sandboxd_range_fuzz.c - any text as a Range of OpenSandbox's clients, of files of any size: a part lies in its file,
 * and is found again by its own words. */
#include "sandboxd/dialects/execd/execd_range.h"

#include "shared/base/memory.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t file, offset = 0, length = 0, again_offset, again_length;
    char text[64];
    if (size < sizeof file)
        return 0;
    memcpy(&file, data, sizeof file);
    file &= INT64_MAX; /* no file is larger */
    AUTO_FREE char *range = memory_copy((const char *)data + sizeof file, size - sizeof file);
    if (execd_range_read(range, file, &offset, &length) != EXECD_RANGE_PART)
        return 0;
    require(length > 0 && offset < file && length <= file - offset);
    (void)snprintf(text, sizeof text, "bytes=%" PRIu64 "-%" PRIu64, offset, offset + length - 1);
    require(execd_range_read(text, file, &again_offset, &again_length) == EXECD_RANGE_PART);
    require(again_offset == offset && again_length == length);
    return 0;
}
