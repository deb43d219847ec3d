#include "sandboxd/storage/btrfs_pool.h"

#include "sandboxd/storage/btrfs_loop.h"
#include "sandboxd/storage/btrfs_mkfs.h"
#include "sandboxd/storage/btrfs_quota.h"
#include "sandboxd/storage/btrfs_space.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

static const uint64_t MIB = 1ULL << 20, GIB = 1ULL << 30;
#define SIZE_MIN     (256 * MIB) /* below that btrfs has no room for its own */
#define SIZE_FIRST   (1 * GIB)
#define STEP         (1 * GIB)
#define HEADROOM_MIN (1 * GIB) /* what is free for whoever writes, until the pool is looked at again */
#define HEADROOM_MAX (4 * GIB)
#define METADATA_MIN (256 * MIB)
#define HOST_RESERVE (1 * GIB) /* what the host's disk keeps; a twentieth of it where that is less */
#define BUSY_NS      (250ULL * 1000 * 1000)
#define IDLE_NS      (1000ULL * 1000 * 1000)
#define FULL_NS      (10ULL * 1000 * 1000 * 1000)
#define FORGET_NS    (15ULL * 1000 * 1000 * 1000) /* longer than a commit */

enum { DROPPED_MAX = 65536, LOCK_TRIES = 250, LOCK_NS = 20 * 1000 * 1000, MOUNT_TRIES = 3 };

struct btrfs_pool {
    char folder[PATH_MAX], image_path[PATH_MAX], sysfs[64];
    int image, top; /* pool.img; the root of the mounted file system */
    struct btrfs_loop loop;
    uint64_t size, max;       /* of the image */
    uint64_t headroom;        /* what is to be free */
    uint64_t free_before;     /* what was free when it was looked at last */
    uint64_t wake_at;         /* boot ns */
    bool is_recounting;       /* the kernel has given up counting: the log knows */
    bool is_mounted, is_told; /* told: the log knows that it cannot grow */
    uint64_t *dropped;        /* ids of deleted subvolumes whose quota groups may be there still */
    size_t dropped_count;
    uint64_t forget_at; /* boot ns: when these are looked at next; 0 never */
};

/* --- the host's disk --- */

/* What may be taken of the host's disk. */
static uint64_t host_free(const char *folder)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) < 0)
        return 0;
    uint64_t all = (uint64_t)disk.f_blocks * disk.f_frsize, rest = (uint64_t)disk.f_bavail * disk.f_frsize;
    uint64_t reserve = all / 20 < HOST_RESERVE ? all / 20 : HOST_RESERVE;
    return rest > reserve ? rest - reserve : 0;
}

/* All of it or nothing: what was had of a part is given back. */
static bool allocate(int image, uint64_t from, uint64_t to, struct error *err)
{
    while (fallocate(image, 0, (off_t)from, (off_t)(to - from)) < 0) {
        if (errno == EINTR)
            continue;
        int why = errno;
        if (ftruncate(image, (off_t)from) < 0)
            log_warn("storage", "cannot give back a part of the pool's image");
        errno = why;
        if (why == EOPNOTSUPP)
            return error_set(err, ERROR_INTERNAL, "the file system of the state folder cannot allocate (fallocate(2))");
        return error_set_errno(err, why == ENOSPC || why == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL,
                               "allocate %" PRIu64 " MB for the pool", (to - from) / MIB);
    }
    return true;
}

/* --- making the image --- */

static bool make_image(struct btrfs_pool *pool, const char *top, struct error *err)
{
    AUTO_FREE char *half_made = memory_printf("%s.new", pool->image_path);
    uint64_t size = pool->max < SIZE_FIRST ? pool->max : SIZE_FIRST;
    if (size < SIZE_MIN || host_free(top) < size)
        return error_set(err, ERROR_DISK_FULL, "a pool takes %" PRIu64 " MB and may have %" PRIu64 " MB of %s",
                         SIZE_MIN / MIB, (pool->max < host_free(top) ? pool->max : host_free(top)) / MIB, top);
    if (unlink(half_made) < 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_INTERNAL, "remove %s", half_made);
    AUTO_FD int image = open(half_made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (image < 0)
        return error_set_errno(err, ERROR_INTERNAL, "create %s", half_made);
    if (!allocate(image, 0, size, err) || !btrfs_mkfs(half_made, err)) {
        unlink(half_made);
        return false;
    }
    if (fsync(image) < 0 || rename(half_made, pool->image_path) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make %s", pool->image_path);
    return true;
}

static bool open_image(struct btrfs_pool *pool, const char *top, struct error *err)
{
    const int how = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    struct stat status;
    pool->image = open(pool->image_path, how);
    if (pool->image < 0 && errno == ENOENT) {
        if (!make_image(pool, top, err))
            return false;
        pool->image = open(pool->image_path, how);
    }
    if (pool->image < 0 || fstat(pool->image, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", pool->image_path);
    pool->size = (uint64_t)status.st_size;
    return true;
}

/* --- the device --- */

static void wait_a_little(void)
{
    const struct timespec pause = {.tv_nsec = LOCK_NS};
    nanosleep(&pause, NULL);
}

/* The device shares the open file and so its lock: who gets the lock knows that there is no device, who does not finds
 * it. In between, while one is just going, it is tried again. */
static bool open_loop(struct btrfs_pool *pool, struct error *err)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        bool is_locked = flock(pool->image, LOCK_EX | LOCK_NB) == 0;
        if (!is_locked && errno != EWOULDBLOCK)
            return error_set_errno(err, ERROR_INTERNAL, "lock %s", pool->image_path);
        if (btrfs_loop_open(pool->image, is_locked, &pool->loop, err))
            return true;
        if (is_locked || !err || err->kind != ERROR_CONFLICT)
            return false;
        wait_a_little();
    }
    return false;
}

static bool mount_pool(struct btrfs_pool *pool, struct error *err)
{
    /* nodiscard: freed blocks would be punched out of the image, and the host might not give them back.
     * metadata_ratio: else data takes all chunks, and with much of it free nobody can make a file. */
    if (mount(pool->loop.path, pool->folder, "btrfs", MS_NOSUID | MS_NODEV | MS_NOATIME,
              "nodiscard,commit=10,metadata_ratio=4") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount the pool (btrfs on %s)", pool->loop.path);
    pool->is_mounted = true;
    pool->top = open(pool->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (pool->top < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", pool->folder);
    return true;
}

static bool name_sysfs(struct btrfs_pool *pool, struct error *err)
{
    struct btrfs_ioctl_fs_info_args info = {0};
    char id[2 * sizeof info.fsid + 1];
    if (ioctl(pool->top, BTRFS_IOC_FS_INFO, &info) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "ask for the pool's id");
    text_hex(id, info.fsid, sizeof info.fsid);
    return text_format(pool->sysfs, sizeof pool->sysfs, "/sys/fs/btrfs/%.8s-%.4s-%.4s-%.4s-%.12s", id, id + 8, id + 12,
                       id + 16, id + 20);
}

/* --- growing --- */

/* Whoever was killed after the first or second step: all three are done again at the next start. */
static bool use_all(struct btrfs_pool *pool, struct error *err)
{
    struct btrfs_ioctl_vol_args most = {.name = "max"};
    if (!btrfs_loop_grow(&pool->loop, err))
        return false;
    return ioctl(pool->top, BTRFS_IOC_RESIZE, &most) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "let the pool's btrfs grow");
}

static bool grow(struct btrfs_pool *pool, uint64_t by, struct error *err)
{
    uint64_t size = (pool->size + by + STEP - 1) / STEP * STEP;
    uint64_t room = host_free(pool->folder[0] ? pool->image_path : "/");
    if (size > pool->max)
        size = pool->max;
    if (size > pool->size + room)
        size = (pool->size + room) / MIB * MIB;
    if (size <= pool->size)
        return error_set(err, ERROR_DISK_FULL,
                         "it has %" PRIu64 " MB, may have %" PRIu64 " MB, and the host's disk has %" PRIu64
                         " MB to give",
                         pool->size / MIB, pool->max / MIB, room / MIB);
    if (!allocate(pool->image, pool->size, size, err))
        return false;
    pool->size = size;
    return use_all(pool, err);
}

static uint64_t lacking(uint64_t is_free, uint64_t wanted)
{
    return is_free < wanted ? wanted - is_free : 0;
}

static void keep_counting(struct btrfs_pool *pool)
{
    bool is_counting = btrfs_quota_is_counting(pool->top, pool->sysfs);
    if (!is_counting && !pool->is_recounting)
        log_error("storage", "btrfs has stopped counting what sandboxes use; until it has counted anew no limit holds");
    if (is_counting && pool->is_recounting)
        log_info("storage", "btrfs has counted anew: disk limits hold");
    pool->is_recounting = !is_counting;
}

/* Looks how much is free, grows it, says when to look again. */
static void look(struct btrfs_pool *pool, uint64_t now_boot_ns)
{
    struct btrfs_space space;
    struct error err = {0};
    keep_counting(pool);
    if (!btrfs_space_read(pool->top, pool->sysfs, &space, &err)) {
        log_warn("storage", "%s", err.message);
        pool->wake_at = now_boot_ns + FULL_NS;
        return;
    }
    uint64_t data = lacking(space.data_free, pool->headroom), metadata = lacking(space.metadata_free, METADATA_MIN);
    uint64_t by = data > metadata ? data : metadata;
    bool is_busy = space.data_free + 64 * MIB < pool->free_before;
    bool ok = by == 0 || pool->size >= pool->max || grow(pool, by, &err);
    if (!ok && !pool->is_told)
        log_warn("storage", "the pool cannot grow: %s", err.message);
    pool->is_told = !ok;
    pool->free_before = space.data_free;
    bool is_quiet = !ok || (pool->size >= pool->max && !pool->is_recounting);
    pool->wake_at = now_boot_ns + (is_quiet ? FULL_NS : is_busy || by ? BUSY_NS : IDLE_NS);
}

void btrfs_pool_expect(struct btrfs_pool *pool, uint64_t bytes)
{
    uint64_t wanted = bytes + HEADROOM_MIN / 2;
    wanted = wanted < HEADROOM_MIN ? HEADROOM_MIN : wanted > HEADROOM_MAX ? HEADROOM_MAX : wanted;
    if (wanted > pool->headroom)
        pool->headroom = wanted;
    if (pool->size < pool->max && !pool->is_told)
        look(pool, clock_boot_ns());
}

/* --- groups of what was deleted --- */

void btrfs_pool_dropped(struct btrfs_pool *pool, uint64_t id)
{
    if (pool->dropped_count == DROPPED_MAX)
        return;
    if ((pool->dropped_count & (pool->dropped_count - 1)) == 0)
        pool->dropped = memory_resize(pool->dropped, (pool->dropped_count ? pool->dropped_count * 2 : 1) * sizeof id);
    pool->dropped[pool->dropped_count++] = id;
    if (pool->forget_at == 0)
        pool->forget_at = clock_boot_ns() + FORGET_NS;
}

static void forget_dropped(struct btrfs_pool *pool, uint64_t now_boot_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < pool->dropped_count; i++) {
        if (!btrfs_quota_forget(pool->top, pool->sysfs, pool->dropped[i]))
            pool->dropped[kept++] = pool->dropped[i];
    }
    pool->dropped_count = kept;
    pool->forget_at = kept ? now_boot_ns + FORGET_NS : 0;
    if (kept)
        return;
    free(pool->dropped);
    pool->dropped = NULL;
}

uint64_t btrfs_pool_next_wake(const struct btrfs_pool *pool)
{
    return pool->forget_at && pool->forget_at < pool->wake_at ? pool->forget_at : pool->wake_at;
}

void btrfs_pool_wake(struct btrfs_pool *pool, uint64_t now_boot_ns)
{
    if (pool->forget_at && now_boot_ns >= pool->forget_at)
        forget_dropped(pool, now_boot_ns);
    if (now_boot_ns >= pool->wake_at)
        look(pool, now_boot_ns);
}

/* --- opening --- */

static void set_max(struct btrfs_pool *pool, const char *top, uint64_t bytes_max)
{
    struct stat status;
    uint64_t has = stat(pool->image_path, &status) == 0 ? (uint64_t)status.st_size : 0;
    uint64_t max = bytes_max ? bytes_max : (has + host_free(top)) / 2;
    pool->max = (max > has ? max : has) / MIB * MIB;
}

static bool set_up(struct btrfs_pool *pool, const char *top, uint64_t bytes_max, struct error *err)
{
    if (!text_format(pool->folder, sizeof pool->folder, "%s/pool", top) ||
        !text_format(pool->image_path, sizeof pool->image_path, "%s/pool.img", top))
        return error_set(err, ERROR_INVALID, "the path of the state folder is too long");
    set_max(pool, top, bytes_max);
    if (!fd_make_folders(pool->folder, 0700, err) || !open_image(pool, top, err) || !open_loop(pool, err) ||
        !mount_pool(pool, err) || !name_sysfs(pool, err) || !use_all(pool, err))
        return false;
    btrfs_space_prepare(pool->top, pool->sysfs);
    btrfs_space_give_back(pool->sysfs);
    return btrfs_quota_enable(pool->top, pool->sysfs, err);
}

struct btrfs_pool *btrfs_pool_open(const char *top, uint64_t bytes_max, struct error *err)
{
    struct btrfs_pool *pool = memory_new(sizeof *pool);
    *pool = (struct btrfs_pool){.image = -1, .top = -1, .loop = {.device = -1}, .headroom = HEADROOM_MIN};
    if (!btrfs_pool_is_possible(err) || !set_up(pool, top, bytes_max, err)) {
        btrfs_pool_close(pool);
        return NULL;
    }
    pool->wake_at = 1;
    return pool;
}

void btrfs_pool_close(struct btrfs_pool *pool)
{
    if (pool == NULL)
        return;
    if (pool->top >= 0)
        close(pool->top);
    if (pool->is_mounted && umount2(pool->folder, MNT_DETACH) < 0)
        log_warn("storage", "cannot unmount %s", pool->folder);
    if (pool->loop.device >= 0)
        close(pool->loop.device);
    if (pool->image >= 0)
        close(pool->image);
    free(pool->dropped);
    free(pool);
}

const char *btrfs_pool_sysfs(const struct btrfs_pool *pool)
{
    return pool->sysfs;
}

bool btrfs_pool_is_possible(struct error *err)
{
    AUTO_FREE char *known = fd_read_file("/proc/filesystems", 65536, NULL, NULL);
    if (geteuid() != 0)
        return error_set(err, ERROR_FORBIDDEN, "only root mounts a btrfs");
    if (known == NULL || (strstr(known, "\tbtrfs\n") == NULL && access("/sys/module/btrfs", F_OK) < 0 &&
                          access("/sys/fs/btrfs", F_OK) < 0))
        return error_set(err, ERROR_NOT_FOUND, "the kernel has no btrfs (modprobe btrfs)");
    if (access("/dev/loop-control", R_OK | W_OK) < 0)
        return error_set(err, ERROR_NOT_FOUND, "no loop devices (/dev/loop-control; modprobe loop)");
    if (btrfs_mkfs_find() == NULL)
        return error_set(err, ERROR_NOT_FOUND, "mkfs.btrfs is not installed (package btrfs-progs)");
    return true;
}
