/** allowance.h - what one principal, or the holders of one family's tokens, may add to the marks that every node has to
 *  keep: so much at once, and what has drained since. In memory: a start forgets it. Ledger thread. Private to this
 *  folder. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

struct allowance;

/** Units are the caller's. */
struct allowance_limit {
    int64_t most;     /* at once */
    int64_t per_hour; /* drains */
};

struct allowance *allowance_new(void) MUST_USE;
/** NULL is allowed. */
void allowance_free(struct allowance *allowance);

/** Takes `cost` from what `who` may have; false, and nothing is taken, when that would be too much. A `who` has always
 *  the same limit. `now` in ms of any clock; one that is set back drains nothing. */
bool allowance_take(struct allowance *allowance, const char *who, struct allowance_limit limit, int64_t cost,
                    int64_t now) MUST_USE;
