/* snapshots.c - see snapshots.h. */
#include "sandboxd/launcher/snapshots.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum { MAGIC = 0x50534e50 /* PNSP */, VERSION = 1, COUNT_MAX = 1000000, ORPHANS_MAX = 1000 };

/* No byte of it is padding, for all are summed. */
_Static_assert(sizeof(struct snapshot_record) == offsetof(struct snapshot_record, checksum) + sizeof(uint64_t) &&
                   offsetof(struct snapshot_record, checksum) ==
                       offsetof(struct snapshot_record, storage) + FRONT_LAUNCHER_NAME_BYTES,
               "struct snapshot_record has padding");

static uint64_t checksum(const struct snapshot_record *record)
{
    uint64_t hash = 14695981039346656037ULL; /* FNV-1a: against accidents, for the folder is root's alone */
    const uint8_t *bytes = (const uint8_t *)record;
    for (size_t i = 0; i < offsetof(struct snapshot_record, checksum); i++)
        hash = (hash ^ bytes[i]) * 1099511628211ULL;
    return hash;
}

static bool is_text(const char *field, size_t size)
{
    return field[0] && strnlen(field, size) < size;
}

static bool is_sane(const struct snapshot_record *record, const char *name)
{
    return record->magic == MAGIC && record->version == VERSION && record->checksum == checksum(record) &&
           is_text(record->name, sizeof record->name) && strcmp(record->name, name) == 0 &&
           random_is_id(record->name, "snp") && is_text(record->template_name, sizeof record->template_name) &&
           is_text(record->template_version, sizeof record->template_version) &&
           is_text(record->storage, sizeof record->storage);
}

static char *path_of(const char *folder, const char *name)
{
    return memory_printf("%s/%s", folder, name);
}

bool snapshot_write(const char *folder, struct snapshot_record *record, struct error *err)
{
    record->magic = MAGIC;
    record->version = VERSION;
    record->checksum = checksum(record);
    AUTO_FREE char *path = path_of(folder, record->name);
    return fd_write_file(path, 0600, record, sizeof *record, err);
}

void snapshots_add(struct snapshots *snapshots, const struct snapshot_record *record)
{
    /* Doubled when it is full, that is at powers of two. */
    if ((snapshots->count & (snapshots->count - 1)) == 0) {
        size_t room = snapshots->count ? 2 * snapshots->count : 1;
        snapshots->list = memory_resize(snapshots->list, room * sizeof *snapshots->list);
    }
    snapshots->list[snapshots->count++] = *record;
}

/* --- at the start --- */

/* Damaged and half-written ones go; what storage has of them goes with all that has no record. */
static void read_one(struct snapshots *snapshots, const char *name)
{
    AUTO_FREE char *path = path_of(snapshots->folder, name);
    size_t size = 0;
    struct snapshot_record record = {0};
    AUTO_FREE char *bytes = fd_read_file(path, sizeof record, &size, NULL);
    if (bytes && size == sizeof record)
        memcpy(&record, bytes, sizeof record);
    bool is_ours = is_sane(&record, name) && strcmp(record.storage, storage_kind(snapshots->storage)) == 0;
    if (is_sane(&record, name) && (!is_ours || storage_snapshot_exists(snapshots->storage, name))) {
        snapshots_add(snapshots, &record);
        return;
    }
    log_warn("launcher", "a snapshot's record without a snapshot is removed snapshot=%s", name);
    unlink(path);
}

/* What a kill -9 between storage and the record left. */
static void remove_orphans(struct snapshots *snapshots)
{
    struct error err = {0};
    size_t max = snapshots->count + ORPHANS_MAX;
    char(*names)[STORAGE_NAME_BYTES] = memory_array(max, sizeof *names);
    size_t count = storage_snapshot_list(snapshots->storage, names, max);
    for (size_t i = 0; i < count; i++) {
        if (snapshots_find(snapshots, names[i]))
            continue;
        log_warn("launcher", "a snapshot without a record is removed snapshot=%s", names[i]);
        if (!storage_snapshot_remove(snapshots->storage, names[i], &err))
            log_error("launcher", "%s", err.message);
    }
    free(names);
}

static bool is_entry(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool snapshots_open(struct snapshots *snapshots, const char *folder, struct storage *storage, size_t max,
                    struct error *err)
{
    *snapshots = (struct snapshots){.folder = memory_string(folder), .storage = storage, .max = max};
    DIR *entries = opendir(folder);
    if (!entries)
        return error_set_errno(err, ERROR_INTERNAL, "read %s", folder);
    for (const struct dirent *entry = readdir(entries); entry && snapshots->count < COUNT_MAX;
         entry = readdir(entries)) {
        if (is_entry(entry->d_name))
            read_one(snapshots, entry->d_name);
    }
    closedir(entries);
    remove_orphans(snapshots);
    return true;
}

void snapshots_close(struct snapshots *snapshots)
{
    free(snapshots->list);
    free(snapshots->folder);
    *snapshots = (struct snapshots){0};
}

/* --- later --- */

const struct snapshot_record *snapshots_find(const struct snapshots *snapshots, const char *name)
{
    for (size_t i = 0; i < snapshots->count; i++) {
        if (strcmp(snapshots->list[i].name, name) == 0)
            return &snapshots->list[i];
    }
    return NULL;
}

const struct snapshot_record *snapshots_use(const struct snapshots *snapshots, const char *name, struct error *err)
{
    const struct snapshot_record *found = snapshots_find(snapshots, name);
    const char *kind = storage_kind(snapshots->storage);
    if (!found)
        error_set(err, ERROR_NOT_FOUND, "no snapshot %s on this node", name);
    else if (strcmp(found->storage, kind) != 0)
        error_set(err, ERROR_INVALID, "snapshot %s was made with storage %s, and this node has %s now", name,
                  found->storage, kind);
    else
        return found;
    return NULL;
}

bool snapshots_judge(const struct snapshots *snapshots, const char *name, size_t under_way, struct error *err)
{
    if (snapshots_find(snapshots, name))
        return error_set(err, ERROR_CONFLICT, "snapshot %s is there already", name);
    if (snapshots->count + under_way >= snapshots->max)
        return error_set(err, ERROR_NO_CAPACITY, "this node keeps at most %zu snapshots (node_snapshots_max)",
                         snapshots->max);
    return true;
}

bool snapshots_remove(struct snapshots *snapshots, const char *name, struct error *err)
{
    struct error why = {0};
    struct snapshot_record *found = NULL;
    for (size_t i = 0; i < snapshots->count && !found; i++)
        found = strcmp(snapshots->list[i].name, name) == 0 ? &snapshots->list[i] : NULL;
    if (!found) /* what a killed launcher's child still made was swept by nobody */
        return !storage_snapshot_exists(snapshots->storage, name) ||
               storage_snapshot_remove(snapshots->storage, name, err);
    bool is_there = strcmp(found->storage, storage_kind(snapshots->storage)) == 0;
    if (is_there && !storage_snapshot_remove(snapshots->storage, name, &why) && why.kind != ERROR_NOT_FOUND) {
        if (err)
            *err = why;
        return false;
    }
    AUTO_FREE char *path = path_of(snapshots->folder, name);
    unlink(path);
    *found = snapshots->list[--snapshots->count];
    return true;
}

bool snapshots_are_of(const struct snapshots *snapshots, const char *template_version)
{
    for (size_t i = 0; i < snapshots->count; i++) {
        if (strcmp(snapshots->list[i].template_version, template_version) == 0)
            return true;
    }
    return false;
}
