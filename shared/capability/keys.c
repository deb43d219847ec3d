#include "shared/capability/keys.h"

#include "shared/base/random.h"
#include "shared/capability/capability_mac.h"

#include <jansson.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(KEY_BYTES >= crypto_generichash_KEYBYTES_MIN && KEY_BYTES <= crypto_generichash_KEYBYTES_MAX,
               "a key keys BLAKE2b");

static pthread_once_t started = PTHREAD_ONCE_INIT;

/* All that reads files or devices happens here, so that a program may confine itself right after. */
static void start(void)
{
    if (sodium_init() < 0)
        abort();
    json_object_seed(0);
    capability_mac_start();
}

void keys_start(void)
{
    if (pthread_once(&started, start) != 0)
        abort();
}

void key_random(struct key *key)
{
    random_bytes(key->bytes, sizeof key->bytes);
}

void key_done(struct key *key)
{
    sodium_memzero(key->bytes, sizeof key->bytes);
}

static void absorb(crypto_generichash_state *state, const char *text)
{
    uint32_t size = (uint32_t)strlen(text);
    uint8_t length[4] = {(uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    crypto_generichash_update(state, length, sizeof length);
    crypto_generichash_update(state, (const uint8_t *)text, size);
}

void key_derive_parts(struct key *to, const struct key *from, const char *label, const char *const *parts)
{
    crypto_generichash_state state;
    if (crypto_generichash_init(&state, from->bytes, sizeof from->bytes, sizeof to->bytes) != 0)
        abort(); /* only for sizes out of range, which are constants here */
    absorb(&state, label);
    for (size_t i = 0; parts[i]; i++)
        absorb(&state, parts[i]);
    crypto_generichash_final(&state, to->bytes, sizeof to->bytes);
    sodium_memzero(&state, sizeof state);
}

#define EPOCH_TEXT_BYTES 11

static void format_epoch(char to[static EPOCH_TEXT_BYTES], uint32_t epoch)
{
    (void)snprintf(to, EPOCH_TEXT_BYTES, "%u", epoch);
}

void key_node(struct key *to, const struct key *master, const char *node, uint32_t epoch)
{
    char text[EPOCH_TEXT_BYTES];
    format_epoch(text, epoch);
    key_derive(to, master, "parley/node/1", node, text);
}

void key_sandbox_root(struct key *to, const struct key *node_key, const char *sandbox_id)
{
    key_derive(to, node_key, "parley/sandbox/1", sandbox_id);
}

void key_token(struct key *to, const struct key *sandbox_root, uint32_t epoch)
{
    char text[EPOCH_TEXT_BYTES];
    format_epoch(text, epoch);
    key_derive(to, sandbox_root, "parley/token/1", text);
}

void key_guest_root(struct key *to, const struct key *sandbox_root)
{
    key_derive(to, sandbox_root, "parley/guest/1");
}

void key_link(struct key *to, const struct key *node_key, const char *sender)
{
    key_derive(to, node_key, "parley/link/1", sender);
}
