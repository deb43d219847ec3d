/** btrfs_pool.h - a btrfs in a file that grows: STATE/sandboxd/storage/pool.img, mounted at .../pool for the launcher
 *  alone. All of the file is allocated on the host's disk, so that a host that is full later is no I/O error here. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct btrfs_pool;

/** Makes it when there is none, finds it again when sandboxes still hold it, mounts it, turns quotas on. `bytes_max` as
 *  in struct storage_options. Half-made ones are made anew. */
struct btrfs_pool *btrfs_pool_open(const char *top, uint64_t bytes_max, struct error *err) MUST_USE;
/** Unmounts it here; sandboxes that have it keep it. */
void btrfs_pool_close(struct btrfs_pool *pool);

/** The folder of /sys/fs/btrfs that is this file system's. */
const char *btrfs_pool_sysfs(const struct btrfs_pool *pool) MUST_USE;

/** Grows it until `bytes` (at most 4 GiB are looked after) and some more are free, or it is as large as it may be. What
 *  cannot be had is logged: whoever writes meets the end of it. */
void btrfs_pool_expect(struct btrfs_pool *pool, uint64_t bytes);
/** To be called when the subvolume `id` was deleted: its quota group goes when the kernel is done with it. */
void btrfs_pool_dropped(struct btrfs_pool *pool, uint64_t id);
uint64_t btrfs_pool_next_wake(const struct btrfs_pool *pool) MUST_USE;
void btrfs_pool_wake(struct btrfs_pool *pool, uint64_t now_boot_ns);

/** What btrfs needs and this host lacks; false with the reason. */
bool btrfs_pool_is_possible(struct error *err) MUST_USE;
