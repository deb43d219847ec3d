/* Tokens of any bytes: nothing crashes, and only what was signed passes. Input: a byte that chooses, then a text.
 * Even: the text is a token as it came. Odd: it is "claims NEWLINE link NEWLINE link ...", signed here rightly, so that
 * the fuzzer gets behind the MAC; what passes must have narrowed. */
#include "shared/base/text.h"
#include "shared/capability/capability.h"
#include "shared/capability/capability_mac.h"

#include <stdlib.h>
#include <string.h>

#define NOW       INT64_C(1795305600)
#define HEADER    "{\"alg\":\"HS256\",\"typ\":\"JWT\",\"kid\":\"sbx_f.1\"}"
#define INPUT_MAX 8192

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct key ROOT = {{1, 2, 3}};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_passed(const struct capability_claims *claims, const char *token, size_t length)
{
    static struct capability_claims decoded;
    char text[CAPABILITY_TEXT_BYTES], narrower[CAPABILITY_TEXT_BYTES], scope[SCOPE_TEXT_BYTES];
    require(scope_set_covers(&claims->root_scopes, &claims->scopes));
    require(claims->link_count <= CAPABILITY_LINKS_MAX);
    require(capability_decode(&decoded, token, length, NULL));
    require(strcmp(decoded.principal, claims->principal) == 0 && decoded.expires_at == claims->expires_at);
    scope_format(&claims->scopes, scope);
    struct capability_link link = {.scope = scope};
    memcpy(text, token, length);
    text[length] = '\0';
    if (!capability_attenuate(narrower, text, &link, NULL))
        return; /* too long, or the ninth link */
    struct capability_expectation expected = {.issuer = "dep_f", .sandbox_id = "sbx_f", .root = &ROOT, .epoch = 1};
    require(capability_verify(&decoded, &expected, narrower, strlen(narrower), NOW, NULL) == CAPABILITY_OK);
}

static enum capability_refusal judge(const char *token, size_t length)
{
    static struct capability_claims claims, again;
    struct capability_expectation expected = {.issuer = "dep_f", .sandbox_id = "sbx_f", .root = &ROOT, .epoch = 1};
    AUTO(capability_cache) *cache = capability_cache_new(4);
    char id[CAPABILITY_ID_BYTES];
    enum capability_refusal refusal = capability_verify(&claims, &expected, token, length, NOW, NULL);
    for (int i = 0; i < 2; i++)
        require(capability_cache_verify(cache, &again, &expected, token, length, NOW, NULL) == refusal);
    if (capability_addressed(token, length, id))
        require(strlen(id) < sizeof id);
    if (refusal == CAPABILITY_OK)
        check_passed(&claims, token, length);
    else
        (void)!capability_decode(&again, token, length, NULL);
    return refusal;
}

/* Signs the lines. Returns the length of the token in `to` of 4 * INPUT_MAX bytes. */
static size_t sign(char *to, const char *lines, size_t size)
{
    struct key key;
    uint8_t mac[CAPABILITY_MAC_BYTES];
    size_t length = text_base64url_encode(to, HEADER, strlen(HEADER)), start = 0;
    const char *end = lines + size;
    key_token(&key, &ROOT, 1);
    memcpy(mac, key.bytes, sizeof mac);
    for (int parts = 0; parts <= CAPABILITY_LINKS_MAX; parts++) {
        const char *newline = memchr(lines, '\n', (size_t)(end - lines));
        const char *stop = newline ? newline : end;
        to[length++] = '.';
        length += text_base64url_encode(to + length, lines, (size_t)(stop - lines));
        require(capability_mac(mac, mac, to + start, length - start));
        start = length;
        if (!newline)
            break;
        lines = newline + 1;
    }
    to[length++] = '.';
    return length + text_base64url_encode(to + length, mac, sizeof mac);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char token[4 * INPUT_MAX];
    if (size == 0 || size > INPUT_MAX)
        return 0;
    keys_start();
    const char *text = (const char *)data + 1;
    if (data[0] % 2 == 0) {
        judge(text, size - 1);
        return 0;
    }
    size_t length = sign(token, text, size - 1);
    enum capability_refusal refusal = judge(token, length);
    require(refusal != CAPABILITY_WRONG_MAC && refusal != CAPABILITY_WRONG_HEADER);
    return 0;
}
