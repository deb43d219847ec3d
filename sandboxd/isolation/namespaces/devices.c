#include "sandboxd/isolation/namespaces/devices.h"

#include "sandboxd/isolation/namespaces/stage.h"

#include <sys/mount.h>

#define DEV STAGE_NEW "/dev"

/* Terminals are counted host-wide (kernel.pty.max); without max= one sandbox could have them all. */
static const char PTS_OPTIONS[] = "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64";
static const char SHM_OPTIONS[] = "size=64k,nr_inodes=8,mode=1777";

bool devices_make(struct error *err)
{
    /* A mount of the launcher's: its flags are locked for whoever is inside. */
    if (mount(STAGE_DEV, DEV, NULL, MS_BIND | MS_REC, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind /dev");
    if (mount("devpts", DEV "/pts", "devpts", MS_NOSUID | MS_NOEXEC, PTS_OPTIONS) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount /dev/pts");
    if (mount("tmpfs", DEV "/shm", "tmpfs", MS_NOSUID | MS_NODEV, SHM_OPTIONS) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount /dev/shm");
    return true;
}
