#include "sandboxd/storage/plain.h"

#include "sandboxd/storage/copy.h"
#include "sandboxd/storage/job.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NUMBER_BYTES = 24 };

static const uint64_t COPY_CAPABILITIES =
    1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID | 1ULL << CAP_SETFCAP;

bool plain_open(struct storage *storage, struct error *err)
{
    if (!text_format(storage->base, sizeof storage->base, "%s/plain", storage->top))
        return error_set(err, ERROR_INVALID, "the path of the state folder is too long");
    return storage_make_folders(storage, err);
}

/* --- in the job's child: 3 is the source, 4 the copy --- */

static bool copy_layer(struct copy *copy, int from, int to, const char *layer, struct error *err)
{
    const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    AUTO_FD int source_half = openat(from, layer, how), target_half = openat(to, layer, how);
    AUTO_FD int source = openat(source_half, "upper", how), target = openat(target_half, "upper", how);
    if (source < 0 || target < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s/upper", layer);
    return copy_tree(copy, source, target, err);
}

/* Files with many names have one more in `links` until all are copied. */
static bool copy_layers(int from, int to, struct copy *copy, struct error *err)
{
    char path[64];
    if (mkdirat(to, "links", 0700) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a folder for a copy");
    AUTO_FD int links = openat(to, "links", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (links < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open a folder of a copy");
    copy->links = links;
    snprintf(path, sizeof path, "/proc/self/fd/%d/links", to);
    return copy_layer(copy, from, to, "root", err) && copy_layer(copy, from, to, "usr", err) &&
           fd_remove_tree(path, err);
}

static bool run_copy(const struct job_work *work, struct copy *copy, struct error *err)
{
    *copy = (struct copy){.uid_from = work->uid_from, .uid_to = work->uid_to};
    return copy_layers(work->fds[0], work->fds[1], copy, err);
}

static bool run_restore(const struct job_work *work, struct error *err)
{
    struct copy copy;
    return run_copy(work, &copy, err);
}

/* A snapshot is told as ready when it is on the disk. */
static bool run_take(const struct job_work *work, struct error *err)
{
    struct copy copy;
    char number[NUMBER_BYTES];
    if (!run_copy(work, &copy, err))
        return false;
    int size = snprintf(number, sizeof number, "%" PRIu64, copy.bytes);
    AUTO_FD int file = openat(work->fds[1], "bytes", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return error_set_errno(err, ERROR_INTERNAL, "write a snapshot's size");
    return fd_write_all(file, number, (size_t)size, err) &&
           (syncfs(work->fds[1]) == 0 || error_set_errno(err, ERROR_INTERNAL, "sync a snapshot"));
}

/* --- in the launcher --- */

static bool make_snapshot_folder(struct storage *storage, const char *path, struct error *err)
{
    struct error gone = {0};
    if (!storage_discard(storage, path, &gone) && gone.kind != ERROR_NOT_FOUND) {
        if (err)
            *err = gone;
        return false;
    }
    if (mkdir(path, STORAGE_FOLDER_MODE) < 0)
        return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL, "make %s",
                               path);
    AUTO_FD int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    return storage_make_layers(folder, 0, err);
}

bool plain_snapshot_take(struct storage *storage, int from, uint32_t uid_from, const char *name,
                         struct storage_job **job, struct error *err)
{
    struct job_work work = {.run = run_take, .uid_from = uid_from, .capabilities = COPY_CAPABILITIES};
    char half_made[STORAGE_NAME_BYTES + 8];
    snprintf(half_made, sizeof half_made, ".%s", name);
    if (!storage_path(storage, "snapshots", name, work.final, err) ||
        !storage_path(storage, "snapshots", half_made, work.made, err))
        return false;
    AUTO_FD int to = -1;
    bool ok = make_snapshot_folder(storage, work.made, err);
    if (ok)
        to = open(work.made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    work.fds[0] = from, work.fds[1] = to, work.fds[2] = -1;
    *job = ok && to >= 0 ? job_start(storage, &work, err) : NULL;
    if (*job == NULL)
        (void)!storage_discard(storage, work.made, NULL);
    return *job != NULL;
}

bool plain_restore(struct storage *storage, const char *snapshot, int to, uint32_t uid_to, struct storage_job **job,
                   struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    if (!storage_path(storage, "snapshots", snapshot, path, err))
        return false;
    AUTO_FD int from = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return error_set_errno(err, ERROR_NOT_FOUND, "open snapshot %s", snapshot);
    const struct job_work work = {
        .run = run_restore, .fds = {from, to, -1}, .uid_to = uid_to, .capabilities = COPY_CAPABILITIES};
    *job = job_start(storage, &work, err);
    return *job != NULL;
}

bool plain_snapshot_size(struct storage *storage, const char *name, uint64_t *bytes, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    size_t size = 0;
    if (!storage_path(storage, "snapshots", name, path, err))
        return false;
    AUTO_FREE char *file = memory_printf("%s/bytes", path), *text = fd_read_file(file, NUMBER_BYTES, &size, err);
    return text &&
           (text_parse_u64(text, size, UINT64_MAX, bytes) || error_set(err, ERROR_INTERNAL, "%s is damaged", file));
}

static bool discard_from(struct storage *storage, const char *folder, const char *name, struct error *err)
{
    char path[STORAGE_PATH_BYTES];
    return storage_path(storage, folder, name, path, err) && storage_discard(storage, path, err);
}

bool plain_snapshot_remove(struct storage *storage, const char *name, struct error *err)
{
    return discard_from(storage, "snapshots", name, err);
}

bool plain_volume_make(struct storage *storage, const char *path, uint64_t bytes, struct error *err)
{
    char made[STORAGE_PATH_BYTES];
    (void)bytes;
    (void)!storage_discard(storage, path, NULL);
    if (!storage_path(storage, "volumes", ".new", made, err))
        return false;
    (void)!storage_discard(storage, made, NULL); /* of a launcher that was killed */
    if (mkdir(made, 0700) < 0 || chown(made, STORAGE_VOLUME_OWNER, STORAGE_VOLUME_OWNER) < 0 || chmod(made, 0755) < 0 ||
        rename(made, path) < 0)
        return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL,
                               "make the volume %s", path);
    return true;
}

bool plain_volume_remove(struct storage *storage, const char *name, struct error *err)
{
    return discard_from(storage, "volumes", name, err);
}
