#include "shared/capability/capability.h"

#include "shared/base/text.h"
#include "shared/capability/capability_mac.h"
#include "shared/capability/claims.h"
#include "shared/capability/jws.h"

#include <string.h>

_Static_assert(TEXT_BASE64URL_LENGTH(JWS_HEADER_BYTES) + 1 + TEXT_BASE64URL_LENGTH(CLAIMS_JSON_BYTES) + 1 +
                       TEXT_BASE64URL_LENGTH(CAPABILITY_MAC_BYTES) <
                   CAPABILITY_TEXT_BYTES,
               "what is minted always fits");

bool capability_mint(char to[static CAPABILITY_TEXT_BYTES], const struct capability_claims *claims,
                     const struct key *key, struct error *err)
{
    char header[JWS_HEADER_BYTES], json[CLAIMS_JSON_BYTES], token[CAPABILITY_TEXT_BYTES];
    if (!jws_write_header(header, claims->sandbox_id, claims->epoch))
        return error_set(err, ERROR_INVALID, "claim aud does not fit its format");
    if (!claims_write(json, claims, err))
        return false;
    if (claims->expires_at <= claims->issued_at)
        return error_set(err, ERROR_INVALID, "claim exp is not after iat");
    size_t length = text_base64url_encode(token, header, strlen(header));
    token[length++] = '.';
    length += text_base64url_encode(token + length, json, strlen(json));
    uint8_t mac[CAPABILITY_MAC_BYTES];
    if (!capability_mac(mac, key->bytes, token, length))
        return error_set(err, ERROR_INTERNAL, "HMAC-SHA256 failed");
    token[length++] = '.';
    length += text_base64url_encode(token + length, mac, sizeof mac);
    memcpy(to, token, length + 1);
    return true;
}
