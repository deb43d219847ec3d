/** storage_internal.h - what the files of this room share: a driver a kind, names of folders, the pool's parts. */
#pragma once

#include "sandboxd/storage/storage.h"

#define STORAGE_FOLDER_MODE 0700

enum { STORAGE_BYTES_PER_INODE = 8192, STORAGE_INODES_MIN = 1024, STORAGE_INODES_MAX = 4 * 1024 * 1024 };

struct btrfs_pool;

/** One kind. What it does not have is NULL; the face (storage.c) has checked names and slots before. */
struct storage_driver {
    const char *name;
    bool is_memory, has_quota;
    bool (*open)(struct storage *storage, const struct storage_options *options, struct error *err);
    void (*close)(struct storage *storage);
    bool (*area_make)(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, struct error *err);
    bool (*area_restore)(struct storage *storage, struct storage_area *area, uint64_t disk_bytes, const char *snapshot,
                         struct storage_job **job, struct error *err);
    bool (*area_adopt)(struct storage *storage, struct storage_area *area, int init_pidfd, uint64_t device,
                       struct error *err);
    bool (*area_limit)(struct storage *storage, const struct storage_area *area, uint64_t disk_bytes,
                       struct error *err);
    bool (*area_usage)(struct storage *storage, const struct storage_area *area, uint64_t *bytes, struct error *err);
    bool (*area_remove)(struct storage *storage, uint32_t slot, struct error *err);
    bool (*snapshot_take)(struct storage *storage, const struct storage_area *area, const char *name,
                          struct storage_job **job, struct error *err);
    bool (*snapshot_size)(struct storage *storage, const char *name, uint64_t *bytes, struct error *err);
    bool (*snapshot_remove)(struct storage *storage, const char *name, struct error *err);
    bool (*volume_make)(struct storage *storage, const char *path, uint64_t bytes, struct error *err);
    bool (*volume_remove)(struct storage *storage, const char *name, struct error *err);
    /** Of what a job had made; NULL: storage_discard. A read-only subvolume cannot be renamed into another folder. */
    bool (*discard)(struct storage *storage, const char *path, struct error *err);
    uint64_t (*next_wake)(const struct storage *storage);
    void (*wake)(struct storage *storage, uint64_t now_boot_ns);
};

extern const struct storage_driver storage_btrfs, storage_tmpfs, storage_folder;

/** `top` is STATE/sandboxd/storage; areas, snapshots, volumes and trash lie below `base`: top/pool, or top/plain. */
struct storage {
    const struct storage_driver *driver;
    char top[STORAGE_PATH_BYTES], base[STORAGE_PATH_BYTES];
    bool has_slot_ids;
    struct btrfs_pool *pool;     /* btrfs */
    struct storage_job *dying;   /* cancelled, but their children have not died yet */
    uint64_t bury_at;            /* boot ns: when these are looked after; 0 none */
    struct storage_job *removal; /* what empties the trash; NULL none */
    bool trash_waits;            /* something was put there after `removal` began */
    uint64_t retry_at;           /* boot ns: when a failed removal is tried again; 0 none */
    uint64_t look_at, look_ns;   /* when `removal` is looked after next, and how long that was put off */
};

/** Makes base/{areas,snapshots,volumes,trash}, 0700. */
bool storage_make_folders(const struct storage *storage, struct error *err) MUST_USE;
/** "base/areas/<slot>" */
bool storage_area_path(const struct storage *storage, uint32_t slot, char path[static STORAGE_PATH_BYTES],
                       struct error *err) MUST_USE;
/** "base/<folder>/<name>" */
bool storage_path(const struct storage *storage, const char *folder, const char *name,
                  char path[static STORAGE_PATH_BYTES], struct error *err) MUST_USE;
/** root/upper, root/work, usr/upper, usr/work in the empty folder `area`, of `uid`. */
bool storage_make_layers(int area, uint32_t uid, struct error *err) MUST_USE;
/** Renames `path` into the trash, which a child empties. NOT_FOUND when it is not there. */
bool storage_discard(struct storage *storage, const char *path, struct error *err) MUST_USE;
/** What the trash needs now: the child's end, a next child. */
void storage_empty_trash(struct storage *storage, uint64_t now_boot_ns);
/** When storage_empty_trash is due; 0 never. */
uint64_t storage_next_removal(const struct storage *storage) MUST_USE;
/** How many files a tmpfs of so many bytes may have. */
uint64_t storage_inodes(uint64_t bytes) MUST_USE;
