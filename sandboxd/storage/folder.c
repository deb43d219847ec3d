/** folder.c - areas as plain folders on the host's disk: for hosts without btrfs and without memory to spare. Nothing
 *  limits them. */
#include "sandboxd/storage/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool folder_open(struct storage *storage, const struct storage_options *options, struct error *err)
{
    (void)options;
    return plain_open(storage, err);
}

static int open_area(const struct storage_area *area, struct error *err)
{
    int fd = open(area->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "open %s", area->path);
    return fd;
}

/* What is 0 inside, on disk. */
static uint32_t first_id(const struct storage *storage, const struct storage_area *area)
{
    return storage->has_slot_ids ? area->uid_base : 0;
}

static bool area_make(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, struct error *err)
{
    (void)disk_bytes;
    if (!storage_area_path(storage, area->slot, area->path, err))
        return false;
    if (mkdir(area->path, STORAGE_FOLDER_MODE) < 0)
        return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL, "make %s",
                               area->path);
    AUTO_FD int fd = open_area(area, err);
    uint32_t first = first_id(storage, area);
    if (fd >= 0 && first && fchown(fd, first, first) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "give %s to its slot", area->path);
    return fd >= 0 && storage_make_layers(fd, first, err);
}

static bool area_restore(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, const char *snapshot,
                         struct storage_job **job, struct error *err)
{
    if (!area_make(storage, area, disk_bytes, err))
        return false;
    AUTO_FD int fd = open_area(area, err);
    return fd >= 0 && plain_restore(storage, snapshot, fd, first_id(storage, area), job, err);
}

static bool area_adopt(struct storage *storage, struct storage_area *area, int init_pidfd, uint64_t device,
                       struct error *err)
{
    (void)init_pidfd, (void)device;
    if (!storage_area_path(storage, area->slot, area->path, err))
        return false;
    AUTO_FD int fd = open_area(area, err);
    return fd >= 0;
}

/* To know it would take a walk through all of it. */
static bool area_usage(struct storage *storage, const struct storage_area *area, uint64_t *bytes, struct error *err)
{
    (void)storage, (void)area, (void)err;
    *bytes = 0;
    return true;
}

static bool area_remove(struct storage *storage, uint32_t slot, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    struct error why = {0};
    if (!storage_area_path(storage, slot, path, err))
        return false;
    if (storage_discard(storage, path, &why) || why.kind == ERROR_NOT_FOUND)
        return true;
    if (err)
        *err = why;
    return false;
}

static bool snapshot_take(struct storage *storage, const struct storage_area *area, const char *name,
                          struct storage_job **job, struct error *err)
{
    AUTO_FD int fd = open_area(area, err);
    return fd >= 0 && plain_snapshot_take(storage, fd, first_id(storage, area), name, job, err);
}

const struct storage_driver storage_folder = {
    .name = "folder",
    .open = folder_open,
    .area_make = area_make,
    .area_restore = area_restore,
    .area_adopt = area_adopt,
    .area_usage = area_usage,
    .area_remove = area_remove,
    .snapshot_take = snapshot_take,
    .snapshot_size = plain_snapshot_size,
    .snapshot_remove = plain_snapshot_remove,
    .volume_make = plain_volume_make,
    .volume_remove = plain_volume_remove,
};
