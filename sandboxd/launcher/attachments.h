/** attachments.h - folders beside its own that a sandbox gets: checked and opened here, mounted by their descriptors,
 * so that what changes under a path afterwards changes nothing.
 *
 *  A host's folder is one of the operator's list (`volume_hosts`) or lies below one, reached through no link; root's
 *  folders are read-only, Parley's own state and the kernel's file systems are not to be had. A named volume is one
 *  owner's; its folder below is made when it is not there. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/isolation/isolation.h"
#include "sandboxd/storage/storage.h"

/** What is needed to judge them; borrowed. */
struct attachments_rules {
    const char *hosts; /* "FOLDER[:ro],..."; NULL none */
    const char *state; /* real path of the state folder */
    struct storage *storage;
    uint64_t default_bytes; /* quota of a named volume that asks for none */
};

struct attachment {
    int fd;          /* O_PATH of the folder. Owned */
    char source[32]; /* "/proc/self/fd/N" */
    char path[FRONT_LAUNCHER_PATH_BYTES];
    char disk_name[STORAGE_NAME_BYTES]; /* of a named one, else "" */
    bool read_only, is_squashed;
    bool was_made; /* a named one that was not there before */
    uid_t owner;
};

struct attachments {
    size_t count;
    struct attachment list[FRONT_LAUNCHER_VOLUMES];
};

/** Whether the list of the setting is one: absolute folders. ERROR_INVALID names the wrong word. */
bool attachments_check_hosts(const char *hosts, struct error *err) MUST_USE;

/** Opens all volumes of a request, making named ones that are not there. ERROR_INVALID (path, folder), ERROR_FORBIDDEN
 *  (not of the list), or what storage says. On failure `volumes` is empty, and what was made for it is gone. */
bool attachments_open(const struct attachments_rules *rules, const struct fl_prepare *prepare,
                      struct attachments *volumes, struct error *err) MUST_USE;
void attachments_close(struct attachments *volumes);
/** The sandbox never came to be: removes the i-th volume if it was made for it. The caller knows that no other one has
 *  it. */
void attachments_unmake(const struct attachments_rules *rules, const struct attachments *volumes, size_t i);

/** As the backend wants them; borrows from `volumes`. */
void attachments_tell(const struct attachments *volumes, struct isolation_life *life);

/** The name on disk of an owner's volume: "v_" and a hash of both. */
void attachments_disk_name(char to[static STORAGE_NAME_BYTES], const char *owner, const char *source);
