/** local_file.h - a file that comes from a sandbox, written here whole or not at all. */
#pragma once

#include "clients/c/remote_files.h"

#include <fcntl.h>

/** Fetches a file to `path` (relative to `folder`, AT_FDCWD allowed) beside its name first, then renames it there;
 * permission bits and, when `keeps_time`, the time are the entry's. Under a `folder` no link on the way is followed. */
bool local_file_fetch(struct remote_files *files, const char *remote, const struct remote_entry *entry, int folder,
                      const char *path, bool keeps_time, struct error *err) MUST_USE;

/** Opens the folder that `path` lies in below `folder`, following no link below it; *name is its last segment. -1 with
 * err. */
int local_file_parent(int folder, const char *path, const char **name, struct error *err) MUST_USE;
