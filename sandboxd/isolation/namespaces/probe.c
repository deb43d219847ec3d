#include "sandboxd/isolation/namespaces/probe.h"

#include "sandboxd/isolation/namespaces/cgroup_layout.h"
#include "sandboxd/isolation/namespaces/mounts.h"
#include "sandboxd/isolation/namespaces/namespaces.h"
#include "sandboxd/isolation/namespaces/seccomp.h"
#include "sandboxd/isolation/namespaces/user_namespace.h"
#include "sandboxd/rootless/id_map.h"
#include "sandboxd/rootless/rootless.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder that every host has; what is mounted there is the trying process's own. */
#define MOUNTS_STAGE "/tmp"

enum { PROBE_UID = 2141192192 /* right behind the last slot */ };

struct report {
    struct isolation_layer *layers;
    size_t count;
};

static void __attribute__((format(printf, 4, 5)))
tell(struct report *report, const char *name, bool active, const char *format, ...)
{
    if (report->count == ISOLATION_LAYERS_MAX)
        return;
    struct isolation_layer *layer = &report->layers[report->count++];
    *layer = (struct isolation_layer){.active = active};
    (void)!text_copy(layer->name, sizeof layer->name, name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(layer->detail, sizeof layer->detail, format, arguments);
    va_end(arguments);
}

/* --- a process to try things in --- */

typedef bool work_function(void);

/* The child's half: `flags` are its namespaces; its exit status is an errno, 0 when all went well. */
static _Noreturn void try_in_child(int socket, unsigned long flags, work_function *work)
{
    char byte = 0;
    struct error err = {0};
    if (syscall(SYS_unshare, flags) < 0)
        _exit(errno);
    if (write(socket, "u", 1) != 1 || read(socket, &byte, 1) != 1)
        _exit(EPIPE);
    errno = 0;
    if (!user_namespace_become_root(&err) || (work && !work()))
        _exit(errno ? errno : EIO);
    _exit(0);
}

/* 0, or the errno that the attempt ended with. With `lower`, the parent idmaps that folder for the child. */
static int attempt(unsigned long flags, work_function *work, const char *lower)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return errno;
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        try_in_child(pair[1], flags | CLONE_NEWUSER, work);
    }
    close(pair[1]);
    AUTO_FD int end = pair[0];
    char byte = 0;
    int failed = pid < 0 ? errno : 0;
    if (pid > 0 && read(end, &byte, 1) == 1) {
        AUTO_FD int namespace_fd = user_namespace_open(pid, NULL);
        AUTO_FD int tree = -1;
        uint32_t base = rootless_is_active() ? (uint32_t)ID_MAP_SLOT_FIRST : (uint32_t)PROBE_UID;
        failed = user_namespace_map(pid, base, NULL) ? 0 : errno;
        if (!failed && lower) {
            tree = mounts_open(lower, namespace_fd, MOUNTS_READ_ONLY, NULL);
            failed = tree < 0 ? errno : 0;
        }
        if (write(end, "g", 1) != 1)
            failed = failed ? failed : errno;
    }
    int status = 0;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && failed == 0)
        failed = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return failed;
}

static bool mount_overlay(void)
{
    static const char OPTIONS[] =
        "lowerdir=" MOUNTS_STAGE "/l,upperdir=" MOUNTS_STAGE "/u,workdir=" MOUNTS_STAGE "/w,userxattr";
    return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
           mount("parley", MOUNTS_STAGE, "tmpfs", 0, "size=1m,mode=0755") == 0 && mkdir(MOUNTS_STAGE "/l", 0755) == 0 &&
           mkdir(MOUNTS_STAGE "/u", 0755) == 0 && mkdir(MOUNTS_STAGE "/w", 0755) == 0 &&
           mkdir(MOUNTS_STAGE "/m", 0755) == 0 && mount("overlay", MOUNTS_STAGE "/m", "overlay", 0, OPTIONS) == 0;
}

/* A fresh /proc is for the first process of a new pid namespace, which unshare gives to the next child. */
static bool mount_proc(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        _exit(mount("proc", MOUNTS_STAGE, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? errno : 0);
    int status = 0;
    bool waited = pid > 0 && waitpid(pid, &status, 0) == pid;
    errno = waited && WIFEXITED(status) ? WEXITSTATUS(status) : errno;
    return waited && status == 0;
}

/* --- the layers --- */

static void tell_attempt(struct report *report, const char *name, int failed, const char *in_force, const char *how)
{
    if (failed == 0)
        tell(report, name, true, "%s", in_force);
    else
        tell(report, name, false, "%s; %s", strerrordesc_np(failed), how);
}

static void probe_namespaces(struct report *report)
{
    static const struct {
        const char *name;
        unsigned long flag;
        const char *in_force, *how;
    } ROWS[] = {
        {"user namespace", 0, "65,536 host ids of its own a sandbox", "set user.max_user_namespaces > 0 (sysctl)"},
        {"mount namespace", CLONE_NEWNS, "own mounts", "CONFIG_NAMESPACES"},
        {"pid namespace", CLONE_NEWPID, "own processes", "CONFIG_PID_NS"},
        {"net namespace", CLONE_NEWNET, "loopback alone, unless it has egress", "CONFIG_NET_NS"},
        {"ipc namespace", CLONE_NEWIPC, "own System V and POSIX queues", "CONFIG_IPC_NS"},
        {"uts namespace", CLONE_NEWUTS, "own host name", "CONFIG_UTS_NS"},
        {"cgroup namespace", CLONE_NEWCGROUP, "own cgroup paths", "CONFIG_CGROUPS, Linux 4.6"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        tell_attempt(report, ROWS[i].name, attempt(ROWS[i].flag, NULL, NULL), ROWS[i].in_force, ROWS[i].how);
}

static void probe_files(struct report *report)
{
    tell_attempt(report, "overlay in a user namespace", attempt(CLONE_NEWNS, mount_overlay, NULL),
                 "writable layer over read-only files", "needs Linux 5.11 and the overlay module (modprobe overlay)");
    tell_attempt(report, "fresh /proc", attempt(CLONE_NEWNS | CLONE_NEWPID, mount_proc, NULL), "own processes only",
                 "the host's /proc is covered in part (a container's?): start sandboxd where /proc is whole");
    if (rootless_is_active()) {
        tell(report, "idmapped mounts", true,
             "none: /usr is the host's, read-only; template base alone, in memory; no volumes");
        return;
    }
    tell_attempt(report, "idmapped mounts", attempt(CLONE_NEWNS, NULL, "/usr"), "/usr of the host, read-only",
                 "needs Linux 5.12 and a file system of /usr that allows it (ext4, xfs, btrfs)");
}

static void probe_unified(struct report *report, const struct cgroup_layout *layout)
{
    bool made = mkdir(layout->unified, 0755) == 0;
    bool files = true;
    static const char *const WANTED[] = {"cgroup.kill", "cgroup.freeze", "cgroup.events"};
    for (size_t i = 0; i < sizeof WANTED / sizeof WANTED[0]; i++) {
        AUTO_FREE char *path = memory_printf("%s/%s", layout->unified, WANTED[i]);
        files = files && access(path, F_OK) == 0;
    }
    if (made)
        rmdir(layout->unified);
    tell(report, "cgroup v2 kill and freeze", files, files ? "below %s" : "needs Linux 5.14 and a writable %s",
         layout->parent);
}

static void probe_cgroups(struct report *report)
{
    struct cgroup_layout layout;
    struct error err = {0};
    bool is_found = rootless_is_active() ? cgroup_layout_find_delegated("", "parley-probe", true, &layout, &err)
                                         : cgroup_layout_find("", "parley-probe", namespaces_kept_cgroup(), &layout, &err);
    if (!is_found) {
        tell(report, "cgroups", false, "%.180s", err.message);
        return;
    }
    probe_unified(report, &layout);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s limit", CGROUP_CONTROLLER_NAMES[i]);
        bool v1 = layout.v1[i][0] != '\0';
        if (layout.is_missing[i]) {
            tell(report, name, false,
                 "NOT limited: not delegated to this user (systemd: Delegate=%s); a start goes "
                 "without it by missing_limits allow",
                 CGROUP_CONTROLLER_NAMES[i]);
            continue;
        }
        tell(report, name, true, "cgroup %s, below %.150s", v1 ? "v1" : "v2", v1 ? layout.v1[i] : layout.parent);
    }
    /* Not a wall but the price of one; start sets it where the kernel has it (Linux 6.0). */
    struct utsname kernel;
    bool set = strstr(layout.options, "favordynmods") != NULL;
    if (rootless_is_active()) {
        tell(report, "fast cgroup moves", true, "%s",
             set ? "favordynmods is set on the cgroup2 hierarchy"
                 : "root's to set (favordynmods); each join of a cgroup takes some 7 ms");
        return;
    }
    bool settable = uname(&kernel) == 0 && strtoul(kernel.release, NULL, 10) >= 6;
    tell(report, "fast cgroup moves", set || settable, "%s",
         set        ? "favordynmods is set on the cgroup2 hierarchy"
         : settable ? "favordynmods will be set on the cgroup2 hierarchy when sandboxd starts (host-wide)"
                    : "needs Linux 6.0 (favordynmods); each join of a cgroup takes some 7 ms");
}

static void probe_seccomp(struct report *report)
{
    struct error err = {0};
    AUTO_FD int filter = seccomp_build(SECCOMP_COMMANDS, &err);
    struct stat status = {0};
    uint32_t action = 0x00050000U; /* SECCOMP_RET_ERRNO */
    bool known = filter >= 0 && fstat(filter, &status) == 0 && syscall(SYS_seccomp, 2U, 0U, &action) == 0;
    if (known)
        tell(report, "seccomp", true, "an allow-list of %zu instructions", (size_t)status.st_size / 8);
    else
        tell(report, "seccomp", false, "%.120s; needs CONFIG_SECCOMP_FILTER", err.message);
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, 1U);
    tell(report, "landlock", abi > 0, abi > 0 ? "ABI %ld, for sandboxd's own front" : "needs lsm=landlock (%ld)", abi);
}

static void tell_rights(struct report *report)
{
    char detail[160];
    bool root = geteuid() == 0;
    if (rootless_is_active()) {
        rootless_describe(detail, sizeof detail);
        tell(report, "rights", true, "%s", detail);
        tell(report, "uid slots", rootless_slots() > 0, "%u, of /etc/subuid and /etc/subgid", rootless_slots());
        return;
    }
    tell(report, "rights", root, root ? "root" : "not root: sudo parley-sandboxd ..., or rootless (see there)");
    AUTO_FREE char *map = fd_read_file("/proc/self/uid_map", 4096, NULL, NULL);
    bool whole = map && strstr(map, "4294967295");
    tell(report, "uid slots", whole,
         whole ? "4,000 ranges of 65,536 from 1879048192" : "this user namespace does not map them: start on the host");
}

size_t probe_layers(struct isolation_layer layers[ISOLATION_LAYERS_MAX])
{
    struct report report = {.layers = layers};
    bool root = geteuid() == 0;
    tell_rights(&report);
    if (root) {
        probe_namespaces(&report);
        probe_files(&report);
    }
    probe_cgroups(&report);
    probe_seccomp(&report);
    return report.count;
}
