#include "shared/capability/capability.h"

#include "shared/base/text.h"
#include "shared/capability/capability_mac.h"
#include "shared/capability/chain.h"
#include "shared/capability/claims.h"
#include "shared/capability/jws.h"

#include <string.h>

/* As verification reads it, without a key: so the MAC is not looked at, and of the link ids only the last is known. */
static bool read_jws(struct capability_claims *claims, const struct jws *jws, struct error *err)
{
    char sandbox_id[CAPABILITY_ID_BYTES];
    uint32_t epoch = 0;
    const struct jws_part *mac = &jws->parts[jws->count - 1];
    if (!jws_read_header(jws->parts[0].bytes, jws->parts[0].size, sandbox_id, &epoch))
        return error_set(err, ERROR_INVALID, "not a capability: its header is another");
    if (mac->size != CAPABILITY_MAC_BYTES)
        return error_set(err, ERROR_INVALID, "not a capability: its last part is no MAC");
    if (!claims_read(claims, jws->parts[1].bytes, jws->parts[1].size, err))
        return false;
    if (strcmp(claims->sandbox_id, sandbox_id) != 0)
        return error_set(err, ERROR_INVALID, "not a capability: its header names another sandbox than its claims");
    claims->epoch = epoch;
    claims->link_count = jws->count - JWS_PARTS_MIN;
    for (size_t i = 0; i < claims->link_count; i++) {
        if (!chain_narrow(claims, jws->parts[2 + i].bytes, jws->parts[2 + i].size, err))
            return false;
        claims->link_ids[i][0] = '\0';
    }
    if (claims->link_count > 0)
        chain_link_id(claims->link_ids[claims->link_count - 1], mac->bytes);
    return true;
}

static bool split(struct jws *jws, const char *token, size_t length, struct error *err)
{
    return jws_split(jws, token, length) == CAPABILITY_OK ||
           error_set(err, ERROR_INVALID, "not a capability: it is not 3 to %d parts of base64url", JWS_PARTS_MAX);
}

bool capability_decode(struct capability_claims *claims, const char *token, size_t length, struct error *err)
{
    struct jws jws;
    struct capability_claims read;
    if (!split(&jws, token, length, err) || !read_jws(&read, &jws, err))
        return false;
    capability_claims_copy(claims, &read);
    return true;
}

bool capability_attenuate(char to[static CAPABILITY_TEXT_BYTES], const char *token, const struct capability_link *link,
                          struct error *err)
{
    struct jws jws;
    struct capability_claims claims;
    char json[CHAIN_JSON_BYTES];
    if (!split(&jws, token, strlen(token), err) || !read_jws(&claims, &jws, err) || !chain_write(json, link, err))
        return false;
    if (jws.count == JWS_PARTS_MAX)
        return error_set(err, ERROR_INVALID, "the token has %d attenuations already: no more fit",
                         CAPABILITY_LINKS_MAX);
    if (!chain_narrow(&claims, json, strlen(json), err))
        return false;
    const struct jws_part *last = &jws.parts[jws.count - 1];
    size_t kept = (size_t)(last->text - token); /* with the dot, where the link's signed text begins */
    if (kept + TEXT_BASE64URL_LENGTH(strlen(json)) + 1 + last->length >= CAPABILITY_TEXT_BYTES)
        return error_set(err, ERROR_INVALID, "a token is at most %d bytes long", JWS_TOKEN_MAX);
    char made[CAPABILITY_TEXT_BYTES];
    memcpy(made, token, kept);
    size_t length = kept + text_base64url_encode(made + kept, json, strlen(json));
    uint8_t mac[CAPABILITY_MAC_BYTES];
    if (!capability_mac(mac, last->bytes, made + kept - 1, length - kept + 1))
        return error_set(err, ERROR_INTERNAL, "HMAC-SHA256 failed");
    made[length++] = '.';
    length += text_base64url_encode(made + length, mac, sizeof mac);
    memcpy(to, made, length + 1);
    return true;
}
