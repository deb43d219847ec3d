/* Attenuation: it narrows, offline, and nothing that a holder signs widens; a chain cannot be shortened. */
#include "shared/capability/capability.h"

#include "tests/unit/shared/capability/forge.h"

static const char ROOT_SCOPES[] = "fs:rw shell process port";

static void check_scopes(const struct scope_set *set, const char *want)
{
    char text[SCOPE_TEXT_BYTES];
    scope_format(set, text);
    CHECK_TEXT(text, want);
}

static void attenuated(char to[static CAPABILITY_TEXT_BYTES], const char *token, const char *scope, int64_t exp,
                       const char *note)
{
    struct error err = {0};
    struct capability_link link = {.scope = scope, .expires_at = exp, .note = note};
    if (!capability_attenuate(to, token, &link, &err)) {
        fprintf(stderr, "capability_attenuate_test: %s\n", err.message);
        exit(1);
    }
}

static enum capability_refusal judged(const char *token, struct capability_claims *claims)
{
    struct capability_expectation expected = forge_expectation();
    return forge_judge(&expected, token, strlen(token), FORGE_NOW, claims, NULL);
}

static void test_narrows(void)
{
    struct forged root;
    struct capability_claims claims, decoded;
    char one[CAPABILITY_TEXT_BYTES], two[CAPABILITY_TEXT_BYTES];
    forge_claims(&root, FORGE_CLAIMS);
    attenuated(one, root.text, "fs:ro@/a%20b port@80", 0, NULL);
    CHECK_REFUSAL(judged(one, &claims), CAPABILITY_OK);
    check_scopes(&claims.scopes, "fs:ro@/a%20b port@80");
    check_scopes(&claims.root_scopes, ROOT_SCOPES);
    CHECK(claims.link_count == 1 && claims.expires_at == FORGE_NOW + 900);
    CHECK(strlen(claims.link_ids[0]) == CAPABILITY_LINK_ID_BYTES - 1 && strncmp(claims.link_ids[0], "lnk_", 4) == 0);

    attenuated(two, one, NULL, FORGE_NOW + 60, "ci: run 7");
    CHECK_REFUSAL(judged(two, &decoded), CAPABILITY_OK);
    check_scopes(&decoded.scopes, "fs:ro@/a%20b port@80");
    CHECK(decoded.link_count == 2 && decoded.expires_at == FORGE_NOW + 60);
    CHECK_TEXT(decoded.note, "ci: run 7");
    CHECK_TEXT(decoded.link_ids[0], claims.link_ids[0]);
    CHECK(strcmp(decoded.link_ids[0], decoded.link_ids[1]) != 0);
    CHECK_TEXT(decoded.principal, "ann");
    attenuated(two, two, "", 0, NULL); /* in place, and to nothing */
    CHECK_REFUSAL(judged(two, &claims), CAPABILITY_OK);
    CHECK(claims.scopes.count == 0 && claims.link_count == 3);
    CHECK_TEXT(claims.note, "ci: run 7");
}

static void test_expires_earlier(void)
{
    struct forged root;
    char one[CAPABILITY_TEXT_BYTES];
    struct capability_expectation expected = forge_expectation();
    forge_claims(&root, FORGE_CLAIMS);
    attenuated(one, root.text, NULL, FORGE_NOW + 60, NULL);
    CHECK_REFUSAL(forge_judge(&expected, one, strlen(one), FORGE_NOW + 64, NULL, NULL), CAPABILITY_OK);
    CHECK_REFUSAL(forge_judge(&expected, one, strlen(one), FORGE_NOW + 65, NULL, NULL), CAPABILITY_EXPIRED);
}

static void check_not_attenuated(const char *token, const char *scope, int64_t exp, const char *note)
{
    char to[CAPABILITY_TEXT_BYTES] = "before";
    struct error err = {0};
    struct capability_link link = {.scope = scope, .expires_at = exp, .note = note};
    CHECK(!capability_attenuate(to, token, &link, &err));
    CHECK(err.kind == ERROR_INVALID && err.message[0]);
    CHECK_TEXT(to, "before");
}

static void test_attenuate_refuses(void)
{
    struct forged root;
    char narrow[CAPABILITY_TEXT_BYTES];
    forge_claims(&root, FORGE_CLAIMS);
    check_not_attenuated(root.text, NULL, 0, NULL);
    check_not_attenuated(root.text, "snapshot", 0, NULL);
    check_not_attenuated(root.text, "fs:rw root", 0, NULL);
    check_not_attenuated(root.text, "fs:rw@/a process", 0, NULL);
    check_not_attenuated(root.text, " fs:rw", 0, NULL);
    check_not_attenuated(root.text, NULL, FORGE_NOW + 901, NULL);
    check_not_attenuated(root.text, NULL, -1, NULL);
    check_not_attenuated(root.text, NULL, INT64_MAX, NULL);
    check_not_attenuated(root.text, NULL, 0, "");
    check_not_attenuated(root.text, NULL, 0, "a\"b");
    check_not_attenuated(root.text, NULL, 0, "01234567890123456789012345678901234567890123456789012345678901234");
    check_not_attenuated("", "fs:ro", 0, NULL);
    check_not_attenuated("a.b.c", "fs:ro", 0, NULL);
    attenuated(narrow, root.text, "fs:ro@/a", FORGE_NOW + 60, NULL);
    check_not_attenuated(narrow, "fs:ro", 0, NULL);
    check_not_attenuated(narrow, "fs:rw@/a", 0, NULL);
    check_not_attenuated(narrow, "fs:ro@/ab", 0, NULL);
    check_not_attenuated(narrow, "process", 0, NULL);
    check_not_attenuated(narrow, NULL, FORGE_NOW + 61, NULL);
    root.length -= 43;
    memcpy(root.text + root.length, "AAAA", 5); /* no MAC to go on from */
    check_not_attenuated(root.text, "fs:ro", 0, NULL);
}

static void test_hostile_links(void)
{
    static const char *const WRONG[] = {"{\"scope\":\"snapshot\"}",
                                        "{\"scope\":\"fs:rw root\"}",
                                        "{\"scope\":\"fs:rw port@0\"}",
                                        "{\"scope\":\"fs:ro@/a code\"}",
                                        "{\"scope\":\"fs:ro \"}",
                                        "{\"scope\":[\"fs:ro\"]}",
                                        "{\"scope\":null}",
                                        "{\"scope\":true}",
                                        "{\"exp\":1795306501}",
                                        "{\"exp\":1795306500.0}",
                                        "{\"exp\":\"1795306500\"}",
                                        "{\"exp\":-1}",
                                        "{\"exp\":99999999999999999999}",
                                        "{\"exp\":1e9}",
                                        "{\"exp\":01}",
                                        "{\"note\":\"\"}",
                                        "{\"note\":\"a\\nb\"}",
                                        "{\"note\":\"a\\u0000b\"}",
                                        "{\"note\":7}",
                                        "{}",
                                        "[]",
                                        "null",
                                        "\"scope\"",
                                        "7",
                                        "x",
                                        "{\"note\":\"a\"",
                                        "{\"note\":\"a\"}}",
                                        "{\"note\":\"a\"}{\"note\":\"a\"}",
                                        "{\"note\":\"a\",}",
                                        "{\"note\":\"a\",\"note\":\"a\"}",
                                        "{\"note\":\"a\",\"n\\u006fte\":\"b\"}",
                                        "{\"sub\":\"root\"}",
                                        "{\"note\":\"a\",\"act\":\"human\"}",
                                        "{\"Scope\":\"fs:ro\"}",
                                        "{\"note\":{\"note\":\"a\"}}",
                                        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                        "{\"a\":{\"a\":{\"a\":{",
                                        "{\"note\":\"\303\"}",
                                        "{\"note\":\"\\ud800\"}",
                                        "\xef\xbb\xbf{\"note\":\"a\"}",
                                        "{'note':'a'}"};
    struct forged forged;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        forge_claims(&forged, FORGE_CLAIMS);
        forge_link(&forged, WRONG[i]);
        CHECK_JUDGED(&forged, CAPABILITY_WRONG_LINK);
        struct capability_claims claims;
        struct error err = {0};
        CHECK(!capability_decode(&claims, forged.text, forged.length, &err) && err.kind == ERROR_INVALID);
    }
    static const char *const RIGHT[] = {"{\"scope\":\"code shell:ro fs:ro port@1\"}", "{\"exp\":1795306500}",
                                        " { \"note\" : \"a\\/b\" }\n", "{\"sc\\u006fpe\":\"f\\u0073:ro\"}",
                                        "{\"note\":\"x\",\"exp\":1795306000,\"scope\":\"\"}"};
    for (size_t i = 0; i < sizeof RIGHT / sizeof *RIGHT; i++) {
        forge_claims(&forged, FORGE_CLAIMS);
        forge_link(&forged, RIGHT[i]);
        CHECK_JUDGED(&forged, CAPABILITY_OK);
    }
}

/* Each link is held against the set just before it, not against the root's. */
static void test_widening_back(void)
{
    struct forged forged;
    forge_claims(&forged, FORGE_CLAIMS);
    forge_link(&forged, "{\"scope\":\"fs:ro\"}");
    forge_link(&forged, "{\"scope\":\"fs:rw\"}");
    CHECK_JUDGED(&forged, CAPABILITY_WRONG_LINK);
    forge_claims(&forged, FORGE_CLAIMS);
    forge_link(&forged, "{\"exp\":1795305700}");
    forge_link(&forged, "{\"exp\":1795305701}");
    CHECK_JUDGED(&forged, CAPABILITY_WRONG_LINK);
}

/* A copy of the token without part `drop` (0 is the header). */
static size_t without(char *to, const char *token, size_t drop)
{
    size_t part = 0, length = 0;
    for (const char *at = token; *at; at++) {
        if (part != drop)
            to[length++] = *at;
        if (*at == '.')
            part++;
    }
    if (length > 0 && to[length - 1] == '.')
        length--;
    to[length] = '\0';
    return length;
}

static void test_chain_cannot_be_cut(void)
{
    struct forged forged, other;
    char cut[sizeof forged.text];
    struct capability_expectation expected = forge_expectation();
    forge_claims(&forged, FORGE_CLAIMS);
    forge_link(&forged, "{\"scope\":\"fs:ro process\"}");
    forge_link(&forged, "{\"scope\":\"fs:ro\"}");
    forge_link(&forged, "{\"note\":\"last\"}");
    CHECK_JUDGED(&forged, CAPABILITY_OK);
    for (size_t drop = 2; drop <= 4; drop++) { /* a link */
        size_t length = without(cut, forged.text, drop);
        CHECK_REFUSAL(forge_judge(&expected, cut, length, FORGE_NOW, NULL, NULL), CAPABILITY_WRONG_MAC);
    }
    size_t length = without(cut, forged.text, 5); /* the MAC: the last link stands in its place */
    CHECK_REFUSAL(forge_judge(&expected, cut, length, FORGE_NOW, NULL, NULL), CAPABILITY_WRONG_MAC);
    forge_claims(&other, FORGE_CLAIMS); /* links in another order */
    forge_link(&other, "{\"scope\":\"fs:ro\"}");
    forge_link(&other, "{\"scope\":\"fs:ro process\"}");
    forge_link(&other, "{\"note\":\"last\"}");
    memcpy(other.text + other.length - 43, forged.text + forged.length - 43, 43);
    CHECK_JUDGED(&other, CAPABILITY_WRONG_MAC);
}

static void test_ninth_link(void)
{
    struct forged forged;
    struct capability_claims claims;
    forge_claims(&forged, FORGE_CLAIMS);
    for (size_t i = 0; i < CAPABILITY_LINKS_MAX; i++)
        attenuated(forged.text, forged.text, NULL, 0, "n");
    CHECK_REFUSAL(judged(forged.text, &claims), CAPABILITY_OK);
    CHECK(claims.link_count == CAPABILITY_LINKS_MAX);
    check_not_attenuated(forged.text, NULL, 0, "n");
    forge_claims(&forged, FORGE_CLAIMS);
    for (size_t i = 0; i <= CAPABILITY_LINKS_MAX; i++)
        forge_link(&forged, "{\"note\":\"n\"}");
    CHECK_JUDGED(&forged, CAPABILITY_MALFORMED);
}

static void test_too_long(void)
{
    struct forged forged;
    char scope[800] = "fs:ro@/";
    memset(scope + 7, 'a', 240);
    memcpy(scope + 247, " fs:ro@/", 8);
    memset(scope + 255, 'b', 240);
    memcpy(scope + 495, " fs:ro@/", 8);
    memset(scope + 503, 'c', 240);
    forge_claims(&forged, FORGE_CLAIMS);
    for (int i = 0; i < 3; i++)
        attenuated(forged.text, forged.text, scope, 0, NULL);
    check_not_attenuated(forged.text, scope, 0, NULL);
    CHECK_REFUSAL(judged(forged.text, NULL), CAPABILITY_OK);
}

static void test_decode(void)
{
    struct forged forged;
    struct capability_claims claims, verified;
    forge_claims(&forged, FORGE_CLAIMS);
    forge_link(&forged, "{\"scope\":\"fs:ro\"}");
    forge_link(&forged, "{\"note\":\"mine\"}");
    CHECK_REFUSAL(judged(forged.text, &verified), CAPABILITY_OK);
    CHECK(capability_decode(&claims, forged.text, forged.length, NULL));
    CHECK_TEXT(claims.sandbox_id, FORGE_SANDBOX);
    CHECK_TEXT(claims.note, "mine");
    check_scopes(&claims.scopes, "fs:ro");
    CHECK(claims.epoch == 3 && claims.link_count == 2);
    CHECK_TEXT(claims.link_ids[0], "");
    CHECK_TEXT(claims.link_ids[1], verified.link_ids[1]);
    forge_claims(&forged, forge_changed("\"aud\":\"" FORGE_SANDBOX, "\"aud\":\"sbx_other"));
    CHECK(!capability_decode(&claims, forged.text, forged.length, NULL));
}

static void test_links_as_text(void)
{
    struct capability_claims claims = {.link_count = 0};
    char text[CAPABILITY_LINKS_TEXT_BYTES], wanted[CAPABILITY_LINKS_TEXT_BYTES] = "";
    capability_links_format(&claims, text);
    CHECK_TEXT(text, "");
    for (claims.link_count = 0; claims.link_count < CAPABILITY_LINKS_MAX;) {
        char *id = claims.link_ids[claims.link_count++];
        snprintf(id, CAPABILITY_LINK_ID_BYTES, "lnk_%022zu", claims.link_count);
        size_t length = strlen(wanted);
        snprintf(wanted + length, sizeof wanted - length, "%s%s", length ? " " : "", id);
        capability_links_format(&claims, text);
        CHECK_TEXT(text, wanted);
    }
    CHECK(strlen(text) == CAPABILITY_LINKS_TEXT_BYTES - 1); /* the longest just fits */
}

int main(void)
{
    test_links_as_text();
    keys_start();
    test_narrows();
    test_expires_earlier();
    test_attenuate_refuses();
    test_hostile_links();
    test_widening_back();
    test_chain_cannot_be_cut();
    test_ninth_link();
    test_too_long();
    test_decode();
    return check_done();
}
