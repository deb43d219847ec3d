/* execd_lines.c - see execd_lines.h. */
#include "sandboxd/dialects/execd/execd_lines.h"

#include "shared/base/memory.h"

#include <string.h>

enum { KEEP_BYTES = 4096, CHARACTER_BYTES = 4 }; /* a larger buffer goes with its line */

void execd_lines_done(struct execd_lines *lines)
{
    text_done(&lines->pending);
}

static void begin(struct execd_lines *lines)
{
    if (!lines->is_told)
        return;
    lines->is_told = false;
    if (lines->pending.capacity > KEEP_BYTES)
        text_done(&lines->pending);
    lines->pending.length = 0;
}

static bool tell(struct execd_lines *lines, const struct text **line)
{
    lines->is_told = true;
    *line = &lines->pending;
    return true;
}

static size_t find_end(const char *data, size_t size)
{
    const char *lf = memchr(data, '\n', size);
    size_t length = lf ? (size_t)(lf - data) : size;
    const char *cr = memchr(data, '\r', length);
    return cr ? (size_t)(cr - data) : length;
}

/* How much of a piece that is as long as may be can go: not the beginning of a character whose rest comes next. */
static size_t whole_characters(const char *data, size_t size)
{
    size_t back = 1;
    while (back < CHARACTER_BYTES && back < size && ((unsigned char)data[size - back] & 0xc0) == 0x80)
        back++;
    unsigned char first = (unsigned char)data[size - back];
    size_t needs = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    return needs > back && back < size ? size - back : size;
}

/* The piece goes, and what is cut off it stays with the data. */
static void cut(struct execd_lines *lines, size_t *used, size_t taken)
{
    size_t whole = whole_characters(lines->pending.data, lines->pending.length);
    size_t back = lines->pending.length - whole;
    if (back >= taken) /* else it would be taken again and again */
        return;
    lines->pending.length = whole;
    lines->pending.data[whole] = '\0';
    *used -= back;
}

/* What still belongs to the end of the line before. */
static void begin_behind(struct execd_lines *lines, const char *data, size_t size, size_t *used)
{
    if (lines->is_cut && size > 0) {
        lines->is_cut = false;
        lines->after_cr = data[0] == '\r';
        *used += lines->after_cr || data[0] == '\n';
        if (!lines->after_cr)
            return;
    }
    if (lines->after_cr && *used < size) {
        lines->after_cr = false;
        *used += data[*used] == '\n';
    }
}

bool execd_lines_take(struct execd_lines *lines, const char *data, size_t size, size_t *used, const struct text **line)
{
    begin(lines);
    *used = 0;
    begin_behind(lines, data, size, used);
    size_t room = EXECD_LINE_BYTES - lines->pending.length, left = size - *used;
    size_t end = left ? find_end(data + *used, left) : 0, taken = end < room ? end : room;
    text_append(&lines->pending, data + *used, taken);
    *used += taken;
    if (end < left && taken == end) {
        lines->after_cr = data[*used] == '\r';
        (*used)++;
        return tell(lines, line);
    }
    if (lines->pending.length < EXECD_LINE_BYTES)
        return false;
    cut(lines, used, taken);
    lines->is_cut = true;
    return tell(lines, line);
}

bool execd_lines_rest(struct execd_lines *lines, const struct text **line)
{
    begin(lines);
    return lines->pending.length > 0 && tell(lines, line);
}
