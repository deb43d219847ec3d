/* Minting: what is minted verifies and says the same; claims outside the format are never minted. */
#include "shared/capability/capability.h"

#include "tests/unit/shared/capability/forge.h"

static struct capability_claims good(void)
{
    struct capability_claims claims = {.issuer = FORGE_ISSUER,
                                       .sandbox_id = FORGE_SANDBOX,
                                       .epoch = 3,
                                       .principal = "corp:ann|x y@z",
                                       .jti = "tok_1",
                                       .family = "tok_0",
                                       .issued_at = FORGE_NOW,
                                       .expires_at = FORGE_NOW + 900,
                                       .thread_id = "t.1:a_b-c",
                                       .lease = "lse_1",
                                       .actor = "human",
                                       .long_lived = true};
    static const char SCOPES[] = "fs:ro@/a%20%22 port@80";
    CHECK(scope_parse(&claims.scopes, SCOPES, strlen(SCOPES), SCOPE_UNKNOWN_REFUSED, NULL));
    return claims;
}

static bool mints(char to[static CAPABILITY_TEXT_BYTES], const struct capability_claims *claims)
{
    struct key key;
    struct error err = {0};
    memcpy(to, "before", 7);
    key_token(&key, &FORGE_ROOT, claims->epoch);
    bool is_minted = capability_mint(to, claims, &key, &err);
    if (!is_minted) {
        CHECK(err.kind == ERROR_INVALID);
        CHECK_TEXT(to, "before");
    }
    return is_minted;
}

static void test_round_trip(void)
{
    struct capability_claims claims = good(), read;
    struct capability_expectation expected = forge_expectation();
    char token[CAPABILITY_TEXT_BYTES], scopes[SCOPE_TEXT_BYTES];
    CHECK(mints(token, &claims));
    CHECK_REFUSAL(forge_judge(&expected, token, strlen(token), FORGE_NOW, &read, NULL), CAPABILITY_OK);
    CHECK_TEXT(read.issuer, claims.issuer);
    CHECK_TEXT(read.sandbox_id, claims.sandbox_id);
    CHECK_TEXT(read.principal, claims.principal);
    CHECK_TEXT(read.jti, claims.jti);
    CHECK_TEXT(read.family, claims.family);
    CHECK_TEXT(read.thread_id, claims.thread_id);
    CHECK_TEXT(read.lease, claims.lease);
    CHECK_TEXT(read.actor, claims.actor);
    CHECK_TEXT(read.note, "");
    CHECK(read.epoch == 3 && read.issued_at == FORGE_NOW && read.expires_at == FORGE_NOW + 900);
    CHECK(read.long_lived && read.link_count == 0);
    scope_format(&read.scopes, scopes);
    CHECK_TEXT(scopes, "fs:ro@/a%20%22 port@80");
    scope_format(&read.root_scopes, scopes);
    CHECK_TEXT(scopes, "fs:ro@/a%20%22 port@80");
}

static void test_golden(void)
{
    struct forged forged;
    struct capability_claims claims;
    char token[CAPABILITY_TEXT_BYTES];
    forge_claims(&forged, FORGE_CLAIMS);
    struct capability_expectation expected = forge_expectation();
    CHECK_REFUSAL(forge_judge(&expected, forged.text, forged.length, FORGE_NOW, &claims, NULL), CAPABILITY_OK);
    CHECK(mints(token, &claims));
    CHECK_TEXT(token, forged.text);
}

#define CHECK_NOT_MINTED(change)                                                                                       \
    do {                                                                                                               \
        struct capability_claims claims = good();                                                                      \
        char token[CAPABILITY_TEXT_BYTES];                                                                             \
        change;                                                                                                        \
        CHECK(!mints(token, &claims));                                                                                 \
    } while (0)
#define SET(field, text) snprintf(claims.field, sizeof claims.field, "%s", text)

static void test_wrong_claims(void)
{
    CHECK_NOT_MINTED(SET(issuer, ""));
    CHECK_NOT_MINTED(SET(issuer, "a b"));
    CHECK_NOT_MINTED(SET(sandbox_id, ""));
    CHECK_NOT_MINTED(SET(sandbox_id, "sbx.1"));
    CHECK_NOT_MINTED(SET(sandbox_id, "sbx\"1"));
    CHECK_NOT_MINTED(SET(principal, ""));
    CHECK_NOT_MINTED(SET(principal, "a\"b"));
    CHECK_NOT_MINTED(SET(principal, "a\\b"));
    CHECK_NOT_MINTED(SET(principal, "a\nb"));
    CHECK_NOT_MINTED(SET(principal, "\303\251"));
    CHECK_NOT_MINTED(SET(jti, "tok 1"));
    CHECK_NOT_MINTED(SET(family, ""));
    CHECK_NOT_MINTED(SET(thread_id, "."));
    CHECK_NOT_MINTED(SET(thread_id, ".."));
    CHECK_NOT_MINTED(SET(thread_id, "a/b"));
    CHECK_NOT_MINTED(SET(lease, ""));
    CHECK_NOT_MINTED(SET(actor, "agent"));
    CHECK_NOT_MINTED(SET(actor, "agent:"));
    CHECK_NOT_MINTED(SET(actor, "robot:1"));
    CHECK_NOT_MINTED(SET(actor, "human:\""));
    CHECK_NOT_MINTED(claims.issued_at = -1);
    CHECK_NOT_MINTED(claims.expires_at = claims.issued_at);
    CHECK_NOT_MINTED(claims.expires_at = INT64_MAX);
    CHECK_NOT_MINTED(claims.scopes.atoms[1].verb = SCOPE_PROCESS); /* with a resource */
    CHECK_NOT_MINTED((claims.scopes.atoms[1].verb = SCOPE_PROCESS, claims.scopes.atoms[1].resource[0] = '\0'));
    CHECK_NOT_MINTED(memset(claims.scopes.atoms[0].resource + 1, '"', SCOPE_ATOM_BYTES - 2));
}

int main(void)
{
    keys_start();
    test_round_trip();
    test_golden();
    test_wrong_claims();
    return check_done();
}
