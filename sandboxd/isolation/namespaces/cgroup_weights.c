/* cgroup_weights.c - see cgroup_weights.h. Weights alone were not enough: on Linux 6.18 thirty-two processes that wake
 * each other in one group kept all that stood beside its parent from running, front and negotiator too, for up to 39 s;
 * where the group is idle it was 0.2 s at most (tests/bench/run bombs). */
#include "sandboxd/isolation/namespaces/cgroup_weights.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VALUE_BYTES = 32, SHARE = 1024 /* of one process, or a group without a wish */, DAEMON_SHARES = 8 * SHARE };

static bool write_at(int folder, const char *file, const char *value)
{
    AUTO_FD int fd = openat(folder, file, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
}

static bool write_in(const char *folder, const char *file, const char *value)
{
    AUTO_FD int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && write_at(fd, file, value);
}

static bool write_shares(const char *folder, long shares)
{
    char value[VALUE_BYTES];
    snprintf(value, sizeof value, "%ld", shares);
    return write_in(folder, "cpu.shares", value);
}

void cgroup_weights_join(const struct cgroup_layout *layout)
{
    const char *ours = layout->v1[CGROUP_CPU];
    if (!ours[0])
        return;
    AUTO_FREE char *daemon = memory_printf("%s/daemon", ours);
    if (mkdir(daemon, 0755) < 0 && errno != EEXIST)
        return;
    /* Once there were a process's shares for each daemon; a group's are divided by the processors. */
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    (void)write_shares(ours, 2L * SHARE * (processors > 0 ? processors : 1));
    (void)write_shares(daemon, DAEMON_SHARES);
    (void)write_in(daemon, "cgroup.procs", "0");
}

void cgroup_weights_leave(const struct cgroup_layout *layout)
{
    const char *ours = layout->v1[CGROUP_CPU];
    if (!ours[0])
        return;
    AUTO_FREE char *daemon = memory_printf("%s/daemon", ours);
    char above[CGROUP_PATH_BYTES];
    if (text_copy(above, sizeof above, ours))
        (void)write_in(dirname(above), "cgroup.procs", "0");
    (void)rmdir(daemon);
}

void cgroup_weights_yield(int folder)
{
    (void)write_at(folder, "cpu.idle", "1");
}
