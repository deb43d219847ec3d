/** initramfs.h - a newc cpio archive in memory, as the kernel unpacks it into its first root file system: folders,
 * files and their modes, all root's. Source: Documentation/driver-api/early-userspace/buffer-format.rst of Linux.
 * Archives behind one another are one initramfs. */
#pragma once

#include "shared/base/text.h"

#include <stddef.h>
#include <stdint.h>

/** A writer; embedded. Zero is an empty one. */
struct initramfs {
    struct text bytes;
    uint32_t last_inode;
};

/** A folder of mode 0755; its parents must have been added. `path` without a leading slash. */
void initramfs_add_folder(struct initramfs *initramfs, const char *path);

/** A regular file; `mode` are permission bits. At most 1 GiB. */
void initramfs_add_file(struct initramfs *initramfs, const char *path, uint32_t mode, const void *data, size_t size);

/** Ends it; bytes.length is then a multiple of 512. */
void initramfs_end(struct initramfs *initramfs);

/** Wipes (a letter is a secret) and frees. */
void initramfs_done(struct initramfs *initramfs);
#define AUTO_INITRAMFS __attribute__((cleanup(initramfs_done))) struct initramfs
