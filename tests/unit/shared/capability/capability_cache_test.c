/* The cache gives what verification gave, never for longer, never for another sandbox, issuer, key or epoch, and never
 * for other bytes. */
#include "shared/capability/capability.h"

#include "tests/unit/shared/capability/forge.h"

static enum capability_refusal judged(struct capability_cache *cache, const struct capability_expectation *expected,
                                      const struct forged *token, int64_t now)
{
    static struct capability_claims claims;
    struct error err = {0};
    claims.sandbox_id[0] = '\0';
    enum capability_refusal refusal =
        capability_cache_verify(cache, &claims, expected, token->text, token->length, now, &err);
    if (refusal == CAPABILITY_OK) {
        CHECK_TEXT(claims.sandbox_id, FORGE_SANDBOX);
        CHECK(scope_allows(&claims.scopes, "process") && claims.scopes.count == 4 && claims.root_scopes.count == 4);
        CHECK_TEXT(claims.actor, "agent:builder");
    } else {
        CHECK(claims.sandbox_id[0] == '\0' && err.kind != ERROR_NONE);
    }
    return refusal;
}

static void test_again(struct capability_cache *cache)
{
    struct forged token;
    struct capability_expectation expected = forge_expectation();
    forge_claims(&token, FORGE_CLAIMS);
    for (int i = 0; i < 3; i++)
        CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_OK);
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW + 905), CAPABILITY_EXPIRED);
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW - 6), CAPABILITY_FROM_THE_FUTURE);
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW + 904), CAPABILITY_OK);
}

static void test_bound(struct capability_cache *cache)
{
    struct forged token;
    struct capability_expectation expected = forge_expectation(), other = expected;
    struct key stranger = {{9}};
    forge_claims(&token, FORGE_CLAIMS);
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_OK);
    other.sandbox_id = "sbx_other";
    CHECK_REFUSAL(judged(cache, &other, &token, FORGE_NOW), CAPABILITY_WRONG_SANDBOX);
    other = expected;
    other.issuer = "dep_other";
    CHECK_REFUSAL(judged(cache, &other, &token, FORGE_NOW), CAPABILITY_WRONG_ISSUER);
    other = expected;
    other.epoch = 4;
    CHECK_REFUSAL(judged(cache, &other, &token, FORGE_NOW), CAPABILITY_WRONG_EPOCH);
    other = expected;
    other.root = &stranger;
    CHECK_REFUSAL(judged(cache, &other, &token, FORGE_NOW), CAPABILITY_WRONG_MAC);
    other = expected;
    other.unknown = true;
    CHECK_REFUSAL(judged(cache, &other, &token, FORGE_NOW), CAPABILITY_WRONG_MAC);
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_OK);
}

static void test_other_bytes(struct capability_cache *cache)
{
    struct forged token;
    struct capability_expectation expected = forge_expectation();
    forge_claims(&token, FORGE_CLAIMS);
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_OK);
    for (size_t at = 0; at < token.length; at++) {
        token.text[at] ^= 1;
        CHECK(judged(cache, &expected, &token, FORGE_NOW) != CAPABILITY_OK);
        token.text[at] ^= 1;
    }
    size_t length = token.length;
    for (token.length = 0; token.length < length; token.length++)
        CHECK(judged(cache, &expected, &token, FORGE_NOW) != CAPABILITY_OK);
    token.length = length + 1;
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_MALFORMED);
    memset(token.text, 'A', sizeof token.text);
    token.length = 10 * 1024;
    CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_TOO_LONG);
}

/* Refused and then repaired: the refusal was not kept; nor are more tokens than there is room for. */
static void test_many(struct capability_cache *cache)
{
    struct capability_expectation expected = forge_expectation();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) {
            char claim[32];
            struct forged token;
            snprintf(claim, sizeof claim, "\"tok_%d%0*d\"", i + 2, 1 + i % 20, 0); /* of many lengths */
            forge_claims(&token, forge_changed("\"tok_1\"", claim));
            token.text[token.length - 2] ^= 1;
            CHECK(judged(cache, &expected, &token, FORGE_NOW) != CAPABILITY_OK);
            token.text[token.length - 2] ^= 1;
            CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_OK);
            CHECK_REFUSAL(judged(cache, &expected, &token, FORGE_NOW), CAPABILITY_OK);
        }
    }
}

int main(void)
{
    keys_start();
    static const size_t SLOTS[] = {0, 1, 4, 33};
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++) {
        AUTO(capability_cache) *cache = capability_cache_new(SLOTS[i]);
        test_again(cache);
        test_bound(cache);
        test_other_bytes(cache);
        test_many(cache);
    }
    test_again(NULL);
    test_bound(NULL);
    capability_cache_free(NULL);
    return check_done();
}
