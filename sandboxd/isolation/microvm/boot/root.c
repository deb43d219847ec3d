/* root.c - the sandbox's root file system: see boot.h. It is the slot's own, which a process outside serves, so what is
 * written stays there, within the sandbox's disk limit; the kernel's own file systems are fresh ones. */
#include "sandboxd/isolation/microvm/boot/boot.h"

#include "sandboxd/isolation/device_rows.h"
#include "sandboxd/isolation/microvm/vmm.h"

#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define NEW_ROOT "/newroot"

static const struct mount_row {
    const char *type, *at, *options;
    unsigned long flags;
    mode_t mode; /* of a mount point that is missing */
} MOUNTS[] = {
    {"proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555},
    {"sysfs", "sys", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, 0555},
    {"tmpfs", "dev", "mode=0755,size=64k", MS_NOSUID | MS_NOEXEC, 0755},
    {"devpts", "dev/pts", "newinstance,ptmxmode=0666,mode=0620,gid=5", MS_NOSUID | MS_NOEXEC, 0755},
    {"tmpfs", "dev/shm", "mode=1777,size=64m", MS_NOSUID | MS_NODEV, 01777},
    {"tmpfs", "run", "mode=0755,size=16m", MS_NOSUID | MS_NODEV, 0755},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool mount_row(const struct mount_row *row, struct error *err)
{
    (void)mkdir(row->at, row->mode);
    if (mount(row->type, row->at, row->type, row->flags, row->options) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount %s at /%s", row->type, row->at);
    return true;
}

static bool fill_devices(struct error *err)
{
    for (size_t i = 0; i < COUNT(NODES); i++) {
        if (mknod(NODES[i].path, S_IFCHR | 0666, makedev(NODES[i].major, NODES[i].minor)) < 0 ||
            chmod(NODES[i].path, 0666) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "make /%s", NODES[i].path);
    }
    for (size_t i = 0; i < COUNT(LINKS); i++) {
        if (symlink(LINKS[i].to, LINKS[i].path) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "link /%s", LINKS[i].path);
    }
    return true;
}

bool boot_enter_root(struct error *err)
{
    if (mkdir(NEW_ROOT, 0755) < 0 || mount(VMM_ROOT_TAG, NEW_ROOT, "virtiofs", MS_NOSUID | MS_NODEV, NULL) < 0 ||
        chdir(NEW_ROOT) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount the root file system");
    for (size_t i = 0; i < COUNT(MOUNTS); i++) {
        if (!mount_row(&MOUNTS[i], err))
            return false;
    }
    if (!fill_devices(err))
        return false;
    /* The first root file system cannot be left by pivot_root(2). */
    if (mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "enter the root file system");
    return true;
}
