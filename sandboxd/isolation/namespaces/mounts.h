/** mounts.h - the file system of a sandbox: an overlay over the template, or two over its skeleton and the host's /usr,
 * all idmapped, with its area as their writable layer; the pivot (mount_namespaces(7), overlayfs.rst). */
#pragma once

#include "sandboxd/isolation/isolation.h"

/* What a detached copy is for; all are nosuid and nodev. */
enum mounts_use { MOUNTS_READ_ONLY, MOUNTS_WRITABLE };

/** Parent's half: a detached copy of the mount at `path` (that folder alone), idmapped by `user_namespace` (-1: not;
 * its ids are as they are), for the child or init to attach; -1 on failure. */
int mounts_open(const char *path, int user_namespace, enum mounts_use use, struct error *err) MUST_USE;

/** Child's half: nothing that is mounted here from now on reaches the host. */
bool mounts_detach_propagation(struct error *err) MUST_USE;

/** The detached mounts that a root is made of. */
struct mounts_layers {
    int root, usr; /* read-only; usr -1: root has its own */
    bool is_usr_bare; /* nothing is written over it: whose ids are unknown here could not be copied up */
    int area;      /* where it writes: root/upper, root/work, usr/upper, usr/work */
    int bundle, tools; /* read-only, of a guest (namespaces.h): /bundle and /usr of the keeper's root; else -1 */
};

/** Child's half, in the stage (stage.h): one overlay, or two, are the new root; consumes no descriptor. A fresh area
 * gets an /etc with the files that init will write, so that they need not be copied up then. */
bool mounts_make_root(const struct mounts_layers *layers, struct error *err) MUST_USE;

/** Child's half, in the stage: makes the new root the root, detaches the old one, cwd "/". */
bool mounts_pivot(struct error *err) MUST_USE;
