/** rate.h - how often one sandbox may do a thing that costs this process time: so many times a second on average, so
 * many at once. Who has used his up is not served before RATE_WAIT_NS: it costs nothing to make him wait. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

#define RATE_WAIT_NS 50000000ULL

/** Embedded; begin with RATE_OF. Private. */
struct rate {
    uint64_t per_second, at_once;
    uint64_t tokens;    /* billionths of one */
    uint64_t filled_ns; /* CLOCK_BOOTTIME */
};

#define RATE_OF(a_second, once)                                                                                        \
    ((struct rate){.per_second = (a_second), .at_once = (once), .tokens = (once)*1000000000ULL})

/** Takes one; false when there is none. */
bool rate_take(struct rate *rate, uint64_t now_boot_ns) MUST_USE;
