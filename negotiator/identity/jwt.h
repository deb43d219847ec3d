/** jwt.h - one token of an outside issuer (RFC 7519, 7515, 8725), from its text to a principal. No state, no thread of
 *  its own; costs about 50 us, so it is no work for a loop. */
#pragma once

#include "negotiator/identity/jwks.h"

#define JWT_MAX_BYTES 8192
#define JWT_LEEWAY_S  60 /* of exp, nbf and iat: clocks differ */

/** A token that is read and not believed. */
struct jwt {
    json_t *header, *claims;
    const char *text; /* borrowed */
    size_t signed_size;
    uint8_t signature[1024];
    size_t signature_size;
};

/** Three strict base64url parts, two of them JSON objects without doubled names. ERROR_UNAUTHENTICATED. `text` outlives
 *  the result, which jwt_done frees. */
bool jwt_read(struct jwt *jwt, const char *text, struct error *err) MUST_USE;
void jwt_done(struct jwt *jwt);
#define AUTO_JWT __attribute__((cleanup(jwt_done))) struct jwt

/** Its `iss`; NULL. */
const char *jwt_issuer(const struct jwt *jwt) MUST_USE;

enum jwt_verdict { JWT_GOOD, JWT_REFUSED, JWT_UNKNOWN_KEY /* perhaps a newer set has it */ };

/** Judges it as one of that issuer at `now_s` (wall, seconds): algorithm and type of the header, signature, and only
 * then the claims. ERROR_UNAUTHENTICATED says what is wrong, ERROR_TOKEN_EXPIRED, or ERROR_FORBIDDEN for one whose
 * claim makes no principal. GOOD: `principal` is set, and *expires_s, wall, without leeway. */
enum jwt_verdict jwt_judge(const struct jwt *jwt, const struct issuer *issuer, const struct jwks *keys, double now_s,
                           struct principal *principal, double *expires_s, struct error *err) MUST_USE;
