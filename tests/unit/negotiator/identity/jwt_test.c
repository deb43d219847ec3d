/* jwt_test.c - tokens of an outside issuer: good ones, and each forgery seen refused for what it is. */
#include "negotiator/identity/jwt.h"

#include "tests/unit/negotiator/identity/tokens.h"

#include <openssl/pem.h>

#define NOW  1000000
#define GOOD "\"iss\":\"https://id.example\",\"aud\":\"parley\",\"sub\":\"ada\",\"exp\":1000300"
#define RS   "{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"r1\"}"
#define ES   "{\"alg\":\"ES256\",\"typ\":\"at+jwt\",\"kid\":\"e1\"}"

static EVP_PKEY *rsa, *ec, *other_rsa, *other_ec;
static struct jwks *keys;
static struct issuer issuer = {.name = "corp",
                               .issuer = "https://id.example",
                               .audience = "parley",
                               .algorithms = JWT_RS256 | JWT_ES256,
                               .name_claim = "sub",
                               .default_role = ROLE_USER};

/* "corp:ada user 1000300", or "KIND: sentence"; takes the token. */
static const char *judge(char *text)
{
    static char said[400];
    AUTO_FREE char *held = text;
    AUTO_JWT jwt = {0};
    struct principal principal = {.name = "untouched"};
    struct error err = {0};
    double expires_s = 0;
    bool is_good =
        jwt_read(&jwt, held, &err) && jwt_judge(&jwt, &issuer, keys, NOW, &principal, &expires_s, &err) == JWT_GOOD;
    if (is_good) {
        CHECK(principal.kind == PRINCIPAL_OUTSIDE && principal.key_id[0] == '\0' && principal.actor[0] == '\0');
        snprintf(said, sizeof said, "%s %s %.0f", principal.name, role_name(principal.role), expires_s);
    } else {
        CHECK_TEXT(principal.name, "untouched");
        snprintf(said, sizeof said, "%s: %s", error_code(err.kind), err.message);
    }
    return said;
}

static bool refused(char *text, const char *why)
{
    const char *said = judge(text);
    bool is_so = strncmp(said, "UNAUTHENTICATED: ", 17) == 0 && strstr(said, why) != NULL;
    if (!is_so)
        fprintf(stderr, "said \"%s\", want \"%s\"\n", said, why);
    return is_so;
}

static const char *claims(const char *some)
{
    return judge(token(rsa, RS, some));
}

static void make_keys(void)
{
    rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    other_rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    ec = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    other_ec = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    AUTO_FREE char *first = jwk_of(rsa, "r1", ",\"use\":\"sig\",\"alg\":\"RS256\""), *second = jwk_of(ec, "e1", "");
    AUTO_FREE char *set = memory_printf("{\"keys\":[%s,%s]}", first, second);
    struct error err = {0};
    keys = jwks_parse(set, strlen(set), &err);
    CHECK(keys && jwks_count(keys) == 2);
}

static void test_good(void)
{
    CHECK_TEXT(judge(token(rsa, RS, "{" GOOD "}")), "corp:ada user 1000300");
    CHECK_TEXT(judge(token(ec, ES, "{" GOOD "}")), "corp:ada user 1000300");
    CHECK_TEXT(judge(token(ec, "{\"alg\":\"ES256\",\"typ\":\"application/AT+JWT\"}", "{" GOOD "}")),
               "corp:ada user 1000300"); /* the only key for it */
    CHECK_TEXT(claims("{\"iss\":\"https://id.example\",\"aud\":[\"x\",\"parley\"],\"sub\":\"a@b\",\"exp\":1000300.5,"
                      "\"nbf\":999999,\"iat\":1000060}"),
               "corp:a@b user 1000300");
}

/* The classics (RFC 8725). Each would be good but for one thing. */
static void test_unsigned(void)
{
    static const char *const HEADERS[] = {"{\"alg\":\"none\"}", "{\"alg\":\"nOnE\",\"kid\":\"r1\"}", "{\"kid\":\"r1\"}",
                                          "{\"alg\":[\"RS256\"],\"kid\":\"r1\"}", "{\"alg\":\"RS512\",\"kid\":\"r1\"}"};
    for (size_t i = 0; i < sizeof HEADERS / sizeof *HEADERS; i++) {
        AUTO_FREE char *part = first_parts(HEADERS[i], "{" GOOD "}");
        CHECK(refused(token_of_parts(part, "", 0), "its alg is none that"));
        CHECK(refused(token(rsa, HEADERS[i], "{" GOOD "}"), "its alg is none that"));
    }
    AUTO_FREE char *bare = first_parts(RS, "{" GOOD "}");
    CHECK(refused(token_of_parts(bare, "", 0), "its signature is not"));
    /* HS256 with the public key as the secret. */
    BIO *memory = BIO_new(BIO_s_mem());
    char *pem;
    PEM_write_bio_PUBKEY(memory, rsa);
    long size = BIO_get_mem_data(memory, &pem);
    CHECK(refused(token_of_secret(pem, (size_t)size, "{\"alg\":\"HS256\",\"kid\":\"r1\"}", "{" GOOD "}"), "its alg"));
    CHECK(refused(token_of_secret(pem, (size_t)size, RS, "{" GOOD "}"), "its signature"));
    BIO_free(memory);
    /* r = s = 0 (CVE-2022-21449), and lengths. */
    AUTO_FREE char *es = first_parts(ES, "{" GOOD "}");
    uint8_t zeros[65] = {0};
    CHECK(refused(token_of_parts(es, zeros, 64), "its signature"));
    CHECK(refused(token_of_parts(es, zeros, 63), "its signature"));
    CHECK(refused(token_of_parts(es, zeros, 65), "its signature"));
}

/* Another's keys, named as ours or carried along; and one kind of key for the other's algorithm. */
static void test_other_keys(void)
{
    CHECK(refused(token(other_rsa, RS, "{" GOOD "}"), "its signature is not by issuer corp"));
    CHECK(refused(token(other_ec, ES, "{" GOOD "}"), "its signature"));
    AUTO_FREE char *jwk = jwk_of(other_rsa, "r1", "");
    AUTO_FREE char *header =
        memory_printf("{\"alg\":\"RS256\",\"kid\":\"r1\",\"jwk\":%s,\"jku\":\"https://evil\"}", jwk);
    CHECK(refused(token(other_rsa, header, "{" GOOD "}"), "its signature"));
    CHECK(refused(token(other_rsa, "{\"alg\":\"RS256\",\"kid\":\"r2\"}", "{" GOOD "}"), "no key of its kid"));
    CHECK(refused(token(rsa, "{\"alg\":\"ES256\",\"kid\":\"r1\"}", "{" GOOD "}"), "no key of its kid"));
    CHECK(refused(token(ec, "{\"alg\":\"RS256\",\"kid\":\"e1\"}", "{" GOOD "}"), "no key of its kid"));
    issuer.algorithms = JWT_ES256; /* pinned: a good RS256 one is none here */
    CHECK(refused(token(rsa, RS, "{" GOOD "}"), "its alg"));
    issuer.algorithms = JWT_RS256 | JWT_ES256;
}

static void test_headers(void)
{
    static const char *const TYPES[] = {"\"login+jwt\"", "\"dpop+jwt\"", "\"secevent+jwt\"", "\"\"", "1", "null"};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        AUTO_FREE char *header = memory_printf("{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":%s}", TYPES[i]);
        CHECK(refused(token(rsa, header, "{" GOOD "}"), "its typ"));
    }
    CHECK(refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"crit\":[\"exp\"]}", "{" GOOD "}"), "crit"));
    CHECK(refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"b64\":false,\"crit\":[]}", "{" GOOD "}"), "crit"));
    CHECK(refused(token(rsa, "{\"alg\":\"RS256\",\"kid\":{\"a\":1}}", "{" GOOD "}"), "its kid"));
    CHECK(refused(token(rsa, "{\"alg\":\"none\",\"alg\":\"RS256\",\"kid\":\"r1\"}", "{" GOOD "}"), "not well-formed"));
    CHECK(refused(token(rsa, "[\"RS256\"]", "{" GOOD "}"), "not well-formed"));
    CHECK(refused(token(rsa, RS "x", "{" GOOD "}"), "not well-formed"));
}

static void test_texts(void)
{
    AUTO_FREE char *good = token(rsa, RS, "{" GOOD "}");
    CHECK(refused(memory_printf("%s.", good), "three parts"));
    CHECK(refused(memory_printf("%s=", good), "not well-formed"));
    CHECK(refused(memory_printf("%s ", good), "not well-formed"));
    CHECK(refused(memory_printf(".%s", good), "three parts"));
    CHECK(refused(memory_string(""), "three parts"));
    CHECK(refused(memory_string(".."), "not well-formed"));
    CHECK(refused(memory_string("a.b.c.d.e"), "three parts")); /* encrypted ones */
    AUTO_FREE char *long_claim = memory_new(JWT_MAX_BYTES);
    memset(long_claim, 'a', JWT_MAX_BYTES - 1);
    CHECK(refused(token_with(rsa, RS, memory_printf("{" GOOD ",\"x\":\"%s\"}", long_claim)), "over 8192 bytes"));
    for (size_t i = 0, length = strlen(good); i < length; i += 7) { /* any one character otherwise */
        AUTO_FREE char *bent = memory_string(good);
        bent[i] = bent[i] == 'A' ? 'B' : 'A';
        CHECK(strncmp(judge(TAKE(bent)), "UNAUTHENTICATED: ", 17) == 0);
    }
}

#define WITHOUT_EXP "\"iss\":\"https://id.example\",\"aud\":\"parley\",\"sub\":\"ada\""
#define WITHOUT_AUD "\"iss\":\"https://id.example\",\"exp\":1000300,\"sub\":\"ada\""
#define WITHOUT_ISS "\"aud\":\"parley\",\"exp\":1000300,\"sub\":\"ada\""
#define WITHOUT_SUB "\"iss\":\"https://id.example\",\"aud\":\"parley\",\"exp\":1000300"

static bool no_claims(const char *some, const char *why)
{
    return refused(token(rsa, RS, some), why);
}

static void test_claims(void)
{
    CHECK(no_claims("{" WITHOUT_EXP "}", "it has no exp"));
    CHECK(no_claims("{" WITHOUT_EXP ",\"exp\":\"1000300\"}", "its exp is no time"));
    CHECK(no_claims("{" WITHOUT_EXP ",\"exp\":null}", "its exp is no time"));
    CHECK(no_claims("{" WITHOUT_EXP ",\"exp\":-1}", "its exp is no time"));
    CHECK(no_claims("{" WITHOUT_EXP ",\"exp\":1e300}", "its exp is no time"));
    CHECK(no_claims("{" WITHOUT_EXP ",\"exp\":99999999999999999999}", "not well-formed"));
    CHECK(no_claims("{" GOOD ",\"exp\":2000000}", "not well-formed"));              /* twice */
    CHECK_TEXT(claims("{" WITHOUT_EXP ",\"exp\":999941}"), "corp:ada user 999941"); /* clocks differ by a minute */
    CHECK_TEXT(claims("{" WITHOUT_EXP ",\"exp\":999940}"), "TOKEN_EXPIRED: the token has expired");
    CHECK(no_claims("{" GOOD ",\"nbf\":1000061}", "not valid yet"));
    CHECK(no_claims("{" GOOD ",\"iat\":1000061}", "not valid yet"));
    CHECK(no_claims("{" GOOD ",\"nbf\":true}", "its nbf is no time"));
    CHECK(no_claims("{" WITHOUT_AUD "}", "its aud"));
    CHECK(no_claims("{" WITHOUT_AUD ",\"aud\":\"parley2\"}", "its aud"));
    CHECK(no_claims("{" WITHOUT_AUD ",\"aud\":[]}", "its aud"));
    CHECK(no_claims("{" WITHOUT_AUD ",\"aud\":[\"x\",[\"parley\"]]}", "its aud"));
    CHECK(no_claims("{" WITHOUT_AUD ",\"aud\":{\"parley\":1}}", "its aud"));
    CHECK(no_claims("{" WITHOUT_ISS "}", "its iss"));
    CHECK(no_claims("{" WITHOUT_ISS ",\"iss\":\"https://id.example/\"}", "its iss"));
    CHECK(no_claims("{" GOOD ",\"cnf\":{\"jkt\":\"x\"}}", "bound to a key"));
    /* What is wrong with the claims is told only where the signature is good. */
    CHECK(refused(token(other_rsa, RS, "{" WITHOUT_EXP ",\"exp\":1}"), "its signature"));
}

static const char *named(const char *name)
{
    return judge(token_with(rsa, RS, memory_printf("{" WITHOUT_SUB ",\"sub\":%s}", name)));
}

static void test_principals(void)
{
    static const char *const BAD[] = {"\"\"",      "\"a b\"",     "\"auth0|1\"", "\"a/b\"", "\"../x\"",
                                      "\"a\\nb\"", "\"\\u00e9\"", "7",           "null",    "[\"ada\"]"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(strstr(named(BAD[i]), "FORBIDDEN: its claim sub makes no principal corp:NAME") != NULL);
    CHECK(strstr(claims("{" WITHOUT_SUB "}"), "FORBIDDEN: ") != NULL);
    CHECK(strstr(named("\"a\\u0000b\""), "UNAUTHENTICATED: ") != NULL);
    char name[140] = "\"";
    memset(name + 1, 'a', 123);
    name[124] = '"';
    CHECK(strstr(named(name), "corp:aaa") != NULL);
    memcpy(name + 124, "a\"", 2);
    CHECK(strstr(named(name), "FORBIDDEN: ") != NULL);
    issuer.name_claim = "email";
    CHECK_TEXT(claims("{" GOOD ",\"email\":\"ada@example.org\"}"), "corp:ada@example.org user 1000300");
    issuer.name_claim = "sub";
}

static void test_roles(void)
{
    json_t *map = json_pack("{s:s, s:s, s:s}", "ops", "admin", "staff", "user", "guests", "viewer");
    issuer.role_map = map;
    issuer.role_claim = "realm.roles";
    CHECK_TEXT(claims("{" GOOD ",\"realm\":{\"roles\":[\"x\",\"guests\",\"ops\",\"staff\"]}}"),
               "corp:ada admin 1000300");
    CHECK_TEXT(claims("{" GOOD ",\"realm\":{\"roles\":[\"x\",\"guests\"]}}"), "corp:ada viewer 1000300");
    CHECK_TEXT(claims("{" GOOD ",\"realm\":{\"roles\":\"ops\"}}"), "corp:ada admin 1000300");
    CHECK_TEXT(claims("{" GOOD ",\"realm.roles\":\"guests\",\"realm\":{\"roles\":\"ops\"}}"),
               "corp:ada viewer 1000300");
    CHECK_TEXT(claims("{" GOOD ",\"realm\":{\"roles\":[[\"ops\"],{\"ops\":1},\"OPS\",\"admin\"]}}"),
               "corp:ada user 1000300");
    CHECK_TEXT(claims("{" GOOD ",\"realm\":\"ops\",\"role\":\"admin\"}"), "corp:ada user 1000300");
    issuer.default_role = ROLE_VIEWER;
    CHECK_TEXT(claims("{" GOOD "}"), "corp:ada viewer 1000300");
    issuer.default_role = ROLE_USER;
    issuer.role_claim = NULL;
    issuer.role_map = NULL;
    json_decref(map);
}

/* ---- sets of keys ---- */

static size_t usable(char *jwk)
{
    AUTO_FREE char *held = jwk;
    AUTO_FREE char *set = memory_printf("{\"keys\":[%s]}", held);
    struct error err = {0};
    AUTO(jwks) *jwks = jwks_parse(set, strlen(set), &err);
    CHECK(jwks != NULL);
    return jwks ? jwks_count(jwks) : 99;
}

static void test_keys(void)
{
    CHECK(usable(jwk_of(rsa, "a", "")) == 1 && usable(jwk_of(ec, "a", ",\"key_ops\":[\"verify\"]")) == 1);
    CHECK(usable(jwk_of(rsa, "a", ",\"use\":\"enc\"")) == 0 && usable(jwk_of(rsa, "a", ",\"alg\":\"RS512\"")) == 0);
    CHECK(usable(jwk_of(rsa, "a", ",\"alg\":\"HS256\"")) == 0 &&
          usable(jwk_of(ec, "a", ",\"key_ops\":[\"sign\"]")) == 0);
    CHECK(usable(memory_string("{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"alg\":\"HS256\"}")) == 0);
    CHECK(usable(memory_string("{\"kty\":\"RSA\",\"n\":\"!\",\"e\":\"AQAB\"}")) == 0 &&
          usable(memory_string("7")) == 0);
    EVP_PKEY *weak = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024);
    CHECK(usable(jwk_of(weak, "a", "")) == 0);
    EVP_PKEY_free(weak);
    AUTO_FREE char *n = number_of(rsa, OSSL_PKEY_PARAM_RSA_N, 0);
    CHECK(usable(memory_printf("{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"AQ\"}", n)) == 0); /* with e = 1 anybody signs */
    AUTO_FREE char *x = number_of(ec, OSSL_PKEY_PARAM_EC_PUB_X, 32);
    AUTO_FREE char *y = number_of(ec, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    AUTO_FREE char *other = number_of(other_ec, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    CHECK(usable(memory_printf("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"}", x, y)) == 1);
    CHECK(usable(memory_printf("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"}", x, other)) == 0);
    CHECK(usable(memory_printf("{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"%s\",\"y\":\"%s\"}", x, y)) == 0);
}

static void test_sets(void)
{
    struct error err = {0};
    const char *const no_set[] = {"", "{}", "[]", "{\"keys\":{}}", "{\"keys\":[]", "{\"keys\":[],\"keys\":[]}"};
    for (size_t i = 0; i < sizeof no_set / sizeof *no_set; i++)
        CHECK(jwks_parse(no_set[i], strlen(no_set[i]), &err) == NULL);
    AUTO_TEXT many = {0};
    text_append_string(&many, "{\"keys\":[0");
    for (int i = 0; i < 64; i++)
        text_append_string(&many, ",0");
    text_append_string(&many, "]}");
    CHECK(jwks_parse(many.data, many.length, &err) == NULL);
    /* Two that fit are none: which would be a guess. */
    AUTO_FREE char *first = jwk_of(rsa, "same", ""), *second = jwk_of(other_rsa, "same", "");
    AUTO_FREE char *set = memory_printf("{\"keys\":[%s,%s]}", first, second);
    AUTO(jwks) *twice = jwks_parse(set, strlen(set), &err);
    CHECK(twice && jwks_find(twice, JWT_RS256, "same") == NULL && jwks_find(twice, JWT_RS256, NULL) == NULL);
}

int main(void)
{
    make_keys();
    test_good();
    test_unsigned();
    test_other_keys();
    test_headers();
    test_texts();
    test_claims();
    test_principals();
    test_roles();
    test_keys();
    test_sets();
    jwks_free(keys);
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(ec);
    EVP_PKEY_free(other_rsa);
    EVP_PKEY_free(other_ec);
    return check_done();
}
