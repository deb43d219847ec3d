/** watch_folders.h - which inotify watch is where: folders as names below one another, so that one that is moved takes
 *  along all below it. Holds no descriptor of a folder: inotify tells that one is gone only when none is open. */
#pragma once

#include "shared/base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WATCH_FOLDERS_MAX 8192

struct watched {
    int wd;
    int parent; /* its wd; -1: the watched thing itself */
    char *name; /* in the parent; "" without */
};

struct watch_folders {
    int inotify;         /* borrowed */
    struct watched *all; /* by wd */
    size_t count, room;
};

/** Frees all; the watches go with the inotify descriptor. */
void watch_folders_done(struct watch_folders *folders);

/** Watches what `fd` (any descriptor, O_PATH too) is of. The wd; -1 with ERROR_NO_CAPACITY over WATCH_FOLDERS_MAX or
 * what the kernel allows the user, else ERROR_INTERNAL. */
int watch_folders_add(struct watch_folders *folders, int fd, int parent, const char *name, uint32_t mask,
                      struct error *err) MUST_USE;

/** NULL when it is not known (any more). */
const struct watched *watch_folders_find(const struct watch_folders *folders, int wd) MUST_USE;
/** The watch of that folder in `parent`; -1. */
int watch_folders_child(const struct watch_folders *folders, int parent, const char *name) MUST_USE;
/** "path/of/folder/name" below the watched thing; false when it is longer than a path can be. */
bool watch_folders_path(const struct watch_folders *folders, int wd, const char *name,
                        char path[static PATH_MAX]) MUST_USE;

/** The folder has another name, or another parent, now. */
void watch_folders_move(struct watch_folders *folders, int wd, int parent, const char *name);
/** The kernel removed it. */
void watch_folders_forget(struct watch_folders *folders, int wd);
/** Ends the watches of all below it, and, `also_itself`, its own. */
void watch_folders_remove(struct watch_folders *folders, int wd, bool also_itself);
