#include "sandboxd/templates/tool/settle.h"

#include "sandboxd/templates/tool/accounts.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- folders --- */

struct wanted_folder {
    const char *path;
    mode_t mode;
    uint32_t uid, gid;
    bool is_ours; /* one that is there gets this owner and this mode too */
};

static int open_folder(const struct tree *tree, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    return (int)syscall(SYS_openat2, tree->root, path, &how, sizeof how);
}

/* Not what a link leads to: that may be anything of the image's. */
static bool take_over(const struct tree *tree, const struct wanted_folder *wanted, struct error *err)
{
    AUTO_FD int fd = openat(tree->root, wanted->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return true;
    if (fchown(fd, wanted->uid, wanted->gid) < 0 || fchmod(fd, wanted->mode) < 0)
        return tree_fail(err, "chmod", wanted->path);
    return true;
}

/* A link to a folder that is there will do. */
static bool ensure_folder(struct tree *tree, const struct wanted_folder *wanted, struct error *err)
{
    AUTO_FD int there = open_folder(tree, wanted->path);
    if (there >= 0)
        return !wanted->is_ours || take_over(tree, wanted, err);
    if (errno != ENOENT)
        return error_set(err, ERROR_INVALID, "/%s must be a folder", wanted->path);
    int parent = tree_parent(tree, wanted->path, err);
    const char *base = tree_base(wanted->path);
    if (parent < 0)
        return false;
    /* A link to nothing makes way. */
    if (!tree_remove(tree, parent, base, err))
        return false;
    if (mkdirat(parent, base, 0700) < 0 || fchownat(parent, base, wanted->uid, wanted->gid, 0) < 0 ||
        fchmodat(parent, base, wanted->mode, 0) < 0)
        return tree_fail(err, "make folder", wanted->path);
    return true;
}

static bool ensure_folders(struct tree *tree, const struct template_record *record, struct error *err)
{
    const struct wanted_folder wanted[] = {
        {.path = "proc", .mode = 0555},
        {.path = "dev", .mode = 0755},
        {.path = "sys", .mode = 0555},
        {.path = "tmp", .mode = 01777, .is_ours = true},
        {.path = "workspace", .mode = 0755, .uid = record->uid, .gid = record->gid, .is_ours = true},
        {.path = record->workdir + 1, .mode = 0755, .uid = record->uid, .gid = record->gid}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (wanted[i].path[0] && !ensure_folder(tree, &wanted[i], err))
            return false;
    }
    return true;
}

/* What is mounted over must be the folder itself, not where a link leads. */
static bool check_mount_points(const struct tree *tree, struct error *err)
{
    static const char *const POINTS[] = {"proc", "dev"};
    for (size_t i = 0; i < sizeof POINTS / sizeof POINTS[0]; i++) {
        struct stat status;
        if (fstatat(tree->root, POINTS[i], &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode))
            return error_set(err, ERROR_INVALID, "/%s must be a folder, not a link", POINTS[i]);
    }
    return true;
}

bool settle(struct tree *tree, const char *user, struct template_record *record, struct error *err)
{
    static const struct wanted_folder ETC = {.path = "etc", .mode = 0755};
    if (!ensure_folder(tree, &ETC, err) || !accounts_find(tree, user, &record->uid, &record->gid, err))
        return false;
    return ensure_folders(tree, record, err) && check_mount_points(tree, err) &&
           accounts_ensure(tree, record->uid, record->gid, err);
}
