/** probe.c - storage as `parley doctor` shows it. */
#include "sandboxd/storage/btrfs_pool.h"
#include "sandboxd/storage/storage_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Of struct btrfs_super_block, which <linux/btrfs_tree.h> has only since Linux 6.3. */
enum { SUPER_AT = 65536, MAGIC_AT = 64, TOTAL_AT = 112, USED_AT = 120, SUPER_BYTES = 128 };

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)(1ULL << 30);
}

static uint64_t number_at(const char *super, size_t at)
{
    uint64_t number = 0;
    memcpy(&number, super + at, sizeof number);
    return le64toh(number);
}

static bool describe_pool(const char *state_folder, char *detail, size_t size)
{
    char super[SUPER_BYTES];
    AUTO_FREE char *path = memory_printf("%s/sandboxd/storage/pool.img", state_folder);
    AUTO_FD int image = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (image < 0)
        return snprintf(detail, size,
                        "btrfs pool in a file, made at the first start: disk limits hold, snapshots at once");
    if (pread(image, super, sizeof super, SUPER_AT) != sizeof super || memcmp(super + MAGIC_AT, "_BHRfS_M", 8) != 0) {
        snprintf(detail, size, "%s is no btrfs: move it away, a new one is made", path);
        return false;
    }
    snprintf(detail, size, "btrfs pool of %.1f GiB, %.1f GiB used (%s): disk limits hold, snapshots at once",
             gib(number_at(super, TOTAL_AT)), gib(number_at(super, USED_AT)), path);
    return true;
}

bool storage_probe(const struct storage_options *options, char *detail, size_t size)
{
    struct error why = {0};
    bool is_auto = text_equal(options->kind, "auto");
    if (text_equal(options->kind, "tmpfs"))
        return snprintf(detail, size, "tmpfs: what sandboxes write is memory; a snapshot is a copy") > 0;
    if (text_equal(options->kind, "folder")) {
        snprintf(detail, size, "a plain folder: NO disk limit holds a sandbox; with storage \"btrfs\" one does");
        return false;
    }
    if (!is_auto && !text_equal(options->kind, "btrfs")) {
        snprintf(detail, size, "storage is auto, btrfs, tmpfs or folder");
        return false;
    }
    if (btrfs_pool_is_possible(&why))
        return describe_pool(options->state_folder, detail, size);
    snprintf(detail, size, is_auto ? "tmpfs, so that what sandboxes write is memory: %s" : "%s", why.message);
    return is_auto;
}
