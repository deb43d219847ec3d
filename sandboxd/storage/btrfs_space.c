#include "sandboxd/storage/btrfs_space.h"

#include "shared/base/cleanup.h"
#include "shared/base/memory.h"

#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

enum { SPACES_MAX = 32, DEVICE = 1 };

static bool read_unallocated(int top, uint64_t *bytes, struct error *err)
{
    AUTO_FREE struct btrfs_ioctl_dev_info_args *info = memory_new(sizeof *info);
    info->devid = DEVICE;
    if (ioctl(top, BTRFS_IOC_DEV_INFO, info) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "ask for the size of the pool");
    *bytes = info->total_bytes > info->bytes_used ? info->total_bytes - info->bytes_used : 0;
    return true;
}

static bool read_metadata(int top, uint64_t *bytes, struct error *err)
{
    AUTO_FREE struct btrfs_ioctl_space_args *args = memory_new(sizeof *args + SPACES_MAX * sizeof args->spaces[0]);
    args->space_slots = SPACES_MAX;
    if (ioctl(top, BTRFS_IOC_SPACE_INFO, args) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "ask for the use of the pool");
    uint64_t total = 0, used = 0;
    for (uint64_t i = 0; i < args->total_spaces && i < SPACES_MAX; i++) {
        const struct btrfs_ioctl_space_info *space = &args->spaces[i];
        bool is_reserve = (space->flags & BTRFS_SPACE_INFO_GLOBAL_RSV) != 0;
        if ((space->flags & BTRFS_BLOCK_GROUP_METADATA) && !is_reserve)
            total += space->total_bytes;
        if ((space->flags & BTRFS_BLOCK_GROUP_METADATA) || is_reserve)
            used += space->used_bytes;
    }
    *bytes = total > used ? total - used : 0;
    return true;
}

bool btrfs_space_read(int top, struct btrfs_space *space, struct error *err)
{
    struct statfs all;
    uint64_t unallocated = 0, metadata = 0;
    if (fstatfs(top, &all) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "ask what is free in the pool");
    if (!read_unallocated(top, &unallocated, err) || !read_metadata(top, &metadata, err))
        return false;
    /* f_bavail is 0 as soon as the trees have no room, whatever the data has: then the second figure tells. */
    *space = (struct btrfs_space){.data_free = (uint64_t)all.f_bavail * (uint64_t)all.f_bsize,
                                  .metadata_free = metadata + unallocated};
    return true;
}
