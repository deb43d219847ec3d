/** btrfs.c - areas, snapshots and volumes as subvolumes of the pool, each with its quota. */
#include "sandboxd/storage/btrfs_pool.h"
#include "sandboxd/storage/btrfs_quota.h"
#include "sandboxd/storage/job.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <btrfsutil.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t BIRTH_BYTES = 2ULL << 20;

static bool fail(enum btrfs_util_error failed, const char *what, const char *path, struct error *err)
{
    int why = errno;
    if (failed == BTRFS_UTIL_OK)
        return true;
    if (why == ENOSPC || why == EDQUOT)
        return error_set(err, ERROR_DISK_FULL, "%s: the disk that all sandboxes of this node share is full", what);
    return error_set(err, ERROR_INTERNAL, "%s %s: %s (%s)", what, path, btrfs_util_strerror(failed), strerror(why));
}

static bool pool_open(struct storage *storage, const struct storage_options *options, struct error *err)
{
    if (!text_format(storage->base, sizeof storage->base, "%s/pool", storage->top))
        return error_set(err, ERROR_INVALID, "the path of the state folder is too long");
    storage->pool = btrfs_pool_open(storage->top, options->pool_bytes_max, err);
    if (storage->pool == NULL)
        return false;
    if (chmod(storage->base, STORAGE_FOLDER_MODE) == 0 && storage_make_folders(storage, err))
        return true;
    btrfs_pool_close(TAKE(storage->pool));
    return false;
}

static void pool_close(struct storage *storage)
{
    btrfs_pool_close(storage->pool);
}

static int open_folder(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "open %s", path);
    return fd;
}

/* Deleting a subvolume names it away at once and leaves the work to the kernel. One that has others in it (which takes
 * an escape) goes as folders do. */
static bool destroy(struct storage *storage, const char *path, struct error *err)
{
    uint64_t id = 0;
    bool has_id = btrfs_util_subvolume_id(path, &id) == BTRFS_UTIL_OK;
    if (!has_id && errno == ENOENT)
        return true;
    if (has_id && btrfs_util_delete_subvolume(path, 0) == BTRFS_UTIL_OK) {
        btrfs_pool_dropped(storage->pool, id);
        return true;
    }
    return storage_discard(storage, path, err);
}

/* --- areas --- */

static bool finish_area(const struct storage_area *area, const char *path, uint64_t disk_bytes, bool is_empty,
                        struct error *err)
{
    AUTO_FD int fd = open_folder(path, err);
    return fd >= 0 && btrfs_quota_limit(fd, disk_bytes, err) && (!is_empty || storage_make_layers(fd, 0, err)) &&
           area->slot < UINT32_MAX;
}

static bool area_begin(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, struct error *err)
{
    btrfs_pool_expect(storage->pool, disk_bytes);
    return storage_area_path(storage, area->slot, area->path, err);
}

static bool area_make(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, struct error *err)
{
    if (!area_begin(storage, area, disk_bytes, err) ||
        !fail(btrfs_util_create_subvolume(area->path, 0, NULL, NULL), "make the area", area->path, err))
        return false;
    if (finish_area(area, area->path, disk_bytes, true, err))
        return true;
    return destroy(storage, area->path, NULL) && false;
}

/* Of what is full to its limit a birth needs some on top: an overlay that cannot make its work folder is read-only, so
 * that nothing could ever be removed. */
static bool leave_room(const struct storage *storage, const struct storage_area *area, uint64_t disk_bytes,
                       struct error *err)
{
    uint64_t used = 0;
    AUTO_FD int fd = open_folder(area->path, err);
    if (fd < 0 || !btrfs_quota_usage(fd, btrfs_pool_sysfs(storage->pool), &used, err))
        return false;
    return disk_bytes == 0 || used + BIRTH_BYTES <= disk_bytes || btrfs_quota_limit(fd, used + BIRTH_BYTES, err);
}

static bool area_restore(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, const char *snapshot,
                         struct storage_job **job, struct error *err)
{
    char from[STORAGE_PATH_BYTES];
    if (!storage_path(storage, "snapshots", snapshot, from, err) || !area_begin(storage, area, disk_bytes, err) ||
        !fail(btrfs_util_create_snapshot(from, area->path, 0, NULL, NULL), "restore the snapshot", area->path, err))
        return false;
    *job = NULL;
    if (finish_area(area, area->path, disk_bytes, false, err) && leave_room(storage, area, disk_bytes, err))
        return true;
    return destroy(storage, area->path, NULL) && false;
}

static bool area_adopt(struct storage *storage, struct storage_area *area, int init_pidfd, uint64_t device,
                       struct error *err)
{
    (void)init_pidfd, (void)device;
    if (!storage_area_path(storage, area->slot, area->path, err))
        return false;
    AUTO_FD int fd = open_folder(area->path, err);
    return fd >= 0;
}

static bool area_limit(struct storage *storage, const struct storage_area *area, uint64_t disk_bytes, struct error *err)
{
    btrfs_pool_expect(storage->pool, disk_bytes);
    AUTO_FD int fd = open_folder(area->path, err);
    return fd >= 0 && btrfs_quota_limit(fd, disk_bytes, err);
}

static bool usage_of(const struct storage *storage, const char *path, uint64_t *bytes, struct error *err)
{
    AUTO_FD int fd = open_folder(path, err);
    return fd >= 0 && btrfs_quota_usage(fd, btrfs_pool_sysfs(storage->pool), bytes, err);
}

static bool area_usage(struct storage *storage, const struct storage_area *area, uint64_t *bytes, struct error *err)
{
    return usage_of(storage, area->path, bytes, err);
}

static bool area_remove(struct storage *storage, uint32_t slot, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    return storage_area_path(storage, slot, path, err) && destroy(storage, path, err);
}

/* --- snapshots --- */

/* In the child: 3 is the area, 4 the folder of snapshots. */
static bool run_take(const struct job_work *work, struct error *err)
{
    return fail(btrfs_util_create_snapshot_fd2(work->fds[0], work->fds[1], work->name,
                                               BTRFS_UTIL_CREATE_SNAPSHOT_READ_ONLY, NULL, NULL),
                "make the snapshot", work->name, err);
}

/* By a child: the kernel first writes out all that the sandbox has written, however long that takes the disk. There
 * is nothing half made: it is there, whole, or it is not. */
static bool snapshot_take(struct storage *storage, const struct storage_area *area, const char *name,
                          struct storage_job **job, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    struct job_work work = {.run = run_take};
    if (!text_copy(work.name, sizeof work.name, name) || !storage_path(storage, "snapshots", ".", path, err) ||
        !storage_path(storage, "snapshots", name, work.made, err))
        return false;
    AUTO_FD int from = open_folder(area->path, err), to = from < 0 ? -1 : open_folder(path, err);
    if (to < 0)
        return false;
    work.fds[0] = from, work.fds[1] = to, work.fds[2] = -1;
    *job = job_start(storage, &work, err);
    return *job != NULL;
}

static bool snapshot_size(struct storage *storage, const char *name, uint64_t *bytes, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    return storage_path(storage, "snapshots", name, path, err) && usage_of(storage, path, bytes, err);
}

static bool remove_from(struct storage *storage, const char *folder, const char *name, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    return storage_path(storage, folder, name, path, err) && destroy(storage, path, err);
}

static bool snapshot_remove(struct storage *storage, const char *name, struct error *err)
{
    return remove_from(storage, "snapshots", name, err);
}

/* --- volumes --- */

/* It gets its name when it is whole: what a kill -9 leaves is `new`, and removed by the next. */
static bool volume_make(struct storage *storage, const char *path, uint64_t bytes, struct error *err)
{
    char made[STORAGE_PATH_BYTES];
    btrfs_pool_expect(storage->pool, bytes);
    if (!storage_path(storage, "volumes", ".new", made, err) || !destroy(storage, made, err) ||
        !fail(btrfs_util_create_subvolume(made, 0, NULL, NULL), "make the volume", path, err))
        return false;
    AUTO_FD int fd = open_folder(made, err);
    if (fd < 0 || !btrfs_quota_limit(fd, bytes, err))
        return false;
    if (fchown(fd, STORAGE_VOLUME_OWNER, STORAGE_VOLUME_OWNER) < 0 || fchmod(fd, 0755) < 0 || rename(made, path) < 0)
        return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL,
                               "make the volume %s", path);
    return true;
}

static bool volume_remove(struct storage *storage, const char *name, struct error *err)
{
    return remove_from(storage, "volumes", name, err);
}

static uint64_t next_wake(const struct storage *storage)
{
    return btrfs_pool_next_wake(storage->pool);
}

static void wake(struct storage *storage, uint64_t now_boot_ns)
{
    btrfs_pool_wake(storage->pool, now_boot_ns);
}

const struct storage_driver storage_btrfs = {
    .name = "btrfs",
    .has_quota = true,
    .open = pool_open,
    .close = pool_close,
    .area_make = area_make,
    .area_restore = area_restore,
    .area_adopt = area_adopt,
    .area_limit = area_limit,
    .area_usage = area_usage,
    .area_remove = area_remove,
    .snapshot_take = snapshot_take,
    .snapshot_size = snapshot_size,
    .snapshot_remove = snapshot_remove,
    .volume_make = volume_make,
    .volume_remove = volume_remove,
    .discard = destroy,
    .next_wake = next_wake,
    .wake = wake,
};
