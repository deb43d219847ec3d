#include "sandboxd/isolation/namespaces/devices.h"

#include "sandboxd/isolation/namespaces/mounts.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEV MOUNTS_NEW_ROOT "/dev"

enum { PATH_BYTES = 64 };

/* Terminals are counted host-wide (kernel.pty.max); without max= one sandbox could have them all. */
static const char PTS_OPTIONS[] = "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64";

static bool bind_node(const char *name, struct error *err)
{
    char from[PATH_BYTES];
    char to[PATH_BYTES];
    snprintf(from, sizeof from, "/dev/%s", name);
    snprintf(to, sizeof to, DEV "/%s", name);
    AUTO_FD int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0 || mount(from, to, NULL, MS_BIND, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind /dev/%s", name);
    return true;
}

static bool make_link(const char *to, const char *name, struct error *err)
{
    if (symlink(to, name) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "link %s", name);
    return true;
}

static bool mount_at(const char *path, const char *type, unsigned long flags, const char *options, struct error *err)
{
    if (mkdir(path, 0755) < 0 || mount(type, path, type, MS_NOSUID | flags, options) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount %s", path);
    return true;
}

bool devices_make(struct error *err)
{
    static const char *const NODES[] = {"null", "zero", "full", "random", "urandom", "tty"};
    if (mount("parley", DEV, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,nr_inodes=64,mode=0755") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount /dev");
    for (size_t i = 0; i < sizeof NODES / sizeof NODES[0]; i++) {
        if (!bind_node(NODES[i], err))
            return false;
    }
    return mount_at(DEV "/pts", "devpts", MS_NOEXEC, PTS_OPTIONS, err) &&
           mount_at(DEV "/shm", "tmpfs", MS_NODEV, "size=64k,nr_inodes=8,mode=1777", err) &&
           make_link("pts/ptmx", DEV "/ptmx", err) && make_link("/proc/self/fd", DEV "/fd", err) &&
           make_link("/proc/self/fd/0", DEV "/stdin", err) && make_link("/proc/self/fd/1", DEV "/stdout", err) &&
           make_link("/proc/self/fd/2", DEV "/stderr", err);
}
