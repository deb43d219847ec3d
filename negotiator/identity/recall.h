/** recall.h - tokens that were verified a moment ago, by a keyed hash: a table of fixed size. Any thread. Private to
 * this folder. */
#pragma once

#include "negotiator/leasing/principal.h"

struct recall;

/** An empty table with a key of its own; the caller owns it. */
struct recall *recall_new(void);
/** NULL is allowed. */
void recall_free(struct recall *recall);

/** For a minute, or until the token's end (wall, seconds). */
void recall_add(struct recall *recall, const char *token, const struct principal *principal, double now_s,
                double expires_s);
/** False: not known, or its time is over at `now_s`. */
bool recall_find(struct recall *recall, const char *token, double now_s, struct principal *principal) MUST_USE;
/** The issuers or their keys have changed: all are verified again. */
void recall_forget_all(struct recall *recall);
