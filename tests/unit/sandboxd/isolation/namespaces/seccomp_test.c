/* The filter in force: each row is one call made by a child that has loaded it, and the errno that must come of it. For
 * what passes, the kernel's own answer. */
#include "sandboxd/isolation/namespaces/seccomp.h"

#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <linux/btrfs.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANY = -1 /* only that the filter let it pass: neither EPERM nor ENOSYS */, FAR = 999 /* no such descriptor */ };

static const unsigned long HIGH = 1UL << 40; /* what the kernel does not look at in 32-bit arguments */

struct row {
    const char *what;
    long number;
    unsigned long arguments[4];
    int expected;
};

static const struct row ROWS[] = {
    {"getppid", SYS_getppid, {0}, 0},
    /* sockets */
    {"unix", SYS_socket, {AF_UNIX, SOCK_STREAM, 0}, 0},
    {"tcp", SYS_socket, {AF_INET, SOCK_STREAM, 0}, 0},
    {"tcp, by number, with flags", SYS_socket, {AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 6}, 0},
    {"udp", SYS_socket, {AF_INET, SOCK_DGRAM, 0}, 0},
    {"udp, by number", SYS_socket, {AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 17}, 0},
    {"tcp of 6", SYS_socket, {AF_INET6, SOCK_STREAM, 0}, ANY},
    {"udp of 6", SYS_socket, {AF_INET6, SOCK_DGRAM, 17}, ANY},
    {"icmp", SYS_socket, {AF_INET, SOCK_DGRAM, 1}, EPERM},
    {"icmp of 6", SYS_socket, {AF_INET6, SOCK_DGRAM, 58}, EPERM},
    {"mptcp", SYS_socket, {AF_INET, SOCK_STREAM, 262}, EPERM},
    {"sctp", SYS_socket, {AF_INET, SOCK_STREAM, 132}, EPERM},
    {"sctp by type", SYS_socket, {AF_INET, SOCK_SEQPACKET, 0}, EPERM},
    {"dccp by type", SYS_socket, {AF_INET6, SOCK_DCCP, 0}, EPERM},
    {"packet by type", SYS_socket, {AF_INET, SOCK_PACKET, 0}, EPERM},
    {"raw", SYS_socket, {AF_INET, SOCK_RAW, 6}, EPERM},
    {"udplite", SYS_socket, {AF_INET, SOCK_DGRAM, 136}, EPERM},
    {"tcp, with high bits", SYS_socket, {AF_INET | HIGH, SOCK_STREAM | HIGH, 6 | HIGH}, 0},
    {"icmp, with high bits", SYS_socket, {AF_INET | HIGH, SOCK_DGRAM | HIGH, 1 | HIGH}, EPERM},
    {"route netlink", SYS_socket, {AF_NETLINK, SOCK_RAW, 0}, 0},
    {"audit netlink", SYS_socket, {AF_NETLINK, SOCK_RAW, 9}, EPERM},
    {"packet", SYS_socket, {AF_PACKET, SOCK_RAW, 0}, EPERM},
    {"alg", SYS_socket, {AF_ALG, SOCK_SEQPACKET, 0}, EPERM},
    {"vsock", SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}, EPERM},
    {"family 999", SYS_socket, {999, SOCK_STREAM, 0}, EPERM},
    /* pairs; EFAULT: behind the filter, the kernel writes them to nowhere */
    {"pair of unix", SYS_socketpair, {AF_UNIX, SOCK_STREAM, 0}, EFAULT},
    {"pair of inet", SYS_socketpair, {AF_INET, SOCK_STREAM, 0}, EPERM},
    {"pair of inet6", SYS_socketpair, {AF_INET6, SOCK_STREAM, 0}, EPERM},
    {"pair of alg", SYS_socketpair, {AF_ALG, SOCK_SEQPACKET, 0}, EPERM},
    {"pair of vsock", SYS_socketpair, {AF_VSOCK, SOCK_STREAM, 0}, EPERM},
    {"pair of netlink", SYS_socketpair, {AF_NETLINK, SOCK_RAW, 0}, EPERM},
    {"pair of tipc, with high bits", SYS_socketpair, {30 | HIGH, SOCK_STREAM, 0}, EPERM},
    /* terminals */
    {"TCGETS", SYS_ioctl, {FAR, TCGETS, 0}, EBADF},
    {"TIOCGWINSZ", SYS_ioctl, {FAR, TIOCGWINSZ, 0}, EBADF},
    {"TIOCGETD", SYS_ioctl, {FAR, TIOCGETD, 0}, EBADF},
    {"TIOCSTI", SYS_ioctl, {FAR, TIOCSTI, 0}, EPERM},
    {"TIOCSETD", SYS_ioctl, {FAR, TIOCSETD, 0}, EPERM},
    {"TIOCLINUX", SYS_ioctl, {FAR, TIOCLINUX, 0}, EPERM},
    {"TIOCSETD, with a high bit", SYS_ioctl, {FAR, TIOCSETD | HIGH, 0}, EPERM},
    /* btrfs */
    {"BTRFS_IOC_SUBVOL_CREATE", SYS_ioctl, {FAR, BTRFS_IOC_SUBVOL_CREATE, 0}, ENOTTY},
    {"BTRFS_IOC_SNAP_CREATE_V2", SYS_ioctl, {FAR, BTRFS_IOC_SNAP_CREATE_V2, 0}, ENOTTY},
    {"BTRFS_IOC_SNAP_DESTROY", SYS_ioctl, {FAR, BTRFS_IOC_SNAP_DESTROY, 0}, ENOTTY},
    {"BTRFS_IOC_QGROUP_LIMIT, with a high bit", SYS_ioctl, {FAR, BTRFS_IOC_QGROUP_LIMIT | HIGH, 0}, ENOTTY},
    {"any of its type", SYS_ioctl, {FAR, 0x947e, 0}, ENOTTY},
    {"any of its type, with a size", SYS_ioctl, {FAR, 0xffff94ff, 0}, ENOTTY},
    {"FICLONE", SYS_ioctl, {FAR, FICLONE, 0}, EBADF},
    {"FICLONERANGE", SYS_ioctl, {FAR, FICLONERANGE, 0}, EBADF},
    {"FIDEDUPERANGE", SYS_ioctl, {FAR, FIDEDUPERANGE, 0}, EBADF},
    {"FS_IOC_GETFLAGS", SYS_ioctl, {FAR, FS_IOC_GETFLAGS, 0}, EBADF},
    {"FIONREAD", SYS_ioctl, {FAR, FIONREAD, 0}, EBADF},
    /* namespaces */
    {"unshare of files", SYS_unshare, {CLONE_FILES, 0, 0}, 0},
    {"unshare of mounts", SYS_unshare, {CLONE_NEWNS, 0, 0}, EPERM},
    {"unshare of users", SYS_unshare, {CLONE_NEWUSER, 0, 0}, EPERM},
    {"unshare of pids", SYS_unshare, {CLONE_NEWPID, 0, 0}, EPERM},
    {"unshare of nets", SYS_unshare, {CLONE_NEWNET | CLONE_FILES, 0, 0}, EPERM},
    {"unshare of cgroups", SYS_unshare, {CLONE_NEWCGROUP, 0, 0}, EPERM},
    {"unshare of times", SYS_unshare, {CLONE_NEWTIME, 0, 0}, EPERM},
    {"unshare of nothing known", SYS_unshare, {1, 0, 0}, EINVAL},
    {"clone with users", SYS_clone, {CLONE_NEWUSER | SIGCHLD, 0, 0}, EPERM},
    {"clone with ipc", SYS_clone, {CLONE_NEWIPC | SIGCHLD, 0, 0}, EPERM},
    {"clone without sense", SYS_clone, {CLONE_THREAD, 0, 0}, EINVAL},
    {"clone3", SYS_clone3, {0}, ENOSYS},
    {"setns", SYS_setns, {FAR, 0, 0}, EPERM},
    /* personality */
    {"personality, to ask", SYS_personality, {0xffffffff, 0, 0}, 0},
    {"personality, plain", SYS_personality, {0, 0, 0}, 0},
    {"personality, no randomisation", SYS_personality, {0x0040000, 0, 0}, EPERM},
    /* core dumps: as if done, and nothing is */
    {"setrlimit of cores", SYS_setrlimit, {RLIMIT_CORE, 0, 0}, 0},
    {"setrlimit of cores, with a high bit", SYS_setrlimit, {RLIMIT_CORE | HIGH, 0, 0}, 0},
    {"setrlimit of another", SYS_setrlimit, {RLIMIT_NPROC, 0, 0}, EFAULT},
    {"prlimit of cores", SYS_prlimit64, {0, RLIMIT_CORE, 8}, 0},
    {"prlimit of cores, far away", SYS_prlimit64, {0, RLIMIT_CORE | HIGH, HIGH}, 0},
    {"prlimit of cores, to ask", SYS_prlimit64, {0, RLIMIT_CORE, 0}, 0},
    {"prlimit of cores, to change and to ask", SYS_prlimit64, {0, RLIMIT_CORE, 8, 8}, EPERM},
    {"prlimit of cores, to change and to ask far away", SYS_prlimit64, {0, RLIMIT_CORE, 8, HIGH}, EPERM},
    {"prlimit of another", SYS_prlimit64, {0, RLIMIT_NPROC, 8}, EFAULT},
    {"prlimit of another far away", SYS_prlimit64, {0, RLIMIT_NPROC, HIGH}, EFAULT},
    /* the list */
    {"io_setup", SYS_io_setup, {1, 0, 0}, ENOSYS},
    {"io_submit", SYS_io_submit, {0}, ENOSYS},
    {"io_destroy", SYS_io_destroy, {0}, ENOSYS},
    {"io_getevents", SYS_io_getevents, {0}, ENOSYS},
    {"io_cancel", SYS_io_cancel, {0}, ENOSYS},
    {"io_pgetevents", SYS_io_pgetevents, {0}, ENOSYS},
    {"io_uring_setup", SYS_io_uring_setup, {1, 0, 0}, EPERM},
    {"bpf", SYS_bpf, {0}, EPERM},
    {"userfaultfd", SYS_userfaultfd, {0}, EPERM},
    {"perf_event_open", SYS_perf_event_open, {0}, EPERM},
    {"mount", SYS_mount, {0}, EPERM},
    {"keyctl", SYS_keyctl, {0}, EPERM},
    {"umount2", SYS_umount2, {0}, EPERM},
    {"pivot_root", SYS_pivot_root, {0}, EPERM},
    {"open_by_handle_at", SYS_open_by_handle_at, {0}, EPERM},
    {"quotactl", SYS_quotactl, {0}, EPERM},
    {"sethostname", SYS_sethostname, {0}, EPERM},
    {"pidfd_getfd", SYS_pidfd_getfd, {0}, EPERM},
    {"syslog", SYS_syslog, {0}, EPERM},
    {"chroot, for the kernel to judge", SYS_chroot, {0}, EFAULT},
    {"a number that there is not", 999, {0}, ENOSYS},
};

#define ROW_COUNT (sizeof ROWS / sizeof ROWS[0])

/* What the child writes: where its parent sees it. */
static int *results;

static void load(int filter)
{
    struct stat status;
    if (fstat(filter, &status) < 0)
        _exit(120);
    void *program = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, filter, 0);
    struct sock_fprog all = {.len = (unsigned short)((size_t)status.st_size / sizeof(struct sock_filter)),
                             .filter = program};
    if (program == MAP_FAILED || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0U, &all) < 0)
        _exit(121);
}

static _Noreturn void run_rows(int filter)
{
    load(filter);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const struct row *row = &ROWS[i];
        long got =
            syscall(row->number, row->arguments[0], row->arguments[1], row->arguments[2], row->arguments[3], 0UL);
        results[i] = got < 0 ? errno : 0;
    }
    _exit(0);
}

static void test_rows(int filter)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        results[i] = -2;
    pid_t pid = fork();
    if (pid == 0)
        run_rows(filter);
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        int got = results[i];
        bool right = ROWS[i].expected == ANY ? got >= 0 && got != EPERM && got != ENOSYS : got == ROWS[i].expected;
        if (!right)
            fprintf(stderr, "%s: errno %d, not %d\n", ROWS[i].what, got, ROWS[i].expected);
        CHECK(right);
    }
}

#ifdef __x86_64__
static void test_other_architectures(int filter)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        load(filter);
        long number = 20; /* getpid of i386 */
        __asm__ volatile("int $0x80" : "+a"(number) : : "memory");
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    pid = fork();
    if (pid == 0) {
        load(filter);
        syscall(0x40000000L | SYS_socketpair, AF_ALG, SOCK_SEQPACKET, 0, 0); /* x32 */
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}
#else
static void test_other_architectures(int filter)
{
    (void)filter;
}
#endif

int main(void)
{
    struct error err = {0};
    AUTO_FD int filter = seccomp_build(SECCOMP_COMMANDS, &err);
    results = mmap(NULL, sizeof *results * ROW_COUNT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(filter >= 0 && results != MAP_FAILED);
    if (check_failures)
        return check_done();
    test_rows(filter);
    test_other_architectures(filter);
    return check_done();
}
