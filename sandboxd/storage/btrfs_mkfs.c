#include "sandboxd/storage/btrfs_mkfs.h"

#include "shared/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAID_BYTES = 160 };

const char *btrfs_mkfs_find(void)
{
    static const char *const PLACES[] = {"/usr/sbin/mkfs.btrfs", "/sbin/mkfs.btrfs", "/usr/local/sbin/mkfs.btrfs",
                                         "/usr/bin/mkfs.btrfs"};
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        if (access(PLACES[i], X_OK) == 0)
            return PLACES[i];
    }
    return NULL;
}

static bool start(const char *program, const char *path, int output, pid_t *pid, struct error *err)
{
    /* One copy of the metadata: the host's disk keeps what it is given. No discard: all of the file stays allocated. */
    const char *const argv[] = {"mkfs.btrfs", "-q", "-K", "-m", "single", "-d", "single", "-L", "parley", path, NULL};
    char *const *arguments = NULL;
    memcpy(&arguments, &(const char *const *){argv}, sizeof arguments); /* posix_spawn(3) knows no const */
    char *envp[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    errno = posix_spawn(pid, program, &actions, NULL, arguments, envp);
    int why = errno;
    posix_spawn_file_actions_destroy(&actions);
    errno = why;
    return why == 0 || error_set_errno(err, ERROR_INTERNAL, "start %s", program);
}

/* The last of what it said: there the reason stands. */
static void read_end(int from, char said[static SAID_BYTES])
{
    char piece[SAID_BYTES - 1];
    size_t have = 0;
    said[0] = '\0';
    for (;;) {
        ssize_t got = read(from, piece, sizeof piece);
        if (got <= 0)
            break;
        size_t size = (size_t)got, keep = SAID_BYTES - 1 - size < have ? SAID_BYTES - 1 - size : have;
        memmove(said, said + have - keep, keep);
        memcpy(said + keep, piece, size);
        have = keep + size;
        said[have] = '\0';
    }
    for (char *at = said; *at; at++)
        *at = *at < ' ' ? ' ' : *at;
}

bool btrfs_mkfs(const char *path, struct error *err)
{
    const char *program = btrfs_mkfs_find();
    char said[SAID_BYTES];
    int ends[2], status = 0;
    pid_t pid = -1;
    if (program == NULL)
        return error_set(err, ERROR_NOT_FOUND, "mkfs.btrfs is not installed (package btrfs-progs)");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "pipe for mkfs.btrfs");
    AUTO_FD int output = ends[0];
    bool ok = start(program, path, ends[1], &pid, err);
    close(ends[1]);
    if (!ok)
        return false;
    read_end(output, said);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           error_set(err, ERROR_INTERNAL, "mkfs.btrfs failed: %s", said);
}
