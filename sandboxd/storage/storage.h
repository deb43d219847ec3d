/** storage.h - where sandboxes write: an *area* for each slot, *snapshots* that outlive their sandbox, named *volumes*.
 *  Only the launcher calls it: one thread, with rights, in its private mount namespace.
 *
 *  Three kinds, one face. "btrfs": a pool in a file, a subvolume with a quota for each area; snapshots are O(1).
 *  "tmpfs": memory of the sandbox; "folder": a plain folder, without a quota. In the last two a snapshot is a copy.
 *  Ids on disk are 0..65535, so that what one slot wrote another can read; in a tmpfs area they are the slot's.
 *
 *  An area is a folder that holds root/upper, root/work, usr/upper and usr/work; who makes a sandbox mounts it by its
 *  path, idmapped, or takes the detached mount itself. It is never shown to user code but through an overlay: on a bare
 *  btrfs mount anybody may make subvolumes, which leave the quota. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STORAGE_PATH_BYTES   512  /* a path of ours, with NUL */
#define STORAGE_VOLUME_OWNER 1000 /* of a fresh volume's folder: the sandbox's user */
#define STORAGE_NAME_BYTES   64   /* a snapshot's or volume's name on disk, with NUL: [a-z0-9_-] */

struct storage;
struct storage_job; /* work of a child process, for what takes long */

struct storage_options {
    const char *kind;         /* "auto", "btrfs", "tmpfs", "folder". auto: btrfs where the host can, else tmpfs */
    const char *state_folder; /* real path; all lies below STATE/sandboxd/storage */
    bool has_slot_ids; /* for want of idmapped mounts, areas of "folder" have their slot's ids as those of tmpfs have;
                          no volumes */
    uint64_t pool_bytes_max;  /* btrfs: what the pool may grow to; 0: half of what it and the free space have */
};

/** Opens it; makes the pool, or mounts the one that is there (perhaps in use by sandboxes of a former launcher). A kind
 *  that was asked for and cannot be had is an error that says why; "auto" never is. NULL on failure. */
struct storage *storage_open(const struct storage_options *options, struct error *err) MUST_USE;
/** Lets go; areas in use stay in use. */
void storage_close(struct storage *storage);
#define storage_free storage_close
DEFINE_AUTO(storage)

/** "btrfs", "tmpfs" or "folder". */
const char *storage_kind(const struct storage *storage) MUST_USE;
/** Whether areas count as memory of their sandbox (tmpfs), and whether a quota holds (not: folder). */
bool storage_is_memory(const struct storage *storage) MUST_USE;
bool storage_has_quota(const struct storage *storage) MUST_USE;

/** What `parley doctor` says of storage: one line, with what is missing, and whether limits hold. Changes nothing; a
 *  launcher may run. */
bool storage_probe(const struct storage_options *options, char *detail, size_t size) MUST_USE;

/* ---- areas ---- */

/** Where a slot writes. Zeroed, with mount -1, it is none. */
struct storage_area {
    uint32_t slot, uid_base;
    char path[STORAGE_PATH_BYTES]; /* of the folder, with ids 0..65535: to be idmapped, or (has_slot_ids) the slot's; ""
                                      for tmpfs */
    int mount;                     /* tmpfs: detached mount whose root is the area, ids of the slot; else -1. Owned */
    uint64_t device;               /* st_dev of the tmpfs, to know it again; else 0 */
};
#define STORAGE_AREA_NONE ((struct storage_area){.mount = -1})
/** Closes the descriptor; what is written stays. */
void storage_area_close(struct storage_area *area);

/** A fresh, empty area of the slot; what an earlier one left there is removed first. `disk_bytes` is its quota. */
bool storage_area_make(struct storage *storage, uint32_t slot, uint32_t uid_base, uint64_t disk_bytes,
                       struct storage_area *area, struct error *err) MUST_USE;
/** The same with what a snapshot holds. *job is NULL when it is done at once, else the area may be used when the job
 * has ended well. NOT_FOUND, DISK_FULL when the snapshot is larger than `disk_bytes`. */
bool storage_area_restore(struct storage *storage, uint32_t slot, uint32_t uid_base, uint64_t disk_bytes,
                          const char *snapshot, struct storage_area *area, struct storage_job **job,
                          struct error *err) MUST_USE;
/** The area of a sandbox that a former launcher made: by path, or (tmpfs) by descriptor INHERIT_FD_AREA of its init,
 * which may be hostile: taken only when it is the root of the file system `device`. */
bool storage_area_adopt(struct storage *storage, uint32_t slot, uint32_t uid_base, int init_pidfd, uint64_t device,
                        struct storage_area *area, struct error *err) MUST_USE;
/** Another quota; one below what is used is INVALID. Not for "folder": INVALID. */
bool storage_area_limit(struct storage *storage, const struct storage_area *area, uint64_t disk_bytes,
                        struct error *err) MUST_USE;
/** Bytes in use; of btrfs as of the last commit, some seconds ago. "folder": what it is, or 0 when that is not known.
 */
bool storage_area_usage(struct storage *storage, const struct storage_area *area, uint64_t *bytes,
                        struct error *err) MUST_USE;
/** Takes it away: at once out of sight, off the caller's path. Also for slots of which nothing is known. */
bool storage_area_remove(struct storage *storage, uint32_t slot, struct error *err) MUST_USE;

/* ---- snapshots ---- */

/** Keeps what the area holds, as `name`; nothing may write to it until the job (NULL: done at once) has ended. CONFLICT
 *  when the name is taken. What a failed job or a kill -9 left is removed. */
bool storage_snapshot_take(struct storage *storage, const struct storage_area *area, const char *name,
                           struct storage_job **job, struct error *err) MUST_USE;
bool storage_snapshot_exists(struct storage *storage, const char *name) MUST_USE;
/** Bytes it holds, shared ones too. */
bool storage_snapshot_size(struct storage *storage, const char *name, uint64_t *bytes, struct error *err) MUST_USE;
/** NOT_FOUND. What was made of it goes on. */
bool storage_snapshot_remove(struct storage *storage, const char *name, struct error *err) MUST_USE;

/** Names of the snapshots that are here, in no order, at most `max`; returns how many. For finding orphans. */
size_t storage_snapshot_list(struct storage *storage, char (*names)[STORAGE_NAME_BYTES], size_t max) MUST_USE;

/* ---- volumes ---- */

/** The folder of the volume `name`, ids 0..65535; made, with a quota of `bytes` where there are quotas and owned by
 *  STORAGE_VOLUME_OWNER, when it is not there. Not for user code as it is: idmapped, nosuid, nodev, and with the ioctls
 * of btrfs denied. */
bool storage_volume_open(struct storage *storage, const char *name, uint64_t bytes,
                         char path[static STORAGE_PATH_BYTES], struct error *err) MUST_USE;
bool storage_volume_exists(const struct storage *storage, const char *name) MUST_USE;
/** NOT_FOUND. The caller knows that no sandbox has it. */
bool storage_volume_remove(struct storage *storage, const char *name, struct error *err) MUST_USE;

/* ---- work that takes long ---- */

/** Readable (poll) when it has ended. */
int storage_job_fd(const struct storage_job *job) MUST_USE;
/** Ends it: its result. Waits when it has not ended yet; frees it. */
bool storage_job_finish(struct storage_job *job, struct error *err) MUST_USE;
/** Kills it and frees it; what it made is removed: at once, or by storage_wake where its child cannot die yet. */
void storage_job_cancel(struct storage_job *job);

/** When storage_wake is due, CLOCK_BOOTTIME ns; 0 never. It grows the pool, and ends removals. */
uint64_t storage_next_wake(const struct storage *storage) MUST_USE;
void storage_wake(struct storage *storage, uint64_t now_boot_ns);
