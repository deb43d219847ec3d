/** btrfs_loop.h - the pool's image on a loop device (loop(4)): never two devices on one image, which corrupts it. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct btrfs_loop {
    int device; /* /dev/loopN; owned */
    char path[32];
};

/** Finds the device that a launcher before us left on the image, or takes a free one. `image` must be locked by us
 *  (is_locked: flock(2) on this very open file, which the device then shares and so keeps locked for as long as it
 *  lives), or by such a device. CONFLICT when another than us has it. */
bool btrfs_loop_open(int image, bool is_locked, struct btrfs_loop *loop, struct error *err) MUST_USE;

/** Tells the device that the image has grown. */
bool btrfs_loop_grow(const struct btrfs_loop *loop, struct error *err) MUST_USE;
