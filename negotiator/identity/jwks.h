/** jwks.h - the public keys of an issuer (RFC 7517): those that RS256 and ES256 can use, and no other. */
#pragma once

#include "negotiator/identity/issuers.h"

#include <openssl/evp.h>

#define JWKS_MAX_BYTES (256 * 1024)

struct jwks;

/** Reads a set. Keys of other kinds, uses and algorithms are left out, and so are weak ones (RSA below 2048 bits or
 *  over 8192, a point that is not on P-256): an issuer may have some for others. ERROR_INVALID: it is no set, or has
 *  over 64 keys. The caller owns it. */
struct jwks *jwks_parse(const char *text, size_t size, struct error *err) MUST_USE;
/** NULL is allowed. */
void jwks_free(struct jwks *jwks);
DEFINE_AUTO(jwks)
/** Of usable keys. */
size_t jwks_count(const struct jwks *jwks) MUST_USE;

/** The key of that id for the algorithm; without an id (NULL) the only one for it. NULL: there is none, or more than
 * one. The set's. */
EVP_PKEY *jwks_find(const struct jwks *jwks, enum jwt_algorithm algorithm, const char *id) MUST_USE;
