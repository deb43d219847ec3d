/** keys.h - the key tree (protocol.md, 9): everything derives from one master key, nothing derived is stored. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdint.h>

#define KEY_BYTES 32

/** A secret; key_done wipes it. */
struct key {
    uint8_t bytes[KEY_BYTES];
};

/** Must run once before any other call of this folder (libsodium, sodium_init(3); OpenSSL's HMAC; jansson's seed), and
 *  before a program confines itself; thread-safe, may be repeated. */
void keys_start(void);

void key_random(struct key *key);
void key_done(struct key *key);
#define AUTO_KEY __attribute__((cleanup(key_done))) struct key

/** KDF(key, label, parts...) = keyed BLAKE2b-256 over label and each part, all as u32-BE length + bytes. The label is
 *  the whole one, "parley/audit/1". `parts` end in NULL. `to` may be `from`. */
void key_derive_parts(struct key *to, const struct key *from, const char *label, const char *const *parts);

/** key_derive(&to, &from, "parley/audit/1", part, part, ...): label, then no or more parts. */
#define key_derive(to, from, ...) key_derive_texts((to), (from), (const char *const[]){__VA_ARGS__, NULL})
static inline void key_derive_texts(struct key *to, const struct key *from, const char *const *texts)
{
    key_derive_parts(to, from, texts[0], texts + 1);
}

/* KDF(master, node, name, epoch); KDF(node key, sandbox, id); KDF(root, token, epoch). Epochs as decimal text. */
void key_node(struct key *to, const struct key *master, const char *node, uint32_t epoch);
void key_sandbox_root(struct key *to, const struct key *node_key, const char *sandbox_id);
void key_token(struct key *to, const struct key *sandbox_root, uint32_t epoch);
/* KDF(root, guest): in place of the root for the front inside of a sandbox, whose tokens hold nowhere else. */
void key_guest_root(struct key *to, const struct key *sandbox_root);
/* KDF(node key, link, "negotiator" | "sandboxd"): the direction is who sends. */
void key_link(struct key *to, const struct key *node_key, const char *sender);
