/** plain.h - what tmpfs and folder have in common: snapshots and volumes are plain folders below top/plain, a snapshot
 *  is a copy. snapshots/<name> holds root/upper, usr/upper and, in the file `bytes`, how many those are. */
#pragma once

#include "sandboxd/storage/storage_internal.h"

bool plain_open(struct storage *storage, struct error *err) MUST_USE;
/** From the area's root `from`, whose id 0 is `uid_from`. */
bool plain_snapshot_take(struct storage *storage, int from, uint32_t uid_from, const char *name,
                         struct storage_job **job, struct error *err) MUST_USE;
/** Into the area's root `to`, which has its four folders. */
bool plain_restore(struct storage *storage, const char *snapshot, int to, uint32_t uid_to, struct storage_job **job,
                   struct error *err) MUST_USE;
bool plain_snapshot_size(struct storage *storage, const char *name, uint64_t *bytes, struct error *err) MUST_USE;
bool plain_snapshot_remove(struct storage *storage, const char *name, struct error *err) MUST_USE;
bool plain_volume_make(struct storage *storage, const char *path, uint64_t bytes, struct error *err) MUST_USE;
bool plain_volume_remove(struct storage *storage, const char *name, struct error *err) MUST_USE;
