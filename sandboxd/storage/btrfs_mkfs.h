/** btrfs_mkfs.h - mkfs.btrfs of btrfs-progs, run as a program. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>

/** Path of the program; NULL when it is not installed. */
const char *btrfs_mkfs_find(void) MUST_USE;
/** Makes a file system in the file `path`; what the program said is in the error. */
bool btrfs_mkfs(const char *path, struct error *err) MUST_USE;
