/** btrfs_quota.h - a quota group a subvolume (btrfs-quota(5)): "full" ones, which count what a subvolume refers to,
 * also what it shares with a snapshot; DESIGN.md says why not simple ones. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/** Turns quotas on where they are off, has counts made anew that the kernel gave up, and keeps it from giving up.
 *  `sysfs` is /sys/fs/btrfs/<uuid>. */
bool btrfs_quota_enable(int top, const char *sysfs, struct error *err) MUST_USE;
/** At most `bytes` for the subvolume whose root is open as `subvolume`; 0: no limit. */
bool btrfs_quota_limit(int subvolume, uint64_t bytes, struct error *err) MUST_USE;
/** Forgets the group of the removed subvolume `id`; false while it counts anything still: to remove it then would end
 * all counting in the file system. Kernels before 6.12 keep it for ever otherwise. */
bool btrfs_quota_forget(int top, const char *sysfs, uint64_t id) MUST_USE;
/** Whether the kernel counts. When it has given up, limits hold nobody: a count anew is begun. */
bool btrfs_quota_is_counting(int top, const char *sysfs) MUST_USE;
/** Bytes it refers to, and those that are being written. */
bool btrfs_quota_usage(int subvolume, const char *sysfs, uint64_t *bytes, struct error *err) MUST_USE;
