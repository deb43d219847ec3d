#include "sandboxd/isolation/namespaces/volumes.h"

#include "sandboxd/isolation/namespaces/mounts.h"
#include "sandboxd/isolation/namespaces/user_namespace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534 };

void volumes_close(struct volumes *volumes)
{
    for (size_t i = 0; i < volumes->count; i++)
        close(volumes->mounts[i]);
    volumes->count = 0;
}

/* A user namespace in which the folder's owner and group are the sandbox's user, and nobody else is anybody: no file of
 * root's can be made there, nor one with root's set-uid bit. */
static int open_squash(const struct isolation_volume *volume, gid_t group, uint32_t uid_base,
                       const struct isolation_life *life, struct error *err)
{
    if (!volume->read_only && (volume->owner == 0 || group == 0)) {
        error_set(err, ERROR_INVALID,
                  "volume %s: the host folder's owner or group is root; give it to a user, or mount it read-only",
                  volume->path);
        return -1;
    }
    /* Read-only: what root's group may read, nobody inside may. */
    group = group == 0 ? NOBODY : group;
    const struct user_namespace_map uids = {.inside = volume->owner, .outside = uid_base + life->uid, .count = 1};
    const struct user_namespace_map gids = {.inside = group, .outside = uid_base + life->gid, .count = 1};
    return user_namespace_make(&uids, &gids, err);
}

static int open_one(const struct isolation_volume *volume, int user_namespace, uint32_t uid_base,
                    const struct isolation_life *life, struct error *err)
{
    enum mounts_use use = volume->read_only ? MOUNTS_READ_ONLY : MOUNTS_WRITABLE;
    struct stat status;
    if (stat(volume->source, &status) < 0) {
        error_set_errno(err, ERROR_INVALID, "volume %s", volume->path);
        return -1;
    }
    if (!S_ISDIR(status.st_mode)) {
        error_set(err, ERROR_INVALID, "volume %s: what it shows must be a folder", volume->path);
        return -1;
    }
    if (!volume->is_squashed)
        return mounts_open(volume->source, user_namespace, use, err);
    AUTO_FD int squash = open_squash(volume, status.st_gid, uid_base, life, err);
    return squash < 0 ? -1 : mounts_open(volume->source, squash, use, err);
}

bool volumes_open(pid_t init, uint32_t uid_base, const struct isolation_life *life, struct volumes *opened,
                  struct error *err)
{
    AUTO_VOLUMES opening = VOLUMES_NONE;
    if (life->volume_count == 0)
        return true;
    AUTO_FD int user_namespace = user_namespace_open(init, err);
    for (size_t i = 0; user_namespace >= 0 && i < life->volume_count; i++) {
        int mount = open_one(&life->volumes[i], user_namespace, uid_base, life, err);
        if (mount < 0)
            return false;
        opening.mounts[opening.count++] = mount;
    }
    *opened = opening;
    opening = VOLUMES_NONE;
    return user_namespace >= 0;
}
