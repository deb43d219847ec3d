/* rights.c - see rights.h. A change of the bounding set copies the credentials: init does it once, not each child. */
#include "sandboxd/init/rights.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CAPABILITIES_MAX = 64, NOBODY = 65534 };

#define BIT(capability) (1ULL << (capability))

/* Of init, for its children: to become a user, to bound what they have, to end them. */
static const uint64_t OF_INIT = BIT(CAP_SETUID) | BIT(CAP_SETGID) | BIT(CAP_SETPCAP) | BIT(CAP_KILL);

/* Files of any owner and mode, users, chroot(2), ports below 1024. Nothing of the kernel's: no mount, no device, no
 * interface, no other process's memory. */
static const uint64_t OF_ROOT = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) |
                                BIT(CAP_SETFCAP) | BIT(CAP_SYS_CHROOT) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SETUID) |
                                BIT(CAP_SETGID) | BIT(CAP_KILL);

/* Takes those in `dropped` from the bounding set. */
static bool bound(uint64_t dropped, struct error *err)
{
    for (unsigned long capability = 0; capability < CAPABILITIES_MAX; capability++) {
        if (!(dropped >> capability & 1) || prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
            continue;
        /* EINVAL: beyond the kernel's last, which is not before those that all kernels have. */
        return (errno == EINVAL && capability > CAP_AUDIT_READ) ||
               error_set_errno(err, ERROR_INTERNAL, "dropping capability %lu", capability);
    }
    return true;
}

static bool set(uint64_t capabilities, struct error *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
    for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        sets[i].effective = sets[i].permitted = (uint32_t)(capabilities >> (32 * i));
    return syscall(SYS_capset, &head, sets) == 0 || error_set_errno(err, ERROR_INTERNAL, "capset");
}

bool rights_bound(struct error *err)
{
    return bound(~OF_ROOT, err);
}

/* prlimit(2) asks that the target's three uids are all the caller's own real one, or for a capability that no command
 * has: with two different ones init is nobody's to limit, a root command's neither. */
static bool part_ids(struct error *err)
{
    return (syscall(SYS_setresgid, -1, -1, NOBODY) == 0 && syscall(SYS_setresuid, -1, -1, NOBODY) == 0) ||
           error_set_errno(err, ERROR_INTERNAL, "take a saved user id of its own");
}

bool rights_drop(bool root_allowed, struct error *err)
{
    return (root_allowed ? part_ids(err) : bound(OF_ROOT, err)) && set(root_allowed ? OF_INIT | OF_ROOT : OF_INIT, err);
}

bool rights_take_root(struct error *err)
{
    return set(OF_ROOT, err);
}

bool rights_take_none(struct error *err)
{
    return set(0, err);
}
