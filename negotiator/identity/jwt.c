#include "negotiator/identity/jwt.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <openssl/ecdsa.h>
#include <string.h>
#include <strings.h>

enum { ES256_BYTES = 64, HALF = ES256_BYTES / 2, KID_MAX_BYTES = 256 };

static const double TIME_MAX_S = 253402300800.0; /* the year 10000 */

/* ---- from text ---- */

static json_t *read_part(const char *text, size_t length)
{
    AUTO_FREE uint8_t *bytes = memory_new(length + 1);
    size_t size;
    if (!text_base64url_decode(bytes, length + 1, &size, text, length))
        return NULL;
    json_t *json = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(json))
        return json;
    json_decref(json);
    return NULL;
}

bool jwt_read(struct jwt *jwt, const char *text, struct error *err)
{
    AUTO_JWT read = {.text = text};
    size_t length = strnlen(text, JWT_MAX_BYTES + 1);
    const char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;
    if (length > JWT_MAX_BYTES)
        return error_set(err, ERROR_UNAUTHENTICATED, "the token is over %d bytes", JWT_MAX_BYTES);
    if (second == NULL || strchr(second + 1, '.') != NULL)
        return error_set(err, ERROR_UNAUTHENTICATED, "the token has not three parts");
    read.signed_size = (size_t)(second - text);
    read.header = read_part(text, (size_t)(first - text));
    read.claims = read_part(first + 1, (size_t)(second - first - 1));
    bool is_read = read.header && read.claims &&
                   text_base64url_decode(read.signature, sizeof read.signature, &read.signature_size, second + 1,
                                         length - read.signed_size - 1);
    if (!is_read)
        return error_set(err, ERROR_UNAUTHENTICATED, "the token is not well-formed");
    *jwt = read;
    read = (struct jwt){0};
    return true;
}

void jwt_done(struct jwt *jwt)
{
    json_decref(jwt->header);
    json_decref(jwt->claims);
    jwt->header = jwt->claims = NULL;
}

const char *jwt_issuer(const struct jwt *jwt)
{
    return json_string_value(json_object_get(jwt->claims, "iss"));
}

/* ---- the header ---- */

/* The issuer says which algorithms there are; the token only which of those. */
static bool read_algorithm(const struct jwt *jwt, const struct issuer *issuer, enum jwt_algorithm *algorithm,
                           struct error *err)
{
    const char *name = json_string_value(json_object_get(jwt->header, "alg"));
    unsigned named = text_equal(name, "RS256") ? JWT_RS256 : text_equal(name, "ES256") ? JWT_ES256 : 0;
    if ((named & issuer->algorithms) == 0)
        return error_set(err, ERROR_UNAUTHENTICATED, "its alg is none that issuer %s signs with", issuer->name);
    *algorithm = named;
    return true;
}

static bool check_header(const struct jwt *jwt, struct error *err)
{
    static const char *const TYPES[] = {"JWT", "at+jwt", "application/at+jwt"};
    const json_t *type = json_object_get(jwt->header, "typ"), *id = json_object_get(jwt->header, "kid");
    bool is_ours = type == NULL;
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES && json_is_string(type); i++)
        is_ours = is_ours || strcasecmp(json_string_value(type), TYPES[i]) == 0;
    if (!is_ours)
        return error_set(err, ERROR_UNAUTHENTICATED, "its typ is neither JWT nor at+jwt");
    if (json_object_get(jwt->header, "crit"))
        return error_set(err, ERROR_UNAUTHENTICATED, "its header has crit, and no extension is known here");
    if (id && (!json_is_string(id) || json_string_length(id) > KID_MAX_BYTES))
        return error_set(err, ERROR_UNAUTHENTICATED, "its kid is no text of at most %d bytes", KID_MAX_BYTES);
    return true;
}

/* ---- the signature ---- */

/* r and s as they stand in a token -> DER (RFC 7518, 3.4). The caller's, by OPENSSL_free. */
static unsigned char *to_der(const uint8_t *signature, size_t *size)
{
    unsigned char *der = NULL;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(signature, HALF, NULL), *s = BN_bin2bn(signature + HALF, HALF, NULL);
    bool is_set = pair && r && s && ECDSA_SIG_set0(pair, r, s) == 1;
    if (!is_set) {
        BN_free(r);
        BN_free(s);
    }
    int length = is_set ? i2d_ECDSA_SIG(pair, &der) : -1;
    ECDSA_SIG_free(pair);
    *size = length > 0 ? (size_t)length : 0;
    return length > 0 ? der : NULL;
}

static bool verify(const struct jwt *jwt, EVP_PKEY *key, const unsigned char *signature, size_t size)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_good = context && EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
                   EVP_DigestVerify(context, signature, size, (const unsigned char *)jwt->text, jwt->signed_size) == 1;
    EVP_MD_CTX_free(context);
    return is_good;
}

static bool is_signed(const struct jwt *jwt, enum jwt_algorithm algorithm, EVP_PKEY *key)
{
    if (algorithm == JWT_RS256)
        return verify(jwt, key, jwt->signature, jwt->signature_size);
    size_t size = 0;
    unsigned char *der = jwt->signature_size == ES256_BYTES ? to_der(jwt->signature, &size) : NULL;
    bool is_good = der && verify(jwt, key, der, size);
    OPENSSL_free(der);
    return is_good;
}

/* ---- the claims ---- */

static bool is_for(const json_t *audience, const char *wanted)
{
    bool is_named = json_is_string(audience) && strcmp(json_string_value(audience), wanted) == 0;
    for (size_t i = 0; i < json_array_size(audience); i++)
        is_named = is_named || text_equal(json_string_value(json_array_get(audience, i)), wanted);
    return is_named;
}

/* A time in seconds; `*there` false: the claim is missing. */
static bool read_time(const struct jwt *jwt, const char *name, double *time_s, bool *there, struct error *err)
{
    const json_t *value = json_object_get(jwt->claims, name);
    *there = value != NULL;
    *time_s = json_number_value(value);
    if (value && (!json_is_number(value) || !(*time_s >= 0 && *time_s <= TIME_MAX_S)))
        return error_set(err, ERROR_UNAUTHENTICATED, "its %s is no time in seconds", name);
    return true;
}

static bool check_times(const struct jwt *jwt, double now_s, double *expires_s, struct error *err)
{
    double not_before = 0, issued_at = 0;
    bool has_end, has_begin, has_issue;
    if (!read_time(jwt, "exp", expires_s, &has_end, err) || !read_time(jwt, "nbf", &not_before, &has_begin, err) ||
        !read_time(jwt, "iat", &issued_at, &has_issue, err))
        return false;
    if (!has_end)
        return error_set(err, ERROR_UNAUTHENTICATED, "it has no exp");
    if (now_s >= *expires_s + JWT_LEEWAY_S)
        return error_set(err, ERROR_TOKEN_EXPIRED, "the token has expired");
    if ((has_begin && not_before > now_s + JWT_LEEWAY_S) || (has_issue && issued_at > now_s + JWT_LEEWAY_S))
        return error_set(err, ERROR_UNAUTHENTICATED, "it is not valid yet");
    return true;
}

static bool check_claims(const struct jwt *jwt, const struct issuer *issuer, double now_s, double *expires_s,
                         struct error *err)
{
    if (!text_equal(jwt_issuer(jwt), issuer->issuer))
        return error_set(err, ERROR_UNAUTHENTICATED, "its iss is another one");
    if (!is_for(json_object_get(jwt->claims, "aud"), issuer->audience))
        return error_set(err, ERROR_UNAUTHENTICATED, "its aud does not name %.60s", issuer->audience);
    if (json_object_get(jwt->claims, "cnf"))
        return error_set(err, ERROR_UNAUTHENTICATED, "it is bound to a key (cnf), which nobody proves here");
    return check_times(jwt, now_s, expires_s, err);
}

/* ---- who that is ---- */

/* The claim of that name, or, with dots in it, the one inside of objects. */
static const json_t *claim_of(const json_t *claims, const char *path)
{
    const json_t *found = json_object_get(claims, path);
    const char *dot = found ? NULL : strchr(path, '.');
    if (dot == NULL)
        return found;
    AUTO_FREE char *first = memory_copy(path, (size_t)(dot - path));
    return claim_of(json_object_get(claims, first), dot + 1);
}

static void raise_role(const struct issuer *issuer, const json_t *text, bool *is_mapped, enum role *role)
{
    const char *word = json_string_value(text);
    enum role mapped;
    if (word == NULL || !role_parse(json_string_value(json_object_get(issuer->role_map, word)), &mapped))
        return;
    *role = *is_mapped && *role > mapped ? *role : mapped;
    *is_mapped = true;
}

/* Of several that are mapped the highest. */
static enum role role_of(const struct jwt *jwt, const struct issuer *issuer)
{
    enum role role = issuer->default_role;
    bool is_mapped = false;
    const json_t *claim = issuer->role_claim ? claim_of(jwt->claims, issuer->role_claim) : NULL;
    raise_role(issuer, claim, &is_mapped, &role);
    for (size_t i = 0; i < json_array_size(claim); i++)
        raise_role(issuer, json_array_get(claim, i), &is_mapped, &role);
    return role;
}

static bool set_principal(const struct jwt *jwt, const struct issuer *issuer, struct principal *principal,
                          struct error *err)
{
    const char *name = json_string_value(claim_of(jwt->claims, issuer->name_claim));
    struct principal found = {.role = role_of(jwt, issuer), .kind = PRINCIPAL_OUTSIDE};
    if (name == NULL || *name == '\0' || !text_format(found.name, sizeof found.name, "%s:%s", issuer->name, name) ||
        !principal_is_name(found.name))
        return error_set(err, ERROR_FORBIDDEN,
                         "its claim %.40s makes no principal %s:NAME: 1 to %zu of A-Za-z0-9._@:+- are needed",
                         issuer->name_claim, issuer->name, (size_t)PRINCIPAL_BYTES - 2 - strlen(issuer->name));
    *principal = found;
    return true;
}

enum jwt_verdict jwt_judge(const struct jwt *jwt, const struct issuer *issuer, const struct jwks *keys, double now_s,
                           struct principal *principal, double *expires_s, struct error *err)
{
    enum jwt_algorithm algorithm;
    if (!read_algorithm(jwt, issuer, &algorithm, err) || !check_header(jwt, err))
        return JWT_REFUSED;
    EVP_PKEY *key = keys ? jwks_find(keys, algorithm, json_string_value(json_object_get(jwt->header, "kid"))) : NULL;
    if (key == NULL) {
        error_set(err, ERROR_UNAUTHENTICATED, "issuer %s has no key of its kid", issuer->name);
        return JWT_UNKNOWN_KEY;
    }
    if (!is_signed(jwt, algorithm, key)) {
        error_set(err, ERROR_UNAUTHENTICATED, "its signature is not by issuer %s", issuer->name);
        return JWT_REFUSED;
    }
    return check_claims(jwt, issuer, now_s, expires_s, err) && set_principal(jwt, issuer, principal, err) ? JWT_GOOD
                                                                                                          : JWT_REFUSED;
}
