#include "sandboxd/rootless/subordinate.h"

#include "shared/base/cleanup.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX_BYTES = 1024 * 1024, NUMBER_BYTES = 16 };

static bool overlaps(const struct subordinate_range *a, uint64_t first, uint64_t count)
{
    return first < (uint64_t)a->first + a->count && a->first < first + count;
}

static void add(struct subordinate_ranges *found, uint64_t first, uint64_t count, uint32_t id)
{
    bool is_sound = first > 0 && count > 0 && first + count <= UINT32_MAX && (id < first || id >= first + count);
    for (size_t i = 0; i < found->count; i++)
        is_sound = is_sound && !overlaps(&found->list[i], first, count);
    if (is_sound && found->count < SUBORDINATE_RANGES_MAX)
        found->list[found->count++] = (struct subordinate_range){(uint32_t)first, (uint32_t)count};
}

static bool is_owner(const char *owner, size_t length, const char *name, const char *number)
{
    return (name && name[0] && strlen(name) == length && memcmp(owner, name, length) == 0) ||
           (strlen(number) == length && memcmp(owner, number, length) == 0);
}

static void read_line(const char *line, size_t length, const char *name, const char *number, uint32_t id,
                      struct subordinate_ranges *found)
{
    const char *first = memchr(line, ':', length);
    const char *end = line + length;
    const char *second = first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;
    uint64_t start = 0;
    uint64_t count = 0;
    if (!second || !is_owner(line, (size_t)(first - line), name, number) ||
        !text_parse_u64(first + 1, (size_t)(second - first - 1), UINT32_MAX, &start) ||
        !text_parse_u64(second + 1, (size_t)(end - second - 1), UINT32_MAX, &count))
        return;
    add(found, start, count, id);
}

void subordinate_parse(const char *text, size_t size, const char *name, uint32_t id, struct subordinate_ranges *found)
{
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "%" PRIu32, id);
    *found = (struct subordinate_ranges){0};
    for (size_t at = 0; at < size;) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t length = newline ? (size_t)(newline - text) - at : size - at;
        read_line(text + at, length, name, number, id, found);
        at += length + 1;
    }
}

void subordinate_read(const char *path, const char *name, uint32_t id, struct subordinate_ranges *found)
{
    size_t size = 0;
    AUTO_FREE char *text = fd_read_file(path, FILE_MAX_BYTES, &size, NULL);
    subordinate_parse(text ? text : "", text ? size : 0, name, id, found);
}
