#include "sandboxd/isolation/namespaces/seccomp.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What ordinary programs need. A name that an architecture lacks is skipped. Not io_setup and its like: what they take
 * is counted host-wide alone (fs.aio-max-nr), and all who use them can do without. What only a command as root may, the
 * kernel asks its capabilities for: chroot(2), setuid(2), chown(2). */
static const char *const ALLOWED[] = {
    /* files */
    "access", "chdir", "chmod", "chown", "chroot", "close", "close_range", "copy_file_range", "creat", "dup", "dup2",
    "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchown", "fchownat",
    "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync",
    "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch", "inotify_init",
    "inotify_init1", "inotify_rm_watch", "ioctl", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr",
    "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "open",
    "openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead",
    "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat", "renameat2", "rmdir", "sendfile",
    "setxattr", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "tee",
    "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev",
    /* descriptors that wait */
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2",
    "pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "signalfd", "signalfd4", "timerfd_create",
    "timerfd_gettime", "timerfd_settime",
    /* memory */
    "brk", "get_mempolicy", "madvise", "mbind", "membarrier", "memfd_create", "migrate_pages", "mincore", "mlock",
    "mlock2", "mlockall", "mmap", "move_pages", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap",
    "pkey_alloc", "pkey_free", "pkey_mprotect", "process_madvise", "process_mrelease", "process_vm_readv",
    "process_vm_writev", "remap_file_pages", "set_mempolicy", "set_mempolicy_home_node",
    /* processes and threads */
    "alarm", "arch_prctl", "clone", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_waitv",
    "get_robust_list", "get_thread_area", "getcpu", "getpgid", "getpgrp", "getpid", "getppid", "getpriority",
    "getrlimit", "getrusage", "getsid", "gettid", "ioprio_get", "ioprio_set", "kcmp", "kill", "pause", "personality",
    "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64", "ptrace", "restart_syscall", "rseq", "rt_sigaction",
    "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
    "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr",
    "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list", "set_thread_area",
    "set_tid_address", "setpgid", "setpriority", "setrlimit", "setsid", "sigaltstack", "tgkill", "tkill", "unshare",
    "vfork", "wait4", "waitid", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
    /* users */
    "capget", "capset", "getegid", "geteuid", "getgid", "getgroups", "getresgid", "getresuid", "getuid", "setfsgid",
    "setfsuid", "setgid", "setgroups", "setregid", "setresgid", "setresuid", "setreuid", "setuid",
    /* sockets and System V */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom",
    "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socket", "socketpair",
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget",
    "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt", "shmget",
    /* time, and what there is to know */
    "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "getrandom", "gettimeofday", "nanosleep",
    "setitimer", "sysinfo", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
    "timer_settime", "times", "uname"};

/* Known, and not for a sandbox: "you may not" rather than "there is no such thing". */
static const char *const DENIED[] = {"io_uring_enter",
                                     "io_uring_register",
                                     "io_uring_setup",
                                     "userfaultfd",
                                     "bpf",
                                     "perf_event_open",
                                     "keyctl",
                                     "add_key",
                                     "request_key",
                                     "setns",
                                     "mount",
                                     "umount",
                                     "umount2",
                                     "pivot_root",
                                     "move_mount",
                                     "fsopen",
                                     "fsconfig",
                                     "fsmount",
                                     "fspick",
                                     "open_tree",
                                     "mount_setattr",
                                     "kexec_load",
                                     "kexec_file_load",
                                     "init_module",
                                     "finit_module",
                                     "delete_module",
                                     "create_module",
                                     "get_kernel_syms",
                                     "query_module",
                                     "open_by_handle_at",
                                     "name_to_handle_at",
                                     "quotactl",
                                     "quotactl_fd",
                                     "acct",
                                     "swapon",
                                     "swapoff",
                                     "reboot",
                                     "settimeofday",
                                     "stime",
                                     "clock_settime",
                                     "clock_adjtime",
                                     "adjtimex",
                                     "ioperm",
                                     "iopl",
                                     "modify_ldt",
                                     "fanotify_init",
                                     "fanotify_mark",
                                     "lookup_dcookie",
                                     "pidfd_getfd",
                                     "syslog",
                                     "sethostname",
                                     "setdomainname",
                                     "vhangup",
                                     "nfsservctl",
                                     "uselib",
                                     "ustat",
                                     "sysfs",
                                     "_sysctl",
                                     "vm86",
                                     "vm86old",
                                     "memfd_secret"};

/* ... but for what keeps a guest: it makes namespaces and a root of its own, in which it has rights alone. */
static const char *const OF_MONITORS[] = {"mount", "umount2", "pivot_root", "setns", "sethostname"};

/* Newer than the library: one number on all architectures (include/uapi/asm-generic/unistd.h). */
static const int ALLOWED_NUMBERS[] = {451 /* cachestat */,
                                      452 /* fchmodat2 */,
                                      454 /* futex_wake */,
                                      455 /* futex_wait */,
                                      456 /* futex_requeue */,
                                      462 /* mseal */,
                                      453 /* map_shadow_stack */};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool add(scmp_filter_ctx filter, uint32_t action, int number, const char *name, struct error *err)
{
    if (number < 0)
        return true; /* not on this architecture, or not known to this libseccomp */
    int failed = seccomp_rule_add(filter, action, number, 0);
    if (failed == 0)
        return true;
    errno = -failed;
    return error_set_errno(err, ERROR_INTERNAL, "seccomp rule for %s", name);
}

static bool is_for_monitor(const char *name)
{
    for (size_t i = 0; i < COUNT(OF_MONITORS); i++) {
        if (strcmp(OF_MONITORS[i], name) == 0)
            return true;
    }
    return false;
}

static bool add_rules(scmp_filter_ctx filter, enum seccomp_use use, struct error *err)
{
    for (size_t i = 0; i < COUNT(ALLOWED); i++) {
        if (!add(filter, SCMP_ACT_ALLOW, seccomp_syscall_resolve_name(ALLOWED[i]), ALLOWED[i], err))
            return false;
    }
    for (size_t i = 0; i < COUNT(DENIED); i++) {
        bool is_allowed = use == SECCOMP_MONITOR && is_for_monitor(DENIED[i]);
        if (!add(filter, is_allowed ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), seccomp_syscall_resolve_name(DENIED[i]),
                 DENIED[i], err))
            return false;
    }
    for (size_t i = 0; i < COUNT(ALLOWED_NUMBERS); i++) {
        if (!add(filter, SCMP_ACT_ALLOW, ALLOWED_NUMBERS[i], "a newer system call", err))
            return false;
    }
    return true;
}

/* The list as libseccomp writes it, in a plain memfd. */
static int export_list(enum seccomp_use use, struct error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    AUTO_FD int fd = memfd_create("seccomp-list", MFD_CLOEXEC);
    if (filter == NULL || fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "begin a seccomp filter");
        seccomp_release(filter);
        return -1;
    }
    (void)seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree rather than a list; older ones lack it */
    bool added = add_rules(filter, use, err);
    int failed = added ? seccomp_export_bpf(filter, fd) : 0;
    seccomp_release(filter);
    errno = -failed;
    if (failed)
        error_set_errno(err, ERROR_INTERNAL, "export the seccomp filter");
    return added && !failed ? TAKE_FD(fd) : -1;
}

/* --- what depends on arguments ---
 * Put before the list, by hand: the kernel looks at the low 32 bits of these arguments alone, and libseccomp has no
 * comparison "these bits are not equal", so that its rule would be passed by by setting a high bit. Whatever these
 * lines do not refuse goes on to the list. */

#if defined __x86_64__
#define NATIVE_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define NATIVE_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the seccomp filter knows x86_64 and aarch64"
#endif

#define LOAD(offset)           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define IF_EQUAL(k, yes, no)   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(k), (yes), (no))
#define IF_ANY_BIT(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(k), (yes), (no))
#define AND(k)                 BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (k))
#define RETURN(action)         BPF_STMT(BPF_RET | BPF_K, (action))
#define RETURN_EPERM           RETURN(SECCOMP_RET_ERRNO | EPERM)
#define NUMBER                 offsetof(struct seccomp_data, nr)
#define ARGUMENT(i)                                                                                                    \
    (uint32_t)(offsetof(struct seccomp_data, args) + (i) * sizeof(uint64_t)) /* little-endian: low half */
#define ARGUMENT_HIGH(i) (ARGUMENT(i) + (uint32_t)sizeof(uint32_t))

#define RETURN_ENOTTY RETURN(SECCOMP_RET_ERRNO | ENOTTY)
#define RETURN_DONE      RETURN(SECCOMP_RET_ERRNO | 0)

enum {
    SOCKET_TYPES = 0xf, /* SOCK_TYPE_MASK of the kernel; above it are flags */
    IOCTL_TYPE = 0xff00,
    IOCTL_BTRFS = 0x9400 /* also the VFS's cloning of files, which every file system checks as a write */
};

/* A block is: is it this call? if not, over the block; the argument; jumps; EPERM as its last line. Jumps are counted
 * from the line behind them; seccomp_test.c tries each. */
static const struct sock_filter ARCHITECTURE[] = {
    LOAD(offsetof(struct seccomp_data, arch)),
    IF_EQUAL(NATIVE_ARCHITECTURE, 1, 0),
    RETURN(SECCOMP_RET_KILL_PROCESS),
};

/* Not for a monitor, which makes namespaces of its own. */
static const struct sock_filter NAMESPACES[] = {
    LOAD(NUMBER),
    IF_EQUAL(SYS_clone, 1, 0), /* new namespaces: a whole kernel surface that sandboxes need not see */
    IF_EQUAL(SYS_unshare, 0, 3),
    LOAD(ARGUMENT(0)),
    IF_ANY_BIT(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                   CLONE_NEWNET,
               0, 1),
    RETURN_EPERM,

    LOAD(NUMBER),
    IF_EQUAL(SYS_unshare, 0, 3), /* in clone this bit belongs to the exit signal */
    LOAD(ARGUMENT(0)),
    IF_ANY_BIT(CLONE_NEWTIME, 0, 1),
    RETURN_EPERM,
};

static const struct sock_filter BY_ARGUMENT[] = {
    LOAD(NUMBER),
    IF_EQUAL(SYS_ioctl, 0, 5), /* typing into somebody's terminal; line disciplines, which are loaded on demand */
    LOAD(ARGUMENT(1)),
    IF_EQUAL(TIOCSTI, 2, 0),
    IF_EQUAL(TIOCSETD, 1, 0),
    IF_EQUAL(TIOCLINUX, 0, 1),
    RETURN_EPERM,

    LOAD(NUMBER),
    IF_EQUAL(SYS_ioctl, 0, 7), /* of btrfs: on a volume anybody could make a subvolume, which leaves the quota */
    LOAD(ARGUMENT(1)),
    IF_EQUAL(FICLONE, 5, 0),
    IF_EQUAL(FICLONERANGE, 4, 0),
    IF_EQUAL(FIDEDUPERANGE, 3, 0),
    AND(IOCTL_TYPE),
    IF_EQUAL(IOCTL_BTRFS, 0, 1),
    RETURN_ENOTTY,

    LOAD(NUMBER), /* a limit of 1 keeps the host's core_pattern from being run for a crash here, one of 0 does not: */
    IF_EQUAL(SYS_setrlimit, 0, 3), /* who wants no cores has none, and who wants some gets none */
    LOAD(ARGUMENT(0)),
    IF_EQUAL(RLIMIT_CORE, 0, 1),
    RETURN_DONE,

    LOAD(NUMBER),
    IF_EQUAL(SYS_prlimit64, 0, 12), /* the same; asking for the limit (no new one) goes on to the kernel */
    LOAD(ARGUMENT(1)),
    IF_EQUAL(RLIMIT_CORE, 0, 10),
    LOAD(ARGUMENT(2)),
    IF_EQUAL(0, 0, 2),
    LOAD(ARGUMENT_HIGH(2)),
    IF_EQUAL(0, 6, 0),
    LOAD(ARGUMENT(3)), /* who wants the old one too would find nothing written */
    IF_EQUAL(0, 0, 3),
    LOAD(ARGUMENT_HIGH(3)),
    IF_EQUAL(0, 0, 1),
    RETURN_DONE,
    RETURN_EPERM,

    LOAD(NUMBER),
    IF_EQUAL(SYS_personality, 0, 4),
    LOAD(ARGUMENT(0)),
    IF_EQUAL(0, 2, 0),
    IF_EQUAL(0xffffffff, 1, 0), /* asks only */
    RETURN_EPERM,

    LOAD(NUMBER),
    IF_EQUAL(SYS_socketpair, 0, 3), /* makes a socket of the family before it finds that it knows no pairs */
    LOAD(ARGUMENT(0)),
    IF_EQUAL(AF_UNIX, 1, 0),
    RETURN_EPERM,

    LOAD(NUMBER),
    IF_EQUAL(SYS_socket, 0, 8),
    LOAD(ARGUMENT(0)),
    IF_EQUAL(AF_UNIX, 6, 0),
    IF_EQUAL(AF_INET, 5, 0),
    IF_EQUAL(AF_INET6, 4, 0),
    IF_EQUAL(AF_NETLINK, 0, 2),
    LOAD(ARGUMENT(2)),
    IF_EQUAL(0 /* NETLINK_ROUTE: getifaddrs(3) */, 1, 0),
    RETURN_EPERM,

    LOAD(NUMBER),
    IF_EQUAL(SYS_socket, 0, 12), /* of the internet: TCP and UDP, by number or as their type's protocol 0 */
    LOAD(ARGUMENT(0)),
    IF_EQUAL(AF_INET, 1, 0),
    IF_EQUAL(AF_INET6, 0, 9),
    LOAD(ARGUMENT(1)),
    AND(SOCKET_TYPES),
    IF_EQUAL(SOCK_STREAM, 1, 0),
    IF_EQUAL(SOCK_DGRAM, 0, 4), /* others' protocol 0 is SCTP, DCCP or AF_PACKET by another name */
    LOAD(ARGUMENT(2)),
    IF_EQUAL(0, 3, 0),
    IF_EQUAL(IPPROTO_TCP, 2, 0),
    IF_EQUAL(IPPROTO_UDP, 1, 0),
    RETURN_EPERM,
};

/* What stands before the list. */
static size_t add_front(char *to, enum seccomp_use use)
{
    size_t namespaces = use == SECCOMP_COMMANDS ? sizeof NAMESPACES : 0;
    memcpy(to, ARCHITECTURE, sizeof ARCHITECTURE);
    memcpy(to + sizeof ARCHITECTURE, NAMESPACES, namespaces);
    memcpy(to + sizeof ARCHITECTURE + namespaces, BY_ARGUMENT, sizeof BY_ARGUMENT);
    return sizeof ARCHITECTURE + namespaces + sizeof BY_ARGUMENT;
}

int seccomp_build(enum seccomp_use use, struct error *err)
{
    char front[sizeof ARCHITECTURE + sizeof NAMESPACES + sizeof BY_ARGUMENT];
    AUTO_FD int list = export_list(use, err);
    struct stat status;
    if (list < 0)
        return -1;
    if (fstat(list, &status) < 0 || status.st_size <= 0 || lseek(list, 0, SEEK_SET) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "read the seccomp filter back");
        return -1;
    }
    size_t list_bytes = (size_t)status.st_size, front_bytes = add_front(front, use);
    if ((list_bytes + front_bytes) / sizeof(struct sock_filter) > BPF_MAXINSNS) {
        error_set(err, ERROR_TOO_LARGE, "the seccomp filter is longer than the kernel takes");
        return -1;
    }
    AUTO_FREE char *whole = memory_new(front_bytes + list_bytes);
    memcpy(whole, front, front_bytes);
    if (!fd_read_exact(list, whole + front_bytes, list_bytes, err))
        return -1;
    return fd_sealed_memfd("seccomp", whole, front_bytes + list_bytes, err);
}
