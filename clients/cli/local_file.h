/** local_file.h - a file that comes from a sandbox, written here whole or not at all. */
#pragma once

#include "clients/c/remote_files.h"

#include <fcntl.h>
#include <time.h>

/** A file under way: it lies beside its name until it is whole. */
struct local_file {
    int fd, parent;
    char *name, *beside;
};

/** Begins one at `path` (relative to `folder`, AT_FDCWD allowed). Under a `folder` no link on the way is followed. */
bool local_file_begin(struct local_file *file, int folder, const char *path, struct error *err) MUST_USE;
/** It is whole: permission bits less the umask, the time (NULL: as it is), its name. */
bool local_file_finish(struct local_file *file, unsigned mode, const struct timespec *time, struct error *err) MUST_USE;
/** Takes away what is not finished. */
void local_file_done(struct local_file *file);
#define AUTO_LOCAL_FILE __attribute__((cleanup(local_file_done))) struct local_file

/** Fetches a file of the sandbox to `path`, as above; its time too when `keeps_time`. Without a `folder` a link is
 * followed, and a device or FIFO written to, not replaced. */
bool local_file_fetch(struct remote_files *files, const char *remote, const struct remote_entry *entry, int folder,
                      const char *path, bool keeps_time, struct error *err) MUST_USE;

/** Opens the folder that `path` lies in below `folder`, following no link below it; *name is its last segment. -1 with
 * err. */
int local_file_parent(int folder, const char *path, const char **name, struct error *err) MUST_USE;

/** Nanoseconds since 1970, also before. */
struct timespec local_file_time(int64_t ns) MUST_USE;

/** The permission bits that the umask leaves. */
unsigned local_file_mask(void) MUST_USE;
