/** mark.h - revocation marks (protocol.md, 4): what a mark says, whether it refuses a token, and a set of them. One
 *  implementation for both ends: the negotiator refuses refreshes by it and mints behind it, sandboxd refuses requests.
 *
 *  A mark refuses tokens that match its selector and were issued at or before `before`; it bars nothing later. A spent
 *  token (rotated by a refresh) gets a mark too, in force from 30 s after. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/capability/capability.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mark_kind {
    MARK_JTI,
    MARK_LINK,   /* any link of the token */
    MARK_FAMILY, /* fam */
    MARK_LEASE,
    MARK_SANDBOX,
    MARK_THREAD, /* together with `principal`: equal ids of two principals are two threads */
    MARK_PRINCIPAL,
    MARK_SCOPE, /* an atom; tokens whose root scopes cover it (scope_allows) */
    MARK_ALL,
    MARK_KINDS
};

#define MARK_VALUE_BYTES 192 /* the longest is a scope atom, of at most 191 bytes here; a thread has 128 */
#define MARK_ANY_TIME    INT64_MAX

struct mark {
    uint64_t number; /* from 1, raised by one; within one ledger */
    enum mark_kind kind;
    char value[MARK_VALUE_BYTES]; /* "" for MARK_ALL */
    char principal[129];          /* only tokens of this sub; "" everybody's. Never "" for MARK_THREAD */
    int64_t before;               /* iat <= before is refused, seconds since 1970 UTC; MARK_ANY_TIME: any iat */
    int64_t from_ms;              /* in force from then on, ms since 1970 UTC; 0: at once */
    int64_t until;                /* seconds since 1970 UTC: no token it matches lives longer; forgotten after */
    uint32_t epoch;               /* MARK_SANDBOX: the lowest key epoch in force from now on; else 0 */
};

/** "jti", "link", "family", "lease", "sandbox", "thread", "principal", "scope", "all". */
const char *mark_kind_name(enum mark_kind kind) MUST_USE;
/** The kind of such a name. */
bool mark_kind_parse(const char *name, enum mark_kind *kind) MUST_USE;

/** Kind, value, principal and epoch fit each other and their bounds: ids as in capability.h, a link "lnk_" and 22
 *  base64url, one scope atom. Not the number and the times. ERROR_INVALID says what is allowed. */
bool mark_check(const struct mark *mark, struct error *err) MUST_USE;

/** Whether a token of these claims is one of those that the mark is about, whatever the times say. */
bool mark_matches(const struct mark *mark, const struct capability_claims *claims) MUST_USE;

/** Whether it refuses a token of these claims at `now_ms`: it matches, `from_ms` has come, and the token was issued at
 *  or before `before` or is of an epoch below the mark's. `until` does not matter: it says when to forget. */
bool mark_refuses(const struct mark *mark, const struct capability_claims *claims, int64_t now_ms) MUST_USE;

/** {"n", "kind", "value", "principal"?, "before"? (missing: any time), "from"?, "until", "epoch"?}. The caller owns
 *  it. */
json_t *mark_format(const struct mark *mark) MUST_USE;
/** Reads one and checks it, bounds of number and times too. A field that is unknown is refused: a mark that is only
 *  half understood must not be acknowledged. ERROR_INVALID. *mark is written on success only. */
bool mark_parse(struct mark *mark, const json_t *json, struct error *err) MUST_USE;

/** A set. Not locked: one thread, or the caller's lock. Look-ups by a token cost a few hash probes however many marks
 *  there are (those by scope and all are few, and walked). */
struct mark_set;
struct mark_set *mark_set_new(void);
void mark_set_free(struct mark_set *set);
DEFINE_AUTO(mark_set)

/** Copies it in. Two marks of one kind, value and principal may both be there. */
void mark_set_add(struct mark_set *set, const struct mark *mark);

/** The first mark found that refuses the token now; NULL when none does. Valid until the set changes. */
const struct mark *mark_set_refuses(const struct mark_set *set, const struct capability_claims *claims,
                                    int64_t now_ms) MUST_USE;

/** The largest `before` (seconds, not MARK_ANY_TIME) of the marks whose selector matches; 0 when none does: a token
 *  that is to live is issued later than this. */
int64_t mark_set_newest_before(const struct mark_set *set, const struct capability_claims *claims) MUST_USE;

/** Drops those whose `until` + 60 s is over; returns how many. */
size_t mark_set_forget(struct mark_set *set, int64_t now_ms);

/** Calls visit for each with number > after, in order of their numbers, until it says false. `visit` must not change
 *  the set. Cheap when marks were added in ascending order; else sorts a copy. */
void mark_set_each(const struct mark_set *set, uint64_t after, bool (*visit)(void *cookie, const struct mark *mark),
                   void *cookie);

size_t mark_set_count(const struct mark_set *set) MUST_USE;
