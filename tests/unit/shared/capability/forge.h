/** forge.h - tokens by hand, right or wrong: the tests sign what no mint would. */
#pragma once

#include "shared/base/text.h"
#include "shared/capability/capability.h"
#include "shared/capability/capability_mac.h"
#include "tests/unit/check.h"

#define FORGE_ISSUER  "dep_test"
#define FORGE_SANDBOX "sbx_a1b2c3d4e5f6g7h8i9j0"
#define FORGE_NOW     INT64_C(1795305600) /* 2026-11-22T00:00:00Z */
#define FORGE_HEADER  "{\"alg\":\"HS256\",\"typ\":\"JWT\",\"kid\":\"" FORGE_SANDBOX ".3\"}"
#define FORGE_CLAIMS                                                                                                   \
    "{\"iss\":\"dep_test\",\"aud\":\"" FORGE_SANDBOX "\",\"sub\":\"ann\",\"jti\":\"tok_1\",\"fam\":\"tok_0\","         \
    "\"iat\":1795305600,\"exp\":1795306500,\"scope\":\"fs:rw shell process port\",\"thread_id\":\"t1\","               \
    "\"lease\":\"lse_1\",\"act\":\"agent:builder\"}"

static const struct key FORGE_ROOT = {{7, 7, 7}};

struct forged {
    char text[16384];
    size_t length;
    uint8_t mac[CAPABILITY_MAC_BYTES];
};

/** What a sandboxd with FORGE_SANDBOX in epoch 3 expects. */
static inline struct capability_expectation forge_expectation(void)
{
    return (struct capability_expectation){
        .issuer = FORGE_ISSUER, .sandbox_id = FORGE_SANDBOX, .root = &FORGE_ROOT, .epoch = 3};
}

static inline void forge_append_mac(struct forged *forged)
{
    forged->text[forged->length++] = '.';
    forged->length += text_base64url_encode(forged->text + forged->length, forged->mac, sizeof forged->mac);
}

/** Header and claims of any bytes, rightly signed under the token key of FORGE_ROOT and `epoch`. */
static inline void forge_root(struct forged *forged, const char *header, const char *claims, uint32_t epoch)
{
    struct key key;
    key_token(&key, &FORGE_ROOT, epoch);
    forged->length = text_base64url_encode(forged->text, header, strlen(header));
    forged->text[forged->length++] = '.';
    forged->length += text_base64url_encode(forged->text + forged->length, claims, strlen(claims));
    if (!capability_mac(forged->mac, key.bytes, forged->text, forged->length))
        abort();
    forge_append_mac(forged);
}

/** A valid root with other claims. */
static inline void forge_claims(struct forged *forged, const char *claims)
{
    forge_root(forged, FORGE_HEADER, claims, 3);
}

/** Appends a link of any bytes, rightly signed. */
static inline void forge_link(struct forged *forged, const char *json)
{
    forged->length -= TEXT_BASE64URL_LENGTH(CAPABILITY_MAC_BYTES);
    size_t start = forged->length - 1; /* the dot */
    forged->length += text_base64url_encode(forged->text + forged->length, json, strlen(json));
    if (!capability_mac(forged->mac, forged->mac, forged->text + start, forged->length - start))
        abort();
    forge_append_mac(forged);
}

/** FORGE_CLAIMS with the one place of `from` changed to `to`; ends the test when there is none. */
static inline const char *forge_changed(const char *from, const char *to)
{
    static char changed[8192];
    const char *place = strstr(FORGE_CLAIMS, from);
    if (!place || strlen(to) > sizeof changed / 2) {
        fprintf(stderr, "forge_changed: no %s\n", from);
        exit(1);
    }
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(place - FORGE_CLAIMS), FORGE_CLAIMS, to, place + strlen(from));
    return changed;
}

/** Verifies, and checks on a refusal that the claims were not touched and an error was set. */
static inline enum capability_refusal forge_judge(const struct capability_expectation *expected, const char *token,
                                                  size_t length, int64_t now, struct capability_claims *claims,
                                                  struct error *err)
{
    static struct capability_claims before, local;
    struct capability_claims *to = claims ? claims : &local;
    memset(to, 0x5a, sizeof *to);
    memset(&before, 0x5a, sizeof before);
    struct error ours = {0};
    enum capability_refusal refusal = capability_verify(to, expected, token, length, now, &ours);
    if (refusal != CAPABILITY_OK) {
        CHECK(memcmp(to, &before, sizeof before) == 0);
        CHECK(ours.kind == (refusal == CAPABILITY_EXPIRED ? ERROR_TOKEN_EXPIRED : ERROR_UNAUTHENTICATED));
        if (refusal <= CAPABILITY_WRONG_MAC)
            CHECK_TEXT(ours.message, "the token is not valid for this sandbox");
    }
    if (err)
        *err = ours;
    return refusal;
}

/** Says what came instead. */
#define CHECK_REFUSAL(got, want) CHECK_TEXT(capability_refusal_name(got), capability_refusal_name(want))

/** The forged token is refused for exactly this. */
#define CHECK_JUDGED(forged, want)                                                                                     \
    do {                                                                                                               \
        struct capability_expectation judged_by_ = forge_expectation();                                                \
        CHECK_REFUSAL(forge_judge(&judged_by_, (forged)->text, (forged)->length, FORGE_NOW, NULL, NULL), (want));      \
    } while (0)
