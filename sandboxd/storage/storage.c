/** storage.c - the face: chooses the kind, checks names, and knows the folders that all kinds have. */
#include "sandboxd/storage/storage.h"

#include "sandboxd/storage/job.h"
#include "sandboxd/storage/storage_internal.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct storage_driver *const DRIVERS[] = {&storage_btrfs, &storage_tmpfs, &storage_folder};

enum { DRIVERS_COUNT = sizeof DRIVERS / sizeof DRIVERS[0] };

/* --- names --- */

static bool check_name(const char *what, const char *name, struct error *err)
{
    if (name == NULL || !text_is_made_of(name, STORAGE_NAME_BYTES - 1, "_-") ||
        strpbrk(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        return error_set(err, ERROR_INVALID, "the name of a %s is 1..%d of a-z 0-9 _ -", what, STORAGE_NAME_BYTES - 1);
    return true;
}

bool storage_path(const struct storage *storage, const char *folder, const char *name,
                  char path[static STORAGE_PATH_BYTES], struct error *err)
{
    if (!text_format(path, STORAGE_PATH_BYTES, "%s/%s/%s", storage->base, folder, name))
        return error_set(err, ERROR_INVALID, "the state folder's path is too long");
    return true;
}

bool storage_area_path(const struct storage *storage, uint32_t slot, char path[static STORAGE_PATH_BYTES],
                       struct error *err)
{
    char name[16];
    return text_format(name, sizeof name, "%u", slot) && storage_path(storage, "areas", name, path, err);
}

/* --- folders --- */

bool storage_make_folders(const struct storage *storage, struct error *err)
{
    static const char *const NAMES[] = {"areas", "snapshots", "volumes", "trash"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        AUTO_FREE char *path = memory_printf("%s/%s", storage->base, NAMES[i]);
        if (!fd_make_folders(path, STORAGE_FOLDER_MODE, err))
            return false;
    }
    return true;
}

static bool make_layer(int area, const char *name, mode_t mode, uint32_t uid, struct error *err)
{
    if (mkdirat(area, name, 0700) < 0 || fchownat(area, name, uid, uid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(area, name, mode, 0) < 0)
        return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL,
                               "make %s in a sandbox's area", name);
    return true;
}

bool storage_make_layers(int area, uint32_t uid, struct error *err)
{
    static const char *const NAMES[] = {"root", "root/upper", "root/work", "usr", "usr/upper", "usr/work"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (!make_layer(area, NAMES[i], 0755, uid, err))
            return false;
    }
    return true;
}

uint64_t storage_inodes(uint64_t bytes)
{
    uint64_t inodes = bytes / STORAGE_BYTES_PER_INODE;
    return inodes < STORAGE_INODES_MIN ? STORAGE_INODES_MIN : inodes > STORAGE_INODES_MAX ? STORAGE_INODES_MAX : inodes;
}

/* What a killed launcher had half made has a name that begins with a dot. */
static void sweep(struct storage *storage, const char *folder)
{
    AUTO_FREE char *path = memory_printf("%s/%s", storage->base, folder);
    DIR *names = opendir(path);
    if (names == NULL)
        return;
    for (struct dirent *entry = readdir(names); entry; entry = readdir(names)) {
        char half_made[STORAGE_PATH_BYTES];
        struct error err = {0};
        if (entry->d_name[0] != '.' || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!storage_path(storage, folder, entry->d_name, half_made, &err) ||
            !storage_discard(storage, half_made, &err))
            log_warn("storage", "%s", err.message);
    }
    closedir(names);
}

/* --- opening --- */

static bool open_kind(struct storage *storage, const struct storage_driver *driver,
                      const struct storage_options *options, struct error *err)
{
    storage->driver = driver;
    if (driver->open(storage, options, err))
        return true;
    storage->driver = NULL;
    return false;
}

static bool open_any(struct storage *storage, const struct storage_options *options, struct error *err)
{
    struct error why = {0};
    if (open_kind(storage, &storage_btrfs, options, &why))
        return true;
    log_warn("storage", "no btrfs pool, so sandboxes write to memory (tmpfs): %s", why.message);
    return open_kind(storage, &storage_tmpfs, options, err);
}

static bool choose(struct storage *storage, const struct storage_options *options, struct error *err)
{
    if (text_equal(options->kind, "auto"))
        return open_any(storage, options, err);
    for (size_t i = 0; i < DRIVERS_COUNT; i++) {
        if (text_equal(options->kind, DRIVERS[i]->name))
            return open_kind(storage, DRIVERS[i], options, err) ||
                   error_prefix(err, "storage \"%s\" cannot be had", options->kind);
    }
    return error_set(err, ERROR_INVALID, "storage is auto, btrfs, tmpfs or folder");
}

struct storage *storage_open(const struct storage_options *options, struct error *err)
{
    AUTO(storage) *storage = memory_new(sizeof *storage);
    if (!text_format(storage->top, sizeof storage->top, "%s/sandboxd/storage", options->state_folder) ||
        strlen(storage->top) + STORAGE_NAME_BYTES + sizeof "/plain/snapshots/" > STORAGE_PATH_BYTES) {
        error_set(err, ERROR_INVALID, "the path of the state folder is too long");
        return NULL;
    }
    if (!fd_make_folders(storage->top, STORAGE_FOLDER_MODE, err))
        return NULL;
    if (chmod(storage->top, STORAGE_FOLDER_MODE) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "chmod %s", storage->top);
        return NULL;
    }
    storage->has_slot_ids = options->has_slot_ids;
    if (!choose(storage, options, err))
        return NULL;
    sweep(storage, "snapshots");
    sweep(storage, "volumes");
    storage->trash_waits = true; /* of a launcher that was killed, too */
    return TAKE(storage);
}

void storage_close(struct storage *storage)
{
    if (storage == NULL)
        return;
    if (storage->removal)
        storage_job_cancel(storage->removal);
    job_bury(storage, true);
    if (storage->driver && storage->driver->close)
        storage->driver->close(storage);
    free(storage);
}

const char *storage_kind(const struct storage *storage)
{
    return storage->driver->name;
}

bool storage_is_memory(const struct storage *storage)
{
    return storage->driver->is_memory;
}

bool storage_has_quota(const struct storage *storage)
{
    return storage->driver->has_quota;
}

/* --- areas --- */

void storage_area_close(struct storage_area *area)
{
    if (area->mount >= 0)
        close(area->mount);
    *area = STORAGE_AREA_NONE;
}

bool storage_area_make(struct storage *storage, uint32_t slot, uint32_t uid_base, uint64_t disk_bytes,
                       struct storage_area *area, struct error *err)
{
    struct storage_area made = {.slot = slot, .uid_base = uid_base, .mount = -1};
    if (!storage_area_remove(storage, slot, err) || !storage->driver->area_make(storage, &made, disk_bytes, err))
        return false;
    *area = made;
    return true;
}

bool storage_area_restore(struct storage *storage, uint32_t slot, uint32_t uid_base, uint64_t disk_bytes,
                          const char *snapshot, struct storage_area *area, struct storage_job **job, struct error *err)
{
    struct storage_area made = {.slot = slot, .uid_base = uid_base, .mount = -1};
    struct storage_job *begun = NULL;
    uint64_t bytes = 0;
    if (!storage_snapshot_size(storage, snapshot, &bytes, err))
        return false;
    if (bytes > disk_bytes)
        return error_set(err, ERROR_DISK_FULL, "the snapshot holds %llu MB, more than the disk of %llu MB",
                         (unsigned long long)(bytes + 1048575) >> 20, (unsigned long long)disk_bytes >> 20);
    if (!storage_area_remove(storage, slot, err) ||
        !storage->driver->area_restore(storage, &made, disk_bytes, snapshot, &begun, err))
        return false;
    *area = made;
    *job = begun;
    return true;
}

bool storage_area_adopt(struct storage *storage, uint32_t slot, uint32_t uid_base, int init_pidfd, uint64_t device,
                        struct storage_area *area, struct error *err)
{
    struct storage_area found = {.slot = slot, .uid_base = uid_base, .mount = -1};
    if (!storage->driver->area_adopt(storage, &found, init_pidfd, device, err))
        return false;
    *area = found;
    return true;
}

bool storage_area_limit(struct storage *storage, const struct storage_area *area, uint64_t disk_bytes,
                        struct error *err)
{
    uint64_t used = 0;
    if (!storage->driver->has_quota)
        return error_set(err, ERROR_INVALID, "this node's storage is a plain folder, which has no disk limit");
    if (!storage_area_usage(storage, area, &used, err))
        return false;
    if (used > disk_bytes)
        return error_set(err, ERROR_INVALID, "%llu MB of disk are in use: the limit cannot be lower",
                         (unsigned long long)(used + 1048575) >> 20);
    return storage->driver->area_limit(storage, area, disk_bytes, err);
}

bool storage_area_usage(struct storage *storage, const struct storage_area *area, uint64_t *bytes, struct error *err)
{
    return storage->driver->area_usage(storage, area, bytes, err);
}

bool storage_area_remove(struct storage *storage, uint32_t slot, struct error *err)
{
    return storage->driver->area_remove(storage, slot, err);
}

/* --- snapshots --- */

static bool is_there(const struct storage *storage, const char *folder, const char *name)
{
    char path[STORAGE_PATH_BYTES];
    struct stat status;
    return storage_path(storage, folder, name, path, NULL) && lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool storage_snapshot_exists(struct storage *storage, const char *name)
{
    return check_name("snapshot", name, NULL) && is_there(storage, "snapshots", name);
}

static bool find_snapshot(struct storage *storage, const char *name, struct error *err)
{
    return check_name("snapshot", name, err) && (is_there(storage, "snapshots", name) ||
                                                 error_set(err, ERROR_NOT_FOUND, "no snapshot %s on this node", name));
}

bool storage_snapshot_take(struct storage *storage, const struct storage_area *area, const char *name,
                           struct storage_job **job, struct error *err)
{
    struct storage_job *begun = NULL;
    if (!check_name("snapshot", name, err))
        return false;
    if (is_there(storage, "snapshots", name))
        return error_set(err, ERROR_CONFLICT, "there is a snapshot %s already", name);
    if (!storage->driver->snapshot_take(storage, area, name, &begun, err))
        return false;
    *job = begun;
    return true;
}

bool storage_snapshot_size(struct storage *storage, const char *name, uint64_t *bytes, struct error *err)
{
    return find_snapshot(storage, name, err) && storage->driver->snapshot_size(storage, name, bytes, err);
}

bool storage_snapshot_remove(struct storage *storage, const char *name, struct error *err)
{
    return find_snapshot(storage, name, err) && storage->driver->snapshot_remove(storage, name, err);
}

size_t storage_snapshot_list(struct storage *storage, char (*names)[STORAGE_NAME_BYTES], size_t max)
{
    AUTO_FREE char *path = memory_printf("%s/snapshots", storage->base);
    DIR *folder = opendir(path);
    size_t count = 0;
    if (folder == NULL)
        return 0;
    for (struct dirent *entry = readdir(folder); entry && count < max; entry = readdir(folder)) {
        if (check_name("snapshot", entry->d_name, NULL) && text_copy(names[count], STORAGE_NAME_BYTES, entry->d_name))
            count++;
    }
    closedir(folder);
    return count;
}

/* --- volumes --- */

bool storage_volume_open(struct storage *storage, const char *name, uint64_t bytes,
                         char path[static STORAGE_PATH_BYTES], struct error *err)
{
    char found[STORAGE_PATH_BYTES];
    if (!check_name("volume", name, err) || !storage_path(storage, "volumes", name, found, err))
        return false;
    if (storage->has_slot_ids)
        return error_set(err, ERROR_INVALID, "volumes need idmapped mounts, which this node has no right to make");
    if (!is_there(storage, "volumes", name) && !storage->driver->volume_make(storage, found, bytes, err))
        return false;
    memcpy(path, found, sizeof found);
    return true;
}

bool storage_volume_exists(const struct storage *storage, const char *name)
{
    return check_name("volume", name, NULL) && is_there(storage, "volumes", name);
}

bool storage_volume_remove(struct storage *storage, const char *name, struct error *err)
{
    if (!check_name("volume", name, err))
        return false;
    if (!is_there(storage, "volumes", name))
        return error_set(err, ERROR_NOT_FOUND, "no volume %s on this node", name);
    return storage->driver->volume_remove(storage, name, err);
}

/* --- time --- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b && (a == 0 || b < a) ? b : a;
}

uint64_t storage_next_wake(const struct storage *storage)
{
    uint64_t own = storage->driver->next_wake ? storage->driver->next_wake(storage) : 0;
    return sooner(sooner(own, storage->bury_at), storage_next_removal(storage));
}

void storage_wake(struct storage *storage, uint64_t now_boot_ns)
{
    if (storage->bury_at && storage->bury_at <= now_boot_ns)
        job_bury(storage, false);
    storage_empty_trash(storage, now_boot_ns);
    if (storage->driver->wake)
        storage->driver->wake(storage, now_boot_ns);
}
