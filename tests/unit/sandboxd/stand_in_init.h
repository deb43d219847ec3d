/** stand_in_init.h - a tiny init for tests: the test program itself, run as PID 1 of a sandbox. It listens as inherit.h
 *  says; each connection sends one shell command and gets its wait status and output back. "exit" ends init. */
#pragma once

#include "sandboxd/init/inherit.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "shared/base/fd.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct stand_in_reply {
    int status;
    char output[4096];
};

static inline void stand_in_load_filter(void)
{
    struct stat status;
    if (fstat(INHERIT_FD_SECCOMP, &status) < 0)
        _exit(120);
    void *program = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, INHERIT_FD_SECCOMP, 0);
    struct sock_fprog filter = {.len = (unsigned short)((size_t)status.st_size / sizeof(struct sock_filter)),
                                .filter = program};
    if (program == MAP_FAILED || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0U, &filter) < 0)
        _exit(121);
}

static inline _Noreturn void stand_in_command(const char *command, int output, int joins)
{
    for (int i = 0; i < joins; i++) {
        if (write(INHERIT_FD_JOIN + i, "0", 1) != 1)
            _exit(122);
    }
    int procs = openat(INHERIT_FD_RUN, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs < 0 || write(procs, "0", 1) != 1)
        _exit(123);
    if (dup2(output, 1) < 0 || dup2(output, 2) < 0 || setresgid(1000, 1000, 1000) < 0 ||
        setresuid(1000, 1000, 1000) < 0 || chdir(INHERIT_WORKSPACE) < 0)
        _exit(124);
    stand_in_load_filter();
    close_range(3, ~0U, 0);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(125);
}

static inline void stand_in_serve(int connection, int joins)
{
    char command[2048] = "";
    ssize_t size = recv(connection, command, sizeof command - 1, 0);
    if (size <= 0)
        return;
    if (strcmp(command, "exit") == 0)
        _exit(0);
    struct stand_in_reply reply = {0};
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) < 0)
        _exit(1);
    pid_t pid = fork();
    if (pid == 0)
        stand_in_command(command, pipe_ends[1], joins);
    close(pipe_ends[1]);
    size_t length = 0;
    for (ssize_t got = 1; got > 0 && length<sizeof reply.output - 1; length += got> 0 ? (size_t)got : 0)
        got = read(pipe_ends[0], reply.output + length, sizeof reply.output - 1 - length);
    close(pipe_ends[0]);
    waitpid(pid, &reply.status, 0);
    (void)!write(connection, &reply, sizeof reply);
}

static inline void stand_in_tell(uint32_t type)
{
    struct launcher_init_message message = {.type = type};
    if (!launcher_init_send(INHERIT_FD_CONTROL, &message, NULL, 0, NULL))
        _exit(1);
}

/* What init does (sandboxd/init/become.c), plainly. One named "deaf" is never ready. */
static inline void stand_in_become(void)
{
    struct launcher_init_message message;
    int mounts[LAUNCHER_INIT_VOLUMES];
    size_t count = 0;
    struct error err = {0};
    stand_in_tell(LI_BARRIER);
    if (launcher_init_receive(INHERIT_FD_CONTROL, &message, LI_FROM_LAUNCHER, mounts, &count, &err) != 1)
        _exit(1);
    const struct li_become *to = &message.as.become;
    if (strcmp(to->hostname, "deaf") == 0)
        pause();
    if (sethostname(to->hostname, strlen(to->hostname)) < 0)
        _exit(1);
    for (size_t i = 0; i < count; i++) {
        (void)mkdir(to->volumes[i].path, 0755);
        if (move_mount(mounts[i], "", -1, to->volumes[i].path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            _exit(1);
        close(mounts[i]);
    }
    if (listen(INHERIT_FD_LISTEN, 8) < 0)
        _exit(1);
    stand_in_tell(LI_READY);
    close(INHERIT_FD_CONTROL);
}

/** The first line of a test's main: does not return when this process is an init. */
static inline void stand_in_init(int argc, char *argv[])
{
    if (argc != 2 || strcmp(argv[0], "init") != 0 || getpid() != 1)
        return;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    stand_in_become();
    for (;;) {
        int connection = accept4(INHERIT_FD_LISTEN, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0)
            continue;
        stand_in_serve(connection, atoi(argv[1]));
        close(connection);
    }
}

/** This program as a sealed memfd, executable but not readable for others. */
static inline int stand_in_program(void)
{
    size_t size = 0;
    char *bytes = fd_read_file("/proc/self/exe", 256 * 1024 * 1024, &size, NULL);
    int fd = bytes ? fd_sealed_memfd("init", bytes, size, NULL) : -1;
    free(bytes);
    return fd;
}

static inline int stand_in_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/** Runs a command inside; the reply is static. Status -1 when there is no answer. */
static inline const struct stand_in_reply *stand_in_run(const char *socket_path, const char *command)
{
    static struct stand_in_reply reply;
    reply = (struct stand_in_reply){.status = -1};
    int fd = stand_in_connect(socket_path);
    if (fd >= 0 && send(fd, command, strlen(command), MSG_NOSIGNAL) > 0)
        (void)!recv(fd, &reply, sizeof reply, 0);
    if (fd >= 0)
        close(fd);
    return &reply;
}
