#include "shared/node_protocol/enrol.h"

#include "shared/base/random.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
    ID_BYTES = 16,
    DEPLOYMENT_BYTES = 64,
    TOKEN_RAW_BYTES = ID_BYTES + KEY_BYTES + ENROL_HASH_BYTES,
    PLAIN_BYTES = ENROL_BOX_BYTES - crypto_box_MACBYTES
};
_Static_assert(crypto_box_PUBLICKEYBYTES == 32 && crypto_box_SECRETKEYBYTES == KEY_BYTES &&
                   crypto_box_SEEDBYTES == KEY_BYTES && crypto_box_NONCEBYTES == 24,
               "enrol.h has them as numbers");
_Static_assert(crypto_auth_hmacsha256_BYTES == 32 && crypto_auth_hmacsha256_KEYBYTES == KEY_BYTES, "the proof's size");

static const char TOKEN_PREFIX[] = "pj_";
enum { TOKEN_PREFIX_LENGTH = sizeof TOKEN_PREFIX - 1 };
_Static_assert(TOKEN_PREFIX_LENGTH + TEXT_BASE64URL_LENGTH(TOKEN_RAW_BYTES) < ENROL_TOKEN_BYTES, "a token fits");

/* --- the join token --- */

void join_token_format(const struct join_token *token, char to[static ENROL_TOKEN_BYTES])
{
    uint8_t raw[TOKEN_RAW_BYTES];
    memcpy(raw, token->id, ID_BYTES);
    memcpy(raw + ID_BYTES, token->secret.bytes, KEY_BYTES);
    memcpy(raw + ID_BYTES + KEY_BYTES, token->negotiator_hash, ENROL_HASH_BYTES);
    memcpy(to, TOKEN_PREFIX, TOKEN_PREFIX_LENGTH);
    text_base64url_encode(to + TOKEN_PREFIX_LENGTH, raw, sizeof raw);
    sodium_memzero(raw, sizeof raw);
}

bool join_token_parse(struct join_token *token, const char *text, struct error *err)
{
    uint8_t raw[TOKEN_RAW_BYTES];
    size_t size = 0;
    bool whole = text_starts_with(text, TOKEN_PREFIX) &&
                 text_base64url_decode(raw, sizeof raw, &size, text + TOKEN_PREFIX_LENGTH,
                                       strnlen(text + TOKEN_PREFIX_LENGTH, ENROL_TOKEN_BYTES)) &&
                 size == sizeof raw;
    if (whole) {
        memcpy(token->id, raw, ID_BYTES);
        memcpy(token->secret.bytes, raw + ID_BYTES, KEY_BYTES);
        memcpy(token->negotiator_hash, raw + ID_BYTES + KEY_BYTES, ENROL_HASH_BYTES);
    }
    sodium_memzero(raw, sizeof raw);
    return whole || error_set(err, ERROR_INVALID, "a join token is \"pj_\" and %d characters of base64url",
                              (int)TEXT_BASE64URL_LENGTH(TOKEN_RAW_BYTES));
}

void join_token_done(struct join_token *token)
{
    key_done(&token->secret);
}

/* --- pairs --- */

void enrol_negotiator_pair(struct enrol_pair *pair, const struct key *master)
{
    AUTO_KEY seed;
    key_derive(&seed, master, "parley/enrol/1");
    crypto_box_seed_keypair(pair->public_key, pair->secret_key.bytes, seed.bytes);
}

void enrol_node_pair(struct enrol_pair *pair)
{
    crypto_box_keypair(pair->public_key, pair->secret_key.bytes);
}

static void hash_public_key(uint8_t hash[static ENROL_HASH_BYTES], const uint8_t public_key[static 32])
{
    crypto_generichash(hash, ENROL_HASH_BYTES, public_key, crypto_box_PUBLICKEYBYTES, NULL, 0);
}

void enrol_negotiator_hash(const struct enrol_pair *pair, uint8_t hash[static ENROL_HASH_BYTES])
{
    hash_public_key(hash, pair->public_key);
}

/* --- hashing fields --- */

static void put_u32(uint8_t to[static 4], uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void hash_field(crypto_generichash_state *state, const void *data, size_t size)
{
    uint8_t length[4];
    put_u32(length, (uint32_t)size);
    crypto_generichash_update(state, length, sizeof length);
    crypto_generichash_update(state, data, size);
}

static void make_transcript(struct enrol_request *request)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, ENROL_HASH_BYTES);
    hash_field(&state, request->id, sizeof request->id);
    hash_field(&state, request->node, strlen(request->node));
    hash_field(&state, request->public_key, sizeof request->public_key);
    hash_field(&state, request->nonce, sizeof request->nonce);
    crypto_generichash_final(&state, request->transcript, ENROL_HASH_BYTES);
}

void enrol_rekey_bound(uint8_t bound[static ENROL_HASH_BYTES], const char *node, uint32_t old_epoch, uint32_t new_epoch)
{
    static const char LABEL[] = "parley/rekey/1";
    char before[16], after[16];
    crypto_generichash_state state;
    int before_length = snprintf(before, sizeof before, "%" PRIu32, old_epoch);
    int after_length = snprintf(after, sizeof after, "%" PRIu32, new_epoch);
    crypto_generichash_init(&state, NULL, 0, ENROL_HASH_BYTES);
    hash_field(&state, LABEL, sizeof LABEL - 1);
    hash_field(&state, node, strlen(node));
    hash_field(&state, before, (size_t)before_length);
    hash_field(&state, after, (size_t)after_length);
    crypto_generichash_final(&state, bound, ENROL_HASH_BYTES);
}

/* --- bytes in JSON --- */

static json_t *bytes_json(const void *bytes, size_t size)
{
    char text[TEXT_BASE64URL_LENGTH(ENROL_BOX_BYTES) + 1];
    text_base64url_encode(text, bytes, size);
    return json_string(text);
}

static bool read_bytes(void *to, size_t size, const json_t *json, const char *field, struct error *err)
{
    uint8_t bytes[ENROL_BOX_BYTES];
    const char *text = json_string_value(json_object_get(json, field));
    size_t decoded = 0;
    if (text == NULL || strlen(text) != TEXT_BASE64URL_LENGTH(size) ||
        !text_base64url_decode(bytes, sizeof bytes, &decoded, text, strlen(text)) || decoded != size)
        return error_set(err, ERROR_INVALID, "%s must be %zu bytes as base64url", field, size);
    memcpy(to, bytes, size);
    return true;
}

static bool is_node_name(const char *name)
{
    return name && text_is_made_of(name, LINK_NODE_BYTES - 1, "._-");
}

/* --- the request --- */

json_t *enrol_ask(const struct join_token *token, const char *node, const struct enrol_pair *node_pair,
                  struct enrol_request *request, struct error *err)
{
    struct enrol_request asked = {.node = ""};
    if (!is_node_name(node) || !text_copy(asked.node, sizeof asked.node, node)) {
        error_set(err, ERROR_INVALID, "a node's name is 1 to %d of A-Za-z0-9._-", LINK_NODE_BYTES - 1);
        return NULL;
    }
    memcpy(asked.id, token->id, sizeof asked.id);
    memcpy(asked.public_key, node_pair->public_key, sizeof asked.public_key);
    random_bytes(asked.nonce, sizeof asked.nonce);
    make_transcript(&asked);
    crypto_auth_hmacsha256(asked.proof, asked.transcript, sizeof asked.transcript, token->secret.bytes);
    json_t *json =
        json_pack("{s:o, s:s, s:o, s:o, s:o}", "id", bytes_json(asked.id, sizeof asked.id), "name", asked.node,
                  "public_key", bytes_json(asked.public_key, sizeof asked.public_key), "nonce",
                  bytes_json(asked.nonce, sizeof asked.nonce), "proof", bytes_json(asked.proof, sizeof asked.proof));
    if (json == NULL)
        error_set(err, ERROR_INTERNAL, "the request cannot be written");
    else
        *request = asked;
    return json;
}

bool enrol_read(struct enrol_request *request, const json_t *json, struct error *err)
{
    struct enrol_request read = {.node = ""};
    const char *name = json_string_value(json_object_get(json, "name"));
    if (!is_node_name(name) || !text_copy(read.node, sizeof read.node, name))
        return error_set(err, ERROR_INVALID, "name must be 1 to %d of A-Za-z0-9._-", LINK_NODE_BYTES - 1);
    if (!read_bytes(read.id, sizeof read.id, json, "id", err) ||
        !read_bytes(read.public_key, sizeof read.public_key, json, "public_key", err) ||
        !read_bytes(read.nonce, sizeof read.nonce, json, "nonce", err) ||
        !read_bytes(read.proof, sizeof read.proof, json, "proof", err))
        return false;
    if (json_object_size(json) != 5)
        return error_set(err, ERROR_INVALID, "only id, name, public_key, nonce and proof are allowed");
    make_transcript(&read);
    *request = read;
    return true;
}

bool enrol_is_proved(const struct enrol_request *request, const struct key *secret)
{
    return crypto_auth_hmacsha256_verify(request->proof, request->transcript, sizeof request->transcript,
                                         secret->bytes) == 0;
}

/* --- the grant --- */

void enrol_grant_done(struct enrol_grant *grant)
{
    key_done(&grant->node_key);
}

/* node | deployment | node key | epoch | bound, texts padded with NULs. */
static void put_plain(uint8_t plain[static PLAIN_BYTES], const struct enrol_grant *grant,
                      const uint8_t bound[static ENROL_HASH_BYTES])
{
    uint8_t *at = plain;
    memset(plain, 0, PLAIN_BYTES);
    memcpy(at, grant->node, strnlen(grant->node, LINK_NODE_BYTES - 1));
    at += LINK_NODE_BYTES;
    memcpy(at, grant->deployment, strnlen(grant->deployment, DEPLOYMENT_BYTES - 1));
    at += DEPLOYMENT_BYTES;
    memcpy(at, grant->node_key.bytes, KEY_BYTES);
    at += KEY_BYTES;
    put_u32(at, grant->epoch);
    memcpy(at + 4, bound, ENROL_HASH_BYTES);
}

/* Made by the negotiator, and still: what becomes a file's name or a token's issuer is looked at. */
static bool get_plain(struct enrol_grant *grant, const uint8_t plain[static PLAIN_BYTES])
{
    const uint8_t *at = plain;
    memcpy(grant->node, at, LINK_NODE_BYTES);
    at += LINK_NODE_BYTES;
    memcpy(grant->deployment, at, DEPLOYMENT_BYTES);
    at += DEPLOYMENT_BYTES;
    memcpy(grant->node_key.bytes, at, KEY_BYTES);
    at += KEY_BYTES;
    grant->epoch = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    return memchr(grant->node, '\0', LINK_NODE_BYTES) && is_node_name(grant->node) &&
           memchr(grant->deployment, '\0', DEPLOYMENT_BYTES) &&
           text_is_made_of(grant->deployment, DEPLOYMENT_BYTES - 1, "._-") && grant->epoch > 0;
}

json_t *enrol_seal(const struct enrol_pair *negotiator, const uint8_t node_public_key[static 32],
                   const uint8_t bound[static ENROL_HASH_BYTES], const struct enrol_grant *grant, struct error *err)
{
    uint8_t plain[PLAIN_BYTES], box[ENROL_BOX_BYTES], nonce[crypto_box_NONCEBYTES];
    random_bytes(nonce, sizeof nonce);
    put_plain(plain, grant, bound);
    int failed = crypto_box_easy(box, plain, sizeof plain, nonce, node_public_key, negotiator->secret_key.bytes);
    sodium_memzero(plain, sizeof plain);
    if (failed) {
        error_set(err, ERROR_INVALID, "public_key is no key that a box can be made for");
        return NULL;
    }
    json_t *json =
        json_pack("{s:o, s:o, s:o}", "public_key", bytes_json(negotiator->public_key, sizeof negotiator->public_key),
                  "nonce", bytes_json(nonce, sizeof nonce), "box", bytes_json(box, sizeof box));
    if (json == NULL)
        error_set(err, ERROR_INTERNAL, "the grant cannot be written");
    return json;
}

bool enrol_box_read(struct enrol_box *box, const json_t *json, struct error *err)
{
    struct enrol_box read;
    if (!read_bytes(read.public_key, sizeof read.public_key, json, "public_key", err) ||
        !read_bytes(read.nonce, sizeof read.nonce, json, "nonce", err) ||
        !read_bytes(read.box, sizeof read.box, json, "box", err))
        return false;
    *box = read;
    return true;
}

static bool open_plain(struct enrol_grant *grant, const uint8_t plain[static PLAIN_BYTES],
                       const uint8_t bound[static ENROL_HASH_BYTES], struct error *err)
{
    AUTO_ENROL_GRANT opened = {.epoch = 0};
    if (sodium_memcmp(plain + PLAIN_BYTES - ENROL_HASH_BYTES, bound, ENROL_HASH_BYTES) != 0)
        return error_set(err, ERROR_UNAUTHENTICATED, "the answer belongs to another request");
    if (!get_plain(&opened, plain))
        return error_set(err, ERROR_UNAUTHENTICATED, "the answer opens, but is no grant");
    *grant = opened;
    return true;
}

bool enrol_box_open(struct enrol_grant *grant, const struct enrol_box *box,
                    const uint8_t negotiator_hash[static ENROL_HASH_BYTES], const struct enrol_pair *node_pair,
                    const uint8_t bound[static ENROL_HASH_BYTES], struct error *err)
{
    uint8_t hash[ENROL_HASH_BYTES], plain[PLAIN_BYTES];
    hash_public_key(hash, box->public_key);
    if (sodium_memcmp(hash, negotiator_hash, sizeof hash) != 0)
        return error_set(err, ERROR_UNAUTHENTICATED,
                         "the answer's key is not the negotiator's that the join token names: somebody stands between");
    if (crypto_box_open_easy(plain, box->box, sizeof box->box, box->nonce, box->public_key,
                             node_pair->secret_key.bytes) != 0)
        return error_set(err, ERROR_UNAUTHENTICATED, "the answer does not open: it was changed, or is for another key");
    bool opened = open_plain(grant, plain, bound, err);
    sodium_memzero(plain, sizeof plain);
    return opened;
}

bool enrol_open(struct enrol_grant *grant, const json_t *json, const uint8_t negotiator_hash[static ENROL_HASH_BYTES],
                const struct enrol_pair *node_pair, const uint8_t bound[static ENROL_HASH_BYTES], struct error *err)
{
    struct enrol_box box;
    return enrol_box_read(&box, json, err) && enrol_box_open(grant, &box, negotiator_hash, node_pair, bound, err);
}
