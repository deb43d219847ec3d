/** user_namespace.h - which host ids a sandbox's ids are (user_namespaces(7)). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdint.h>
#include <sys/types.h>

#define USER_NAMESPACE_IDS 65536

/** What user_namespace_begin_owner changed. */
struct user_namespace_owner {
    uid_t uid;
    int securebits, dumpable;
};

/** Parent's half, around clone3: the namespace is owned by host uid `uid`. All that the kernel counts by user (inotify,
 *  pending signals and timers, message queues, locked memory, nested namespaces) is counted in the owner's name too,
 * and must be neither root's nor another sandbox's. Keeps all capabilities meanwhile. The child begins with that euid.
 */
bool user_namespace_begin_owner(uint32_t uid, struct user_namespace_owner *before, struct error *err) MUST_USE;

/** Goes back, in the parent; ends the process should that fail. */
void user_namespace_end_owner(const struct user_namespace_owner *before);

/** How many ids a sandbox has: USER_NAMESPACE_IDS, or one less where an ordinary user's are used (rootless/id_map.h).
 */
uint32_t user_namespace_ids(void) MUST_USE;

/** Parent's half: maps 0..user_namespace_ids() - 1 inside to base.. outside, uids and gids. */
bool user_namespace_map(pid_t pid, uint32_t base, struct error *err) MUST_USE;

/** One line of a map (user_namespaces(7)). */
struct user_namespace_map {
    uint32_t inside, outside, count;
};

/** A user namespace of its own with these maps, for idmapping mounts alone: nobody is in it. -1 on failure. */
int user_namespace_make(const struct user_namespace_map *uids, const struct user_namespace_map *gids,
                        struct error *err) MUST_USE;

/** Child's half, once mapped: becomes uid and gid 0 inside, without other groups. */
bool user_namespace_become_root(struct error *err) MUST_USE;

/** A descriptor of the user namespace of `pid`; -1 on failure. */
int user_namespace_open(pid_t pid, struct error *err) MUST_USE;
