/** probe.c - storage as `parley doctor` shows it. */
#include "sandboxd/storage/btrfs_pool.h"
#include "sandboxd/storage/storage_internal.h"
#include "shared/base/text.h"

#include <stdio.h>

bool storage_probe(const char *kind, char *detail, size_t size)
{
    struct error why = {0};
    bool is_auto = text_equal(kind, "auto");
    if (text_equal(kind, "tmpfs"))
        return snprintf(detail, size, "tmpfs: what sandboxes write is memory; a snapshot is a copy") > 0;
    if (text_equal(kind, "folder")) {
        snprintf(detail, size, "a plain folder: no disk limit holds a sandbox; with storage btrfs one does");
        return false;
    }
    if (!is_auto && !text_equal(kind, "btrfs")) {
        snprintf(detail, size, "storage is auto, btrfs, tmpfs or folder");
        return false;
    }
    if (btrfs_pool_is_possible(&why))
        return snprintf(detail, size, "btrfs pool in a file: disk limits by quota groups, snapshots at once") > 0;
    snprintf(detail, size, is_auto ? "tmpfs, so that what sandboxes write is memory: %s" : "%s", why.message);
    return false;
}
