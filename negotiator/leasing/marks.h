/** marks.h - the revocation marks in force, how far each node has them, and the times that follow from them: a token is
 *  issued behind the marks about it, and a revocation reaches all that was issued before it. What the other rules use
 * of it is in leasing_internal.h. Ledger thread. Private to this folder. */
#pragma once

#include "negotiator/leasing/leasing_internal.h"

#define MARKS_AHEAD_MAX_S 3 /* a token may be issued so far ahead: nodes take 5 s, and their clocks may be 2 s off */

/** Empty, under a new ledger id. */
struct marks *marks_new(void);
/** NULL is allowed. */
void marks_free(struct marks *marks);

/** Takes up the marks of the store, and adds to the change under which ledger id they go out from now on. A rule's
 * part; may be run again. */
bool marks_load(struct work *work) MUST_USE;

/** The mark that refuses a token now; NULL none. */
const struct mark *marks_refuse(const struct leasing *leasing, const struct capability_claims *claims,
                                int64_t now_ms) MUST_USE;

/** Whether a mark revokes the token, spent or not; those of rules that ran before in the same batch count. False: the
 *  store failed. */
bool marks_forbid(struct work *work, const struct capability_claims *claims, bool *forbidden) MUST_USE;

/** The iat, in seconds, of a token that is issued now: behind the newest mark about it. */
int64_t marks_iat(const struct work *work, const struct capability_claims *claims) MUST_USE;
/** The change issues that token; remembered when its iat is ahead of the clock. */
void marks_issued(struct work *work, const struct capability_claims *claims);

/** The `before`, in seconds, of a revocation made now: now, or later when a token it is about was issued ahead. */
int64_t marks_before(const struct leasing *leasing, const struct mark *mark, int64_t now_ms) MUST_USE;

/** Whether that node said it has the mark of that number. */
bool marks_has(const struct leasing *leasing, const char *node, uint64_t number) MUST_USE;
