#include "shared/capability/capability.h"

#include "shared/capability/capability_mac.h"
#include "shared/capability/chain.h"
#include "shared/capability/claims.h"
#include "shared/capability/jws.h"

#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const NAMES[] = {
    [CAPABILITY_OK] = "ok",
    [CAPABILITY_TOO_LONG] = "too_long",
    [CAPABILITY_MALFORMED] = "malformed",
    [CAPABILITY_WRONG_HEADER] = "wrong_header",
    [CAPABILITY_WRONG_SANDBOX] = "wrong_sandbox",
    [CAPABILITY_WRONG_MAC] = "wrong_mac",
    [CAPABILITY_WRONG_CLAIMS] = "wrong_claims",
    [CAPABILITY_WRONG_LINK] = "wrong_link",
    [CAPABILITY_WRONG_ISSUER] = "wrong_issuer",
    [CAPABILITY_WRONG_AUDIENCE] = "wrong_audience",
    [CAPABILITY_WRONG_EPOCH] = "wrong_epoch",
    [CAPABILITY_EXPIRED] = "expired",
    [CAPABILITY_FROM_THE_FUTURE] = "from_the_future",
    [CAPABILITY_REVOKED] = "revoked",
    [CAPABILITY_SCOPE_MISSING] = "scope_missing",
};
_Static_assert(sizeof NAMES / sizeof *NAMES == CAPABILITY_REFUSALS, "each refusal has a name");

const char *capability_refusal_name(enum capability_refusal refusal)
{
    return (unsigned)refusal < CAPABILITY_REFUSALS ? NAMES[refusal] : "unknown";
}

/* Until the MAC holds, every refusal reads the same: whoever probes learns neither which sandboxes exist nor how far
 * a forgery came. */
static enum capability_refusal refuse_unknown(enum capability_refusal refusal, struct error *err)
{
    error_set(err, ERROR_UNAUTHENTICATED, "the token is not valid for this sandbox");
    return refusal;
}

static enum capability_refusal refuse(enum capability_refusal refusal, struct error *err, const char *sentence)
{
    error_set(err, ERROR_UNAUTHENTICATED, "%s", sentence);
    return refusal;
}

/* The MACs of the root (macs[0]) and after each link. The inner ones are those of broader tokens: secrets. */
struct macs {
    uint8_t bytes[1 + CAPABILITY_LINKS_MAX][CAPABILITY_MAC_BYTES];
};

static void macs_done(struct macs *macs)
{
    sodium_memzero(macs, sizeof *macs);
}

static bool compute_macs(struct macs *macs, const struct jws *jws, const struct key *root, uint32_t epoch)
{
    AUTO_KEY key;
    key_token(&key, root, epoch);
    const struct jws_part *header = &jws->parts[0], *payload = &jws->parts[1];
    size_t signed_length = (size_t)(payload->text + payload->length - header->text);
    if (!capability_mac(macs->bytes[0], key.bytes, header->text, signed_length))
        return false;
    for (size_t i = 0; i < jws->count - JWS_PARTS_MIN; i++) {
        const struct jws_part *link = &jws->parts[2 + i]; /* the text signed begins at the dot before it */
        if (!capability_mac(macs->bytes[i + 1], macs->bytes[i], link->text - 1, link->length + 1))
            return false;
    }
    return true;
}

static bool is_last_mac(const struct macs *macs, const struct jws *jws)
{
    const struct jws_part *given = &jws->parts[jws->count - 1];
    const uint8_t *made = macs->bytes[jws->count - JWS_PARTS_MIN];
    return given->size == CAPABILITY_MAC_BYTES && sodium_memcmp(made, given->bytes, CAPABILITY_MAC_BYTES) == 0;
}

/* Follows the links down: claims end as what the last of them left. */
static enum capability_refusal judge_links(struct capability_claims *claims, const struct jws *jws,
                                           const struct macs *macs, struct error *err)
{
    claims->link_count = jws->count - JWS_PARTS_MIN;
    for (size_t i = 0; i < claims->link_count; i++) {
        const struct jws_part *link = &jws->parts[2 + i];
        if (!chain_narrow(claims, link->bytes, link->size, err))
            return refuse(CAPABILITY_WRONG_LINK, err, "an attenuation of the token is malformed or widens it");
        chain_link_id(claims->link_ids[i], macs->bytes[i + 1]);
    }
    return CAPABILITY_OK;
}

/* All that the MAC has vouched for; the order is protocol.md's. */
static enum capability_refusal judge_claims(struct capability_claims *claims,
                                            const struct capability_expectation *expected, const struct jws *jws,
                                            const struct macs *macs, struct error *err)
{
    if (!claims_read(claims, jws->parts[1].bytes, jws->parts[1].size, err))
        return refuse(CAPABILITY_WRONG_CLAIMS, err, "the token's claims are not those of this version");
    enum capability_refusal refusal = judge_links(claims, jws, macs, err);
    if (refusal != CAPABILITY_OK)
        return refusal;
    if (strcmp(claims->issuer, expected->issuer) != 0)
        return refuse(CAPABILITY_WRONG_ISSUER, err, "the token is of another deployment");
    if (strcmp(claims->sandbox_id, expected->sandbox_id) != 0)
        return refuse(CAPABILITY_WRONG_AUDIENCE, err, "the token is for another sandbox");
    if (claims->epoch < expected->epoch)
        return refuse(CAPABILITY_WRONG_EPOCH, err, "the token's key is no longer in force; negotiate again");
    return CAPABILITY_OK;
}

enum capability_refusal capability_verify(struct capability_claims *claims,
                                          const struct capability_expectation *expected, const char *token,
                                          size_t length, int64_t now, struct error *err)
{
    struct jws jws;
    struct capability_claims read;
    char sandbox_id[CAPABILITY_ID_BYTES];
    enum capability_refusal refusal = jws_split(&jws, token, length);
    if (refusal != CAPABILITY_OK)
        return refuse_unknown(refusal, err);
    if (!jws_read_header(jws.parts[0].bytes, jws.parts[0].size, sandbox_id, &read.epoch))
        return refuse_unknown(CAPABILITY_WRONG_HEADER, err);
    if (strcmp(sandbox_id, expected->sandbox_id) != 0)
        return refuse_unknown(CAPABILITY_WRONG_SANDBOX, err);
    __attribute__((cleanup(macs_done))) struct macs macs = {.bytes = {{0}}};
    bool is_genuine = compute_macs(&macs, &jws, expected->root, read.epoch) && is_last_mac(&macs, &jws);
    if (!is_genuine || expected->unknown)
        return refuse_unknown(CAPABILITY_WRONG_MAC, err);
    refusal = judge_claims(&read, expected, &jws, &macs, err);
    if (refusal == CAPABILITY_OK)
        refusal = capability_check_time(&read, now, err);
    if (refusal == CAPABILITY_OK)
        capability_claims_copy(claims, &read);
    return refusal;
}

enum capability_refusal capability_check_time(const struct capability_claims *claims, int64_t now, struct error *err)
{
    if (now >= claims->expires_at + CAPABILITY_LEEWAY_S) {
        error_set(err, ERROR_TOKEN_EXPIRED, "the token has expired; refresh it or negotiate again");
        return CAPABILITY_EXPIRED;
    }
    if (now < claims->issued_at - CAPABILITY_LEEWAY_S)
        return refuse(CAPABILITY_FROM_THE_FUTURE, err, "the token is from the future: compare the machines' clocks");
    return CAPABILITY_OK;
}

void capability_links_format(const struct capability_claims *claims, char to[static CAPABILITY_LINKS_TEXT_BYTES])
{
    size_t length = 0;
    to[0] = '\0';
    for (size_t i = 0; i < claims->link_count && i < CAPABILITY_LINKS_MAX; i++)
        length += (size_t)snprintf(to + length, CAPABILITY_LINKS_TEXT_BYTES - length, "%s%s", i ? " " : "",
                                   claims->link_ids[i]);
}

void capability_claims_copy(struct capability_claims *to, const struct capability_claims *from)
{
    const size_t before = offsetof(struct capability_claims, scopes);
    const size_t after = offsetof(struct capability_claims, thread_id);
    memcpy(to, from, before);
    scope_copy(&to->scopes, &from->scopes);
    scope_copy(&to->root_scopes, &from->root_scopes);
    memcpy((char *)to + after, (const char *)from + after, sizeof *to - after);
}

bool capability_addressed(const char *token, size_t length, char sandbox_id[static CAPABILITY_ID_BYTES])
{
    struct jws jws;
    uint32_t epoch = 0;
    return jws_split(&jws, token, length) == CAPABILITY_OK &&
           jws_read_header(jws.parts[0].bytes, jws.parts[0].size, sandbox_id, &epoch);
}
