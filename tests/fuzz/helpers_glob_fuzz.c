/* helpers_glob_fuzz.c - any pattern with any path (after the first newline): no overrun, no endless work, and a pattern
 * without a meaning of its own matches itself alone. */
#include "sandboxd/helpers/files/glob_pattern.h"
#include "shared/base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, '\n', size) : NULL;
    if (cut == NULL || memchr(data, '\0', size))
        return 0;
    AUTO_FREE char *text = memory_copy(data, (size_t)(cut - data));
    AUTO_FREE char *path = memory_copy(cut + 1, size - (size_t)(cut + 1 - data));
    if (!front_files_path_is_relative(path, strlen(path)))
        return 0;
    struct error err = {0};
    AUTO(glob_pattern) *pattern = glob_pattern_parse(text, GLOB_EXACT, &err);
    if (pattern == NULL)
        return err.kind == ERROR_INVALID ? 0 : (abort(), 0);
    bool is_match = glob_pattern_matches(pattern, path, false);
    size_t length = strlen(text);
    if (strpbrk(text, "*?[]{}\\") == NULL && text[length - 1] != '/' && is_match != (strcmp(text, path) == 0))
        abort();
    AUTO(glob_pattern) *folded = glob_pattern_parse(text, GLOB_ANY_CASE, &err);
    if (folded && strpbrk(text, "[") == NULL && is_match && !glob_pattern_matches(folded, path, false))
        abort();
    return 0;
}
