/** stage.h - what all births have in common, made once by the launcher: a small read-only tmpfs in its own mount
 * namespace, of which each child gets a copy with its namespace. In it the mount points of a birth, the nodes of /dev,
 * and nothing that is one sandbox's. Its names are relative: the child's working folder is the stage. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>

#define STAGE_ROOT    "root" /* the template */
#define STAGE_USR     "usr"  /* the host's */
#define STAGE_AREA    "area"
#define STAGE_NEW     "new"             /* where the new root is built */
#define STAGE_DEV     "dev"             /* becomes /dev */
#define STAGE_NOTHING "nothing"         /* an empty folder, to cover others */
#define STAGE_NULL    STAGE_DEV "/null" /* ... and what covers files */

/** Mounts it at `path`, a folder that it makes, in the current mount namespace. A descriptor of it (O_PATH); -1 on
 *  failure. */
int stage_make(const char *path, struct error *err) MUST_USE;

/** Takes it away again; what lives keeps its copy. */
void stage_remove(const char *path);
