/* become.c - see become.h. */
#include "sandboxd/init/become.h"

#include "sandboxd/init/deadline.h"
#include "sandboxd/init/inherit.h"
#include "sandboxd/init/rights.h"
#include "sandboxd/init/sockets.h"
#include "sandboxd/init/terminate.h"
#include "sandboxd/init/volumes.h"
#include "shared/base/beneath.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where names are asked at, if it may go out: sandboxd/network. */
#define RESOLVER_PATH "/etc/resolv.conf"
#define RESOLVER      "nameserver 127.0.0.53\n"

enum { HOSTS_BYTES = 256, OPTIONS_BYTES = 96, BYTES_PER_INODE = 8192 };

/* --- names --- */

/* A file of the sandbox's own /etc. One that is not to be had, in whatever way, is no failure: a template may do
 * without, or have made its /etc as it likes. */
static void write_etc(const char *path, const char *text)
{
    const struct open_how how = {.flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                                 .mode = 0644,
                                 .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    struct stat status;
    AUTO_FD int fd = beneath_open(AT_FDCWD, path, &how);
    struct error ignored = {0};
    bool is_file = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    if (is_file && ftruncate(fd, 0) == 0)
        (void)!fd_write_all(fd, text, strlen(text), &ignored);
}

/* To open a template's file for writing copies it, though it says the same already. */
static bool says(const char *path, const char *text)
{
    char there[HOSTS_BYTES];
    const struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    struct stat status;
    AUTO_FD int fd = beneath_open(AT_FDCWD, path, &how);
    bool is_file = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    ssize_t size = is_file ? read(fd, there, sizeof there) : -1;
    return size == (ssize_t)strlen(text) && memcmp(there, text, strlen(text)) == 0;
}

/* A template of a whole system links it to what a resolver that does not run here would write. */
static void name_resolver(void)
{
    struct stat status;
    if (lstat(RESOLVER_PATH, &status) == 0 && S_ISLNK(status.st_mode))
        (void)unlink(RESOLVER_PATH); /* else names are not found: nothing that could be told here */
    if (!says(RESOLVER_PATH, RESOLVER))
        write_etc(RESOLVER_PATH, RESOLVER);
}

static bool take_names(const struct li_become *to, struct error *err)
{
    char hosts[HOSTS_BYTES];
    char name[LAUNCHER_INIT_NAME_BYTES + 1];
    if (to->hostname[0] == '\0')
        return true;
    if (sethostname(to->hostname, strlen(to->hostname)) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "sethostname");
    snprintf(hosts, sizeof hosts, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n127.0.1.1\t%s\n", to->hostname);
    snprintf(name, sizeof name, "%s\n", to->hostname);
    write_etc("/etc/hosts", hosts);
    write_etc("/etc/hostname", name);
    return true;
}

/* --- limits --- */

static bool size_shared_memory(uint64_t bytes, struct error *err)
{
    char options[OPTIONS_BYTES];
    if (bytes == 0)
        return true;
    snprintf(options, sizeof options, "size=%" PRIu64 ",nr_inodes=%" PRIu64, bytes, bytes / BYTES_PER_INODE + 1);
    if (mount(NULL, "/dev/shm", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, options) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "resize /dev/shm (%s)", options);
    return true;
}

static void limit_files(struct init *init, uint32_t open_files)
{
    rlim_t most = init->files_most;
    init->files = (struct rlimit){.rlim_cur = open_files < most ? open_files : most};
    init->files.rlim_max = init->files.rlim_cur;
}

static bool become_it(struct init *init, const struct li_become *to, const int *mounts, struct error *err)
{
    if (!take_names(to, err) || !size_shared_memory(to->shared_bytes, err))
        return false;
    if (!init->is_guest) /* a guest's machine has its own ways, or none */
        name_resolver();
    for (size_t i = 0; i < to->volume_count; i++) {
        if (!volumes_attach(mounts[i], to->volumes[i].path, err))
            return false;
    }
    init->uid = to->uid;
    init->gid = to->gid;
    init->root_allowed = to->root_allowed;
    limit_files(init, to->open_files);
    init->spare_files = init->files;
    deadline_set_hard(init, to->deadline_boot_ns);
    return sockets_keep_out_of_volumes(to, err) && rights_drop(to->root_allowed, err);
}

/* --- the dialogue --- */

/* A guest's launcher says nothing more: this is its end. */
static void on_launcher_gone(struct init *init, struct watch *watch, uint32_t events)
{
    (void)events;
    watch_end(init, watch);
    terminate_begin(init, TERMINATE_GRACE_MS, 0);
}

void become_open(struct init *init)
{
    init->launcher = (struct watch){.ready = on_launcher_gone, .fd = -1};
}

bool become(struct init *init, struct error *err)
{
    struct launcher_init_message message = {.type = LI_BARRIER};
    int mounts[LAUNCHER_INIT_FDS];
    size_t count = 0;
    if (!launcher_init_send(INHERIT_FD_CONTROL, &message, NULL, 0, err))
        return false;
    int got = launcher_init_receive(INHERIT_FD_CONTROL, &message, LI_FROM_LAUNCHER, mounts, &count, err);
    if (got <= 0)
        return got < 0 ? false : error_set(err, ERROR_GONE, "init: the launcher went away");
    bool is_done = become_it(init, &message.as.become, mounts, err);
    for (size_t i = 0; i < count; i++)
        close(mounts[i]);
    return is_done;
}

bool become_tell(struct init *init, const struct error *failed)
{
    struct launcher_init_message message = {.type = failed ? LI_FAILED : LI_READY};
    struct error ignored = {0};
    if (failed)
        message.as.failed = *failed;
    bool is_told = launcher_init_send(INHERIT_FD_CONTROL, &message, NULL, 0, &ignored);
    if (is_told && !failed && init->is_guest)
        return watch_add(init, &init->launcher, INHERIT_FD_CONTROL, EPOLLIN | EPOLLRDHUP, &ignored);
    close(INHERIT_FD_CONTROL);
    return is_told;
}
