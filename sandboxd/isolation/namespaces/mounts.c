#include "sandboxd/isolation/namespaces/mounts.h"

#include "sandboxd/isolation/namespaces/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned long QUIET = MS_NOSUID | MS_NODEV;

int mounts_open(const char *path, int user_namespace, enum mounts_use use, struct error *err)
{
    AUTO_FD int tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open_tree %s", path);
        return -1;
    }
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (user_namespace >= 0) {
        attributes.attr_set |= MOUNT_ATTR_IDMAP;
        attributes.userns_fd = (unsigned)user_namespace;
    }
    if (use == MOUNTS_READ_ONLY)
        attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0) {
        error_set_errno(err, ERROR_INTERNAL,
                        user_namespace >= 0 ? "idmap the mount of %s (its file system must allow it)"
                                            : "make a copy of the mount of %s harmless",
                        path);
        return -1;
    }
    return TAKE_FD(tree);
}

bool mounts_detach_propagation(struct error *err)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make / a slave mount");
    return true;
}

/* --- the root --- */

/* A file of the area's own, if that name is free. */
static void make_file(int folder, const char *path)
{
    AUTO_FD int fd UNUSED = openat(folder, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
}

/* Only where there is no etc yet, so that nobody else made it: an area may hold what a hostile sandbox left. What fails
 * here is made by init, more slowly. */
static void make_names(void)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    AUTO_FD int upper = (int)syscall(SYS_openat2, AT_FDCWD, STAGE_AREA "/root/upper", &how, sizeof how);
    struct stat lower;
    bool is_folder = fstatat(AT_FDCWD, STAGE_ROOT "/etc", &lower, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(lower.st_mode);
    if (upper < 0 || !is_folder || mkdirat(upper, "etc", lower.st_mode & 0777) < 0)
        return;
    make_file(upper, "etc/hosts");
    make_file(upper, "etc/hostname");
}

static bool attach(int tree, const char *at, struct error *err)
{
    if (move_mount(tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "attach a layer at %s", at);
    return true;
}

static bool mount_overlay(const char *at, const char *options, struct error *err)
{
    if (mount("overlay", at, "overlay", QUIET, options) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount overlay at %s", at);
    return true;
}

/* A root around the sandbox's, for the keeper and its monitor. */
static bool make_keeper_root(const struct mounts_layers *layers, struct error *err)
{
    static const char *const FOLDERS[] = {"sandbox", "bundle", "usr", "proc", "dev", "run", "tmp"};
    static const char *const LINKS[] = {"bin", "lib", "lib64", "sbin"};
    if (mount("keeper", STAGE_NEW, "tmpfs", QUIET, "size=16m,nr_inodes=4096,mode=0755") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount the keeper's root");
    AUTO_FD int root = open(STAGE_NEW, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++) {
        if (mkdirat(root, FOLDERS[i], 0755) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "make /%s of the keeper's root", FOLDERS[i]);
    }
    for (size_t i = 0; i < sizeof LINKS / sizeof LINKS[0]; i++) {
        char to[16];
        (void)snprintf(to, sizeof to, "usr/%s", LINKS[i]);
        if (symlinkat(to, root, LINKS[i]) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "link /%s of the keeper's root", LINKS[i]);
    }
    return attach(layers->bundle, STAGE_NEW "/bundle", err) && attach(layers->tools, STAGE_NEW "/usr", err);
}

bool mounts_make_root(const struct mounts_layers *layers, struct error *err)
{
    bool is_guest = layers->bundle >= 0;
    if (!attach(layers->root, STAGE_ROOT, err) || !attach(layers->area, STAGE_AREA, err) ||
        (is_guest && !make_keeper_root(layers, err)))
        return false;
    make_names();
    if (!mount_overlay(is_guest ? STAGE_NEW "/sandbox" : STAGE_NEW,
                       "lowerdir=" STAGE_ROOT ",upperdir=" STAGE_AREA "/root/upper,workdir=" STAGE_AREA
                       "/root/work,userxattr",
                       err))
        return false;
    if (layers->usr >= 0 && layers->is_usr_bare)
        return attach(layers->usr, STAGE_NEW "/usr", err);
    return layers->usr < 0 ||
           (attach(layers->usr, STAGE_USR, err) && mount_overlay(is_guest ? STAGE_NEW "/sandbox/usr" : STAGE_NEW "/usr",
                                                                 "lowerdir=" STAGE_USR ",upperdir=" STAGE_AREA
                                                                 "/usr/upper,workdir=" STAGE_AREA "/usr/work,userxattr",
                                                                 err));
}

bool mounts_pivot(struct error *err)
{
    /* pivot_root(".", "."): the old root ends up over the new one and is detached there (pivot_root(2), NOTES). */
    if (chdir(STAGE_NEW) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "pivot into the new root");
    return true;
}
