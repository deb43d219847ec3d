/* places.c - roots of the two programs: see monitor.h. */
#include "sandboxd/isolation/microvm/monitor/monitor.h"

#include "sandboxd/isolation/microvm/microvm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* All of it lies on a tmpfs that covers the keeper's /run in this mount namespace only. */
#define STAGE      "/run"
#define STAGE_SLOT STAGE "/slot" /* what the guest gets */
#define STAGE_ROOT STAGE "/root" /* the programs' root */

static const char *const FOLDERS[] = {STAGE_SLOT,        STAGE_ROOT,        STAGE_ROOT "/usr",      STAGE_ROOT "/proc",
                                      STAGE_ROOT "/dev", STAGE_ROOT "/tmp", STAGE_ROOT PLACES_FILES};
static const char *const LINKS[] = {"bin", "sbin", "lib", "lib32", "lib64"}; /* to usr/..., as Debian has it */

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool bind_at(const char *from, const char *to, unsigned long flags, struct error *err)
{
    if (mount(from, to, NULL, MS_BIND | flags, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind %s", from);
    return true;
}

static bool make_folders(struct error *err)
{
    for (size_t i = 0; i < COUNT(FOLDERS); i++) {
        if (mkdir(FOLDERS[i], 0755) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "make %s", FOLDERS[i]);
    }
    for (size_t i = 0; i < COUNT(LINKS); i++) {
        char at[64], to[64];
        snprintf(at, sizeof at, STAGE_ROOT "/%s", LINKS[i]);
        snprintf(to, sizeof to, "usr/%s", LINKS[i]);
        if (symlink(to, at) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "link %s", at);
    }
    return true;
}

/* The slot's files may be what a hostile guest left in a snapshot: no link of theirs is followed here. */
static bool bind_guest_programs(struct error *err)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_BENEATH};
    char path[32];
    AUTO_FD int slot = open(STAGE_SLOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (slot < 0 || (mkdirat(slot, MICROVM_GUEST_INSIDE, 0755) < 0 && errno != EEXIST))
        return error_set_errno(err, ERROR_INTERNAL, "make /" MICROVM_GUEST_INSIDE);
    AUTO_FD int folder = (int)syscall(SYS_openat2, slot, MICROVM_GUEST_INSIDE, &how, sizeof how);
    if (folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open /" MICROVM_GUEST_INSIDE);
    snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
    return bind_at(MICROVM_GUEST, path, 0, err);
}

bool places_make(struct error *err)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "unshare the mount namespace");
    if (mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0755") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount a tmpfs at " STAGE);
    return make_folders(err) && bind_at(MICROVM_SANDBOX, STAGE_SLOT, MS_REC, err) && bind_guest_programs(err) &&
           bind_at("/usr", STAGE_ROOT "/usr", MS_REC, err) && bind_at("/proc", STAGE_ROOT "/proc", MS_REC, err) &&
           bind_at("/dev", STAGE_ROOT "/dev", MS_REC, err) && bind_at(STAGE_ROOT, STAGE_ROOT, MS_REC, err);
}

bool places_enter(bool with_files, struct error *err)
{
    if (unshare(CLONE_NEWNS) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "unshare the mount namespace");
    if (with_files && !bind_at(STAGE_SLOT, STAGE_ROOT PLACES_FILES, MS_REC, err))
        return false;
    if (chdir(STAGE_ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "enter " STAGE_ROOT);
    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make the programs' root read-only");
    return true;
}
