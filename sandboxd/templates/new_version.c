#include "sandboxd/templates/new_version.h"

#include "sandboxd/templates/store_lock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool make_folder(const char *path, mode_t mode, struct error *err)
{
    if (mkdir(path, mode) < 0 || chmod(path, mode) < 0)
        return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL, "make %s",
                               path);
    return true;
}

static bool begin(const char *folder, struct new_version *fresh, struct error *err)
{
    uint64_t stamp = 0;
    random_bytes(&stamp, sizeof stamp);
    snprintf(fresh->stamp, sizeof fresh->stamp, "%016" PRIx64, stamp);
    if (!text_format(fresh->path, sizeof fresh->path, "%s/" STORE_PREFIX_NEW "%s", folder, fresh->stamp) ||
        !text_format(fresh->rootfs, sizeof fresh->rootfs, "%s/rootfs", fresh->path))
        return error_set(err, ERROR_INVALID, "the state folder's path is longer than %d", TEMPLATE_PATH_BYTES - 100);
    AUTO_FD int store = store_lock(folder, STORE_LOCK_WAIT, err); /* else it could be cleaned before it is locked */
    if (store < 0 || !make_folder(fresh->path, 0700, err))
        return false;
    fresh->lock = store_lock_folder(fresh->path, err);
    return fresh->lock >= 0 && make_folder(fresh->rootfs, 0755, err);
}

bool new_version_begin(const char *folder, struct new_version *fresh, struct error *err)
{
    *fresh = NEW_VERSION_NONE;
    const char *slash = strrchr(folder, '/');
    AUTO_FREE char *above = memory_copy(folder, slash ? (size_t)(slash - folder) : 0); /* others pass through it */
    if ((above[0] == '\0' || fd_make_folders(above, 0711, err)) && fd_make_folders(folder, 0700, err) &&
        begin(folder, fresh, err))
        return true;
    new_version_done(fresh);
    return false;
}

/* From here on it is a version, though not the current one: without the store's lock it would be cleaned away. */
static bool make_current(const char *folder, const struct new_version *fresh, const char *name, struct error *err)
{
    AUTO_FREE char *version = memory_printf("%s-%s", name, fresh->stamp);
    AUTO_FREE char *place = memory_printf("%s/%s", folder, version);
    AUTO_FREE char *beside = memory_printf("%s/" STORE_PREFIX_LINK "%s", folder, fresh->stamp);
    AUTO_FREE char *link = memory_printf("%s/%s", folder, name);
    if (rename(fresh->path, place) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "rename to %s", place);
    if (symlink(version, beside) < 0 || rename(beside, link) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "link %s", link);
        (void)!rename(place, fresh->path);
        return false;
    }
    return true;
}

bool new_version_commit(const char *folder, struct new_version *fresh, struct template_record *record,
                        struct error *err)
{
    if (!template_write(fresh->path, record, err))
        return false;
    AUTO_FD int rootfs = open(fresh->rootfs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rootfs < 0 || syncfs(rootfs) < 0)
        return error_set_errno(err, errno == ENOSPC ? ERROR_DISK_FULL : ERROR_INTERNAL, "sync %s", fresh->rootfs);
    AUTO_FD int store = store_lock(folder, STORE_LOCK_WAIT, err);
    if (store < 0 || !make_current(folder, fresh, record->name, err))
        return false;
    fresh->path[0] = '\0';
    new_version_done(fresh);
    return store_sync(folder, err);
}

void new_version_done(struct new_version *fresh)
{
    struct error err = {0};
    if (fresh->path[0] && !fd_remove_tree(fresh->path, &err))
        log_warn("templates", "%s", err.message);
    if (fresh->lock >= 0)
        close(fresh->lock);
    *fresh = NEW_VERSION_NONE;
}
