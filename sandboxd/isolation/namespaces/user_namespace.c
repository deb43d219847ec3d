#include "sandboxd/isolation/namespaces/user_namespace.h"

#include "sandboxd/rootless/id_map.h"
#include "sandboxd/rootless/rootless.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROC_PATH_BYTES = 48, MAP_BYTES = 48 };

static bool write_map(pid_t pid, const char *file, const char *map, struct error *err)
{
    char path[PROC_PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, map, strlen(map)) != (ssize_t)strlen(map))
        return error_set_errno(err, ERROR_INTERNAL, "write \"%s\" to %s", map, file);
    return true;
}

static bool write_line(pid_t pid, const char *file, const struct user_namespace_map *map, struct error *err)
{
    char line[MAP_BYTES];
    snprintf(line, sizeof line, "%" PRIu32 " %" PRIu32 " %" PRIu32, map->inside, map->outside, map->count);
    return write_map(pid, file, line, err);
}

uint32_t user_namespace_ids(void)
{
    return rootless_is_active() ? ID_MAP_SLOT_IDS : USER_NAMESPACE_IDS;
}

bool user_namespace_map(pid_t pid, uint32_t base, struct error *err)
{
    const struct user_namespace_map all = {.outside = base, .count = user_namespace_ids()};
    return write_line(pid, "uid_map", &all, err) && write_line(pid, "gid_map", &all, err);
}

bool user_namespace_become_root(struct error *err)
{
    if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "become root of the sandbox");
    return true;
}

/* --- the owner --- */

/* By raw system calls: this thread alone, and only for the moment of the clone. */
bool user_namespace_begin_owner(uint32_t uid, struct user_namespace_owner *before, struct error *err)
{
    int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
    int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    /* Else the kernel takes the capabilities from who is not root any more. */
    if (bits < 0 || prctl(PR_SET_SECUREBITS, (unsigned long)bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "keep capabilities over a change of uid");
    *before = (struct user_namespace_owner){.uid = geteuid(), .securebits = bits, .dumpable = dumpable};
    if (syscall(SYS_setresuid, -1, uid, -1) == 0) {
        /* A user's cgroups are its own by their uid; that root of the user namespace may all with what its user has
         * asks for the gid, too (capabilities(7), "Interaction with user namespaces"). */
        if (rootless_is_active())
            (void)syscall(SYS_setfsuid, 0);
        return true;
    }
    error_set_errno(err, ERROR_INTERNAL, "take uid %" PRIu32 " for the clone", uid);
    (void)prctl(PR_SET_SECUREBITS, (unsigned long)bits, 0, 0, 0);
    return false;
}

void user_namespace_end_owner(const struct user_namespace_owner *before)
{
    /* Nobody can go on as somebody else. */
    if (syscall(SYS_setresuid, -1, before->uid, -1) < 0 ||
        prctl(PR_SET_SECUREBITS, (unsigned long)before->securebits, 0, 0, 0) < 0)
        abort();
    if (before->dumpable == 1)
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* a change of uid takes it away */
}

/* Lives until its parent closes the pipe, or is gone. */
static _Noreturn void hold_namespace(int until)
{
    char byte = 0;
    if (dup2(until, 0) == 0)
        (void)syscall(SYS_close_range, 1U, ~0U, 0U);
    _exit(read(0, &byte, 1) == 0 ? 0 : 1);
}

/* A namespace is made with a process, and lives on by its descriptor. */
int user_namespace_make(const struct user_namespace_map *uids, const struct user_namespace_map *gids, struct error *err)
{
    struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "make a pipe");
        return -1;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0)
        hold_namespace(ends[0]);
    close(ends[0]);
    AUTO_FD int held UNUSED = ends[1];
    if (pid < 0) {
        error_set_errno(err, ERROR_INTERNAL, "clone3 with a user namespace");
        return -1;
    }
    bool is_mapped = write_line(pid, "uid_map", uids, err) && write_line(pid, "gid_map", gids, err);
    int fd = is_mapped ? user_namespace_open(pid, err) : -1;
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return fd;
}

int user_namespace_open(pid_t pid, struct error *err)
{
    char path[PROC_PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    return fd;
}
