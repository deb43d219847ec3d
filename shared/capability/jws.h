/** jws.h - a token's text taken apart, before anything in it is believed: parts, strict base64url, the header template.
 *  Private to this folder. */
#pragma once

#include "shared/capability/capability.h"

#define JWS_PARTS_MIN    3 /* header, claims, MAC */
#define JWS_PARTS_MAX    (JWS_PARTS_MIN + CAPABILITY_LINKS_MAX)
#define JWS_TOKEN_MAX    (CAPABILITY_TEXT_BYTES - 1)
#define JWS_HEADER_BYTES 128

/** One part: its text in the token, and what it decodes to. */
struct jws_part {
    const char *text;
    size_t length;
    const uint8_t *bytes;
    size_t size;
};

/** Points into the token and into itself: not to be copied, and not to outlive the token. */
struct jws {
    size_t count; /* JWS_PARTS_MIN..JWS_PARTS_MAX */
    struct jws_part parts[JWS_PARTS_MAX];
    uint8_t decoded[JWS_TOKEN_MAX / 4 * 3];
};

/** CAPABILITY_OK, CAPABILITY_TOO_LONG or CAPABILITY_MALFORMED. */
enum capability_refusal jws_split(struct jws *jws, const char *token, size_t length) MUST_USE;

/** Compares decoded bytes with the minted template. False when they differ, else who is named. */
bool jws_read_header(const void *bytes, size_t size, char sandbox_id[static CAPABILITY_ID_BYTES],
                     uint32_t *epoch) MUST_USE;

/** Writes the header of a sandbox and an epoch; false when the id does not fit the format. */
bool jws_write_header(char to[static JWS_HEADER_BYTES], const char *sandbox_id, uint32_t epoch) MUST_USE;

/** Whether `text` is an id of the format: 1..63 of A-Za-z0-9_-. No dot, so the kid splits in one way only. */
bool jws_is_id(const char *text) MUST_USE;
