/* Which system calls our daemons have given up: what nobody needs who serves HTTP, keeps a journal and moves bytes, and
 * whoever gets into one would try first. */
#include "shared/base/confine.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>

static const int DENIED[] = {
    /* other programs, other processes */
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
    SCMP_SYS(kcmp), SCMP_SYS(pidfd_getfd), SCMP_SYS(process_madvise),
    /* name spaces, mounts, roots */
    SCMP_SYS(unshare), SCMP_SYS(setns), SCMP_SYS(chroot), SCMP_SYS(pivot_root), SCMP_SYS(mount), SCMP_SYS(umount2),
    SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(fspick), SCMP_SYS(open_tree),
    SCMP_SYS(move_mount), SCMP_SYS(mount_setattr), SCMP_SYS(open_by_handle_at), SCMP_SYS(quotactl),
    SCMP_SYS(swapon), SCMP_SYS(swapoff),
    /* the kernel's larger engines */
    SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register), SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl),
    SCMP_SYS(fanotify_init), SCMP_SYS(lookup_dcookie),
    /* the machine */
    SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load), SCMP_SYS(reboot), SCMP_SYS(settimeofday), SCMP_SYS(clock_settime),
    SCMP_SYS(clock_adjtime), SCMP_SYS(adjtimex), SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(syslog),
    SCMP_SYS(acct), SCMP_SYS(iopl), SCMP_SYS(ioperm), SCMP_SYS(modify_ldt), SCMP_SYS(personality), SCMP_SYS(vhangup),
};

#define HAS(argument, bits)                                                                                            \
    {                                                                                                                  \
        .arg = (argument), .op = SCMP_CMP_MASKED_EQ, .datum_a = (scmp_datum_t)(bits), .datum_b = (scmp_datum_t)(bits)  \
    }

static int deny(scmp_filter_ctx filter, int call, unsigned count, const struct scmp_arg_cmp *when)
{
    return call < 0 ? 0 : seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), call, count, when);
}

/* Threads may be started, name spaces not. clone3's flags lie in memory, where a filter cannot look: libc takes clone. */
static int deny_namespaces(scmp_filter_ctx filter)
{
    static const int FLAGS[] = {CLONE_NEWNS,   CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
                                CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};
    int status = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0, NULL);
    for (size_t i = 0; i < sizeof FLAGS / sizeof FLAGS[0] && status == 0; i++) {
        const struct scmp_arg_cmp has = HAS(0, FLAGS[i]);
        status = deny(filter, SCMP_SYS(clone), 1, &has);
    }
    return status;
}

/* Memory that was written does not become code. Files still do: libc loads what /etc/nsswitch.conf names. */
static int deny_code(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp anonymous[] = {HAS(2, PROT_EXEC), HAS(3, MAP_ANONYMOUS)};
    const struct scmp_arg_cmp writable = HAS(2, PROT_EXEC | PROT_WRITE), code = HAS(2, PROT_EXEC);
    int status = deny(filter, SCMP_SYS(mmap), 2, anonymous);
    if (status == 0)
        status = deny(filter, SCMP_SYS(mmap), 1, &writable);
    if (status == 0)
        status = deny(filter, SCMP_SYS(mprotect), 1, &code);
    return status == 0 ? deny(filter, SCMP_SYS(pkey_mprotect), 1, &code) : status;
}

/* UNIX, IPv4, IPv6, and netlink, by which libc finds the machine's addresses. */
static int deny_sockets(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp above = {.arg = 0, .op = SCMP_CMP_GT, .datum_a = AF_NETLINK};
    int status = deny(filter, SCMP_SYS(socket), 1, &above);
    for (int family = 0; family < AF_NETLINK && status == 0; family++) {
        const struct scmp_arg_cmp is = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)family};
        if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
            status = deny(filter, SCMP_SYS(socket), 1, &is);
    }
    return status;
}

/* For builds with AddressSanitizer: its leak check traces the process, which is given up here. */
static bool is_confined;
int __lsan_is_turned_off(void) __attribute__((weak));
int __lsan_is_turned_off(void)
{
    return is_confined;
}

bool confine_calls(struct error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL)
        return error_set(err, ERROR_INTERNAL, "seccomp: no filter");
    /* The library asks the kernel whether it knows the action; gVisor's cannot say, and ends the thread. */
    int status = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (status == -EINVAL)
        status = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL);
    for (size_t i = 0; i < sizeof DENIED / sizeof DENIED[0] && status == 0; i++)
        status = deny(filter, DENIED[i], 0, NULL);
    if (status == 0)
        status = deny_namespaces(filter);
    if (status == 0)
        status = deny_code(filter);
    if (status == 0)
        status = deny_sockets(filter);
    if (status == 0)
        status = seccomp_load(filter);
    is_confined = status == 0;
    seccomp_release(filter);
    errno = -status;
    return status == 0 || error_set_errno(err, ERROR_INTERNAL, "seccomp");
}
