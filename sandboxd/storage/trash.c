/** trash.c - removing off the caller's path: a rename into base/trash, which a child process empties. */
#include "sandboxd/storage/job.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <btrfsutil.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t RETRY_NS = 30ULL * 1000 * 1000 * 1000, LOOK_FIRST_NS = 20ULL * 1000 * 1000,
                      LOOK_LAST_NS = 2ULL * 1000 * 1000 * 1000;

bool storage_discard(struct storage *storage, const char *path, struct error *err)
{
    char id[RANDOM_ID_BYTES], to[STORAGE_PATH_BYTES];
    random_id(id, "t");
    if (!storage_path(storage, "trash", id, to, err))
        return false;
    if (rename(path, to) < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "move %s away", path);
    storage->trash_waits = true;
    return true;
}

/* A subvolume goes whole; who got one made inside another (that takes an escape) does not keep it from going. */
static bool remove_one(int trash, const char *name, struct error *err)
{
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", trash);
    if (fstatat(trash, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode) &&
        btrfs_util_delete_subvolume_fd(trash, name, BTRFS_UTIL_DELETE_SUBVOLUME_RECURSIVE) == BTRFS_UTIL_OK)
        return true;
    char full[sizeof path + NAME_MAX + 2];
    snprintf(full, sizeof full, "%s/%s", path, name);
    return fd_remove_tree(full, err);
}

static bool empty(const struct job_work *work, struct error *err)
{
    DIR *folder = fdopendir(work->fds[0]);
    bool ok = true;
    if (folder == NULL)
        return error_set_errno(err, ERROR_INTERNAL, "open the trash");
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ok = remove_one(work->fds[0], entry->d_name, err) && ok;
    }
    closedir(folder);
    return ok;
}

static void begin(struct storage *storage, uint64_t now_boot_ns)
{
    struct error err = {0};
    char path[STORAGE_PATH_BYTES];
    AUTO_FD int trash = -1;
    if (storage_path(storage, "trash", ".", path, &err))
        trash = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* Deleting a subvolume takes SYS_ADMIN; the child has no other way to use it than the trash's descriptor. */
    const struct job_work work = {.run = empty,
                                  .fds = {trash, -1},
                                  .capabilities = 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER |
                                                  (storage->pool ? 1ULL << CAP_SYS_ADMIN : 0)};
    storage->removal = trash < 0 ? NULL : job_start(storage, &work, &err);
    storage->trash_waits = storage->removal == NULL;
    storage->retry_at = storage->removal ? 0 : now_boot_ns + RETRY_NS;
    storage->look_ns = LOOK_FIRST_NS;
    storage->look_at = now_boot_ns + storage->look_ns;
}

static bool has_ended(const struct storage_job *job)
{
    struct pollfd watch = {.fd = storage_job_fd(job), .events = POLLIN};
    return poll(&watch, 1, 0) > 0;
}

/* Its child is looked after ever more seldom: nobody waits for it. */
static bool is_still_busy(struct storage *storage, uint64_t now_boot_ns)
{
    struct error err = {0};
    if (storage->removal == NULL)
        return false;
    if (!has_ended(storage->removal)) {
        storage->look_ns = storage->look_ns * 2 > LOOK_LAST_NS ? LOOK_LAST_NS : storage->look_ns * 2;
        storage->look_at = now_boot_ns + storage->look_ns;
        return true;
    }
    if (!storage_job_finish(TAKE(storage->removal), &err)) {
        log_warn("storage", "cannot remove what was thrown away, trying again: %s", err.message);
        storage->retry_at = now_boot_ns + RETRY_NS;
        storage->trash_waits = true;
    }
    return false;
}

void storage_empty_trash(struct storage *storage, uint64_t now_boot_ns)
{
    if (!is_still_busy(storage, now_boot_ns) && storage->trash_waits && now_boot_ns >= storage->retry_at)
        begin(storage, now_boot_ns);
}

uint64_t storage_next_removal(const struct storage *storage)
{
    if (storage->removal)
        return storage->look_at;
    return !storage->trash_waits ? 0 : storage->retry_at ? storage->retry_at : 1;
}
