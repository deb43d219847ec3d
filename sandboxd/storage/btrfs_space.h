/** btrfs_space.h - how much of a btrfs is free, told apart for data and for its own trees (btrfs-filesystem(8), usage). */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct btrfs_space {
    uint64_t data_free, metadata_free; /* bytes; what is not given to either yet counts for both */
};

/** `top` is a folder of it. */
bool btrfs_space_read(int top, struct btrfs_space *space, struct error *err) MUST_USE;
