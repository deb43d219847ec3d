/* cgroup.c - see cgroup.h; cgroups(7), Documentation/admin-guide/cgroup-v2.rst. */
#include "sandboxd/init/cgroup.h"

#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { NAME_BYTES = 64 };

static void name_of(char name[static NAME_BYTES], uint64_t serial, const char *file)
{
    /* 64 bytes hold the longest number and all our files' names. */
    (void)snprintf(name, NAME_BYTES, "e%llu%s", (unsigned long long)serial, file);
}

int cgroup_make(int run, uint64_t serial, struct error *err)
{
    char name[NAME_BYTES];
    name_of(name, serial, "");
    if (mkdirat(run, name, 0755) < 0) {
        error_set_errno(err, errno == EAGAIN ? ERROR_NO_CAPACITY : ERROR_INTERNAL, "mkdir run/%s", name);
        return -1;
    }
    int fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open run/%s", name);
        unlinkat(run, name, AT_REMOVEDIR);
    }
    return fd;
}

pid_t cgroup_clone(int directory, struct error *err)
{
    struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (unsigned)directory};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0) {
        bool is_full = errno == EAGAIN || errno == ENOMEM;
        error_set_errno(err, is_full ? ERROR_NO_CAPACITY : ERROR_INTERNAL,
                        is_full ? "the sandbox has as many processes as it may have"
                                : "clone3 into the command's cgroup");
    }
    return pid;
}

static bool write_text(int run, const char *path, const char *text)
{
    AUTO_FD int fd = openat(run, path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool write_one(int run, const char *path)
{
    return write_text(run, path, "1");
}

bool cgroup_move(int run, uint64_t serial, pid_t pid)
{
    char name[NAME_BYTES], text[16];
    name_of(name, serial, "/cgroup.procs");
    (void)snprintf(text, sizeof text, "%d", pid);
    return write_text(run, name, text);
}

/* The kernel lists pids as our own pid namespace has them, a line each. */
bool cgroup_has(int run, uint64_t serial, pid_t pid)
{
    char name[NAME_BYTES], line[16];
    name_of(name, serial, "/cgroup.procs");
    int fd = openat(run, name, O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool is_there = false;
    while (!is_there && fgets(line, sizeof line, file))
        is_there = atoi(line) == pid;
    (void)fclose(file);
    return is_there;
}

bool cgroup_kill(int run, uint64_t serial)
{
    char name[NAME_BYTES];
    name_of(name, serial, "/cgroup.kill");
    return write_one(run, name);
}

bool cgroup_kill_all(int run)
{
    return write_one(run, "cgroup.kill");
}

bool cgroup_remove(int run, uint64_t serial)
{
    char name[NAME_BYTES];
    name_of(name, serial, "");
    return unlinkat(run, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

int cgroup_open_events(int run, uint64_t serial)
{
    char name[NAME_BYTES];
    name_of(name, serial, "/cgroup.events");
    return openat(run, name, O_RDONLY | O_CLOEXEC);
}

uint64_t cgroup_cpu_us(int run, uint64_t serial)
{
    static const char key[] = "usage_usec ";
    char name[NAME_BYTES], text[1024];
    name_of(name, serial, "/cpu.stat");
    AUTO_FD int fd = openat(run, name, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (size <= 0)
        return 0;
    text[size] = 0;
    const char *at = strstr(text, key);
    uint64_t usage = 0;
    if (at == NULL || !text_parse_u64(at + strlen(key), strspn(at + strlen(key), "0123456789"), UINT64_MAX, &usage))
        return 0;
    return usage;
}
