#include "sandboxd/helpers/jupyter/plain.h"

#include <stdbool.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd";

void plain_append_utf8(struct text *to, const char *from, size_t size)
{
    size_t at = 0;
    while (at < size) {
        size_t fine = text_utf8_prefix(from + at, size - at);
        text_append(to, from + at, fine);
        at += fine;
        if (at < size) {
            text_append_string(to, REPLACEMENT);
            at++;
        }
    }
}

/* Bytes that the character starting with `lead` takes; 0 for what starts none. */
static size_t length_by_lead(unsigned char lead)
{
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 0;
}

static size_t unfinished_at_end(const char *from, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char byte = (unsigned char)from[size - back];
        if (length_by_lead(byte) > back)
            return back;
        if ((byte & 0xc0) != 0x80)
            return 0;
    }
    return 0;
}

size_t plain_append_stream(struct text *to, const char *from, size_t size)
{
    size_t taken = size - unfinished_at_end(from, size);
    plain_append_utf8(to, from, taken);
    return taken;
}

/* Length of the escape sequence at `from`, which starts with ESC. */
static size_t escape_length(const char *from, size_t size)
{
    if (size < 2)
        return size;
    size_t at = 2;
    if (from[1] == '[') {
        while (at < size && (from[at] < 0x40 || from[at] > 0x7e))
            at++;
        return at < size ? at + 1 : size;
    }
    if (from[1] == ']') {
        while (at < size && from[at] != '\a' && from[at] != '\033')
            at++;
        bool is_two = at + 1 < size && from[at] == '\033' && from[at + 1] == '\\';
        return at < size ? at + (is_two ? 2 : 1) : size;
    }
    return from[1] >= 0x20 && from[1] < 0x7f ? 2 : 1;
}

void plain_append_uncoloured(struct text *to, const char *from, size_t size)
{
    size_t at = 0, start = 0;
    while (at < size) {
        if (from[at] != '\033') {
            at++;
            continue;
        }
        text_append(to, from + start, at - start);
        at += escape_length(from + at, size - at);
        start = at;
    }
    text_append(to, from + start, size - start);
}
