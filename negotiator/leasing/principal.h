/** principal.h - who asks: API keys, principals and what their roles allow (protocol.md, 1). */
#pragma once

#include "negotiator/leasing/policy/quota.h"
#include "negotiator/ledger/kv.h"

#include "shared/base/random.h"
#include "shared/capability/keys.h"

#include <stdbool.h>
#include <stdint.h>

#define PRINCIPAL_BYTES       129 /* a principal's name with its NUL */
#define API_KEY_BYTES         47  /* "pk_" + 43 base64url characters + NUL */
#define PRINCIPAL_ACTOR_BYTES 160 /* WANTED_ACTOR_BYTES */

enum role { ROLE_VIEWER, ROLE_USER, ROLE_ADMIN }; /* each may do what the one before may */

enum principal_kind {
    PRINCIPAL_API_KEY,
    PRINCIPAL_LOGIN,  /* a login token, made of an API key */
    PRINCIPAL_OUTSIDE /* an identity that somebody else vouches for: no key_id */
};

struct principal {
    char name[PRINCIPAL_BYTES];
    enum role role;
    enum principal_kind kind;
    char key_id[RANDOM_ID_BYTES];      /* "key_...": the API key that was shown, or a login token was made of */
    char actor[PRINCIPAL_ACTOR_BYTES]; /* pinned: "human:<id>" or "agent:<id>"; "": whatever a request says */
    struct quota limits;               /* of the key, each 1 or more; 0 and -1: the key does not limit it */
    uint32_t generation;               /* of the key's text: how often it was changed before */
    int64_t expires_at;                /* when that text ends, ms since 1970 UTC; 0: it does not */
};

/** "viewer", "user", "admin". */
const char *role_name(enum role role) MUST_USE;
/** The role of such a name. */
bool role_parse(const char *text, enum role *role) MUST_USE;

/** 1..128 of A-Z a-z 0-9 . _ @ : + - : what is safe in a key of the store, a claim and a log line. */
bool principal_is_name(const char *text) MUST_USE;

/** What the loops look keys up in, and the tokens that were made of them. Any thread. */
struct principal_table;
struct api_key;
struct login;

/** An empty one, the caller's. `master` is copied. */
struct principal_table *principal_table_new(const struct key *master);
/** Wipes and frees; NULL is allowed. */
void principal_table_free(struct principal_table *table);
DEFINE_AUTO(principal_table)

/** For tests: where it reads the wall clock, ms since 1970 UTC. Before any other thread knows it. */
void principal_table_set_clock(struct principal_table *table, int64_t (*wall_ms)(void));

/** Reads all keys of the store; start-up, or a rule. */
bool principal_table_load(struct principal_table *table, struct kv *kv, struct error *err) MUST_USE;

/** Whose API key or login token this is; the key's use is noted. ERROR_UNAUTHENTICATED with one and the same sentence
 *  for every other text, one that has run out too. Only a keyed hash of a key's text is compared, so the time it takes
 *  tells nothing about a key. */
bool principal_table_find(struct principal_table *table, const char *credential, struct principal *principal,
                          struct error *err) MUST_USE;

/** What is durable: the key is there, as it is now (copied); or there is none of that id any more. One thread. */
void principal_table_put(struct principal_table *table, const struct api_key *key);
void principal_table_remove(struct principal_table *table, const char *key_id);

/** Whether that principal has a key that is good now, of that role or a higher one: for what is done in his name while
 *  nobody shows a key. */
bool principal_table_has(struct principal_table *table, const char *name, enum role role) MUST_USE;

/** How many keys there are. */
size_t principal_table_count(struct principal_table *table) MUST_USE;

/** When a key was last used, that of the ledger or later; ms since 1970 UTC, 0: never. */
int64_t principal_table_last_use(struct principal_table *table, const char *key_id) MUST_USE;

struct key_use {
    char key_id[RANDOM_ID_BYTES];
    int64_t at; /* ms since 1970 UTC */
};
/** Keys whose last use is not in the ledger, at most `limit`. */
size_t principal_table_uses(struct principal_table *table, struct key_use *uses, size_t limit) MUST_USE;
/** They are by now. */
void principal_table_stored(struct principal_table *table, const struct key_use *uses, size_t count);

/** Makes a new API key's text. */
void principal_new_api_key(char to[static API_KEY_BYTES]);

/** Whether the text has the form of an API key. */
bool principal_is_api_key(const char *text) MUST_USE;
/** Whether it has the form of a login token (keys/login.h). */
bool principal_is_login_token(const char *text) MUST_USE;

/** Adds the rows of a new key to `change` (only its keyed hash is stored): name, role, actor and limits (0: none) are
 *  the principal's; it gets the key's id, in principal->key_id. */
void principal_add_key(struct kv_change *change, const struct key *master, const char *api_key,
                       struct principal *principal, int64_t now_ms);
