#include "shared/base/text.h"

#include "shared/base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool text_copy(char *to, size_t size, const char *from)
{
    if (size == 0)
        return false;
    size_t length = from ? strnlen(from, size) : size;
    if (length == size) {
        to[0] = '\0';
        return false;
    }
    memmove(to, from, length);
    to[length] = '\0';
    return true;
}

bool text_format(char *to, size_t size, const char *format, ...)
{
    if (size == 0)
        return false;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(to, size, format, arguments);
    va_end(arguments);
    bool fits = length >= 0 && (size_t)length < size;
    if (!fits)
        to[0] = '\0';
    return fits;
}

bool text_equal(const char *a, const char *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return strcmp(a, b) == 0;
}

bool text_starts_with(const char *text, const char *prefix)
{
    return text && strncmp(text, prefix, strlen(prefix)) == 0;
}

bool text_is_made_of(const char *text, size_t max_bytes, const char *also)
{
    if (text == NULL)
        return false;
    size_t length = 0;
    for (; text[length]; length++) {
        char c = text[length];
        if (length == max_bytes || (!is_digit(c) && !is_letter(c) && strchr(also, c) == NULL))
            return false;
    }
    return length > 0;
}

bool text_is_name(const char *text, size_t max_bytes)
{
    return text_is_made_of(text, max_bytes, "._-") && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

bool text_parse_u64(const char *text, size_t length, uint64_t max, uint64_t *value)
{
    if (text == NULL || length == 0 || (length > 1 && text[0] == '0'))
        return false;
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i]))
            return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (sum > (UINT64_MAX - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    if (sum > max)
        return false;
    *value = sum;
    return true;
}

/* --- base64: one engine; the two alphabets differ in the last two characters, and in padding. --- */

static const char BASE64URL[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static size_t encode(char *to, const void *from, size_t size, const char *alphabet)
{
    const uint8_t *in = from;
    char *out = to;
    for (; size >= 3; size -= 3, in += 3) {
        uint32_t bits = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];
        *out++ = alphabet[bits >> 18];
        *out++ = alphabet[bits >> 12 & 63];
        *out++ = alphabet[bits >> 6 & 63];
        *out++ = alphabet[bits & 63];
    }
    if (size > 0) {
        uint32_t bits = (uint32_t)in[0] << 16 | (size == 2 ? (uint32_t)in[1] << 8 : 0);
        *out++ = alphabet[bits >> 18];
        *out++ = alphabet[bits >> 12 & 63];
        if (size == 2)
            *out++ = alphabet[bits >> 6 & 63];
    }
    *out = '\0';
    return (size_t)(out - to);
}

static uint32_t base64_value(char c, const char *alphabet)
{
    if (c >= 'A' && c <= 'Z')
        return (uint32_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint32_t)(c - 'a') + 26;
    if (is_digit(c))
        return (uint32_t)(c - '0') + 52;
    return c == alphabet[62] ? 62 : c == alphabet[63] ? 63 : 64;
}

/* `length` characters without padding. All is checked before a byte is written. */
static bool decode(void *to, size_t to_size, size_t *decoded, const char *from, size_t length, const char *alphabet)
{
    size_t size = length / 4 * 3 + (length % 4 ? length % 4 - 1 : 0);
    if (length % 4 == 1 || size > to_size || (from == NULL && length > 0))
        return false;
    uint32_t last = 0;
    for (size_t i = 0; i < length; i++) {
        last = base64_value(from[i], alphabet);
        if (last == 64)
            return false;
    }
    uint32_t unused = length % 4 == 2 ? 15 : length % 4 == 3 ? 3 : 0;
    if (last & unused)
        return false;
    uint8_t *out = to;
    uint32_t bits = 0;
    for (size_t i = 0; i < length; i++) {
        bits = bits << 6 | base64_value(from[i], alphabet);
        if (i % 4 != 0)
            *out++ = (uint8_t)(bits >> (6 - i % 4 * 2));
    }
    *decoded = size;
    return true;
}

size_t text_base64url_encode(char *to, const void *from, size_t size)
{
    return encode(to, from, size, BASE64URL);
}

bool text_base64url_decode(void *to, size_t to_size, size_t *decoded, const char *from, size_t length)
{
    return decode(to, to_size, decoded, from, length, BASE64URL);
}

size_t text_base64_encode(char *to, const void *from, size_t size)
{
    size_t length = encode(to, from, size, BASE64);
    while (length % 4 != 0)
        to[length++] = '=';
    to[length] = '\0';
    return length;
}

bool text_base64_decode(void *to, size_t to_size, size_t *decoded, const char *from, size_t length)
{
    if (length % 4 != 0 || (from == NULL && length > 0))
        return false;
    size_t padding = 0;
    while (padding < 2 && padding < length && from[length - 1 - padding] == '=')
        padding++;
    return decode(to, to_size, decoded, from, length - padding, BASE64);
}

void text_hex(char *to, const void *from, size_t size)
{
    static const char DIGITS[] = "0123456789abcdef";
    const uint8_t *in = from;
    for (size_t i = 0; i < size; i++) {
        to[2 * i] = DIGITS[in[i] >> 4];
        to[2 * i + 1] = DIGITS[in[i] & 15];
    }
    to[2 * size] = '\0';
}

static unsigned hex_value(char c)
{
    if (is_digit(c))
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (unsigned)(c - 'a') + 10;
    if (c >= 'A' && c <= 'F')
        return (unsigned)(c - 'A') + 10;
    return 16;
}

bool text_hex_decode(void *to, size_t size, const char *from, size_t length)
{
    if (from == NULL || length % 2 != 0 || length / 2 != size)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (hex_value(from[i]) == 16)
            return false;
    }
    uint8_t *out = to;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(hex_value(from[2 * i]) << 4 | hex_value(from[2 * i + 1]));
    return true;
}

/* Length of the one well-formed sequence of 2..4 bytes at `bytes`, 0 when there is none (Unicode, table 3-7). */
static size_t utf8_sequence(const uint8_t *bytes, size_t length)
{
    uint8_t lead = bytes[0];
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (size > length)
        return 0;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (bytes[1] < low || bytes[1] > high)
        return 0;
    for (size_t i = 2; i < size; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
    }
    return size;
}

size_t text_utf8_prefix(const char *text, size_t length)
{
    const uint8_t *bytes = (const uint8_t *)text;
    size_t at = 0;
    while (at < length) {
        uint64_t eight = UINT64_MAX;
        if (length - at >= sizeof eight)
            memcpy(&eight, bytes + at, sizeof eight);
        if ((eight & 0x8080808080808080U) == 0) {
            at += sizeof eight; /* eight ASCII characters at once: program output mostly is */
            continue;
        }
        size_t size = bytes[at] < 0x80 ? 1 : utf8_sequence(bytes + at, length - at);
        if (size == 0)
            break;
        at += size;
    }
    return at;
}

/* --- the buffer --- */

void text_done(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

/* Makes room for `more` bytes and a NUL behind what is there. */
static void reserve(struct text *text, size_t more)
{
    size_t wanted = 0;
    if (__builtin_add_overflow(text->length, more, &wanted) || wanted > SIZE_MAX / 2 - 1)
        wanted = SIZE_MAX / 2; /* cannot be had: memory_resize ends the program */
    if (wanted < text->capacity)
        return;
    size_t capacity = text->capacity < 32 ? 64 : text->capacity * 2;
    if (capacity <= wanted)
        capacity = wanted + 1;
    text->data = memory_resize(text->data, capacity);
    text->capacity = capacity;
}

void text_append(struct text *text, const void *data, size_t size)
{
    reserve(text, size);
    if (size)
        memcpy(text->data + text->length, data, size);
    text->length += size;
    text->data[text->length] = '\0';
}

void text_append_string(struct text *text, const char *string)
{
    text_append(text, string, strlen(string));
}

void text_append_format(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length >= 0) {
        reserve(text, (size_t)length);
        (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}
