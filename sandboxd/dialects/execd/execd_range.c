/* execd_range.c - see execd_range.h. */
#include "sandboxd/dialects/execd/execd_range.h"

#include "shared/base/text.h"

#include <string.h>

/* One range, or the part of one on a side of its dash. */
struct piece {
    const char *text;
    size_t size;
};

static struct piece trim(const char *text, size_t size)
{
    while (size > 0 && (*text == ' ' || *text == '\t')) {
        text++;
        size--;
    }
    while (size > 0 && (text[size - 1] == ' ' || text[size - 1] == '\t'))
        size--;
    return (struct piece){.text = text, .size = size};
}

/* Digits, leading zeros too, up to INT64_MAX. */
static bool read_number(struct piece piece, uint64_t *number)
{
    while (piece.size > 1 && piece.text[0] == '0') {
        piece.text++;
        piece.size--;
    }
    return text_parse_u64(piece.text, piece.size, INT64_MAX, number);
}

/* *offset may be at `size`, or behind it. */
static bool read_one(struct piece piece, uint64_t size, uint64_t *offset, uint64_t *length)
{
    const char *dash = memchr(piece.text, '-', piece.size);
    if (!dash)
        return false;
    size_t before = (size_t)(dash - piece.text);
    struct piece first = trim(piece.text, before), last = trim(dash + 1, piece.size - before - 1);
    uint64_t start, end = INT64_MAX;
    if (first.size == 0) {
        if (!read_number(last, &end))
            return false;
        *offset = end > size ? 0 : size - end;
        *length = size - *offset;
        return true;
    }
    if (!read_number(first, &start) || (last.size > 0 && (!read_number(last, &end) || end < start)))
        return false;
    *offset = start;
    *length = start >= size ? 0 : end < size ? end - start + 1 : size - start;
    return true;
}

enum execd_range execd_range_read(const char *text, uint64_t size, uint64_t *offset, uint64_t *length)
{
    static const char UNIT[] = "bytes=";
    bool has_any = false, has_part = false;
    uint64_t part_offset = 0, part_length = 0;
    if (!text)
        return EXECD_RANGE_WHOLE;
    if (!text_starts_with(text, UNIT))
        return EXECD_RANGE_MALFORMED;
    for (const char *at = text + sizeof UNIT - 1; at;) {
        const char *comma = strchr(at, ',');
        struct piece piece = trim(at, comma ? (size_t)(comma - at) : strlen(at));
        uint64_t start, count;
        at = comma ? comma + 1 : NULL;
        if (piece.size == 0)
            continue;
        has_any = true;
        if (!read_one(piece, size, &start, &count))
            return EXECD_RANGE_MALFORMED;
        if (has_part || start >= size)
            continue;
        has_part = true;
        part_offset = start;
        part_length = count;
    }
    if (has_part) {
        *offset = part_offset;
        *length = part_length;
        return EXECD_RANGE_PART;
    }
    return has_any && size > 0 ? EXECD_RANGE_BEYOND : EXECD_RANGE_WHOLE;
}
