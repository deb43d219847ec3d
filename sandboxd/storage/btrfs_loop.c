#include "sandboxd/storage/btrfs_loop.h"

#include "shared/base/cleanup.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { CONFIGURE_TRIES = 64, BLOCK_BYTES = 4096 };

/* --- one that is there --- */

static bool has_image(int device, const struct stat *image)
{
    struct loop_info64 info;
    return ioctl(device, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == image->st_dev &&
           info.lo_inode == image->st_ino;
}

/* An open device is not cleared; so what still has the image once it is open will have it. */
static bool try_device(const char *name, const struct stat *image, struct btrfs_loop *found)
{
    char attribute[64];
    struct btrfs_loop loop = {.device = -1};
    if (!text_starts_with(name, "loop") ||
        !text_format(attribute, sizeof attribute, "/sys/block/%.16s/loop/backing_file", name) ||
        access(attribute, F_OK) < 0 || !text_format(loop.path, sizeof loop.path, "/dev/%.16s", name))
        return false;
    AUTO_FD int device = open(loop.path, O_RDWR | O_CLOEXEC);
    if (device < 0 || !has_image(device, image))
        return false;
    loop.device = TAKE_FD(device);
    *found = loop;
    return true;
}

static bool find(const struct stat *image, struct btrfs_loop *found)
{
    DIR *blocks = opendir("/sys/block");
    bool is_found = false;
    if (blocks == NULL)
        return false;
    for (struct dirent *entry = readdir(blocks); entry && !is_found; entry = readdir(blocks))
        is_found = try_device(entry->d_name, image, found);
    closedir(blocks);
    return is_found;
}

/* --- a new one --- */

static bool configure(int device, int image)
{
    const struct loop_config config = {
        .fd = (uint32_t)image,
        .block_size = BLOCK_BYTES,
        .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO, .lo_file_name = "parley pool"},
    };
    return ioctl(device, LOOP_CONFIGURE, &config) == 0;
}

static bool take_free(int image, struct btrfs_loop *loop, struct error *err)
{
    AUTO_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open /dev/loop-control");
    for (int i = 0; i < CONFIGURE_TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return error_set_errno(err, ERROR_INTERNAL, "find a free loop device");
        snprintf(loop->path, sizeof loop->path, "/dev/loop%d", number);
        AUTO_FD int device = open(loop->path, O_RDWR | O_CLOEXEC);
        if (device < 0)
            return error_set_errno(err, ERROR_INTERNAL, "open %s", loop->path);
        if (configure(device, image)) {
            loop->device = TAKE_FD(device);
            return true;
        }
        if (errno != EBUSY) /* EBUSY: another was faster */
            return error_set_errno(err, ERROR_INTERNAL, "put the pool on %s", loop->path);
    }
    return error_set(err, ERROR_INTERNAL, "other programs take each free loop device first");
}

bool btrfs_loop_open(int image, bool is_locked, struct btrfs_loop *loop, struct error *err)
{
    struct stat status;
    struct btrfs_loop got = {.device = -1};
    if (fstat(image, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "look at the pool's image");
    bool is_found = find(&status, &got);
    if (is_found && is_locked) {
        close(got.device);
        return error_set(err, ERROR_CONFLICT, "%s has the pool's image, but not by us: losetup -d %s", got.path,
                         got.path);
    }
    if (!is_found && !is_locked)
        return error_set(err, ERROR_CONFLICT, "another program has locked the pool's image");
    if (!is_found && !take_free(image, &got, err))
        return false;
    *loop = got;
    return true;
}

bool btrfs_loop_grow(const struct btrfs_loop *loop, struct error *err)
{
    return ioctl(loop->device, LOOP_SET_CAPACITY, 0) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "let %s grow", loop->path);
}
