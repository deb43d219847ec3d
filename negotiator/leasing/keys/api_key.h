/** api_key.h - an API key as the ledger keeps it. Its text is in no row, only a hash of it keyed with the master key.
 *
 *    apikey/<hash>           struct api_key
 *    key/<id>                the hash
 *    keyof/<principal>/<id>  "": for lists
 *    keyuse/<id>             when it was last used, ms; written once a minute at most (key_use.h)
 *
 *  A row of before keys had an index has the first alone (api_key_mend). */
#pragma once

#include "negotiator/leasing/principal.h"
#include "negotiator/ledger/kv.h"

#include <jansson.h>

#define API_KEY_HASH_BYTES (2 * KEY_BYTES + 1) /* hex, with the NUL */
#define API_KEY_NOTE_BYTES 257                 /* with the NUL */
#define API_KEY_ROW        "apikey/"
#define API_KEY_INDEX      "key/"
#define API_KEY_OWNED      "keyof/"
#define API_KEY_USE        "keyuse/"

/** Times in ms since 1970 UTC; 0: none. */
struct api_key {
    char id[RANDOM_ID_BYTES]; /* "key_..." */
    char hash[API_KEY_HASH_BYTES];
    char principal[PRINCIPAL_BYTES];
    enum role role;
    char actor[PRINCIPAL_ACTOR_BYTES]; /* pinned; "" none */
    struct quota limits;               /* each 1 or more, or -1 */
    char note[API_KEY_NOTE_BYTES];
    int64_t created_at, expires_at, rotated_at;
    uint32_t generation;               /* how often its text was changed */
    char old_hash[API_KEY_HASH_BYTES]; /* of the text before, good until old_until; "" none */
    int64_t old_until;
    int64_t last_use;  /* of a row of its own */
    uint64_t revision; /* of its row; 0: there is none */
};

/** The hash that a key's text has in this deployment. */
void api_key_hash(char to[static API_KEY_HASH_BYTES], const struct key *master, const char *text);

/** Reads a row; false when it is damaged. */
bool api_key_parse(struct api_key *key, const char *hash, const struct kv_value *value) MUST_USE;

/** The key of that id; revision 0 when there is none. False (err set): the store failed, or a row is damaged. */
bool api_key_get(struct kv *kv, const char *id, struct api_key *key, struct error *err) MUST_USE;

/** Adds all its rows to the change; `before` is as it was read, NULL: it is new. */
void api_key_put(struct kv_change *change, const struct api_key *key, const struct api_key *before);
/** Adds to the change that all its rows go. */
void api_key_remove(struct kv_change *change, const struct api_key *key);

/** Adds the index of the keys that have none. Reads all keys: once a start. */
bool api_key_mend(struct kv *kv, struct kv_change *change, struct error *err) MUST_USE;

/** Whether a principal may have that name here: without ':', as those with one are vouched for by others. */
bool api_key_is_local_name(const char *name) MUST_USE;
/** Whether it is "human:<id>" or "agent:<id>". */
bool api_key_is_actor(const char *text) MUST_USE;
