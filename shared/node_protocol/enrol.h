/** enrol.h - how a node gets its key over a network (protocol.md, 8 "Enrolment"): both ends' cryptography and texts, no
 *  I/O. X25519 boxes (libsodium crypto_box), HMAC-SHA256 (crypto_auth_hmacsha256), BLAKE2b-256 hashes.
 *
 *  A join token holds an id, a secret and the hash of the negotiator's X25519 key. The secret is never sent: the node
 *  proves it by an HMAC over the transcript. The answer is boxed to the node's own key, so who stands in between can
 *  neither read it nor put another key in its place. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/capability/keys.h"
#include "shared/node_protocol/link.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ENROL_HASH_BYTES  32
#define ENROL_TOKEN_BYTES 160 /* the longest text of a join token, with NUL */
#define ENROL_LIFE_MS     600000

/** What a join token says: "pj_" + base64url of id (16) | secret (32) | negotiator_hash (32). */
struct join_token {
    uint8_t id[16];
    struct key secret;
    uint8_t negotiator_hash[ENROL_HASH_BYTES]; /* BLAKE2b-256 of the negotiator's X25519 public key */
};
void join_token_format(const struct join_token *token, char to[static ENROL_TOKEN_BYTES]);
/** ERROR_INVALID. */
bool join_token_parse(struct join_token *token, const char *text, struct error *err) MUST_USE;
void join_token_done(struct join_token *token);
#define AUTO_JOIN_TOKEN __attribute__((cleanup(join_token_done))) struct join_token

/** The negotiator's static pair: seed = KDF(master, "parley/enrol/1"). */
struct enrol_pair {
    uint8_t public_key[32];
    struct key secret_key;
};
void enrol_negotiator_pair(struct enrol_pair *pair, const struct key *master);
/** A node's own, kept by its launcher for re-keying. */
void enrol_node_pair(struct enrol_pair *pair);
void enrol_negotiator_hash(const struct enrol_pair *pair, uint8_t hash[static ENROL_HASH_BYTES]);

/** What a node's request says once it is proved. */
struct enrol_request {
    char node[LINK_NODE_BYTES];
    uint8_t id[16];          /* of the join token */
    uint8_t public_key[32];  /* the node's */
    uint8_t nonce[24];
    uint8_t proof[32];       /* HMAC(secret, transcript) */
    uint8_t transcript[ENROL_HASH_BYTES]; /* hash of all the fields before proof, in order, each u32-BE length + bytes */
};

/** The node's side: {"id","name","public_key","nonce","proof"}, all bytes base64url. The caller owns the JSON. */
json_t *enrol_ask(const struct join_token *token, const char *node, const struct enrol_pair *node_pair,
                  struct enrol_request *request, struct error *err) MUST_USE;
/** The negotiator's side: reads the fields; nothing is proved yet. ERROR_INVALID names the field. */
bool enrol_read(struct enrol_request *request, const json_t *json, struct error *err) MUST_USE;
/** Whether it was made by the holder of that secret. Constant time. */
bool enrol_is_proved(const struct enrol_request *request, const struct key *secret) MUST_USE;

/** What the node is given. */
struct enrol_grant {
    char node[LINK_NODE_BYTES];
    char deployment[64];
    struct key node_key;
    uint32_t epoch;
};
void enrol_grant_done(struct enrol_grant *grant);
#define AUTO_ENROL_GRANT __attribute__((cleanup(enrol_grant_done))) struct enrol_grant

/* A grant at rest in its box: node | deployment | node key | epoch (u32-BE) | bound, and a MAC: one size always. */
#define ENROL_BOX_BYTES (LINK_NODE_BYTES + 64 + KEY_BYTES + 4 + ENROL_HASH_BYTES + 16)

/** {"public_key","nonce","box"} as bytes, nothing opened yet. */
struct enrol_box {
    uint8_t public_key[32]; /* the negotiator's */
    uint8_t nonce[24];
    uint8_t box[ENROL_BOX_BYTES];
};
/** ERROR_INVALID names the field; others beside the three are not looked at. */
bool enrol_box_read(struct enrol_box *box, const json_t *json, struct error *err) MUST_USE;

/** {"public_key","nonce","box"}: the grant and `bound` (the transcript hash; for re-keying a hash of node, old and new
 *  epoch) boxed from the negotiator's pair to `node_public_key`. The caller owns the JSON. */
json_t *enrol_seal(const struct enrol_pair *negotiator, const uint8_t node_public_key[static 32],
                   const uint8_t bound[static ENROL_HASH_BYTES], const struct enrol_grant *grant,
                   struct error *err) MUST_USE;
/** The node's side: the public key hashes to `negotiator_hash`, the box opens, `bound` is the same.
 *  ERROR_UNAUTHENTICATED with a sentence that says which of these failed. *grant is written on success only. */
bool enrol_open(struct enrol_grant *grant, const json_t *json, const uint8_t negotiator_hash[static ENROL_HASH_BYTES],
                const struct enrol_pair *node_pair, const uint8_t bound[static ENROL_HASH_BYTES],
                struct error *err) MUST_USE;
/** As enrol_open, of bytes. */
bool enrol_box_open(struct enrol_grant *grant, const struct enrol_box *box,
                    const uint8_t negotiator_hash[static ENROL_HASH_BYTES], const struct enrol_pair *node_pair,
                    const uint8_t bound[static ENROL_HASH_BYTES], struct error *err) MUST_USE;

/** What a re-keying is bound to: BLAKE2b-256 over "parley/rekey/1", node, old and new epoch (decimal), each u32-BE
 *  length + bytes. */
void enrol_rekey_bound(uint8_t bound[static ENROL_HASH_BYTES], const char *node, uint32_t old_epoch,
                       uint32_t new_epoch);
