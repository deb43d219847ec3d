/** records.h - what the launcher keeps of each sandbox: a file a slot, so that a launcher that comes after a kill -9
 * finds what runs. Not for another boot: nothing of a sandbox survives one. A file holds the record once or twice, one
 * behind the other; what counts is the newest whole one. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/storage/storage.h"
#include "shared/base/clock.h"

/* What is not live is ended by the next launcher: nobody's commands have run in it. */
enum record_state {
    RECORD_STARTING = 1,
    RECORD_LIVE,
    RECORD_WARM /* of the pool: no id yet */
};

struct record {
    uint32_t magic, version; /* set by record_write */
    uint32_t state;          /* enum record_state */
    uint32_t slot, uid_base;
    int32_t init_pid;    /* 0 while starting */
    uint64_t init_start; /* field 22 of /proc/<pid>/stat */
    int64_t created_wall_ms, deadline_wall_ms;
    uint64_t deadline_boot_ns;
    struct fl_limits limits;
    char id[FRONT_LAUNCHER_ID_BYTES];
    char hostname[FRONT_LAUNCHER_NAME_BYTES];
    char template_name[FRONT_LAUNCHER_NAME_BYTES];
    char template_version[FRONT_LAUNCHER_NAME_BYTES];
    char isolation[FRONT_LAUNCHER_NAME_BYTES];
    char storage[FRONT_LAUNCHER_NAME_BYTES];                  /* kind of its area */
    uint64_t area_device;                                     /* tmpfs: storage_area.device */
    char snapshot[FRONT_LAUNCHER_SNAPSHOT_BYTES];             /* what it began with; "" nothing */
    char volumes[FRONT_LAUNCHER_VOLUMES][STORAGE_NAME_BYTES]; /* named ones it has, as on disk; "" none or a host's */
    uint32_t uid, gid;                                        /* of commands, inside */
    uint32_t root_allowed, was_warm;                          /* 0 or 1 */
    uint32_t epoch;                                           /* lowest key epoch in force */
    char env[ENV_BYTES];
    char boot_id[CLOCK_BOOT_ID_BYTES];
    uint8_t turn; /* counts writes; set by record_write */
    char reserved[6];
    uint64_t checksum; /* of all before it */
};

/** Makes folder/<slot>, or writes over the older of its two records: a reader, and who comes after a kill -9 within the
 *  write, sees the old record or the new one. In place, because a new file and its renaming over the old one take
 *  milliseconds on some file systems, and a create waits for it. Not synced: see above. */
bool record_write(const char *folder, struct record *record, struct error *err) MUST_USE;

/** Reads folder/<slot>. ERROR_NOT_FOUND, or ERROR_INVALID for one that is cut, damaged, of another version, slot or
 *  boot; then *record is untouched. */
bool record_read(const char *folder, uint32_t slot, struct record *record, struct error *err) MUST_USE;

/** Where a sandbox may go, in a file of its own beside the record: most have none. */
struct network_record {
    uint32_t magic, version;          /* set by record_write_network */
    uint32_t slot;
    uint32_t is_pending;              /* 1: being put in force; what is in force is not known */
    char id[FRONT_LAUNCHER_ID_BYTES]; /* of the sandbox */
    struct fl_network network;
    uint64_t checksum;                /* of all before it */
};

/** Makes folder/<slot>.network, or replaces it as a whole. */
bool record_write_network(const char *folder, struct network_record *record, struct error *err) MUST_USE;

/** Reads that of this slot and sandbox. ERROR_NOT_FOUND: it has none; ERROR_INVALID. */
bool record_read_network(const char *folder, uint32_t slot, const char *id, struct network_record *record,
                         struct error *err) MUST_USE;

void record_remove(const char *folder, uint32_t slot);

/** How many records of this boot are of that state; for `parley doctor`. */
size_t record_count(const char *folder, enum record_state state) MUST_USE;

/** The slots that have a record, whole or not; at most `max`. Removes half-written ones. */
size_t record_list(const char *folder, uint32_t *slots, size_t max);
