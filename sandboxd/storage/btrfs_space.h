/** btrfs_space.h - how much of a btrfs is free, told apart for data and for its own trees. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct btrfs_space {
    uint64_t data_free, metadata_free; /* bytes; what is not given to either yet counts for both */
};

/** A number that the file system tells: the file `name` below `sysfs` (/sys/fs/btrfs/<uuid>). NOT_FOUND. */
bool btrfs_sysfs_number(const char *sysfs, const char *name, uint64_t *number, struct error *err) MUST_USE;

/** `top` is a folder of it. What is promised to writers counts as gone at once, unlike in statfs(2), which knows it
 * only after the next commit. */
bool btrfs_space_read(int top, const char *sysfs, struct btrfs_space *space, struct error *err) MUST_USE;

/** Sees to it that metadata has a chunk of the usual size, a tenth of the pool: mkfs.btrfs leaves it 8 MiB, and whoever
 * fills all else faster than metadata_ratio adds to that leaves none. What cannot be done is logged. */
void btrfs_space_prepare(int top, const char *sysfs);

/** From now on a chunk of metadata that is less than a third full is emptied into others and given back, where the
 * kernel can (5.19): else what one sandbox's files once took for their trees would never be anybody's data again. */
void btrfs_space_give_back(const char *sysfs);
