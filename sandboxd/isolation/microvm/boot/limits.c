/* limits.c - what holds the guest from within: see boot.h. All else holds it from outside. */
#include "sandboxd/isolation/microvm/boot/boot.h"

#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define GROUPS "/cgroup"
#define GROUP  GROUPS "/guest"

enum { NUMBER_BYTES = 64 };

bool boot_read_limits(struct boot_limits *limits, struct error *err)
{
    AUTO_FREE char *text = fd_read_file("/" BOOT_LIMITS, NUMBER_BYTES, NULL, err);
    if (!text)
        return false;
    return sscanf(text, "%" SCNu32 " %" SCNu32, &limits->pids, &limits->inodes) == 2 ||
           error_set(err, ERROR_INVALID, "/" BOOT_LIMITS " holds no two numbers");
}

static bool write_file(const char *path, const char *text, struct error *err)
{
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "write %s", path);
    return true;
}

int boot_make_group(const struct boot_limits *limits, struct error *err)
{
    char number[NUMBER_BYTES];
    snprintf(number, sizeof number, "%" PRIu32, limits->pids);
    if (mkdir(GROUPS, 0755) < 0 || mount("cgroup2", GROUPS, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
        mkdir(GROUP, 0755) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "make " GROUP);
        return -1;
    }
    if (!write_file(GROUPS "/cgroup.subtree_control", "+pids", err) || !write_file(GROUP "/pids.max", number, err))
        return -1;
    int procs = open(GROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs < 0)
        error_set_errno(err, ERROR_INTERNAL, "open " GROUP "/cgroup.procs");
    return procs;
}

void boot_trim_inodes(const struct boot_limits *limits, int count, int caches)
{
    char text[NUMBER_BYTES] = "";
    uint32_t known = 0;
    static const char FORGET[] = "2"; /* names and inodes, not what files hold */
    if (pread(count, text, sizeof text - 1, 0) > 0 && sscanf(text, "%" SCNu32, &known) == 1 &&
        known > limits->inodes / 2)
        (void)!pwrite(caches, FORGET, sizeof FORGET - 1, 0);
}
