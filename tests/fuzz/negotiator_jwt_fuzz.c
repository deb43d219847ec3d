/* Tokens of outside issuers, sets of their keys, and what X-Forwarded-For says, of any bytes: nothing crashes; nothing
 * that our issuer has not signed passes; whom a header names is one that stands in it. Input: a byte that chooses, then
 * a text. */
#include "negotiator/identity/jwt.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/address.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of RFC 7517, A.1; its private half is in the RFC too, but nothing here signs. */
static const char SET[] =
    "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4\","
    "\"y\":\"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM\",\"kid\":\"1\"}]}";

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void judge(const char *text)
{
    static struct jwks *keys;
    struct issuer issuer = {.name = "corp",
                            .issuer = "i",
                            .audience = "a",
                            .algorithms = JWT_ES256 | JWT_RS256,
                            .name_claim = "sub",
                            .role_claim = "a.b.c",
                            .role_map = json_pack("{s:s}", "x", "admin")};
    struct principal principal = {.name = ""};
    struct error err = {0};
    double expires_s = 0;
    AUTO_JWT jwt = {0};
    if (keys == NULL)
        keys = jwks_parse(SET, sizeof SET - 1, &err);
    require(keys != NULL && jwks_count(keys) == 1);
    if (jwt_read(&jwt, text, &err)) {
        (void)!jwt_issuer(&jwt);
        require(jwt_judge(&jwt, &issuer, keys, 1e9, &principal, &expires_s, &err) != JWT_GOOD);
    }
    require(err.kind != ERROR_NONE && principal.name[0] == '\0');
    json_decref(issuer.role_map);
}

/* The text is header NEWLINE claims: behind the base64url. */
static void judge_parts(const char *text, size_t size)
{
    const char *line = memchr(text, '\n', size);
    size_t first = line ? (size_t)(line - text) : size;
    AUTO_FREE char *token = memory_new(2 * size + 64);
    size_t length = text_base64url_encode(token, text, first);
    token[length++] = '.';
    length += text_base64url_encode(token + length, text + first + (line != NULL), size - first - (line != NULL));
    memcpy(token + length, ".AAAA", 6);
    judge(token);
}

static void forward(const char *text)
{
    static struct cidrs *trusted;
    struct error err = {0};
    struct address peer, found;
    char form[ADDRESS_TEXT_BYTES];
    if (trusted == NULL)
        trusted = cidrs_parse("10.0.0.0/8,2001:db8::/32", &err);
    AUTO(cidrs) *any = cidrs_parse(text, &err);
    require((any == NULL) == (err.kind != ERROR_NONE) && address_parse(&peer, "10.0.0.1"));
    found = address_forwarded(trusted, &peer, &text, 1);
    address_format(form, &found);
    require(address_parse(&peer, form) && memcmp(&peer, &found, sizeof found) == 0); /* one address, one form */
    require(address_parse(&peer, "192.0.2.1"));
    found = address_forwarded(trusted, &peer, &text, 1);
    require(memcmp(&peer, &found, sizeof found) == 0); /* nobody else is believed */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    if (size == 0 || size > 16384)
        return 0;
    AUTO_FREE char *text = memory_copy(data + 1, size - 1);
    if (data[0] % 4 == 0)
        judge(text);
    else if (data[0] % 4 == 1)
        judge_parts(text, size - 1);
    else if (data[0] % 4 == 2)
        jwks_free(jwks_parse(text, size - 1, &err));
    else
        forward(text);
    return 0;
}
