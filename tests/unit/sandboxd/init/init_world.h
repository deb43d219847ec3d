/** init_world.h - a small world for parley-init in a test: the namespaces, cgroups and descriptors that it inherits
 *  (inherit.h). Needs root and cgroup v2, else it skips the test. */
#pragma once

#include "sandboxd/front_init/front_init.h"
#include "sandboxd/init/inherit.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define RIG_UID 200000 /* what the sandbox's uid 0 is outside */

struct rig {
    pid_t pid;                             /* of init, outside; 0: it was reaped */
    int connection;                        /* the front's; -1 none */
    int status;                            /* of init, once reaped */
    char folder[64], cgroup[512], v1[512]; /* v1: the pids hierarchy's; "" none */
};

struct rig_options {
    uint64_t deadline_boot_ns;
    int without_cgroup_delegation; /* run belongs to somebody else */
    int root_allowed;
    uint32_t uid, gid;   /* of commands; 0: 1000 */
    uint32_t open_files; /* 0: 512 */
    const char *volume;  /* a tmpfs shall be attached there; NULL: none */
    int hangs_up;        /* the launcher goes away once init is warm */
};

static void rig_fail(const char *what)
{
    fprintf(stderr, "rig: %s: %s\n", what, strerror(errno));
    exit(1);
}

static UNUSED void rig_write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        rig_fail(path);
    close(fd);
}

/* Where a hierarchy is mounted plus our own place in it: `kind` is "cgroup2", or a v1 controller. */
static bool rig_find_cgroup(char *to, size_t size, const char *kind)
{
    char line[1024], path[512] = "", mounted[512] = "", key[64];
    bool v2 = strcmp(kind, "cgroup2") == 0;
    snprintf(key, sizeof key, ":%s:", v2 ? "" : kind);
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, key);
        if (at && (v2 ? line[0] == '0' : 1))
            snprintf(path, sizeof path, "%.*s", (int)strcspn(at + strlen(key), "\n"), at + strlen(key));
    }
    if (file)
        fclose(file);
    file = fopen("/proc/self/mounts", "re");
    while (file && fgets(line, sizeof line, file)) {
        char where[512], type[64], how[512];
        if (sscanf(line, "%*s %511s %63s %511s", where, type, how) != 3)
            continue;
        if (v2 ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && strstr(how, kind))
            memcpy(mounted, where, sizeof mounted);
    }
    if (file)
        fclose(file);
    if (mounted[0] == 0 || path[0] == 0)
        return false;
    return text_format(to, size, "%s%s%sparley-init-test-%d", mounted, path, strcmp(path, "/") ? "/" : "", getpid());
}

static void rig_own(const char *directory)
{
    static const char *const files[] = {"", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s%s", directory, files[i]);
        if (chown(path, RIG_UID, RIG_UID) < 0)
            rig_fail(path);
    }
}

static void rig_make_cgroups(struct rig *rig, const struct rig_options *options)
{
    char path[600];
    if (geteuid() != 0)
        check_skip("parley-init's tests need root");
    if (!rig_find_cgroup(rig->cgroup, sizeof rig->cgroup, "cgroup2"))
        check_skip("no cgroup v2 here");
    if (mkdir(rig->cgroup, 0755) < 0)
        check_skip("no right to make cgroups here");
    rig_own(rig->cgroup);
    snprintf(path, sizeof path, "%s/init", rig->cgroup);
    if (mkdir(path, 0755) < 0)
        rig_fail(path);
    rig_own(path);
    snprintf(path, sizeof path, "%s/run", rig->cgroup);
    if (mkdir(path, 0755) < 0)
        rig_fail(path);
    if (!options->without_cgroup_delegation)
        rig_own(path);
    if (!rig_find_cgroup(rig->v1, sizeof rig->v1, "pids") || mkdir(rig->v1, 0755) < 0)
        rig->v1[0] = 0;
}

/* Any system call goes, but mknod(2) is ENOTBLK (15): a test sees by it that the program is in force. */
static int rig_filter(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mknodat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTBLK),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct error err = {0};
    int fd = fd_sealed_memfd("filter", program, sizeof program, &err);
    if (fd < 0)
        rig_fail(err.message);
    return fd;
}

static int rig_socket(const struct rig *rig)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/init.sock", rig->folder);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        rig_fail("bind");
    return fd;
}

static int rig_open_program(void)
{
    char path[1024];
    const char *given = getenv("PARLEY_INIT");
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    if (length < 0)
        rig_fail("readlink");
    path[length] = 0;
    strcpy(strrchr(path, '/'), "/../bin/parley-init");
    int fd = open(given ? given : path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        rig_fail(path);
    return fd;
}

struct rig_inherited {
    int fds[6], at[6], count, program, go;
};

static void rig_become_root_inside(void)
{
    syscall(SYS_setgroups, 0, NULL);
    if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
        _exit(90);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0 ||
        mount("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k") < 0 ||
        mount("none", "/mnt", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k") < 0)
        _exit(91);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* init outlives its launcher; not so a test that was killed */
}

/* The cloned child: takes its place, then becomes init. */
static _Noreturn void rig_become_init(struct rig_inherited *have)
{
    char byte, joins[8], name[] = "init", *arguments[] = {name, joins, NULL}, *none[] = {NULL};
    if (read(have->go, &byte, 1) != 1)
        _exit(89);
    rig_become_root_inside();
    int program = fcntl(have->program, F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < have->count; i++)
        have->fds[i] = fcntl(have->fds[i], F_DUPFD, 100);
    syscall(SYS_close_range, 3U, 99U, 0U);
    for (int i = 0; i < have->count; i++)
        dup2(have->fds[i], have->at[i]);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && getenv("RIG_VERBOSE") == NULL; fd++)
        dup2(null, fd);
    close(null);
    snprintf(joins, sizeof joins, "%d", have->count - 4);
    syscall(SYS_close_range, 100U, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
    syscall(SYS_execveat, program, "", arguments, none, 0x1000 /* AT_EMPTY_PATH */);
    _exit(92);
}

static void rig_map(pid_t pid, const char *which)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, which);
    snprintf(text, sizeof text, "0 %d 65536", RIG_UID);
    rig_write_file(path, text);
}

static int rig_open_folder(const char *base, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", base, name);
    int fd = open(path, (strcmp(name, "cgroup.procs") ? O_RDONLY | O_DIRECTORY : O_WRONLY) | O_CLOEXEC);
    if (fd < 0)
        rig_fail(path);
    return fd;
}

static int rig_make_volume(void)
{
    int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    int mounted = context >= 0 && fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0
                      ? fsmount(context, FSMOUNT_CLOEXEC, 0)
                      : -1;
    if (mounted < 0 || fchmod(mounted, 0777) < 0)
        rig_fail("a volume");
    close(context);
    return mounted;
}

static bool rig_hear(int control, uint32_t type, struct error *err)
{
    struct launcher_init_message message;
    int fds[LAUNCHER_INIT_FDS];
    size_t count;
    int got = launcher_init_receive(control, &message, LI_FROM_INIT, fds, &count, err);
    if (got > 0 && message.type == LI_FAILED)
        *err = message.as.failed;
    else if (got == 0)
        error_set(err, ERROR_GONE, "init told nothing");
    return got > 0 && message.type == type;
}

/* The launcher's part. */
static bool rig_raise(int control, const struct rig_options *options, struct error *err)
{
    struct launcher_init_message message = {.type = LI_BECOME};
    struct li_become *to = &message.as.become;
    int volume = options->volume ? rig_make_volume() : -1;
    *to = (struct li_become){.hostname = "brisk-otter", .shared_bytes = 1 << 20};
    to->deadline_boot_ns = options->deadline_boot_ns;
    to->uid = options->uid ? options->uid : 1000;
    to->gid = options->gid ? options->gid : 1000;
    to->open_files = options->open_files ? options->open_files : 512;
    to->root_allowed = options->root_allowed != 0;
    if (volume >= 0) {
        to->volume_count = 1;
        snprintf(to->volumes[0].path, sizeof to->volumes[0].path, "%s", options->volume);
    }
    if (!rig_hear(control, LI_BARRIER, err) || options->hangs_up)
        return false;
    bool is_sent = launcher_init_send(control, &message, &volume, volume >= 0, err);
    if (volume >= 0)
        close(volume);
    return is_sent && rig_hear(control, LI_READY, err);
}

static void rig_fill_inherited(struct rig *rig, struct rig_inherited *have, int control)
{
    static const int at[] = {INHERIT_FD_LISTEN, INHERIT_FD_CONTROL, INHERIT_FD_RUN, INHERIT_FD_SECCOMP,
                             INHERIT_FD_JOIN};
    memcpy(have->at, at, sizeof at);
    have->fds[0] = rig_socket(rig);
    have->fds[1] = control;
    have->fds[2] = rig_open_folder(rig->cgroup, "run");
    have->fds[3] = rig_filter();
    have->count = 4;
    if (rig->v1[0])
        have->fds[have->count++] = rig_open_folder(rig->v1, "cgroup.procs");
}

/** Starts init and has it become a sandbox; false with what it says went wrong. */
static UNUSED bool rig_open(struct rig *rig, const struct rig_options *options, struct error *err)
{
    int control[2], go[2];
    *rig = (struct rig){.connection = -1, .folder = "/tmp/parley-init-test-XXXXXX"};
    rig_make_cgroups(rig, options);
    if (mkdtemp(rig->folder) == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
        pipe2(go, O_CLOEXEC) < 0)
        rig_fail("setting up");
    struct rig_inherited have = {.program = rig_open_program(), .go = go[0]};
    rig_fill_inherited(rig, &have, control[1]);
    int leaf = rig_open_folder(rig->cgroup, "init");
    struct clone_args args = {.flags = CLONE_INTO_CGROUP | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC |
                                       CLONE_NEWUTS,
                              .exit_signal = SIGCHLD,
                              .cgroup = (unsigned)leaf};
    rig->pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (rig->pid == 0)
        rig_become_init(&have);
    if (rig->pid < 0)
        rig_fail("clone3");
    rig_map(rig->pid, "uid_map");
    rig_map(rig->pid, "gid_map");
    if (write(go[1], "", 1) != 1)
        rig_fail("write");
    for (int i = 0; i < have.count; i++)
        close(have.fds[i]);
    close(have.program), close(go[0]), close(go[1]), close(leaf);
    bool is_ready = rig_raise(control[0], options, err);
    close(control[0]);
    return is_ready;
}

/** Waits for init's end; its exit code, or -1 when a signal ended it. */
static UNUSED int rig_wait(struct rig *rig)
{
    if (rig->pid > 0 && waitpid(rig->pid, &rig->status, 0) != rig->pid)
        rig_fail("waitpid");
    rig->pid = 0;
    return WIFEXITED(rig->status) ? WEXITSTATUS(rig->status) : -1;
}

/** How many directories there are in run/, the spare child's with them. */
static UNUSED int rig_count_all_cgroups(const struct rig *rig)
{
    struct stat status;
    char path[600];
    snprintf(path, sizeof path, "%s/run", rig->cgroup);
    return stat(path, &status) == 0 ? (int)status.st_nlink - 2 : -1;
}

/** The pid, outside, of the child that waits for the next command (spare.h); 0 when there is none now. */
static UNUSED pid_t rig_find_spare(const struct rig *rig)
{
    for (int serial = 1; serial < 3000 && rig_count_all_cgroups(rig) > 0; serial++) {
        char path[600], name[32] = "";
        int pid = 0;
        snprintf(path, sizeof path, "%s/run/e%d/cgroup.procs", rig->cgroup, serial);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            continue;
        bool is_there = fscanf(file, "%d", &pid) == 1;
        fclose(file);
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        file = is_there ? fopen(path, "re") : NULL;
        if (file == NULL)
            continue;
        bool is_named = fscanf(file, "%31s", name) == 1;
        fclose(file);
        if (is_named && strcmp(name, "init-spare") == 0)
            return pid;
    }
    return 0;
}

/** That pid once there is one; 0 when none comes. */
static UNUSED pid_t rig_wait_spare(const struct rig *rig)
{
    for (int i = 0; i < 500; i++) {
        pid_t pid = rig_find_spare(rig);
        usleep(10000); /* init may still be closing what it gave to the child */
        if (pid != 0)
            return pid;
    }
    return 0;
}

/** How many commands have a directory in run/. */
static UNUSED int rig_count_cgroups(const struct rig *rig)
{
    return rig_count_all_cgroups(rig) - (rig_find_spare(rig) != 0);
}

/** Until run/ holds that many directories; false when it never does. */
static UNUSED bool rig_wait_cgroups(const struct rig *rig, int count)
{
    for (int i = 0; i < 6000; i++) {
        if (rig_count_cgroups(rig) == count)
            return true;
        usleep(10000);
    }
    return false;
}

/** How many descriptors init has open. */
static UNUSED int rig_count_fds(const struct rig *rig)
{
    char path[64];
    int count = 0;
    for (int fd = 0; fd < 10000; fd++) {
        struct stat status;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", rig->pid, fd);
        count += lstat(path, &status) == 0;
    }
    return count;
}

/** Until init has that many open: what was forgotten is closed a moment later. */
static UNUSED bool rig_wait_fds(const struct rig *rig, int count)
{
    for (int i = 0; i < 500; i++) {
        if (rig_count_fds(rig) == count)
            return true;
        usleep(10000);
    }
    return false;
}

/** Whether init still runs. */
static bool rig_lives(const struct rig *rig)
{
    siginfo_t end = {0};
    return rig->pid > 0 && waitid(P_PID, (id_t)rig->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0;
}

/** Ends init if it still runs, and removes all. True when everything was empty, as it must be. */
static UNUSED bool rig_close(struct rig *rig)
{
    char path[600];
    if (rig->connection >= 0)
        close(rig->connection);
    /* who is killed removes nothing, not even its spare child's */
    bool clean = !rig_lives(rig) || rig_wait_cgroups(rig, 0);
    if (rig->pid > 0) {
        kill(rig->pid, SIGKILL);
        rig_wait(rig);
    }
    for (int serial = 1; rig_count_all_cgroups(rig) > 0 && serial < 3000; serial++) {
        snprintf(path, sizeof path, "%s/run/e%d", rig->cgroup, serial);
        rmdir(path);
    }
    static const char *const leaves[] = {"/run", "/init", ""};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", rig->cgroup, leaves[i]);
        for (int tries = 0; rmdir(path) < 0 && tries < 100; tries++)
            usleep(10000);
    }
    if (rig->v1[0])
        rmdir(rig->v1);
    struct error err;
    return fd_remove_tree(rig->folder, &err) && clean;
}
