/** keying.h - API keys: making, listing, changing, rotating and deleting them, and login tokens (protocol.md, 1). What
 *  is allowed:
 *
 *    make, change            admins
 *    see                     admins all, others their principal's
 *    rotate, delete          admins all; users those of their principal that may do no more than the key they show */
#pragma once

#include "negotiator/leasing/keys/api_key.h"
#include "negotiator/leasing/keys/login.h"
#include "negotiator/leasing/leasing.h"

#define KEYING_LIST_MAX    200
#define KEYING_KEYS_MAX    10000 /* of a deployment */
#define KEYING_GRACE_MAX_S 86400

enum keying_verb {
    KEYING_ADD,
    KEYING_FIND,
    KEYING_LIST,
    KEYING_CHANGE,
    KEYING_ROTATE,
    KEYING_DELETE,
    KEYING_LOGIN /* a login token for who shows a key: caller.principal */
};

/* Which fields of `wanted` a CHANGE sets. */
enum keying_field {
    KEYING_ROLE = 1 << 0,
    KEYING_ACTOR = 1 << 1,
    KEYING_LIMITS = 1 << 2,
    KEYING_NOTE = 1 << 3,
    KEYING_EXPIRES = 1 << 4 /* wanted.expires_at, or ttl_s; 0: never */
};

/** The question and its answer. */
struct keying {
    enum keying_verb verb;
    struct caller caller; /* LIST: with `owner` his, without one's own; admins all */
    char id[RANDOM_ID_BYTES];
    struct api_key wanted; /* ADD: principal, role, actor, limits, note, expires_at; CHANGE: those of `given` */
    unsigned given;        /* bits of enum keying_field */
    int64_t ttl_s;         /* in place of expires_at; 0: not given */
    int64_t grace_s;       /* ROTATE: 0..KEYING_GRACE_MAX_S that the old text stays good */
    char cursor[RANDOM_ID_BYTES];
    size_t limit;                                          /* LIST: 1..KEYING_LIST_MAX */
    void (*answered)(void *cookie, struct keying *keying); /* once, on the ledger thread; the callee's from then on */
    void *cookie;

    struct error refusal;
    struct api_key *list; /* owned; LIST: any number, else one. A DELETE's: what it was */
    size_t count;
    char next[RANDOM_ID_BYTES];   /* LIST: cursor of the next page; "" the end */
    char text[LOGIN_TOKEN_BYTES]; /* ADD, ROTATE: the new key's; LOGIN: the token */
    int64_t expires_at;           /* LOGIN: s since 1970 UTC */

    /* Private to leasing/keys. */
    struct leasing *leasing;
    struct mark mark; /* DELETE: of its principal, when the key has too many families; number 0 none */
};

/** An empty question. */
struct keying *keying_new(void);
/** With all it owns; wipes the text. NULL is allowed. */
void keying_free(struct keying *keying);
DEFINE_AUTO(keying)

/** Queues it; takes it. A DELETE is answered when its tokens are marked, too. Any thread. */
void leasing_key(struct leasing *leasing, struct keying *keying);
