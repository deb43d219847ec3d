#include "sandboxd/templates/tool/jail_root.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where the new root is put together, in our own mount namespace: every host has it. */
#define STAGE "/tmp"

static const unsigned long PLAIN = MS_NOSUID | MS_NODEV;

/* --- parts --- */

static bool begin_stage(const char *options, struct error *err)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make / a slave mount");
    if (mount("parley", STAGE, "tmpfs", PLAIN, options) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount the new root");
    return true;
}

static bool pivot(const char *to, struct error *err)
{
    if (chdir(to) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "pivot_root to %s", to);
    return true;
}

static bool make_folder(const char *path, mode_t mode, struct error *err)
{
    if ((mkdir(path, mode) < 0 && errno != EEXIST) || chmod(path, mode) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make %s", path);
    return true;
}

static bool make_file(const char *path, const char *text, struct error *err)
{
    AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make %s", path);
    return fd_write_all(fd, text, strlen(text), err);
}

static bool bind_read_only(const char *from, const char *to, struct error *err)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0 ||
        syscall(SYS_mount_setattr, AT_FDCWD, to, AT_RECURSIVE, &attributes, sizeof attributes) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind %s", from);
    return true;
}

static bool make_devices(const char *dev, struct error *err)
{
    static const char *const NODES[] = {"null", "zero", "full", "random", "urandom", "tty"};
    if (mount("parley", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=1m,nr_inodes=64,mode=0755") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount %s", dev);
    for (size_t i = 0; i < sizeof NODES / sizeof NODES[0]; i++) {
        AUTO_FREE char *from = memory_printf("/dev/%s", NODES[i]);
        AUTO_FREE char *to = memory_printf("%s/%s", dev, NODES[i]);
        if (!make_file(to, "", err))
            return false;
        if (mount(from, to, NULL, MS_BIND, NULL) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "bind %s", from);
    }
    AUTO_FREE char *link = memory_printf("%s/fd", dev);
    AUTO_FREE char *shm = memory_printf("%s/shm", dev);
    if (symlink("/proc/self/fd", link) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "link %s", link);
    return make_folder(shm, 01777, err);
}

static bool mount_proc(const char *at, struct error *err)
{
    if (mount("proc", at, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "mount %s", at);
    return true;
}

static bool attach(int mount_fd, const char *at, struct error *err)
{
    if (syscall(SYS_move_mount, mount_fd, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "attach the rootfs at %s", at);
    return true;
}

/* --- an empty one --- */

bool jail_root_empty(struct error *err)
{
    if (!begin_stage("size=4k,nr_inodes=2,mode=0555", err) || !pivot(STAGE, err))
        return false;
    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOEXEC | PLAIN, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make the empty root read-only");
    return true;
}

/* --- the host's tools --- */

/* What a host with a merged /usr has at /. */
static bool link_usr(struct error *err)
{
    static const char *const NAMES[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        AUTO_FREE char *target = memory_printf("usr/%s", NAMES[i]);
        AUTO_FREE char *link = memory_printf(STAGE "/%s", NAMES[i]);
        if (symlink(target, link) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "link %s", link);
    }
    return true;
}

/* What programs of the host need to find libraries, hosts and certificates; nothing that is a secret. */
static bool fill_etc(struct error *err)
{
    static const char *const FILES[] = {"resolv.conf", "hosts", "nsswitch.conf", "ld.so.cache", "gai.conf", "wgetrc"};
    static const char *const FOLDERS[] = {"alternatives", "ssl/certs", "dpkg"};
    if (!make_folder(STAGE "/etc", 0755, err) || !make_folder(STAGE "/etc/ssl", 0755, err) ||
        !make_folder(STAGE "/etc/apt", 0755, err) || !make_folder(STAGE "/etc/apt/apt.conf.d", 0755, err) ||
        !make_file(STAGE "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n", err) ||
        !make_file(STAGE "/etc/group", "root:x:0:\nnogroup:x:65534:\n", err))
        return false;
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        AUTO_FREE char *from = memory_printf("/etc/%s", FILES[i]);
        AUTO_FREE char *to = memory_printf(STAGE "/etc/%s", FILES[i]);
        if (access(from, R_OK) == 0 && (!make_file(to, "", err) || !bind_read_only(from, to, err)))
            return false;
    }
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++) {
        AUTO_FREE char *from = memory_printf("/etc/%s", FOLDERS[i]);
        AUTO_FREE char *to = memory_printf(STAGE "/etc/%s", FOLDERS[i]);
        if (access(from, R_OK | X_OK) == 0 && (!make_folder(to, 0755, err) || !bind_read_only(from, to, err)))
            return false;
    }
    return true;
}

bool jail_root_tools(int rootfs, struct error *err)
{
    static const char *const FOLDERS[] = {STAGE "/usr", STAGE "/target", STAGE "/proc", STAGE "/dev",
                                          STAGE "/run", STAGE "/var",    STAGE "/root"};
    if (!begin_stage("size=256m,mode=0755", err) || !make_folder(STAGE "/tmp", 01777, err))
        return false;
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++) {
        if (!make_folder(FOLDERS[i], 0755, err))
            return false;
    }
    return bind_read_only("/usr", STAGE "/usr", err) && link_usr(err) && fill_etc(err) &&
           make_devices(STAGE "/dev", err) && mount_proc(STAGE "/proc", err) && attach(rootfs, STAGE "/target", err) &&
           pivot(STAGE, err);
}

/* --- the rootfs --- */

bool jail_root_target(int rootfs, struct error *err)
{
    if (!begin_stage("size=4k,mode=0755", err) || !attach(rootfs, STAGE, err))
        return false;
    return make_folder(STAGE "/proc", 0755, err) && make_folder(STAGE "/dev", 0755, err) &&
           make_devices(STAGE "/dev", err) && mount_proc(STAGE "/proc", err) && pivot(STAGE, err);
}
