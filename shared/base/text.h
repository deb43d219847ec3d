/** text.h - bounded text: copies that say when they do not fit, numbers without surprises, strict base64url and hex,
 *  and a growing buffer. No locale is ever used. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Copies `from` with its NUL into `to` of `size` bytes; false (to = "") when it does not fit or is NULL. */
bool text_copy(char *to, size_t size, const char *from) MUST_USE;

/** Formats into `to`; false (to = "") when it does not fit. */
bool text_format(char *to, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4))) MUST_USE;

/** Both NULL, or equal strings. */
bool text_equal(const char *a, const char *b) MUST_USE;

bool text_starts_with(const char *text, const char *prefix) MUST_USE;

/** True when `text` is 1..max_bytes long and every byte is a letter, a digit or one of `also`. */
bool text_is_made_of(const char *text, size_t max_bytes, const char *also) MUST_USE;
/** The same with `also` "._-", and neither "." nor "..": no URL's path reaches what has such a name. */
bool text_is_name(const char *text, size_t max_bytes) MUST_USE;

/** A decimal number: digits only, no sign, no blank, no leading zero (but "0"), at most `max`. */
bool text_parse_u64(const char *text, size_t length, uint64_t max, uint64_t *value) MUST_USE;

/** Bytes of base64url without padding for `size` bytes, without a NUL (RFC 4648, 5). */
#define TEXT_BASE64URL_LENGTH(size) (((size)*4 + 2) / 3)

/** Writes TEXT_BASE64URL_LENGTH(size) characters and a NUL into `to`; returns the length. */
size_t text_base64url_encode(char *to, const void *from, size_t size);

/** Strict: the alphabet only, no padding, no length of 1 mod 4, unused bits zero. Decodes into `to` of `to_size`
 *  bytes; false when `from` is not exactly that or does not fit. */
bool text_base64url_decode(void *to, size_t to_size, size_t *decoded, const char *from, size_t length) MUST_USE;

/** Standard base64 with padding (RFC 4648, 4), for data_b64: needs ((size + 2) / 3) * 4 + 1 bytes; returns the length.
 */
size_t text_base64_encode(char *to, const void *from, size_t size);

/** Strict standard base64 with padding; false as above. */
bool text_base64_decode(void *to, size_t to_size, size_t *decoded, const char *from, size_t length) MUST_USE;

/** Lower-case hex: 2 * size characters and a NUL. */
void text_hex(char *to, const void *from, size_t size);

/** Exactly 2 * size hex digits into `size` bytes. */
bool text_hex_decode(void *to, size_t size, const char *from, size_t length) MUST_USE;

/** Length of the longest valid UTF-8 prefix (RFC 3629: no surrogates, no overlong forms); == length when all is. */
size_t text_utf8_prefix(const char *text, size_t length) MUST_USE;

/** A buffer that grows; data is NULL or NUL-terminated (the NUL is not counted). Embedded; zero is empty. */
struct text {
    char *data;
    size_t length, capacity; /* bytes */
};

void text_done(struct text *text);
void text_append(struct text *text, const void *data, size_t size);
void text_append_string(struct text *text, const char *string);
void text_append_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define AUTO_TEXT __attribute__((cleanup(text_done))) struct text
