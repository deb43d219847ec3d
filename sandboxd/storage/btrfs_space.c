#include "sandboxd/storage/btrfs_space.h"

#include "shared/base/cleanup.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SYSFS_BYTES = 160, NUMBER_BYTES = 32, DEVICE = 1 };
static const uint64_t METADATA_FIRST = 16ULL * 1024 * 1024;

bool btrfs_sysfs_number(const char *sysfs, const char *name, uint64_t *number, struct error *err)
{
    char path[SYSFS_BYTES], text[NUMBER_BYTES];
    size_t size = 0;
    if (!text_format(path, sizeof path, "%s/%s", sysfs, name))
        return error_set(err, ERROR_INTERNAL, "a path below /sys/fs/btrfs is too long");
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (got < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "read %s", path);
    while (size < (size_t)got && text[size] >= '0' && text[size] <= '9')
        size++;
    return text_parse_u64(text, size, UINT64_MAX, number) || error_set(err, ERROR_INTERNAL, "%s is no number", path);
}

static bool read_unallocated(int top, uint64_t *bytes, struct error *err)
{
    AUTO_FREE struct btrfs_ioctl_dev_info_args *info = memory_new(sizeof *info);
    info->devid = DEVICE;
    if (ioctl(top, BTRFS_IOC_DEV_INFO, info) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "ask for the size of the pool");
    *bytes = info->total_bytes > info->bytes_used ? info->total_bytes - info->bytes_used : 0;
    return true;
}

/* What is freed since the last commit ("pinned") counts as free: btrfs commits before it refuses anybody. */
static bool read_free(const char *sysfs, const char *kind, uint64_t *bytes, struct error *err)
{
    static const char *const TAKEN[] = {"bytes_used", "bytes_reserved", "bytes_may_use", "bytes_readonly"};
    char name[NUMBER_BYTES * 2];
    uint64_t total = 0, taken = 0;
    if (!text_format(name, sizeof name, "allocation/%s/total_bytes", kind) ||
        !btrfs_sysfs_number(sysfs, name, &total, err))
        return false;
    for (size_t i = 0; i < sizeof TAKEN / sizeof TAKEN[0]; i++) {
        uint64_t part = 0;
        if (!text_format(name, sizeof name, "allocation/%s/%s", kind, TAKEN[i]) ||
            !btrfs_sysfs_number(sysfs, name, &part, err))
            return false;
        taken += part;
    }
    *bytes = total > taken ? total - taken : 0;
    return true;
}

bool btrfs_space_read(int top, const char *sysfs, struct btrfs_space *space, struct error *err)
{
    uint64_t unallocated = 0, data = 0, metadata = 0;
    if (!read_unallocated(top, &unallocated, err) || !read_free(sysfs, "data", &data, err) ||
        !read_free(sysfs, "metadata", &metadata, err))
        return false;
    *space = (struct btrfs_space){.data_free = data + unallocated, .metadata_free = metadata + unallocated};
    return true;
}

void btrfs_space_prepare(int top, const char *sysfs)
{
    /* What lies in the small chunk is moved: into a new one. */
    struct btrfs_ioctl_balance_args move = {.flags = BTRFS_BALANCE_METADATA};
    uint64_t has = 0;
    struct error err = {0};
    if (!btrfs_sysfs_number(sysfs, "allocation/metadata/total_bytes", &has, &err)) {
        log_warn("storage", "%s", err.message);
        return;
    }
    if (has < METADATA_FIRST && ioctl(top, BTRFS_IOC_BALANCE_V2, &move) < 0 && errno != EINPROGRESS)
        log_warn("storage", "cannot give the pool's metadata more room: %s", strerrordesc_np(errno));
}

void btrfs_space_give_back(const char *sysfs)
{
    char path[SYSFS_BYTES];
    if (!text_format(path, sizeof path, "%s/allocation/metadata/bg_reclaim_threshold", sysfs))
        return;
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return;
    if (fd < 0 || write(fd, "30", 2) != 2)
        log_warn("storage", "cannot set %s to 30: the pool may run out of room for data", path);
}
