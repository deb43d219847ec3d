#include "sandboxd/rootless/rootless.h"

#include "sandboxd/rootless/id_map.h"
#include "sandboxd/rootless/mapping.h"
#include "shared/base/cleanup.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SLOTS_MAX = 4000, PATH_BYTES = 4096, MAP_MAX_BYTES = 65536, NESTED_MAX = 8 };

/* In the environment of who came here by rootless_enter, and of its children. Root of some container's user namespace
 * is not asked for slots of its own, nor is a guest (sandboxd/guest). */
static const char MARK[] = "PARLEY_ROOTLESS";

/* --- what we are in --- */

/* Of this process; it does not change. */
static struct {
    bool is_known, is_active;
    uint32_t slots;
    struct id_map uids;
} here;

static bool read_map(const char *path, struct id_map *map)
{
    AUTO_FREE char *text = fd_read_file(path, MAP_MAX_BYTES, NULL, NULL);
    return text && id_map_parse(text, map, NULL) && map->count > 0;
}

static void look(void)
{
    struct id_map gids;
    if (here.is_known)
        return;
    here.is_known = true;
    bool is_read = read_map("/proc/self/uid_map", &here.uids) && read_map("/proc/self/gid_map", &gids);
    here.is_active = is_read && getenv(MARK) && geteuid() == 0 && !id_map_is_whole(&here.uids);
    if (!here.is_active)
        return;
    uint32_t slots = id_map_slots(&gids, SLOTS_MAX);
    here.slots = id_map_slots(&here.uids, slots);
}

bool rootless_is_active(void)
{
    look();
    return here.is_active;
}

uint32_t rootless_slots(void)
{
    look();
    return here.slots;
}

uint32_t rootless_outside(uint32_t uid)
{
    look();
    return here.is_active ? id_map_outside(&here.uids, uid) : uid;
}

void rootless_describe(char *detail, size_t size)
{
    snprintf(detail, size,
             "rootless: root here is uid %" PRIu32 " of the host; %" PRIu32 " slots of %d subordinate ids",
             rootless_outside(0), rootless_slots(), ID_MAP_SLOT_STEP);
}

/* --- getting there --- */

/* The namespace that is ours among those around `pid`'s own; -1 when there is none. */
static int find_namespace(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (int depth = 0; fd >= 0 && depth < NESTED_MAX; depth++) {
        uid_t owner = 0;
        if (ioctl(fd, NS_GET_OWNER_UID, &owner) == 0 && owner == geteuid())
            return fd;
        int around = ioctl(fd, NS_GET_PARENT);
        close(fd);
        fd = around;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool join(pid_t living)
{
    AUTO_FD int namespace_fd = living > 0 ? find_namespace(living) : -1;
    return namespace_fd >= 0 && setns(namespace_fd, CLONE_NEWUSER) == 0;
}

static bool become_root(struct error *err)
{
    if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "become root of the own user namespace");
    return true;
}

/* Anew, so that the kernel takes this process's memory for the namespace's, not the host's: else nothing below
 * /proc/PID of a child that may not be dumped would be ours to write (proc(5), PR_SET_DUMPABLE). */
static bool execute_again(char *const argv[], struct error *err)
{
    char self[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    execv(self, argv);
    return error_set_errno(err, ERROR_INTERNAL, "execute %s again as root of the own user namespace", self);
}

bool rootless_enter(pid_t living, char *const argv[], struct error *err)
{
    if (geteuid() == 0)
        return true;
    if (!join(living) && !mapping_make(SLOTS_MAX, err))
        return false;
    if (setenv(MARK, "1", 1) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "setenv");
    return become_root(err) && execute_again(argv, err);
}
