/** quota.h - how much of this deployment somebody may have at once. */
#pragma once

#include <stdint.h>

/** Of sandboxes that have not ended, paused ones too. -1: not limited by this. */
struct quota {
    int64_t sandboxes;
    int64_t cpu_milli;          /* thousandths of a core, of all of them together, like the next */
    int64_t memory_mb, disk_mb; /* MiB */
    int64_t creates_per_minute; /* 0..6000: so many at once, and each goes again after its part of a minute */
};

#define QUOTA_NONE ((struct quota){-1, -1, -1, -1, -1})
