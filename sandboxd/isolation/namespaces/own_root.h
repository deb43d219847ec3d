/** own_root.h - a template's files with a slot's own ids: where they cannot be idmapped, for that is the right of the
 * root of the file system that they lie on. In a tmpfs of the launcher's, once for each slot and version. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define OWN_ROOT_PATH_BYTES 4096

/** Mounts the tmpfs at `folder`, which it makes, in the current mount namespace. */
bool own_root_open(const char *folder, struct error *err) MUST_USE;

/** What is in it goes with it. */
void own_root_close(const char *folder);

/** The copy of `rootfs` (".../VERSION/rootfs": folders, files and links, ids 0..65533 of this user namespace) for the
 * slot whose 0 is `base`; made when it is not there, and another version's removed. Nobody lives in the slot. */
bool own_root_make(const char *folder, uint32_t slot, uint32_t base, const char *rootfs,
                   char path[static OWN_ROOT_PATH_BYTES], struct error *err) MUST_USE;
