/** verify_token.c - one token verified at first sight and again, against one HMAC-SHA256 over the same bytes with a
 *  context that is reused, in one run. Goals (architecture.md, 7): first sight < 5 us; again <= 2 x the HMAC. What
 * bounds first sight: base64url, the key's derivation (keyed BLAKE2b) and the MAC; what bounds the second: SipHash over
 * the bytes and the copy of the claims. A sample is 8 operations in a row, divided by 8, so that reading the clock does
 * not count; the three are measured in turn, so that noise hits all alike. */
#include "shared/base/clock.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <inttypes.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <string.h>

#define TOKENS  512 /* fewer than the cache forgets between two rounds */
#define BATCH   8
#define ROUNDS  64
#define SAMPLES (TOKENS / BATCH * ROUNDS)
#define NOW     INT64_C(1795305600)

enum measured { HMAC, FIRST_SIGHT, AGAIN, MEASURED };
static const char *const NAMES[] = {"hmac-sha256", "first sight", "again"};

static char tokens[TOKENS][CAPABILITY_TEXT_BYTES];
static size_t lengths[TOKENS];
static uint64_t samples[MEASURED][SAMPLES]; /* ns for BATCH operations */

static bool mint_all(struct capability_expectation *expected, struct key *root)
{
    struct capability_claims claims = {.issuer = "dep_4k2m7q9x1z8c3v5b6n0p",
                                       .sandbox_id = "sbx_a1b2c3d4e5f6g7h8i9j0",
                                       .epoch = 1,
                                       .principal = "local-admin",
                                       .family = "tok_f1a2m3i4l5y6k7e8y9o0",
                                       .issued_at = NOW,
                                       .expires_at = NOW + 900,
                                       .thread_id = "thread-1",
                                       .lease = "lse_z9y8x7w6v5u4t3s2r1q0",
                                       .actor = "agent:builder"};
    struct error err;
    struct key key;
    static const char SCOPES[] = "fs:rw shell process";
    if (!scope_parse(&claims.scopes, SCOPES, strlen(SCOPES), SCOPE_UNKNOWN_REFUSED, &err))
        return false;
    key_random(root);
    key_token(&key, root, 1);
    *expected = (struct capability_expectation){
        .issuer = "dep_4k2m7q9x1z8c3v5b6n0p", .sandbox_id = "sbx_a1b2c3d4e5f6g7h8i9j0", .root = root, .epoch = 1};
    for (size_t i = 0; i < TOKENS; i++) {
        if (!text_format(claims.jti, sizeof claims.jti, "tok_%020zu", i) ||
            !capability_mint(tokens[i], &claims, &key, &err))
            return false;
        lengths[i] = strlen(tokens[i]);
    }
    return true;
}

static EVP_MAC_CTX *new_context(void)
{
    static const unsigned char KEY[32] = {1};
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_END};
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(algorithm);
    EVP_MAC_free(algorithm);
    if (!context || EVP_MAC_init(context, KEY, sizeof KEY, params) != 1)
        return NULL;
    return context;
}

static bool hmac(EVP_MAC_CTX *context, size_t token)
{
    unsigned char mac[32];
    size_t size = 0;
    return EVP_MAC_init(context, NULL, 0, NULL) == 1 &&
           EVP_MAC_update(context, (const unsigned char *)tokens[token], lengths[token]) == 1 &&
           EVP_MAC_final(context, mac, &size, sizeof mac) == 1;
}

static bool verify(struct capability_cache *cache, const struct capability_expectation *expected, size_t token)
{
    static struct capability_claims claims;
    return capability_cache_verify(cache, &claims, expected, tokens[token], lengths[token], NOW, NULL) == CAPABILITY_OK;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static double percentile(enum measured measured, double share)
{
    return (double)samples[measured][(size_t)(share * (SAMPLES - 1))] / BATCH;
}

static void report(enum measured measured)
{
    double p50 = percentile(measured, 0.5), p95 = percentile(measured, 0.95), p99 = percentile(measured, 0.99);
    printf("%-12s p50 %5.0f  p95 %5.0f  p99 %5.0f ns   %.2f x hmac (p50)\n", NAMES[measured], p50, p95, p99,
           p50 / percentile(HMAC, 0.5));
}

int main(void)
{
    struct capability_expectation expected;
    AUTO_KEY root;
    keys_start();
    if (!mint_all(&expected, &root))
        return 1;
    EVP_MAC_CTX *context = new_context();
    AUTO(capability_cache) *cache = capability_cache_new(64);
    bool all_right = context != NULL;
    for (size_t sample = 0; all_right && sample < SAMPLES; sample++) {
        size_t start = sample % (TOKENS / BATCH) * BATCH;
        for (size_t measured = 0; measured < MEASURED; measured++) {
            uint64_t begin = clock_monotonic_ns();
            for (size_t i = start; i < start + BATCH; i++)
                all_right &= measured == HMAC ? hmac(context, i) : verify(cache, &expected, i);
            samples[measured][sample] = clock_monotonic_ns() - begin;
        }
    }
    EVP_MAC_CTX_free(context);
    if (!all_right) {
        fprintf(stderr, "verify_token: a valid token was refused\n");
        return 1;
    }
    printf("a token of %zu bytes, %d samples of %d\n", lengths[0], SAMPLES, BATCH);
    for (size_t measured = 0; measured < MEASURED; measured++) {
        qsort(samples[measured], SAMPLES, sizeof **samples, compare);
        report((enum measured)measured);
    }
    printf("goals: first sight < 5000 ns: %s; again <= 2 x hmac: %s\n",
           percentile(FIRST_SIGHT, 0.5) < 5000 ? "met" : "missed",
           percentile(AGAIN, 0.5) <= 2 * percentile(HMAC, 0.5) ? "met" : "missed");
    return 0;
}
