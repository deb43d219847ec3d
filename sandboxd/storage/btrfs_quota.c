#include "sandboxd/storage/btrfs_quota.h"

#include "sandboxd/storage/btrfs_space.h"
#include "shared/base/cleanup.h"
#include "shared/base/log.h"
#include "shared/base/text.h"

#include <btrfsutil.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <string.h>
#include <sys/ioctl.h>

enum { SYSFS_BYTES = 160, NUMBER_BYTES = 64 };

/* Since Linux 6.1 the kernel stops counting (so that limits hold nobody) once a large tree is dropped, unless the
 * threshold is above the height that trees can have. */
static void never_give_up(const char *sysfs)
{
    char path[SYSFS_BYTES];
    if (!text_format(path, sizeof path, "%s/qgroups/drop_subtree_threshold", sysfs))
        return;
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return;
    if (fd < 0 || write(fd, "8", 1) != 1)
        log_warn("storage", "cannot set %s to 8: removing a large tree may make disk limits inexact", path);
}

static bool count_anew(int top, struct error *err)
{
    struct btrfs_ioctl_quota_rescan_args args = {0};
    return ioctl(top, BTRFS_IOC_QUOTA_RESCAN, &args) == 0 || errno == EINPROGRESS ||
           error_set_errno(err, ERROR_INTERNAL, "have btrfs count anew");
}

bool btrfs_quota_enable(int top, const char *sysfs, struct error *err)
{
    uint64_t wrong = 0;
    struct btrfs_ioctl_quota_ctl_args on = {.cmd = BTRFS_QUOTA_CTL_ENABLE};
    if (!btrfs_sysfs_number(sysfs, "qgroups/inconsistent", &wrong, NULL)) {
        /* Nothing was written before, so that the first count is no work. EEXIST: they are on. */
        if ((ioctl(top, BTRFS_IOC_QUOTA_CTL, &on) < 0 && errno != EEXIST) ||
            ioctl(top, BTRFS_IOC_QUOTA_RESCAN_WAIT) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "turn the quotas of btrfs on");
        if (!btrfs_sysfs_number(sysfs, "qgroups/inconsistent", &wrong, err))
            return false;
    }
    never_give_up(sysfs);
    return wrong == 0 || count_anew(top, err);
}

bool btrfs_quota_limit(int subvolume, uint64_t bytes, struct error *err)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes ? bytes : UINT64_MAX}};
    return ioctl(subvolume, BTRFS_IOC_QGROUP_LIMIT, &args) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "set a disk limit of %" PRIu64 " bytes", bytes);
}

static bool counts(const char *sysfs, uint64_t id, const char *what, struct error *err)
{
    char name[NUMBER_BYTES];
    uint64_t number = 1;
    return text_format(name, sizeof name, "qgroups/0_%" PRIu64 "/%s", id, what) &&
           btrfs_sysfs_number(sysfs, name, &number, err) && number != 0;
}

/* What is deleted grows no more, so 0 stays 0. */
bool btrfs_quota_forget(int top, const char *sysfs, uint64_t id)
{
    struct btrfs_ioctl_qgroup_create_args args = {.create = 0, .qgroupid = id};
    struct error err = {0};
    if (counts(sysfs, id, "referenced", &err) || counts(sysfs, id, "exclusive", &err))
        return false;
    if (err.kind != ERROR_NONE)
        return true; /* the kernel has removed it */
    return ioctl(top, BTRFS_IOC_QGROUP_CREATE, &args) == 0 || errno != EBUSY;
}

bool btrfs_quota_is_counting(int top, const char *sysfs)
{
    uint64_t wrong = 0;
    struct error err = {0};
    if (btrfs_sysfs_number(sysfs, "qgroups/inconsistent", &wrong, &err) && wrong == 0)
        return true;
    if (wrong == 0 || !count_anew(top, &err))
        log_error("storage", "disk limits hold nobody now: %s", err.message);
    return false;
}

bool btrfs_quota_usage(int subvolume, const char *sysfs, uint64_t *bytes, struct error *err)
{
    static const char *const WHAT[] = {"referenced", "rsv_data", "rsv_meta_pertrans", "rsv_meta_prealloc"};
    uint64_t id = 0, sum = 0;
    enum btrfs_util_error failed = btrfs_util_subvolume_id_fd(subvolume, &id);
    if (failed)
        return error_set_errno(err, ERROR_INTERNAL, "%s", btrfs_util_strerror(failed));
    for (size_t i = 0; i < sizeof WHAT / sizeof WHAT[0]; i++) {
        char name[NUMBER_BYTES];
        uint64_t part = 0;
        if (!text_format(name, sizeof name, "qgroups/0_%" PRIu64 "/%s", id, WHAT[i]) ||
            !btrfs_sysfs_number(sysfs, name, &part, err))
            return false;
        sum += part;
    }
    *bytes = sum;
    return true;
}
