#include "negotiator/passing/kept_grants.h"

#include "shared/base/memory.h"

#include <sodium.h>
#include <string.h>

enum { PLACES = 512 };

struct place {
    uint8_t key[KEPT_GRANTS_KEY_BYTES];
    uint64_t until_ns; /* 0: it is free */
    char node[SANDBOX_NODE_BYTES];
    char owner[PRINCIPAL_BYTES];
    char *token;
};

struct kept_grants {
    uint8_t hash_key[crypto_generichash_KEYBYTES];
    struct place places[PLACES];
};

struct kept_grants *kept_grants_new(void)
{
    struct kept_grants *grants = memory_new(sizeof *grants);
    randombytes_buf(grants->hash_key, sizeof grants->hash_key);
    return grants;
}

static void empty(struct place *place)
{
    if (place->token != NULL)
        sodium_memzero(place->token, strlen(place->token));
    free(place->token);
    *place = (struct place){.until_ns = 0};
}

void kept_grants_free(struct kept_grants *grants)
{
    for (size_t i = 0; grants != NULL && i < PLACES; i++)
        empty(&grants->places[i]);
    free(grants);
}

/* With their ends, so that no two questions are the same bytes. */
static void add(crypto_generichash_state *state, const char *text)
{
    crypto_generichash_update(state, (const unsigned char *)text, strlen(text) + 1);
}

void kept_grants_key(const struct kept_grants *grants, const char *credential, const char *sandbox_id,
                     const char *purpose, uint8_t key[static KEPT_GRANTS_KEY_BYTES])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, grants->hash_key, sizeof grants->hash_key, KEPT_GRANTS_KEY_BYTES);
    add(&state, credential);
    add(&state, sandbox_id);
    add(&state, purpose);
    crypto_generichash_final(&state, key, KEPT_GRANTS_KEY_BYTES);
    sodium_memzero(&state, sizeof state);
}

static size_t place_of(const uint8_t key[static KEPT_GRANTS_KEY_BYTES])
{
    return ((size_t)key[0] << 8 | key[1]) % PLACES;
}

static bool holds(const struct place *place, const uint8_t key[static KEPT_GRANTS_KEY_BYTES])
{
    return place->until_ns > 0 && sodium_memcmp(place->key, key, KEPT_GRANTS_KEY_BYTES) == 0;
}

bool kept_grants_find(const struct kept_grants *grants, const uint8_t key[static KEPT_GRANTS_KEY_BYTES],
                      uint64_t now_ns, struct kept_grant *grant)
{
    const struct place *place = &grants->places[place_of(key)];
    if (!holds(place, key) || now_ns >= place->until_ns)
        return false;
    memcpy(grant->node, place->node, sizeof grant->node);
    memcpy(grant->owner, place->owner, sizeof grant->owner);
    memcpy(grant->token, place->token, strlen(place->token) + 1);
    return true;
}

void kept_grants_keep(struct kept_grants *grants, const uint8_t key[static KEPT_GRANTS_KEY_BYTES],
                      const struct kept_grant *grant, uint64_t until_ns)
{
    struct place *place = &grants->places[place_of(key)];
    empty(place);
    memcpy(place->key, key, sizeof place->key);
    memcpy(place->node, grant->node, sizeof place->node);
    memcpy(place->owner, grant->owner, sizeof place->owner);
    place->token = memory_string(grant->token);
    place->until_ns = until_ns;
}

void kept_grants_drop(struct kept_grants *grants, const uint8_t key[static KEPT_GRANTS_KEY_BYTES])
{
    struct place *place = &grants->places[place_of(key)];
    if (holds(place, key))
        empty(place);
}
