#include "sandboxd/helpers/drivers/host/text.h"

#include <stdio.h>
#include <string.h>

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

/* The length of the character that starts with `first`, and the bounds of its second byte: RFC 3629, section 4. */
static size_t character_length(unsigned char first, unsigned char *lowest, unsigned char *highest)
{
    *lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return 2;
    if (first >= 0xE0 && first <= 0xEF)
        return 3;
    return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

/* How many bytes belong to the character at `at`: its length, fewer when it goes wrong there; *is_cut: at the end. */
static size_t valid_length(const unsigned char *at, size_t size, size_t *length, int *is_cut)
{
    unsigned char lowest, highest;
    *length = character_length(at[0], &lowest, &highest);
    *is_cut = 0;
    size_t seen = 1;
    for (; seen < *length; seen++) {
        if (seen == size) {
            *is_cut = 1;
            break;
        }
        if (at[seen] < (seen == 1 ? lowest : 0x80) || at[seen] > (seen == 1 ? highest : 0xBF))
            break;
    }
    return seen;
}

static size_t put_ascii(unsigned char byte, char *to)
{
    if (byte == '"' || byte == '\\') {
        to[0] = '\\';
        to[1] = (char)byte;
        return 2;
    }
    if (byte >= 0x20 && byte != 0x7F) {
        to[0] = (char)byte;
        return 1;
    }
    if (byte == '\n') {
        memcpy(to, "\\n", 2);
        return 2;
    }
    static const char HEX[] = "0123456789abcdef";
    const char escape[6] = {'\\', 'u', '0', '0', HEX[byte >> 4], HEX[byte & 15]};
    memcpy(to, escape, sizeof escape);
    return sizeof escape;
}

static size_t put_bytes(const void *from, size_t size, char *to)
{
    memcpy(to, from, size);
    return size;
}

/* As many as are whole; *used: up to the one that is cut. */
static size_t convert(const unsigned char *from, size_t size, size_t *used, char *to)
{
    size_t at = 0, put = 0;
    while (at < size) {
        size_t length;
        int is_cut;
        size_t valid = valid_length(from + at, size - at, &length, &is_cut);
        if (is_cut)
            break;
        if (length == 1)
            put += put_ascii(from[at], to + put);
        else if (valid == length)
            put += put_bytes(from + at, length, to + put);
        else
            put += put_bytes(REPLACEMENT, 3, to + put);
        at += valid;
    }
    *used = at;
    return put;
}

size_t text_to_json(struct text_decoder *decoder, const char *from, size_t size, char *to)
{
    size_t put = 0, used;
    const unsigned char *bytes = (const unsigned char *)from;
    /* A character in two pieces is put together first, byte by byte. */
    while (decoder->count > 0 && size > 0) {
        unsigned char joined[TEXT_LEFT_BYTES + 1];
        memcpy(joined, decoder->left, decoder->count);
        joined[decoder->count] = *bytes++;
        size--;
        size_t count = decoder->count + 1;
        put += convert(joined, count, &used, to + put);
        decoder->count = count - used;
        memcpy(decoder->left, joined + used, decoder->count);
    }
    put += convert(bytes, size, &used, to + put);
    if (size > 0) {
        decoder->count = size - used;
        memcpy(decoder->left, bytes + used, decoder->count);
    }
    return put;
}

size_t text_finish(struct text_decoder *decoder, char *to)
{
    size_t put = decoder->count > 0 ? put_bytes(REPLACEMENT, 3, to) : 0;
    decoder->count = 0;
    return put;
}
