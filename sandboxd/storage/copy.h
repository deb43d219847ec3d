/** copy.h - copies a tree as it is: modes, owners, times, hard links, holes, symlinks, FIFOs, whiteouts, `user.`
 *  attributes (overlay keeps its own there) and file capabilities. What is copied is hostile: no symlink is followed,
 * no other file system entered, devices and sockets are left out, and depth is bounded. In a job's child only. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { COPY_DEPTH_MAX = 2000 };

struct copy {
    int links;                 /* an empty folder in the copy's file system, where files with many names wait */
    uint32_t uid_from, uid_to; /* host id of 0 in the source and in the copy; of 65,536. Others become nobody's */
    uint64_t bytes;            /* out: allocated, an inode of 1 KiB each too */
};

/** Copies what is in the folder `from`, and the folder's own attributes, into the empty folder `to`. DISK_FULL, INVALID
 *  (too deep); what is there then is incomplete. */
bool copy_tree(struct copy *copy, int from, int to, struct error *err) MUST_USE;
