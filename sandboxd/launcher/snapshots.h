/** snapshots.h - what this node keeps of sandboxes that were: a record of fixed size for each, beside what storage has.
 *
 *  Storage first, then the record: what has no record is nobody's, and is removed at the next start; so is a record of
 *  which storage has nothing. A record of another kind of storage than the node has now is kept, and of no use. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/storage/storage.h"

struct snapshot_record {
    uint32_t magic, version; /* set by snapshot_write */
    int64_t created_wall_ms;
    uint64_t size_bytes;
    char name[FRONT_LAUNCHER_SNAPSHOT_BYTES];
    char template_name[FRONT_LAUNCHER_NAME_BYTES];
    char template_version[FRONT_LAUNCHER_NAME_BYTES];
    char storage[FRONT_LAUNCHER_NAME_BYTES];
    uint64_t checksum; /* of all before it */
};

/** Embedded; zero before snapshots_open. Private but for reading. */
struct snapshots {
    char *folder;
    struct storage *storage; /* borrowed */
    struct snapshot_record *list;
    size_t count, max;
};

/** Reads all records, and removes what a kill -9 left of either half. */
bool snapshots_open(struct snapshots *snapshots, const char *folder, struct storage *storage, size_t max,
                    struct error *err) MUST_USE;
void snapshots_close(struct snapshots *snapshots);

/** NULL: there is none. Valid until the next change. */
const struct snapshot_record *snapshots_find(const struct snapshots *snapshots, const char *name) MUST_USE;

/** The same, for making a sandbox of it: NOT_FOUND; INVALID when another kind of storage has it. */
const struct snapshot_record *snapshots_use(const struct snapshots *snapshots, const char *name,
                                            struct error *err) MUST_USE;

/** Whether one more may be made: `under_way` are being made now. CONFLICT when the name is taken, NO_CAPACITY. */
bool snapshots_judge(const struct snapshots *snapshots, const char *name, size_t under_way, struct error *err) MUST_USE;

/** Writes the record durably (fsync); may run in another process than snapshots_add. */
bool snapshot_write(const char *folder, struct snapshot_record *record, struct error *err) MUST_USE;
/** Takes up what was written. */
void snapshots_add(struct snapshots *snapshots, const struct snapshot_record *record);

/** Removes it from storage, then its record. True also when there is none. */
bool snapshots_remove(struct snapshots *snapshots, const char *name, struct error *err) MUST_USE;

/** Whether one was made of this version of a template. */
bool snapshots_are_of(const struct snapshots *snapshots, const char *template_version) MUST_USE;
