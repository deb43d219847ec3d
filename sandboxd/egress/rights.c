#include "sandboxd/egress/rights.h"

#include "shared/base/confine.h"
#include "shared/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { DESCRIPTORS_MAX = 65536 };

/* ---- limits ---- */

static bool limit_to(__rlimit_resource_t what, rlim_t most, struct error *err)
{
    struct rlimit limit = {0};
    if (getrlimit(what, &limit) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "getrlimit");
    limit.rlim_max = limit.rlim_max > most ? most : limit.rlim_max;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(what, &limit) == 0 || error_set_errno(err, ERROR_INTERNAL, "setrlimit");
}

static bool limit(struct error *err)
{
    bool is_limited = limit_to(RLIMIT_NOFILE, DESCRIPTORS_MAX, err) && limit_to(RLIMIT_NPROC, 0, err) &&
                      limit_to(RLIMIT_MEMLOCK, 0, err);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    is_limited = is_limited && limit_to(RLIMIT_DATA, (rlim_t)1 << 30, err);
#endif
    return is_limited;
}

/* ---- system calls ---- */

/* What the loop, the sockets, c-ares, OpenSSL's hello and libc's memory need; seen with strace(1). */
static const int ALLOWED[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(splice),
    SCMP_SYS(pipe2),
    SCMP_SYS(close),
    SCMP_SYS(accept4),
    SCMP_SYS(connect),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(fcntl),
    SCMP_SYS(epoll_create),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(getrandom),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(sched_yield),
};

/* Memory never becomes code; sockets are IPv4's alone. */
static int add_rules(scmp_filter_ctx filter)
{
    int status = 0;
    for (size_t i = 0; i < sizeof ALLOWED / sizeof ALLOWED[0] && status == 0; i++)
        status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, ALLOWED[i], 0);
    const struct scmp_arg_cmp no_code = {.arg = 2, .op = SCMP_CMP_MASKED_EQ, .datum_a = PROT_EXEC, .datum_b = 0};
    const struct scmp_arg_cmp is_ipv4 = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = AF_INET, .datum_b = 0};
    if (status == 0)
        status = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, &no_code);
    if (status == 0)
        status = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, &no_code);
    if (status == 0)
        status = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, &is_ipv4);
    return status;
}

static bool filter_calls(struct error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL)
        return error_set(err, ERROR_INTERNAL, "seccomp: no filter");
    int status = add_rules(filter);
    if (status == 0)
        status = seccomp_load(filter);
    seccomp_release(filter);
    errno = -status;
    return status == 0 || error_set_errno(err, ERROR_INTERNAL, "seccomp");
}

/* ---- all ---- */

static bool close_files(struct error *err)
{
    int abi = 0;
    if (confine_landlock(NULL, 0, true, &abi, err))
        return true;
    if (abi != 0)
        return false;
    log_warn("egress", "this kernel has no Landlock: the egress process may open what its user may");
    *err = (struct error){0};
    return true;
}

bool rights_give_up(const struct eg_config *config, struct error *err)
{
    if (!confine_user(config->uid, config->gid, err))
        return false;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* a change of uid forgets it */
    return close_files(err) && limit(err) && filter_calls(err);
}
