#include "sandboxd/isolation/namespaces/mounts.h"

#include <errno.h>
#include <fcntl.h>
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
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                                    .userns_fd = (unsigned)user_namespace};
    if (use == MOUNTS_READ_ONLY)
        attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "idmap the mount of %s (its file system must allow it)", path);
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

/* Where the layers are attached: nothing of ours, so that a hostile area has no part in it. */
static bool make_stage(struct error *err)
{
    static const char *const FOLDERS[] = {MOUNTS_STAGE "/lower-root", MOUNTS_STAGE "/lower-usr", MOUNTS_STAGE "/area",
                                          MOUNTS_NEW_ROOT};
    if (mount("parley", MOUNTS_STAGE, "tmpfs", QUIET, "size=16k,nr_inodes=16,mode=0700") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount a stage at " MOUNTS_STAGE);
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++) {
        if (mkdir(FOLDERS[i], 0700) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "mkdir %s", FOLDERS[i]);
    }
    return true;
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

bool mounts_make_root(const struct mounts_layers *layers, struct error *err)
{
    if (!make_stage(err) || !attach(layers->root, MOUNTS_STAGE "/lower-root", err) ||
        !attach(layers->area, MOUNTS_STAGE "/area", err) ||
        !mount_overlay(MOUNTS_NEW_ROOT,
                       "lowerdir=" MOUNTS_STAGE "/lower-root,upperdir=" MOUNTS_STAGE
                       "/area/root/upper,workdir=" MOUNTS_STAGE "/area/root/work,userxattr",
                       err))
        return false;
    return layers->usr < 0 || (attach(layers->usr, MOUNTS_STAGE "/lower-usr", err) &&
                               mount_overlay(MOUNTS_NEW_ROOT "/usr",
                                             "lowerdir=" MOUNTS_STAGE "/lower-usr,upperdir=" MOUNTS_STAGE
                                             "/area/usr/upper,workdir=" MOUNTS_STAGE "/area/usr/work,userxattr",
                                             err));
}

/* --- /proc --- */

static const unsigned long SILENT = MS_NOSUID | MS_NODEV | MS_NOEXEC;

/* What is not there on this kernel needs no cover. */
static bool cover_file(const char *path, struct error *err)
{
    if (mount("/dev/null", path, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_INTERNAL, "cover %s", path);
    return true;
}

static bool cover_folder(const char *path, struct error *err)
{
    if (mount("parley", path, "tmpfs", SILENT | MS_RDONLY, "size=4k,nr_inodes=2,mode=0555") < 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_INTERNAL, "cover %s", path);
    return true;
}

static bool make_read_only(const char *path, struct error *err)
{
    if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) < 0)
        return errno == ENOENT || error_set_errno(err, ERROR_INTERNAL, "bind %s", path);
    if (mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | SILENT, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make %s read-only", path);
    return true;
}

#define PROC MOUNTS_NEW_ROOT "/proc"

/* System V memory goes with the last process that has it: else it could fill the sandbox with nobody to kill for it.
 * The setting is the ipc namespace's own; it may be written from inside since Linux 5.19, before that it is left. */
static void end_orphaned_memory(void)
{
    AUTO_FD int fd = open(PROC "/sys/kernel/shm_rmid_forced", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, "1", 1);
}

bool mounts_make_proc(struct error *err)
{
    /* The kernel's own, and what the host does. Not meminfo, stat, cpuinfo and their like, which programs need, and not
     * slabinfo, pagetypeinfo, kpage* and kmsg, which are 0400 and of a root that nobody inside is. */
    static const char *const FILES[] = {
        PROC "/kcore",         PROC "/keys",       PROC "/key-users",  PROC "/timer_list",  PROC "/sched_debug",
        PROC "/latency_stats", PROC "/config.gz",  PROC "/kallsyms",   PROC "/vmallocinfo", PROC "/cmdline",
        PROC "/locks",         PROC "/diskstats",  PROC "/interrupts", PROC "/softirqs",    PROC "/iomem",
        PROC "/ioports",       PROC "/partitions", PROC "/misc",       PROC "/modules",     PROC "/buddyinfo",
        PROC "/zoneinfo",      PROC "/swaps",      PROC "/schedstat",  PROC "/mdstat"};
    static const char *const FOLDERS[] = {PROC "/scsi", PROC "/acpi", PROC "/pressure"};
    static const char *const READ_ONLY[] = {PROC "/sys", PROC "/sysrq-trigger", PROC "/irq", PROC "/bus", PROC "/fs"};
    if (mount("proc", PROC, "proc", SILENT, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL,
                               "mount /proc (a host /proc that is partly covered, as in many containers, forbids it)");
    end_orphaned_memory();
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        if (!cover_file(FILES[i], err))
            return false;
    }
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++) {
        if (!cover_folder(FOLDERS[i], err))
            return false;
    }
    for (size_t i = 0; i < sizeof READ_ONLY / sizeof READ_ONLY[0]; i++) {
        if (!make_read_only(READ_ONLY[i], err))
            return false;
    }
    return true;
}

bool mounts_pivot(struct error *err)
{
    /* pivot_root(".", "."): the old root ends up over the new one and is detached there (pivot_root(2), NOTES). */
    if (chdir(MOUNTS_NEW_ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "pivot into the new root");
    return true;
}
