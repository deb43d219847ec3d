#include "shared/base/confine.h"

#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- Landlock's face by hand: Debian 12's <linux/landlock.h> ends at ABI 3 (linux/include/uapi/linux/landlock.h) ---
 */

struct ruleset_attr {
    uint64_t handled_access_fs;
    uint64_t handled_access_net; /* ABI 4 */
    uint64_t scoped;             /* ABI 6 */
};

struct path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

enum { CREATE_RULESET_VERSION = 1, RULE_PATH_BENEATH = 1 };

#define FS_EXECUTE     (1ULL << 0)
#define FS_WRITE_FILE  (1ULL << 1)
#define FS_READ_FILE   (1ULL << 2)
#define FS_READ_DIR    (1ULL << 3)
#define FS_ALL_ABI_1   ((1ULL << 13) - 1) /* up to MAKE_SYM */
#define FS_REFER       (1ULL << 13)       /* ABI 2 */
#define FS_TRUNCATE    (1ULL << 14)       /* ABI 3 */
#define FS_IOCTL_DEV   (1ULL << 15)       /* ABI 5 */
#define FS_OF_A_FILE   (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define NET_BIND_TCP   (1ULL << 0)
#define SCOPE_ABSTRACT (1ULL << 0)
#define SCOPE_SIGNAL   (1ULL << 1)

static uint64_t handled_fs(int abi)
{
    uint64_t handled = FS_ALL_ABI_1;
    handled |= abi >= 2 ? FS_REFER : 0;
    handled |= abi >= 3 ? FS_TRUNCATE : 0;
    handled |= abi >= 5 ? FS_IOCTL_DEV : 0;
    return handled;
}

static uint64_t wanted_fs(unsigned access)
{
    uint64_t wanted = 0;
    wanted |= access & CONFINE_READ ? FS_READ_FILE | FS_READ_DIR : 0;
    wanted |= access & CONFINE_EXECUTE ? FS_EXECUTE | FS_READ_FILE : 0;
    wanted |= access & CONFINE_WRITE
                  ? (FS_ALL_ABI_1 & ~(FS_EXECUTE | FS_READ_FILE | FS_READ_DIR)) | FS_REFER | FS_TRUNCATE | FS_IOCTL_DEV
                  : 0;
    return wanted;
}

static bool add_path(int ruleset, const struct confine_path *path, uint64_t handled, struct error *err)
{
    AUTO_FD int fd = open(path->path, O_PATH | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return true;
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "landlock: open %s", path->path);
    uint64_t allowed = wanted_fs(path->access) & handled;
    if (!S_ISDIR(status.st_mode))
        allowed &= FS_OF_A_FILE; /* the kernel refuses rights of folders on a file */
    struct path_beneath_attr rule = {.allowed_access = allowed, .parent_fd = fd};
    if (allowed && syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0U) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "landlock: add %s", path->path);
    return true;
}

bool confine_landlock(const struct confine_path *paths, size_t count, bool bind_denied, int *abi, struct error *err)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, (uint32_t)CREATE_RULESET_VERSION);
    if (version <= 0) {
        *abi = 0;
        return error_set(err, ERROR_NOT_FOUND, "this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, lsm=landlock)");
    }
    *abi = (int)version;
    struct ruleset_attr attr = {.handled_access_fs = handled_fs(*abi),
                                .handled_access_net = *abi >= 4 && bind_denied ? NET_BIND_TCP : 0,
                                .scoped = *abi >= 6 ? SCOPE_ABSTRACT | SCOPE_SIGNAL : 0};
    /* A kernel refuses trailing fields that it does not know unless they are zero. */
    size_t size = *abi >= 6 ? sizeof attr : *abi >= 4 ? offsetof(struct ruleset_attr, scoped) : sizeof(uint64_t);
    AUTO_FD int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0U);
    if (ruleset < 0)
        return error_set_errno(err, ERROR_INTERNAL, "landlock: create ruleset");
    for (size_t i = 0; i < count; i++) {
        if (!add_path(ruleset, &paths[i], attr.handled_access_fs, err))
            return false;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "no_new_privs");
    if (syscall(SYS_landlock_restrict_self, ruleset, 0U) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "landlock: restrict");
    return true;
}

/* --- user and capabilities --- */

static bool drop_bounding_set(struct error *err)
{
    for (unsigned long number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; number++) {
        if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "drop capability %lu from the bounding set", number);
    }
    return true;
}

static bool drop_capabilities(struct error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    /* EINVAL: a kernel that has no ambient capabilities (gVisor). */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return error_set_errno(err, ERROR_INTERNAL, "clear ambient capabilities");
    if (syscall(SYS_capset, &header, none) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "drop capabilities");
    return true;
}

static bool become(uid_t uid, gid_t gid, struct error *err)
{
    if (setgroups(1, &gid) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "become uid %u, gid %u", uid, gid);
    return true;
}

bool confine_user(uid_t uid, gid_t gid, struct error *err)
{
    if (geteuid() == 0) {
        if (uid == 0 || gid == 0)
            return error_set(err, ERROR_INVALID, "a daemon cannot give up root by becoming root");
        if (!drop_bounding_set(err) || !become(uid, gid, err) || !drop_capabilities(err))
            return false;
        uid_t real = 0;
        uid_t effective = 0;
        uid_t saved = 0;
        if (getresuid(&real, &effective, &saved) < 0 || real != uid || effective != uid || saved != uid)
            return error_set(err, ERROR_INTERNAL, "uid %u was not taken", uid);
    }
    struct rlimit none = {0, 0};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        setrlimit(RLIMIT_CORE, &none) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "no_new_privs, not dumpable, no core");
    return true;
}

void confine_find_user(const char *name, uid_t fallback, uid_t *uid, gid_t *gid)
{
    char memory[16384];
    struct passwd entry;
    struct passwd *found = NULL;
    if (name && getpwnam_r(name, &entry, memory, sizeof memory, &found) == 0 && found && found->pw_uid != 0) {
        *uid = found->pw_uid;
        *gid = found->pw_gid;
        return;
    }
    *uid = fallback;
    *gid = (gid_t)fallback;
}
