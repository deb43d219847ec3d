/** confine.h - how our own daemons give up rights: user, capabilities, no_new_privs, Landlock, system calls. Called
 * once, before threads start; never undone. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** Becomes uid and gid with `groups` alone, drops every capability and the bounding set, sets no_new_privs, not
 *  dumpable, RLIMIT_CORE 0. As a user without rights only the last three are done. */
bool confine_user(uid_t uid, gid_t gid, struct error *err) MUST_USE;

enum confine_access { CONFINE_READ = 1, CONFINE_WRITE = 2, CONFINE_EXECUTE = 4 }; /* WRITE: create and remove too */

struct confine_path {
    const char *path;
    unsigned access;
};

/** Landlock (landlock(7)): nothing of the file system but `paths` (missing ones are left out), no new TCP listeners
 *  but those open now when `bind_denied`, no signals or abstract sockets out of the domain where the kernel knows that
 * (ABI 6). *abi gets the kernel's version; 0 and ERROR_NOT_FOUND where there is no Landlock: the caller decides. */
bool confine_landlock(const struct confine_path *paths, size_t count, bool bind_denied, int *abi,
                      struct error *err) MUST_USE;

/** seccomp(2), for a daemon that has no_new_privs: no other programs, processes, name spaces and mounts, none of the
 *  kernel's larger engines (bpf, io_uring, perf, keys ...), no code in memory that was written, and sockets of UNIX,
 * IPv4, IPv6 and netlink alone; all else goes on. What is denied fails with EPERM, clone3 with ENOSYS. ERROR_INTERNAL
 * where the kernel has no seccomp. */
bool confine_calls(struct error *err) MUST_USE;

/** Which host user a daemon becomes when started as root: the named user's ids when it exists, else `fallback` for
 * both. */
void confine_find_user(const char *name, uid_t fallback, uid_t *uid, gid_t *gid);
