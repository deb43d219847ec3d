/** house.h - the launcher's folders, its lock and what it needs before the first sandbox:
 *
 *  STATE/sandboxd/          0711  lock, node.json, incarnation, cgroups
 *  STATE/sandboxd/records/  0700  one a sandbox
 *  STATE/sandboxd/snapshots/ 0700 one a snapshot
 *  STATE/sandboxd/run/      0711  <slot>/init.sock, 0710 root:front
 *  STATE/sandboxd/storage/        what sandboxes write (storage/storage.h)
 *  STATE/sandboxd/templates/ 0700 what they are made of (templates/templates.h) */
#pragma once

#include "sandboxd/launcher/sandboxes.h"
#include "sandboxd/launcher/settings.h"

/** Embedded. Zero before house_open; lock is -1 then. */
struct house {
    char *state; /* real path */
    char *folder, *records, *snapshot_records, *run, *templates, *node_file, *incarnation_file;
    int lock, init_program;
    struct isolation_offer offer; /* those that were started */
    uid_t front_uid;
    gid_t front_gid;
    struct slots slots;
    struct storage *storage;
    struct networks *networks;
    struct snapshots snapshots;
    struct catalog catalog;
};

/** Locks STATE/sandboxd for this process, until *lock is closed. ERROR_CONFLICT when another has it. */
bool house_lock(const char *folder, int *lock, struct error *err) MUST_USE;

/** Makes the folders, takes the lock, leaves the host's mount namespace, starts the isolation backends, opens storage,
 * snapshots and templates, reads parley-init. ERROR_CONFLICT when another launcher has the lock; ERROR_FORBIDDEN when
 * not root.
 */
bool house_open(struct house *house, const struct settings *settings, struct error *err) MUST_USE;
void house_close(struct house *house);
#define AUTO_HOUSE __attribute__((cleanup(house_close))) struct house

/** Starts the sandboxes of this house. */
bool house_start_sandboxes(struct house *house, const struct settings *settings, const struct sandboxes_watch *watch,
                           struct sandboxes *all, struct error *err) MUST_USE;
