/** volumes.h - folders of the host as detached mounts, for a sandbox's init to attach: nosuid and nodev always. */
#pragma once

#include "sandboxd/isolation/isolation.h"

struct volumes {
    int mounts[ISOLATION_VOLUMES_MAX];
    size_t count;
};

#define VOLUMES_NONE ((struct volumes){.count = 0})
void volumes_close(struct volumes *volumes);
#define AUTO_VOLUMES __attribute__((cleanup(volumes_close))) struct volumes

/** Opens all volumes of `life`, in their order, idmapped to the ids of the sandbox of `init` (or to its user alone).
 *  ERROR_INVALID for a source that is no folder, or a writable squashed one whose owner or group is root. */
bool volumes_open(pid_t init, uint32_t uid_base, const struct isolation_life *life, struct volumes *opened,
                  struct error *err) MUST_USE;
