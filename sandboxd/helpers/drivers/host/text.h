/** text.h - bytes of any kind as the inside of a JSON string: what is no UTF-8 becomes U+FFFD. */
#pragma once

#include <stddef.h>

#define TEXT_GROWTH     6 /* bytes of JSON for a byte, at most */
#define TEXT_LEFT_BYTES 3 /* of a character that has begun */

/** What a piece of a stream left unfinished. */
struct text_decoder {
    unsigned char left[TEXT_LEFT_BYTES];
    size_t count;
};

/** Writes `size` bytes as JSON to `to`, which has room for TEXT_GROWTH * (size + TEXT_LEFT_BYTES); a character cut at
 *  the end waits for the next piece. Returns the bytes written. */
size_t text_to_json(struct text_decoder *decoder, const char *from, size_t size, char *to);

/** The stream has ended: what waits is no character. Room for TEXT_GROWTH * TEXT_LEFT_BYTES. */
size_t text_finish(struct text_decoder *decoder, char *to);
