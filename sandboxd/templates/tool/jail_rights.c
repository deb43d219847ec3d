#include "sandboxd/templates/tool/jail_rights.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0 /* else its shadow memory needs all address space */
#endif

enum { OPEN_FILES_MAX = 4096, PROCESSES_MAX = 2000 };
static const rlim_t ADDRESS_SPACE = 4ULL << 30;

bool jail_rights_become_root(int channel, struct error *err)
{
    if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "become root of an own user namespace");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "prctl");
    struct pollfd parent = {.fd = channel, .events = POLLIN};
    if (poll(&parent, 1, 0) > 0 && (parent.revents & POLLHUP))
        return error_set(err, ERROR_INTERNAL, "the parent went away");
    return true;
}

bool jail_rights_limit(uint64_t file_bytes, struct error *err)
{
    const struct {
        __rlimit_resource_t resource;
        rlim_t most;
        bool is_wanted;
    } limits[] = {{RLIMIT_CORE, 0, true},
                  {RLIMIT_FSIZE, file_bytes, true},
                  {RLIMIT_NOFILE, OPEN_FILES_MAX, true},
                  {RLIMIT_NPROC, PROCESSES_MAX, true},
                  {RLIMIT_AS, ADDRESS_SPACE, !IS_SANITIZED}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit limit = {limits[i].most, limits[i].most};
        if (limits[i].is_wanted && setrlimit(limits[i].resource, &limit) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "setrlimit");
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* EFBIG then */
    return true;
}

/* --- capabilities, of the own namespace --- */

static bool keep_capabilities(uint64_t kept, struct error *err)
{
    for (unsigned long i = 0; i <= CAP_LAST_CAP; i++) {
        if (!(kept & (1ULL << i)) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0 && errno != EINVAL)
            return error_set_errno(err, ERROR_INTERNAL, "drop a capability");
    }
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)kept, .permitted = (uint32_t)kept},
        {.effective = (uint32_t)(kept >> 32), .permitted = (uint32_t)(kept >> 32)}};
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &header, data) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "drop capabilities");
    return true;
}

#define CAP(name) (1ULL << CAP_##name)

bool jail_rights_for_packages(struct error *err)
{
    return keep_capabilities(CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH) | CAP(FOWNER) | CAP(FSETID) |
                                 CAP(KILL) | CAP(SETGID) | CAP(SETUID) | CAP(SETFCAP) | CAP(SYS_CHROOT),
                             err);
}

/* --- system calls --- */

static const int ALLOWED[] = {
    SCMP_SYS(brk),          SCMP_SYS(chdir),          SCMP_SYS(clock_gettime), SCMP_SYS(close),
    SCMP_SYS(dup),          SCMP_SYS(exit),           SCMP_SYS(exit_group),    SCMP_SYS(fchdir),
    SCMP_SYS(fchmod),       SCMP_SYS(fchmodat),       SCMP_SYS(fchown),        SCMP_SYS(fchownat),
    SCMP_SYS(fcntl),        SCMP_SYS(fsetxattr),      SCMP_SYS(fstat),         SCMP_SYS(fstatfs),
    SCMP_SYS(ftruncate),    SCMP_SYS(futex),          SCMP_SYS(getdents64),    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),    SCMP_SYS(gettid),         SCMP_SYS(getuid),        SCMP_SYS(geteuid),
    SCMP_SYS(getgid),       SCMP_SYS(getegid),        SCMP_SYS(gettimeofday),  SCMP_SYS(linkat),
    SCMP_SYS(lseek),        SCMP_SYS(madvise),        SCMP_SYS(mkdirat),       SCMP_SYS(mknodat),
    SCMP_SYS(mmap),         SCMP_SYS(mprotect),       SCMP_SYS(mremap),        SCMP_SYS(munmap),
    SCMP_SYS(newfstatat),   SCMP_SYS(openat),         SCMP_SYS(openat2),       SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),     SCMP_SYS(read),           SCMP_SYS(readlinkat),    SCMP_SYS(readv),
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),  SCMP_SYS(sched_yield),
    SCMP_SYS(sendmsg),      SCMP_SYS(sigaltstack),    SCMP_SYS(statx),         SCMP_SYS(symlinkat),
    SCMP_SYS(sysinfo),      SCMP_SYS(tgkill),         SCMP_SYS(uname),         SCMP_SYS(unlinkat),
    SCMP_SYS(utimensat),    SCMP_SYS(write),          SCMP_SYS(writev),        SCMP_SYS(open),
    SCMP_SYS(unlink),       SCMP_SYS(rmdir),          SCMP_SYS(stat),          SCMP_SYS(lstat),
    SCMP_SYS(access),       SCMP_SYS(mknod),          SCMP_SYS(readlink),      SCMP_SYS(mkdir)};

static bool load_filter(scmp_filter_ctx filter, struct error *err)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof ALLOWED / sizeof ALLOWED[0] && failed == 0; i++)
        failed = ALLOWED[i] < 0 ? 0 : seccomp_rule_add(filter, SCMP_ACT_ALLOW, ALLOWED[i], 0);
    if (failed == 0)
        failed = seccomp_load(filter);
    errno = -failed;
    return failed == 0 || error_set_errno(err, ERROR_INTERNAL, "load the filter of system calls");
}

bool jail_rights_for_parsing(struct error *err)
{
    if (!keep_capabilities(CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER), err))
        return false;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL)
        return error_set(err, ERROR_INTERNAL, "no memory for the filter of system calls");
    bool loaded = load_filter(filter, err);
    seccomp_release(filter);
    return loaded;
}
