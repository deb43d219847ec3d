/** tokens.h - an issuer for tests: keys, their JWKs, and tokens signed with them as is, or otherwise. */
#pragma once

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define UNUSED_HELPER __attribute__((unused))

UNUSED_HELPER static char *encode(const void *data, size_t size)
{
    char *text = memory_new(TEXT_BASE64URL_LENGTH(size) + 1);
    text_base64url_encode(text, data, size);
    return text;
}

UNUSED_HELPER static char *number_of(const EVP_PKEY *key, const char *name, int width)
{
    BIGNUM *number = NULL;
    uint8_t bytes[1200];
    CHECK(EVP_PKEY_get_bn_param(key, name, &number) == 1);
    int size = width > 0 ? width : BN_num_bytes(number);
    CHECK(BN_bn2binpad(number, bytes, size) == size);
    BN_free(number);
    return encode(bytes, (size_t)size);
}

/* The public half; `more` are further fields with a comma before. */
UNUSED_HELPER static char *jwk_of(const EVP_PKEY *key, const char *kid, const char *more)
{
    bool is_rsa = EVP_PKEY_is_a(key, "RSA");
    AUTO_FREE char *first = number_of(key, is_rsa ? OSSL_PKEY_PARAM_RSA_N : OSSL_PKEY_PARAM_EC_PUB_X, is_rsa ? 0 : 32);
    AUTO_FREE char *second = number_of(key, is_rsa ? OSSL_PKEY_PARAM_RSA_E : OSSL_PKEY_PARAM_EC_PUB_Y, is_rsa ? 0 : 32);
    return is_rsa
               ? memory_printf("{\"kty\":\"RSA\",\"kid\":\"%s\",\"n\":\"%s\",\"e\":\"%s\"%s}", kid, first, second, more)
               : memory_printf("{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"%s\",\"x\":\"%s\",\"y\":\"%s\"%s}", kid,
                               first, second, more);
}

/* r || s of a DER signature. */
UNUSED_HELPER static void to_raw(uint8_t raw[static 64], const uint8_t *der, size_t size)
{
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &der, (long)size);
    CHECK(pair && BN_bn2binpad(ECDSA_SIG_get0_r(pair), raw, 32) == 32 &&
          BN_bn2binpad(ECDSA_SIG_get0_s(pair), raw + 32, 32) == 32);
    ECDSA_SIG_free(pair);
}

UNUSED_HELPER static char *token_of_parts(const char *signed_part, const void *signature, size_t size)
{
    AUTO_FREE char *last = encode(signature, size);
    return memory_printf("%s.%s", signed_part, last);
}

UNUSED_HELPER static char *first_parts(const char *header, const char *claims)
{
    AUTO_FREE char *first = encode(header, strlen(header)), *second = encode(claims, strlen(claims));
    return memory_printf("%s.%s", first, second);
}

/* Signed with the key, whatever the header says. */
UNUSED_HELPER static char *token(EVP_PKEY *key, const char *header, const char *claims)
{
    uint8_t signature[1200], raw[64];
    size_t size = sizeof signature;
    AUTO_FREE char *part = first_parts(header, claims);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    CHECK(EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
          EVP_DigestSign(context, signature, &size, (const uint8_t *)part, strlen(part)) == 1);
    EVP_MD_CTX_free(context);
    if (EVP_PKEY_is_a(key, "RSA"))
        return token_of_parts(part, signature, size);
    to_raw(raw, signature, size);
    return token_of_parts(part, raw, sizeof raw);
}

/* Takes the claims. */
UNUSED_HELPER static char *token_with(EVP_PKEY *key, const char *header, char *claims)
{
    AUTO_FREE char *held = claims;
    return token(key, header, held);
}

/* With a shared secret. */
UNUSED_HELPER static char *token_of_secret(const void *secret, size_t secret_size, const char *header,
                                           const char *claims)
{
    uint8_t mac[32];
    AUTO_FREE char *part = first_parts(header, claims);
    HMAC(EVP_sha256(), secret, (int)secret_size, (const uint8_t *)part, strlen(part), mac, NULL);
    return token_of_parts(part, mac, sizeof mac);
}
