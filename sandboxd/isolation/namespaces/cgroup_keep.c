#include "sandboxd/isolation/namespaces/cgroup_keep.h"

#include "sandboxd/isolation/namespaces/cgroup_layout.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char LEAF[] = "/keeper";
enum { PROCS_MAX = 1 << 16 };

/* Nobody but us is in it: else those would be in the way of its controllers. */
static bool is_ours_alone(const char *folder, struct error *err)
{
    char self[16];
    AUTO_FREE char *path = memory_printf("%s/cgroup.procs", folder);
    AUTO_FREE char *members = fd_read_file(path, PROCS_MAX, NULL, err);
    if (members == NULL)
        return false;
    return (text_format(self, sizeof self, "%d\n", (int)getpid()) && strcmp(members, self) == 0) ||
           error_set(err, ERROR_CONFLICT, "the cgroup %.200s is not this process's alone: start it as a service of its own",
                     folder);
}

static bool move(const char *folder, struct error *err)
{
    AUTO_FREE char *leaf = memory_printf("%s%s", folder, LEAF);
    AUTO_FREE char *procs = memory_printf("%s/cgroup.procs", leaf);
    if (mkdir(leaf, 0755) < 0 && errno != EEXIST)
        return error_set_errno(err, ERROR_INTERNAL, "make cgroup %s", leaf);
    AUTO_FD int fd = open(procs, O_WRONLY | O_CLOEXEC);
    return (fd >= 0 && write(fd, "0", 1) == 1) || error_set_errno(err, ERROR_INTERNAL, "move to cgroup %s", leaf);
}

bool cgroup_keep(const char *root, struct error *err)
{
    char own[CGROUP_PATH_BYTES];
    if (!cgroup_layout_find_own(root, own, err))
        return false;
    size_t length = strlen(own), leaf = strlen(LEAF);
    if (length > leaf && strcmp(own + length - leaf, LEAF) == 0)
        return true;
    AUTO_FREE char *type = memory_printf("%s/cgroup.type", own);
    if (access(type, F_OK) != 0)
        return error_set(err, ERROR_CONFLICT, "this process is in the root cgroup: start it as a service of its own");
    return is_ours_alone(own, err) && move(own, err);
}
