#include "sandboxd/isolation/namespaces/user_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
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

bool user_namespace_map(pid_t pid, uint32_t base, struct error *err)
{
    char map[MAP_BYTES];
    snprintf(map, sizeof map, "0 %" PRIu32 " %d", base, USER_NAMESPACE_IDS);
    return write_map(pid, "uid_map", map, err) && write_map(pid, "gid_map", map, err);
}

bool user_namespace_become_root(struct error *err)
{
    if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "become root of the sandbox");
    return true;
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
