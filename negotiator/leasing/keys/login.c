#include "negotiator/leasing/keys/login.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* base64url of {"alg":"HS256","typ":"login+jwt"}: other bytes are no header, so that none is ever parsed. */
#define HEADER "eyJhbGciOiJIUzI1NiIsInR5cCI6ImxvZ2luK2p3dCJ9."

enum { MAC_LENGTH = TEXT_BASE64URL_LENGTH(crypto_auth_hmacsha256_BYTES), CLAIMS_BYTES = 600 };

bool principal_is_login_token(const char *text)
{
    return text && text_starts_with(text, HEADER);
}

static void sign(uint8_t mac[static crypto_auth_hmacsha256_BYTES], const struct key *master, const char *text,
                 size_t length)
{
    AUTO_KEY key;
    key_derive(&key, master, "parley/login/1");
    crypto_auth_hmacsha256(mac, (const uint8_t *)text, length, key.bytes);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void login_mint(char to[static LOGIN_TOKEN_BYTES], const struct key *master, const struct principal *principal,
                int64_t now_ms, int64_t *expires_at)
{
    uint8_t mac[crypto_auth_hmacsha256_BYTES];
    int64_t now = now_ms / 1000, end = now + LOGIN_TTL_S;
    *expires_at = principal->expires_at ? smaller(end, principal->expires_at / 1000) : end;
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:I, s:I}", "sub", principal->name, "key", principal->key_id, "generation",
                  (json_int_t)principal->generation, "iat", (json_int_t)now, "exp", (json_int_t)*expires_at);
    AUTO_FREE char *claims = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    memcpy(to, HEADER, sizeof HEADER);
    size_t length = strlen(HEADER);
    if (strlen(claims) > CLAIMS_BYTES)
        abort(); /* of bounded texts: it always fits */
    length += text_base64url_encode(to + length, claims, strlen(claims));
    sign(mac, master, to, length);
    to[length++] = '.';
    text_base64url_encode(to + length, mac, sizeof mac);
}

static bool read_claims(struct login *login, const json_t *json, int64_t now_ms)
{
    const json_t *generation = json_object_get(json, "generation"), *end = json_object_get(json, "exp");
    const char *id = json_string_value(json_object_get(json, "key"));
    login->generation = (uint32_t)json_integer_value(generation);
    login->expires_at = json_integer_value(end);
    return json_is_integer(generation) && json_is_integer(end) && login->expires_at > now_ms / 1000 &&
           text_copy(login->key_id, sizeof login->key_id, id);
}

bool login_verify(struct login *login, const struct key *master, const char *token, int64_t now_ms)
{
    uint8_t mac[crypto_auth_hmacsha256_BYTES], shown[crypto_auth_hmacsha256_BYTES];
    char claims[LOGIN_TOKEN_BYTES];
    size_t size = 0;
    if (!principal_is_login_token(token) || strnlen(token, LOGIN_TOKEN_BYTES) == LOGIN_TOKEN_BYTES)
        return false;
    const char *payload = token + strlen(HEADER), *dot = strchr(payload, '.');
    if (dot == NULL || strlen(dot + 1) != MAC_LENGTH ||
        !text_base64url_decode(shown, sizeof shown, &size, dot + 1, MAC_LENGTH) || size != sizeof shown)
        return false;
    sign(mac, master, token, (size_t)(dot - token));
    if (sodium_memcmp(mac, shown, sizeof mac) != 0 ||
        !text_base64url_decode(claims, sizeof claims, &size, payload, (size_t)(dot - payload)))
        return false;
    json_t *json = json_loadb(claims, size, JSON_REJECT_DUPLICATES, NULL);
    bool good = json && read_claims(login, json, now_ms);
    json_decref(json);
    return good;
}
