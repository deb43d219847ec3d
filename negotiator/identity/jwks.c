#include "negotiator/identity/jwks.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <string.h>

enum { KEYS_MAX = 64, RSA_MIN_BITS = 2048, RSA_MAX_BITS = 8192, EXPONENT_MAX_BYTES = 4, P256_BYTES = 32 };

struct known_key {
    char *id; /* NULL: it has none */
    enum jwt_algorithm algorithm;
    EVP_PKEY *key;
};

struct jwks {
    struct known_key keys[KEYS_MAX];
    size_t count;
};

void jwks_free(struct jwks *jwks)
{
    for (size_t i = 0; jwks && i < jwks->count; i++) {
        free(jwks->keys[i].id);
        EVP_PKEY_free(jwks->keys[i].key);
    }
    free(jwks);
}

size_t jwks_count(const struct jwks *jwks)
{
    return jwks->count;
}

static bool decode(const json_t *jwk, const char *field, uint8_t *to, size_t to_size, size_t *size)
{
    const char *text = json_string_value(json_object_get(jwk, field));
    return text && text_base64url_decode(to, to_size, size, text, strlen(text));
}

static EVP_PKEY *key_of(const char *type, OSSL_PARAM *parameters)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!context || !parameters || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, parameters) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(context);
    return key;
}

static EVP_PKEY *read_rsa(const json_t *jwk)
{
    uint8_t modulus[RSA_MAX_BITS / 8 + 1], exponent[EXPONENT_MAX_BYTES];
    size_t modulus_size, exponent_size;
    if (!decode(jwk, "n", modulus, sizeof modulus, &modulus_size) ||
        !decode(jwk, "e", exponent, sizeof exponent, &exponent_size))
        return NULL;
    BIGNUM *n = BN_bin2bn(modulus, (int)modulus_size, NULL), *e = BN_bin2bn(exponent, (int)exponent_size, NULL);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    OSSL_PARAM *parameters = NULL;
    bool is_strong = n && e && BN_num_bits(n) >= RSA_MIN_BITS && BN_num_bits(n) <= RSA_MAX_BITS && BN_is_odd(n) &&
                     BN_is_odd(e) && !BN_is_one(e);
    if (is_strong && build && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1)
        parameters = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY *key = parameters ? key_of("RSA", parameters) : NULL;
    OSSL_PARAM_free(parameters);
    OSSL_PARAM_BLD_free(build);
    BN_free(n);
    BN_free(e);
    return key;
}

static bool is_on_curve(EVP_PKEY *key)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    bool is_sound = context && EVP_PKEY_public_check(context) == 1;
    EVP_PKEY_CTX_free(context);
    return is_sound;
}

static EVP_PKEY *read_ec(const json_t *jwk)
{
    char curve[] = "prime256v1";
    uint8_t point[1 + 2 * P256_BYTES] = {4 /* both coordinates follow */};
    size_t x, y;
    if (!text_equal(json_string_value(json_object_get(jwk, "crv")), "P-256") ||
        !decode(jwk, "x", point + 1, P256_BYTES, &x) || x != P256_BYTES ||
        !decode(jwk, "y", point + 1 + P256_BYTES, P256_BYTES, &y) || y != P256_BYTES)
        return NULL;
    OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, curve, 0),
                               OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point),
                               OSSL_PARAM_construct_end()};
    EVP_PKEY *key = key_of("EC", parameters);
    if (key && is_on_curve(key))
        return key;
    EVP_PKEY_free(key);
    return NULL;
}

/* Meant for signatures, by what it says about itself. */
static bool is_for_signing(const json_t *jwk, const char *algorithm)
{
    const json_t *use = json_object_get(jwk, "use"), *alg = json_object_get(jwk, "alg");
    const json_t *deeds = json_object_get(jwk, "key_ops");
    if ((use && !text_equal(json_string_value(use), "sig")) || (alg && !text_equal(json_string_value(alg), algorithm)))
        return false;
    bool verifies = deeds == NULL;
    for (size_t i = 0; i < json_array_size(deeds); i++)
        verifies = verifies || text_equal(json_string_value(json_array_get(deeds, i)), "verify");
    return verifies;
}

static void take_key(struct jwks *jwks, const json_t *jwk)
{
    const char *type = json_string_value(json_object_get(jwk, "kty"));
    struct known_key *known = &jwks->keys[jwks->count];
    *known = (struct known_key){.key = NULL};
    if (text_equal(type, "RSA") && is_for_signing(jwk, "RS256")) {
        known->algorithm = JWT_RS256;
        known->key = read_rsa(jwk);
    } else if (text_equal(type, "EC") && is_for_signing(jwk, "ES256")) {
        known->algorithm = JWT_ES256;
        known->key = read_ec(jwk);
    }
    if (known->key == NULL)
        return;
    known->id = memory_string(json_string_value(json_object_get(jwk, "kid")));
    jwks->count++;
}

struct jwks *jwks_parse(const char *text, size_t size, struct error *err)
{
    json_error_t where;
    json_t *document = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    const json_t *list = json_object_get(document, "keys");
    if (!json_is_array(list) || json_array_size(list) > KEYS_MAX) {
        error_set(err, ERROR_INVALID, "a JSON object {\"keys\": [at most %d]} is needed", KEYS_MAX);
        json_decref(document);
        return NULL;
    }
    struct jwks *jwks = memory_new(sizeof *jwks);
    for (size_t i = 0; i < json_array_size(list); i++)
        take_key(jwks, json_array_get(list, i));
    json_decref(document);
    return jwks;
}

EVP_PKEY *jwks_find(const struct jwks *jwks, enum jwt_algorithm algorithm, const char *id)
{
    EVP_PKEY *found = NULL;
    for (size_t i = 0; i < jwks->count; i++) {
        const struct known_key *key = &jwks->keys[i];
        if (key->algorithm != algorithm || (id != NULL && !text_equal(key->id, id)))
            continue;
        if (found != NULL)
            return NULL; /* which of them would be a guess */
        found = key->key;
    }
    return found;
}
