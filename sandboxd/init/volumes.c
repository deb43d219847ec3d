/* volumes.c - see volumes.h. */
#include "sandboxd/init/volumes.h"

#include "shared/base/beneath.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static bool check_place(const char *path, struct error *err)
{
    static const char *const CLOSED[] = {"/proc", "/dev", "/sys"};
    for (size_t i = 0; i < sizeof CLOSED / sizeof CLOSED[0]; i++) {
        if (is_below(path, CLOSED[i]))
            return error_set(err, ERROR_INVALID, "a volume cannot be at %s: nothing is mounted in %s", path, CLOSED[i]);
    }
    return (path[0] == '/' && path[1] != '\0') ||
           error_set(err, ERROR_INVALID, "a volume's path is absolute and not / itself");
}

/* One name in `folder`, which is no link. */
static int enter(int folder, const char *name)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    return beneath_open(folder, name, &how);
}

static int make_and_enter(int folder, const char *name)
{
    struct stat parent;
    if (fstat(folder, &parent) < 0 || mkdirat(folder, name, 0755) < 0)
        return -1;
    (void)!fchownat(folder, name, parent.st_uid, parent.st_gid, AT_SYMLINK_NOFOLLOW);
    return enter(folder, name);
}

static int open_target(const char *path, struct error *err)
{
    AUTO_FD int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *rest = path;
    while (at >= 0 && *rest) {
        char name[NAME_MAX + 1];
        rest += strspn(rest, "/");
        size_t length = strcspn(rest, "/");
        if (length == 0 || !text_format(name, sizeof name, "%.*s", (int)length, rest)) {
            error_set(err, ERROR_INVALID, "a volume's path has names of 1 to %d bytes", NAME_MAX);
            return -1;
        }
        rest += length;
        int next = enter(at, name);
        if (next < 0 && errno == ENOENT)
            next = make_and_enter(at, name);
        if (next < 0)
            break;
        close(at);
        at = next;
        if (*rest == '\0')
            return TAKE_FD(at);
    }
    error_set_errno(err, ERROR_INVALID, "no folder at %s for a volume", path);
    return -1;
}

bool volumes_attach(int mount, const char *path, struct error *err)
{
    if (!check_place(path, err))
        return false;
    AUTO_FD int target = open_target(path, err);
    if (target < 0)
        return false;
    if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "attach a volume at %s", path);
    return true;
}
