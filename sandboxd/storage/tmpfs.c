/** tmpfs.c - areas as file systems in memory, one each, that nobody has mounted but their sandbox. */
#include "sandboxd/init/inherit.h"
#include "sandboxd/storage/plain.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

enum { NUMBER_BYTES = 24, PAGE_BYTES = 4096 };

static bool tmpfs_open(struct storage *storage, const struct storage_options *options, struct error *err)
{
    (void)options;
    return plain_open(storage, err);
}

/* --- making --- */

static bool set_number(int context, const char *key, uint64_t value, struct error *err)
{
    char text[NUMBER_BYTES];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, key, text, 0) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "set %s=%s of a tmpfs", key, text);
}

static bool set_size(int context, uint64_t bytes, struct error *err)
{
    return set_number(context, "size", bytes, err) && set_number(context, "nr_inodes", storage_inodes(bytes), err);
}

static bool command(int context, unsigned number, struct error *err)
{
    return syscall(SYS_fsconfig, context, number, NULL, NULL, 0) == 0 ||
           error_set_errno(err, errno == EINVAL ? ERROR_INVALID : ERROR_INTERNAL,
                           number == FSCONFIG_CMD_CREATE ? "make a tmpfs" : "change a tmpfs (what is in use must fit)");
}

static int make_mount(uint32_t uid, uint64_t bytes, struct error *err)
{
    AUTO_FD int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
    if (context < 0) {
        error_set_errno(err, ERROR_INTERNAL, "fsopen tmpfs");
        return -1;
    }
    if (!set_size(context, bytes, err) || !set_number(context, "uid", uid, err) ||
        !set_number(context, "gid", uid, err) ||
        syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        !command(context, FSCONFIG_CMD_CREATE, err))
        return -1;
    int made = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (made < 0)
        error_set_errno(err, ERROR_INTERNAL, "mount a tmpfs");
    return made;
}

static bool area_make(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, struct error *err)
{
    struct stat status;
    (void)storage;
    AUTO_FD int made = make_mount(area->uid_base, disk_bytes, err);
    if (made < 0 || !storage_make_layers(made, area->uid_base, err))
        return false;
    if (fstat(made, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "look at a tmpfs");
    area->device = status.st_dev;
    area->mount = TAKE_FD(made);
    return true;
}

/* fsmount gives a descriptor for paths alone. */
static int open_root(const struct storage_area *area, struct error *err)
{
    int fd = openat(area->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, ERROR_INTERNAL, "open a sandbox's tmpfs");
    return fd;
}

static bool area_restore(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, const char *snapshot,
                         struct storage_job **job, struct error *err)
{
    if (!area_make(storage, area, disk_bytes, err))
        return false;
    AUTO_FD int root = open_root(area, err);
    if (root >= 0 && plain_restore(storage, snapshot, root, area->uid_base, job, err))
        return true;
    storage_area_close(area);
    return false;
}

/* --- finding again --- */

static bool is_area(int fd, uint64_t device)
{
    struct stat status;
    struct statfs system;
    struct statx mount;
    return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) && status.st_dev == device && fstatfs(fd, &system) == 0 &&
           (unsigned long)system.f_type == TMPFS_MAGIC &&
           statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &mount) == 0 &&
           (mount.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static bool area_adopt(struct storage *storage, struct storage_area *area, int init_pidfd, uint64_t device,
                       struct error *err)
{
    (void)storage;
    AUTO_FD int taken = (int)syscall(SYS_pidfd_getfd, init_pidfd, INHERIT_FD_AREA, 0);
    if (taken < 0)
        return error_set_errno(err, ERROR_INTERNAL, "take the area's descriptor from init");
    if (device == 0 || !is_area(taken, device))
        return error_set(err, ERROR_CONFLICT, "init does not hold its area's root");
    AUTO_FD int root = openat(taken, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* of our own: its flags are init's */
    if (root < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open a sandbox's tmpfs");
    area->device = device;
    area->mount = TAKE_FD(root);
    return true;
}

/* --- the rest --- */

static bool area_limit(struct storage *storage, const struct storage_area *area, uint64_t disk_bytes, struct error *err)
{
    (void)storage;
    AUTO_FD int context =
        (int)syscall(SYS_fspick, area->mount, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH | FSPICK_NO_AUTOMOUNT);
    if (context < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fspick a sandbox's tmpfs");
    return set_size(context, disk_bytes, err) && command(context, FSCONFIG_CMD_RECONFIGURE, err);
}

static bool area_usage(struct storage *storage, const struct storage_area *area, uint64_t *bytes, struct error *err)
{
    struct statfs system;
    (void)storage;
    if (fstatfs(area->mount, &system) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "look at a sandbox's tmpfs");
    *bytes = (uint64_t)(system.f_blocks - system.f_bfree) * (uint64_t)system.f_bsize;
    return true;
}

/* It goes with its last descriptor and its sandbox's mount namespace. */
static bool area_remove(struct storage *storage, uint32_t slot, struct error *err)
{
    (void)storage, (void)slot, (void)err;
    return true;
}

static bool snapshot_take(struct storage *storage, const struct storage_area *area, const char *name,
                          struct storage_job **job, struct error *err)
{
    AUTO_FD int root = open_root(area, err);
    return root >= 0 && plain_snapshot_take(storage, root, area->uid_base, name, job, err);
}

const struct storage_driver storage_tmpfs = {
    .name = "tmpfs",
    .is_memory = true,
    .has_quota = true,
    .open = tmpfs_open,
    .area_make = area_make,
    .area_restore = area_restore,
    .area_adopt = area_adopt,
    .area_limit = area_limit,
    .area_usage = area_usage,
    .area_remove = area_remove,
    .snapshot_take = snapshot_take,
    .snapshot_size = plain_snapshot_size,
    .snapshot_remove = plain_snapshot_remove,
    .volume_make = plain_volume_make,
    .volume_remove = plain_volume_remove,
};
