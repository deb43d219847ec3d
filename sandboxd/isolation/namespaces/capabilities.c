#include "sandboxd/isolation/namespaces/capabilities.h"

#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FILES_SOFT = 1024,
    FILES_HARD = 1048576,
    CORE_BYTES = 1, /* 0 would still start a core_pattern that is a program, as the host's root; 1 never (core(5)) */
    LOCKED_BYTES = 65536,
    SIGNALS_PENDING = 4096, /* and timers of timer_create(2) */
    QUEUES_BYTES = 819200   /* of mq_open(3): the kernel's default */
};

bool capabilities_seal(struct error *err)
{
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "clear ambient capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "no_new_privs, not dumpable");
    return true;
}

/* A hard limit can be lowered, never raised: the one we were started with is the most there is. */
static bool limit(int resource, rlim_t soft, rlim_t hard, struct error *err)
{
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "getrlimit %d", resource);
    struct rlimit wanted = {.rlim_max = hard < now.rlim_max ? hard : now.rlim_max};
    wanted.rlim_cur = soft < wanted.rlim_max ? soft : wanted.rlim_max;
    if (setrlimit((__rlimit_resource_t)resource, &wanted) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setrlimit %d", resource);
    return true;
}

bool process_attributes_reset(struct error *err)
{
    umask(022);
    if (setsid() < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setsid");
    /* Else the sandbox would possess the session keyring of whoever started us; a kernel without keys has none. */
    (void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    return limit(RLIMIT_NOFILE, FILES_SOFT, FILES_HARD, err) && limit(RLIMIT_CORE, CORE_BYTES, CORE_BYTES, err) &&
           limit(RLIMIT_MEMLOCK, LOCKED_BYTES, LOCKED_BYTES, err) &&
           limit(RLIMIT_SIGPENDING, SIGNALS_PENDING, SIGNALS_PENDING, err) &&
           limit(RLIMIT_MSGQUEUE, QUEUES_BYTES, QUEUES_BYTES, err) &&
           limit(RLIMIT_NPROC, RLIM_INFINITY, RLIM_INFINITY, err) && limit(RLIMIT_RTPRIO, 0, 0, err) &&
           limit(RLIMIT_NICE, 0, 0, err);
}
