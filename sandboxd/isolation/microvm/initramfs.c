/* initramfs.c - see initramfs.h. */
#include "sandboxd/isolation/microvm/initramfs.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum { ALIGNMENT = 4, BLOCK_BYTES = 512 };

static void pad(struct initramfs *initramfs, size_t alignment)
{
    static const char zeros[BLOCK_BYTES];
    size_t over = initramfs->bytes.length % alignment;
    if (over != 0)
        text_append(&initramfs->bytes, zeros, alignment - over);
}

static void add(struct initramfs *initramfs, const char *path, uint32_t mode, const void *data, size_t size)
{
    const uint32_t links = S_ISDIR(mode) ? 2 : 1;
    const size_t name_bytes = strlen(path) + 1;
    /* magic, inode, mode, uid, gid, links, time, size, device (2), device of a node (2), size of the name, checksum */
    text_append_format(&initramfs->bytes,
                       "070701%08" PRIx32 "%08" PRIx32 "%08x%08x%08" PRIx32 "%08x%08zx%08x%08x%08x%08x%08zx%08x",
                       ++initramfs->last_inode, mode, 0U, 0U, links, 0U, size, 0U, 0U, 0U, 0U, name_bytes, 0U);
    text_append(&initramfs->bytes, path, name_bytes);
    pad(initramfs, ALIGNMENT);
    text_append(&initramfs->bytes, data, size);
    pad(initramfs, ALIGNMENT);
}

void initramfs_add_folder(struct initramfs *initramfs, const char *path)
{
    add(initramfs, path, S_IFDIR | 0755, "", 0);
}

void initramfs_add_file(struct initramfs *initramfs, const char *path, uint32_t mode, const void *data, size_t size)
{
    add(initramfs, path, S_IFREG | (mode & 07777), data, size);
}

void initramfs_end(struct initramfs *initramfs)
{
    add(initramfs, "TRAILER!!!", 0, "", 0);
    pad(initramfs, BLOCK_BYTES);
}

void initramfs_done(struct initramfs *initramfs)
{
    if (initramfs->bytes.data)
        explicit_bzero(initramfs->bytes.data, initramfs->bytes.capacity);
    text_done(&initramfs->bytes);
    *initramfs = (struct initramfs){0};
}
