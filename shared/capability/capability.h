/** capability.h - the token (protocol.md, 3; specs/capability.md): mint, verify, attenuate. One implementation for both
 *  planes and the CLI. Times come in as arguments. Results that decide are MUST_USE and fail closed. */
#pragma once

#include "shared/base/error.h"
#include "shared/capability/keys.h"
#include "shared/capability/scope.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAPABILITY_TEXT_BYTES    4097 /* the longest token, 4096, with NUL */
#define CAPABILITY_LINKS_MAX     8
#define CAPABILITY_LEEWAY_S      5
#define CAPABILITY_ID_BYTES      64 /* any id with NUL */
#define CAPABILITY_THREAD_BYTES  129
#define CAPABILITY_NOTE_BYTES    65
#define CAPABILITY_LINK_ID_BYTES 27 /* "lnk_" + base64url of 16 bytes + NUL */

/** What a token says. All texts are NUL-terminated and were checked for length and characters: ids are 1..63 of
 *  A-Za-z0-9_- (the issuer also . and :), the thread 1..128 of A-Za-z0-9._:- and not "." or "..", principal and actor
 *  printable ASCII without quote and backslash. */
struct capability_claims {
    char issuer[CAPABILITY_ID_BYTES];     /* iss: deployment id */
    char sandbox_id[CAPABILITY_ID_BYTES]; /* aud, and the kid's first half */
    uint32_t epoch;                       /* the kid's second half */
    char principal[129];                  /* sub */
    char jti[CAPABILITY_ID_BYTES];
    char family[CAPABILITY_ID_BYTES]; /* fam */
    int64_t issued_at, expires_at;    /* iat, exp: seconds since 1970 UTC */
    struct scope_set scopes;          /* after all links: what may be done */
    struct scope_set root_scopes;     /* of the minted token: what revocation by scope matches */
    char thread_id[CAPABILITY_THREAD_BYTES];
    char lease[CAPABILITY_ID_BYTES];
    char actor[160]; /* act: "human:<id>" or "agent:<id>" or "human" */
    bool long_lived; /* long */
    size_t link_count;
    char link_ids[CAPABILITY_LINKS_MAX][CAPABILITY_LINK_ID_BYTES];
    char note[CAPABILITY_NOTE_BYTES]; /* of the last link that has one: the holder's word */
};

/** Mints a token of 3 parts from the claims (links, notes ignored). `key` is key_token of the sandbox and epoch.
 *  ERROR_INVALID when a claim does not fit the format. Writes at most CAPABILITY_TEXT_BYTES. */
bool capability_mint(char to[static CAPABILITY_TEXT_BYTES], const struct capability_claims *claims,
                     const struct key *key, struct error *err) MUST_USE;

/* The reasons of a refusal, in the order they are checked; their names go into the audit. */
enum capability_refusal {
    CAPABILITY_OK,
    CAPABILITY_TOO_LONG,
    CAPABILITY_MALFORMED,     /* not 3..11 parts, or a part is not strict base64url */
    CAPABILITY_WRONG_HEADER,  /* not the minted template byte for byte */
    CAPABILITY_WRONG_SANDBOX, /* kid names another sandbox than the one addressed */
    CAPABILITY_WRONG_MAC,
    CAPABILITY_WRONG_CLAIMS, /* JSON, duplicate keys, missing, unknown or mistyped claims */
    CAPABILITY_WRONG_LINK,   /* a link's JSON or claim is wrong, or it widens */
    CAPABILITY_WRONG_ISSUER,
    CAPABILITY_WRONG_AUDIENCE,
    CAPABILITY_WRONG_EPOCH,
    CAPABILITY_EXPIRED,
    CAPABILITY_FROM_THE_FUTURE,
    CAPABILITY_REVOKED,
    CAPABILITY_SCOPE_MISSING,
    CAPABILITY_REFUSALS
};

/** "wrong_mac". */
const char *capability_refusal_name(enum capability_refusal refusal) MUST_USE;

/** What a verifier knows about one sandbox. */
struct capability_expectation {
    const char *issuer;
    const char *sandbox_id; /* the one addressed */
    const struct key *root; /* its sandbox root; for an unknown sandbox a decoy of the right size */
    uint32_t epoch;         /* the lowest epoch in force; a token of a higher one is valid (it raises the node's) */
    bool unknown;           /* the sandbox does not exist: everything is done, and refused as WRONG_MAC */
};

/** Judges `token` at `now` (seconds since 1970 UTC) in the order of protocol.md, 3, up to and with iat; marks and the
 *  route's scope are the caller's. *claims is written only on CAPABILITY_OK. `err`: UNAUTHENTICATED with one and the
 *  same sentence for malformed, MAC, unknown; TOKEN_EXPIRED when only time is against it. Constant time in the MACs. */
enum capability_refusal capability_verify(struct capability_claims *claims,
                                          const struct capability_expectation *expected, const char *token,
                                          size_t length, int64_t now, struct error *err) MUST_USE;

/** The ids of all its links with a blank between, "" when there are none: as audit records tell them. */
#define CAPABILITY_LINKS_TEXT_BYTES (CAPABILITY_LINKS_MAX * CAPABILITY_LINK_ID_BYTES)
void capability_links_format(const struct capability_claims *claims, char to[static CAPABILITY_LINKS_TEXT_BYTES]);

/** Copies what is in use of `from` (scope_copy). */
void capability_claims_copy(struct capability_claims *to, const struct capability_claims *from);

/** The checks that no cache may skip: exp with leeway, iat. */
enum capability_refusal capability_check_time(const struct capability_claims *claims, int64_t now,
                                              struct error *err) MUST_USE;

/** The sandbox id in an unverified token's kid, for addressing /c/<token>/; false when the header is not the template.
 */
bool capability_addressed(const char *token, size_t length, char sandbox_id[static CAPABILITY_ID_BYTES]) MUST_USE;

/** One narrowing step. NULL or 0 leaves a thing as it is. */
struct capability_link {
    const char *scope;
    int64_t expires_at; /* seconds since 1970 UTC */
    const char *note;   /* <= 64 of A-Za-z0-9 ._:/- */
};

/** Appends a link, offline: no key is needed. ERROR_INVALID when it is malformed, would widen what the token's own
 *  (unverified) claims say, has nothing in it, or is the ninth. */
bool capability_attenuate(char to[static CAPABILITY_TEXT_BYTES], const char *token, const struct capability_link *link,
                          struct error *err) MUST_USE;

/** Reads a token without verifying it, for showing to its holder. ERROR_INVALID. Of the link ids only the last can be
 *  known without the key; the others are "". */
bool capability_decode(struct capability_claims *claims, const char *token, size_t length, struct error *err) MUST_USE;

/** A small cache of verified tokens by the hash of their bytes, for one loop. It skips MAC and parsing, never time. */
struct capability_cache;

/** Room for `slots` tokens, rounded up to a power of two in 4..65536; 9 KiB and the token's bytes each. */
struct capability_cache *capability_cache_new(size_t slots) MUST_USE;

/** Wipes and frees; NULL is allowed. */
void capability_cache_free(struct capability_cache *cache);
DEFINE_AUTO(capability_cache)

/** As capability_verify, through the cache. NULL cache: without. Entries are bound to the expectation's sandbox, issuer
 *  and epoch. A refused token is never cached. */
enum capability_refusal capability_cache_verify(struct capability_cache *cache, struct capability_claims *claims,
                                                const struct capability_expectation *expected, const char *token,
                                                size_t length, int64_t now, struct error *err) MUST_USE;
