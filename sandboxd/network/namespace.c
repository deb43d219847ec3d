#include "sandboxd/network/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 128 };

int namespace_open(struct error *err)
{
    int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, ERROR_INTERNAL, "open /proc/thread-self/ns/net");
    return fd;
}

/* Whether the one that the thread is in belongs to its own user namespace. */
static bool is_ours(void)
{
    struct stat wanted = {0}, found = {0};
    AUTO_FD int here = namespace_open(NULL);
    AUTO_FD int owner = here < 0 ? -1 : ioctl(here, NS_GET_USERNS);
    return owner >= 0 && fstat(owner, &found) == 0 && stat("/proc/self/ns/user", &wanted) == 0 &&
           wanted.st_ino == found.st_ino && wanted.st_dev == found.st_dev;
}

bool namespace_enter(int where, struct error *err)
{
    AUTO_FD int home = namespace_open(err);
    if (home < 0)
        return false;
    if (setns(where, CLONE_NEWNET) < 0) {
        bool is_gone = errno == ESRCH;
        return error_set_errno(err, is_gone ? ERROR_GONE : ERROR_INTERNAL, "enter a network namespace");
    }
    if (is_ours())
        return true;
    namespace_leave(home);
    return error_set(err, ERROR_GONE, "the sandbox's init has left its network for one of its own");
}

void namespace_leave(int home)
{
    if (setns(home, CLONE_NEWNET) < 0)
        abort();
}

/* /proc/sys/net shows the reader's namespace. */
bool namespace_set(const char *name, const char *value, struct error *err)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "/proc/sys/net/%s", name);
    AUTO_FD int fd = length > 0 && (size_t)length < sizeof path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value))
        return true;
    return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "write %s to %s", value, path);
}

static bool bring_loopback_up(struct error *err)
{
    AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING};
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bring the loopback interface up");
    return true;
}

/* The port below which one needs a right: of a namespace that is the host's nobody inside could have it. */
static bool prepare(struct error *err)
{
    struct error why = {0};
    if (!bring_loopback_up(err) || !namespace_set("ipv4/ip_unprivileged_port_start", "0", err))
        return false;
    if (namespace_set("ipv6/conf/default/disable_ipv6", "1", &why) || why.kind == ERROR_NOT_FOUND)
        return true; /* or the kernel has no IPv6 */
    if (err)
        *err = why;
    return false;
}

int namespace_make(int home, struct error *err)
{
    if (unshare(CLONE_NEWNET) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "make a network namespace");
        return -1;
    }
    AUTO_FD int made = namespace_open(err);
    bool is_ready = made >= 0 && prepare(err);
    if (home >= 0)
        namespace_leave(home);
    return is_ready ? TAKE_FD(made) : -1;
}
