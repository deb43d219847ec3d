/* rights.c - see rights.h. A change of the bounding set copies the credentials, also for nothing: so it is asked first,
 * and done by init once, not by each child. */
#include "sandboxd/init/rights.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { CAPABILITIES_MAX = 64 };

#define BIT(capability) (1ULL << (capability))

/* Of init, for its children: to become a user, to bound what they have, to end them. */
static const uint64_t OF_INIT = BIT(CAP_SETUID) | BIT(CAP_SETGID) | BIT(CAP_SETPCAP) | BIT(CAP_KILL);

/* Files of any owner and mode, users, chroot(2), ports below 1024. Nothing of the kernel's: no mount, no device, no
 * interface, no other process's memory. */
static const uint64_t OF_ROOT = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) |
                                BIT(CAP_SETFCAP) | BIT(CAP_SYS_CHROOT) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SETUID) |
                                BIT(CAP_SETGID) | BIT(CAP_KILL);

static bool bound(uint64_t kept, struct error *err)
{
    /* READ is below 0 beyond the kernel's last. */
    for (unsigned long capability = 0; capability < CAPABILITIES_MAX; capability++) {
        int is_in = kept >> capability & 1 ? 0 : prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
        if (is_in < 0 && capability > 0)
            return true;
        if (is_in < 0 || (is_in == 1 && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0))
            return error_set_errno(err, ERROR_INTERNAL, "dropping capability %lu", capability);
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
    return bound(OF_ROOT, err);
}

bool rights_drop(bool root_allowed, struct error *err)
{
    return (root_allowed || bound(0, err)) && set(root_allowed ? OF_INIT | OF_ROOT : OF_INIT, err);
}

bool rights_take_root(struct error *err)
{
    return set(OF_ROOT, err);
}

bool rights_take_none(struct error *err)
{
    return set(0, err);
}
