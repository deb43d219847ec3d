#include "sandboxd/isolation/direct/direct.h"

#include "sandboxd/init/inherit.h"
#include "shared/base/fd.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FD_PROGRAM = INHERIT_FD_JOIN, FD_ASIDE = 64 };

/* Aside first, as a target may be the source of another. */
static bool arrange(const struct direct_init *init, struct error *err)
{
    int from[] = {init->listen, init->control, init->seccomp, init->alive, init->program};
    const int to[] = {INHERIT_FD_LISTEN, INHERIT_FD_CONTROL, INHERIT_FD_SECCOMP, INHERIT_FD_AREA, FD_PROGRAM};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FD_ASIDE);
        if (from[i] < 0)
            return error_set_errno(err, ERROR_INTERNAL, "set descriptor %d aside", to[i]);
    }
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        if (dup3(from[i], to[i], to[i] == FD_PROGRAM ? O_CLOEXEC : 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "place descriptor %d", to[i]);
    }
    close(INHERIT_FD_RUN);
    if (syscall(SYS_close_range, FD_PROGRAM + 1U, (unsigned)INT_MAX, CLOSE_RANGE_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "close_range");
    return true;
}

static bool silence(struct error *err)
{
    AUTO_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int standard = 0; standard <= 2; standard++) {
        if (null < 0 || dup2(null, standard) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "open /dev/null");
    }
    return true;
}

bool direct_become_init(const struct direct_init *init, struct error *err)
{
    char name[] = "init", joins[] = "0", guest[] = INHERIT_GUEST;
    char *const arguments[] = {name, joins, guest, NULL};
    char *const environment[] = {NULL};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "no_new_privs");
    if (!arrange(init, err) || !silence(err))
        return false;
    syscall(SYS_execveat, FD_PROGRAM, "", arguments, environment, AT_EMPTY_PATH);
    return error_set_errno(err, ERROR_INTERNAL, "execute init");
}

static const struct {
    unsigned number;
    const char *name;
} NEEDED[] = {{CAP_SETUID, "CAP_SETUID"},   {CAP_SETGID, "CAP_SETGID"}, {CAP_KILL, "CAP_KILL"},
              {CAP_SETPCAP, "CAP_SETPCAP"}, {CAP_CHOWN, "CAP_CHOWN"},   {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}};

bool direct_check_rights(struct error *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
    if (geteuid() != 0)
        return error_set(err, ERROR_FORBIDDEN,
                         "guest mode must be root where it runs (uid 0 of the VM or container, not %u): commands, the "
                         "front and init are three users",
                         geteuid());
    if (syscall(SYS_capget, &head, sets) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "capget");
    for (size_t i = 0; i < sizeof NEEDED / sizeof *NEEDED; i++) {
        if (!(sets[0].effective >> NEEDED[i].number & 1))
            return error_set(err, ERROR_FORBIDDEN, "guest mode needs %s, which this container withholds",
                             NEEDED[i].name);
    }
    return true;
}
