/** mounts.h - the file system of a sandbox: overlays over the template's skeleton and the host's /usr, both idmapped,
 * with one bounded tmpfs as their writable layer; /proc; the pivot (mount_namespaces(7), overlayfs.rst). */
#pragma once

#include "sandboxd/isolation/isolation.h"

/* Where the child builds the new root before it pivots into it: a folder that every host has. Its mounts are seen by
 * nobody else. */
#define MOUNTS_STAGE    "/tmp"
#define MOUNTS_NEW_ROOT MOUNTS_STAGE "/new"

/** Parent's half: a detached copy of the mount at `path`, idmapped by `user_namespace` and read-only, for the child to
 *  attach; -1 on failure. */
int mounts_open_lower(const char *path, int user_namespace, struct error *err) MUST_USE;

/** Child's half: nothing that is mounted here from now on reaches the host. */
bool mounts_detach_propagation(struct error *err) MUST_USE;

/** Child's half: the writable layer and both overlays at MOUNTS_NEW_ROOT; consumes neither descriptor. */
bool mounts_make_root(const struct isolation_plan *plan, int lower_root, int lower_usr, struct error *err) MUST_USE;

/** Child's half: /proc of the own pid namespace with what does not belong to it covered. Before the old root goes: a
 *  fresh proc is allowed only where a whole one is to be seen. */
bool mounts_make_proc(struct error *err) MUST_USE;

/** Child's half: makes MOUNTS_NEW_ROOT the root, detaches the old one, cwd "/". */
bool mounts_pivot(struct error *err) MUST_USE;
