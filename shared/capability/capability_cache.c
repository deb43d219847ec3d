#include "shared/capability/capability.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <sodium.h>
#include <string.h>

#define WAYS      4 /* places a token may stand in */
#define SLOTS_MAX 65536

/* One token that verified, and all that its verification depended on but the time. A length of 0 is an empty place. */
struct entry {
    uint64_t hash;
    size_t length, capacity; /* of token */
    char *token;
    uint64_t used;   /* the cache's count of look-ups when it was last found */
    struct key root; /* names the sandbox: every sandbox has its own */
    uint32_t epoch;  /* of the expectation */
    struct capability_claims claims;
};

/* The hash (SipHash, keyed at random so that nobody can choose the place) only finds a place: the bytes decide. */
struct capability_cache {
    size_t sets;
    uint64_t lookups;
    uint8_t hash_key[crypto_shorthash_KEYBYTES];
    struct entry *entries; /* sets * WAYS */
};

struct capability_cache *capability_cache_new(size_t slots)
{
    struct capability_cache *cache = memory_new(sizeof *cache);
    cache->sets = 1;
    while (cache->sets * WAYS < slots && cache->sets * WAYS < SLOTS_MAX)
        cache->sets *= 2;
    cache->entries = memory_array(cache->sets * WAYS, sizeof *cache->entries);
    random_bytes(cache->hash_key, sizeof cache->hash_key);
    return cache;
}

static void wipe(struct entry *entry)
{
    if (entry->token)
        sodium_memzero(entry->token, entry->capacity);
    free(entry->token);
    key_done(&entry->root);
}

void capability_cache_free(struct capability_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->sets * WAYS; i++)
        wipe(&cache->entries[i]);
    free(cache->entries);
    free(cache);
}

static uint64_t hash_token(const struct capability_cache *cache, const char *token, size_t length)
{
    uint8_t bytes[crypto_shorthash_BYTES];
    uint64_t hash;
    _Static_assert(sizeof hash == sizeof bytes, "SipHash gives 64 bits");
    crypto_shorthash(bytes, (const uint8_t *)token, length, cache->hash_key);
    memcpy(&hash, bytes, sizeof hash);
    return hash;
}

static bool is_bound(const struct entry *entry, const struct capability_expectation *expected)
{
    return entry->epoch == expected->epoch && strcmp(entry->claims.sandbox_id, expected->sandbox_id) == 0 &&
           strcmp(entry->claims.issuer, expected->issuer) == 0 &&
           sodium_memcmp(entry->root.bytes, expected->root->bytes, KEY_BYTES) == 0;
}

/* memcmp need not be constant in time: only bytes whose keyed hash is equal come so far. */
static struct entry *find(struct entry *set, uint64_t hash, const struct capability_expectation *expected,
                          const char *token, size_t length)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct entry *entry = &set[i];
        if (entry->hash == hash && entry->length == length && length > 0 && memcmp(entry->token, token, length) == 0 &&
            is_bound(entry, expected))
            return entry;
    }
    return NULL;
}

/* An empty place has never been used: it is the oldest. */
static struct entry *oldest(struct entry *set)
{
    struct entry *found = set;
    for (size_t i = 1; i < WAYS; i++) {
        if (set[i].used < found->used)
            found = &set[i];
    }
    return found;
}

static void store(struct entry *entry, uint64_t hash, const struct capability_expectation *expected, const char *token,
                  size_t length, const struct capability_claims *claims)
{
    if (entry->capacity < length) {
        wipe(entry);
        entry->token = memory_new(length);
        entry->capacity = length;
    }
    memcpy(entry->token, token, length);
    entry->hash = hash;
    entry->root = *expected->root;
    entry->epoch = expected->epoch;
    capability_claims_copy(&entry->claims, claims);
    entry->length = length;
}

enum capability_refusal capability_cache_verify(struct capability_cache *cache, struct capability_claims *claims,
                                                const struct capability_expectation *expected, const char *token,
                                                size_t length, int64_t now, struct error *err)
{
    if (!cache || expected->unknown || length >= CAPABILITY_TEXT_BYTES)
        return capability_verify(claims, expected, token, length, now, err);
    uint64_t hash = hash_token(cache, token, length);
    struct entry *set = &cache->entries[(hash & (cache->sets - 1)) * WAYS];
    struct entry *entry = find(set, hash, expected, token, length);
    if (!entry) {
        enum capability_refusal refusal = capability_verify(claims, expected, token, length, now, err);
        if (refusal != CAPABILITY_OK)
            return refusal;
        entry = oldest(set);
        store(entry, hash, expected, token, length, claims);
        entry->used = ++cache->lookups;
        return CAPABILITY_OK;
    }
    enum capability_refusal refusal = capability_check_time(&entry->claims, now, err);
    if (refusal != CAPABILITY_OK)
        return refusal;
    entry->used = ++cache->lookups;
    capability_claims_copy(claims, &entry->claims);
    return CAPABILITY_OK;
}
