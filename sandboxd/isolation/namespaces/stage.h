/** stage.h - where births take place: a small tmpfs, read-only, made once by the launcher in its own mount namespace,
 * of which each child gets a copy with its namespace. In it the mount points of a birth, and for each slot that is
 * taken a folder with the nodes of its /dev. No two sandboxes see one inode of it: a lock (flock(2)) or a watch
 * (inotify(7)) is the inode's, whatever mount it is reached by. Its names are relative: the child's working folder is
 * the stage. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define STAGE_ROOT    "root" /* the template */
#define STAGE_USR     "usr"  /* the host's */
#define STAGE_AREA    "area"
#define STAGE_NEW     "new"                /* where the new root is built */
#define STAGE_DEVICES "devices"            /* the host's nodes, where none can be made */
#define STAGE_SLOTS   "slots"              /* of all, a folder each */
#define STAGE_OWN     "own"                /* the slot's, after stage_enter_slot */
#define STAGE_DEV     STAGE_OWN "/dev"     /* becomes /dev */
#define STAGE_NOTHING STAGE_OWN "/nothing" /* an empty folder, to cover others */
#define STAGE_NULL    STAGE_DEV "/null"    /* ... and what covers files */

struct stage {
    int folder;   /* O_PATH, read-only */
    int writable; /* the same by a mount that is the launcher's alone */
    bool is_rootless; /* devices cannot be made: the host's are bound, whose inodes all sandboxes share */
};

#define STAGE_NONE_INIT                                                                                                \
    {                                                                                                                  \
        -1, -1, false                                                                                                  \
    }
#define STAGE_NONE ((struct stage)STAGE_NONE_INIT)

/** Mounts it at `path`, a folder that it makes, in the current mount namespace; made->is_rootless is as said. */
bool stage_make(const char *path, bool is_rootless, struct stage *made, struct error *err) MUST_USE;

/** Makes the slot's folder anew; what a former sandbox of the slot had is not it. */
bool stage_make_slot(const struct stage *stage, uint32_t slot, struct error *err) MUST_USE;

/** Takes it away, if it is there. Its sandbox is gone. */
void stage_remove_slot(const struct stage *stage, uint32_t slot);

/** In the child, whose working folder is the stage: the slot's folder gets its short name. */
bool stage_enter_slot(const struct stage *stage, uint32_t slot, struct error *err) MUST_USE;

/** Closes it and takes it away; what lives keeps its copy. */
void stage_remove(struct stage *stage, const char *path);
