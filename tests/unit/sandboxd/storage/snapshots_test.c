/** snapshots_test.c - a snapshot outlives its area and gives all of it back, of each kind; what cannot be copied leaves
 *  nothing behind; volumes stay. */
#include "tests/unit/sandboxd/storage/fixture.h"

#include "sandboxd/storage/job.h"
#include "shared/base/clock.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>

enum { SLOT = 3, OTHER = 4, BASE = 1879048192, OTHER_BASE = 1879048192 + 65536, DEEP = 1500, TOO_DEEP = 2100 };

static const char *const KINDS[] = {"btrfs", "tmpfs", "folder"};

/* On disk, 0 of the sandbox is 0, in its tmpfs `base`. */
static uint32_t id0(const struct storage_area *area)
{
    return area->mount >= 0 ? area->uid_base : 0;
}

static int open_upper(const struct storage_area *area, const char *layer)
{
    char path[32];
    int fd = fixture_area(area);
    snprintf(path, sizeof path, "%s/upper", layer);
    int upper = openat(fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0 && upper >= 0);
    close(fd);
    return upper;
}

static void put(int folder, const char *name, const char *text, mode_t mode)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
    close(fd);
}

static void make_sparse(int upper)
{
    int fd = openat(upper, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(pwrite(fd, "begin", 5, 0) == 5 && pwrite(fd, "middle", 6, 1 << 20) == 6);
    CHECK(ftruncate(fd, 1LL << 40) == 0);
    close(fd);
}

static void make_socket(int upper)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", upper);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    close(fd);
}

static void set_capability(int upper, uint32_t root)
{
    struct vfs_ns_cap_data data = {.magic_etc = (root ? VFS_CAP_REVISION_3 : VFS_CAP_REVISION_2) | 1,
                                   .data = {{.permitted = 1U << CAP_NET_RAW}},
                                   .rootid = root};
    put(upper, "ping", "#!", 0755);
    int fd = openat(upper, "ping", O_RDONLY | O_CLOEXEC);
    CHECK(fsetxattr(fd, "security.capability", &data, root ? XATTR_CAPS_SZ_3 : XATTR_CAPS_SZ_2, 0) == 0);
    close(fd);
}

/* What an overlay and a user leave in an upper layer. */
static void write_all(const struct storage_area *area)
{
    uint32_t base = id0(area);
    int upper = open_upper(area, "root"), usr = open_upper(area, "usr");
    put(upper, "plain", "hello", 0640);
    CHECK(fchownat(upper, "plain", base + 1000, base + 1001, 0) == 0);
    CHECK(linkat(upper, "plain", upper, "second name", 0) == 0);
    CHECK(mkdirat(upper, "folder", 0700) == 0 && fchmodat(upper, "folder", 01777, 0) == 0);
    CHECK(linkat(upper, "plain", upper, "folder/third", 0) == 0);
    put(upper, "set-uid", "x", 0600);
    CHECK(fchownat(upper, "set-uid", base, base, 0) == 0 && fchmodat(upper, "set-uid", 04755, 0) == 0);
    CHECK(symlinkat("/etc/passwd", upper, "folder/escape") == 0 && symlinkat("../../../..", upper, "up") == 0);
    CHECK(mknodat(upper, "fifo", S_IFIFO | 0620, 0) == 0 && mknodat(upper, "gone", S_IFCHR, 0) == 0);
    CHECK(mknodat(upper, "device", S_IFCHR | 0666, makedev(1, 3)) == 0);
    int folder = openat(upper, "folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fsetxattr(folder, "user.overlay.opaque", "y", 1, 0) == 0);
    const struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000001, .tv_nsec = 5}};
    CHECK(futimens(folder, then) == 0);
    close(folder);
    make_sparse(upper);
    make_socket(upper);
    set_capability(upper, base);
    put(usr, "usr-file", "u", 0644);
    close(upper);
    close(usr);
}

static void check_text(int folder, const char *name, const char *want)
{
    char got[64] = "";
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, got, sizeof got - 1) >= 0);
    CHECK_TEXT(got, want);
    close(fd);
}

static void check_regular(int upper, uint32_t base)
{
    struct stat a, b, c, status;
    check_text(upper, "plain", "hello");
    CHECK(fstatat(upper, "plain", &a, 0) == 0 && a.st_uid == base + 1000 && a.st_gid == base + 1001);
    CHECK((a.st_mode & 07777) == 0640 && a.st_nlink == 3);
    CHECK(fstatat(upper, "second name", &b, 0) == 0 && b.st_ino == a.st_ino);
    CHECK(fstatat(upper, "folder/third", &c, 0) == 0 && c.st_ino == a.st_ino);
    CHECK(fstatat(upper, "set-uid", &status, 0) == 0 && (status.st_mode & 07777) == 04755 && status.st_uid == base);
    CHECK(fstatat(upper, "sparse", &status, 0) == 0 && status.st_size == 1LL << 40 && status.st_blocks < 4096);
    int fd = openat(upper, "sparse", O_RDONLY | O_CLOEXEC);
    char text[7] = "";
    CHECK(pread(fd, text, 6, 1 << 20) == 6);
    CHECK_TEXT(text, "middle");
    close(fd);
}

static void check_capability(int upper, uint32_t base)
{
    struct vfs_ns_cap_data data = {0};
    int fd = openat(upper, "ping", O_RDONLY | O_CLOEXEC);
    ssize_t size = fgetxattr(fd, "security.capability", &data, sizeof data);
    CHECK(size == (base ? (ssize_t)XATTR_CAPS_SZ_3 : (ssize_t)XATTR_CAPS_SZ_2));
    CHECK(data.data[0].permitted == 1U << CAP_NET_RAW && (base == 0 || data.rootid == base));
    close(fd);
}

static void check_others(int upper, bool is_copy)
{
    struct stat status;
    char text[64] = "";
    CHECK(readlinkat(upper, "folder/escape", text, sizeof text - 1) == 11);
    CHECK_TEXT(text, "/etc/passwd");
    CHECK(fstatat(upper, "up", &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode));
    CHECK(fstatat(upper, "fifo", &status, 0) == 0 && S_ISFIFO(status.st_mode) && (status.st_mode & 0777) == 0620);
    CHECK(fstatat(upper, "gone", &status, 0) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == 0);
    CHECK(fstatat(upper, "folder", &status, 0) == 0 && (status.st_mode & 07777) == 01777);
    CHECK(status.st_mtim.tv_sec == 1000000001 && status.st_mtim.tv_nsec == 5);
    if (is_copy) /* left out; a subvolume has them, and its mounts are nodev */
        CHECK(fstatat(upper, "device", &status, 0) < 0 && fstatat(upper, "socket", &status, 0) < 0);
    int folder = openat(upper, "folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fgetxattr(folder, "user.overlay.opaque", text, sizeof text) == 1 && text[0] == 'y');
    close(folder);
}

static void check_all(const struct storage_area *area, bool is_copy)
{
    struct stat status;
    int upper = open_upper(area, "root"), usr = open_upper(area, "usr"), root = fixture_area(area);
    check_regular(upper, id0(area));
    check_others(upper, is_copy);
    check_capability(upper, id0(area));
    check_text(usr, "usr-file", "u");
    CHECK(fstatat(root, "root/work", &status, 0) == 0 && S_ISDIR(status.st_mode));
    CHECK(fstatat(root, "links", &status, 0) < 0);
    close(root);
    close(upper);
    close(usr);
}

static bool restore(struct storage *storage, uint32_t slot, uint32_t base, uint64_t disk, const char *name,
                    struct storage_area *area, struct error *err)
{
    struct storage_job *job = NULL;
    return storage_area_restore(storage, slot, base, disk, name, area, &job, err) && fixture_finish(job);
}

static void check_names(struct storage *storage, const struct storage_area *area)
{
    struct error err = {0};
    struct storage_job *job = NULL;
    char names[4][STORAGE_NAME_BYTES];
    CHECK(storage_snapshot_exists(storage, "snp_a") && !storage_snapshot_exists(storage, "snp_b"));
    CHECK(!storage_snapshot_take(storage, area, "snp_a", &job, &err) && err.kind == ERROR_CONFLICT);
    CHECK(!storage_snapshot_take(storage, area, "../x", &job, &err) && err.kind == ERROR_INVALID);
    CHECK(!storage_snapshot_take(storage, area, ".", &job, &err) && err.kind == ERROR_INVALID);
    CHECK(!storage_snapshot_take(storage, area, "", &job, &err) && err.kind == ERROR_INVALID);
    CHECK(storage_snapshot_list(storage, names, 4) == 1);
    CHECK_TEXT(names[0], "snp_a");
    CHECK(!storage_snapshot_remove(storage, "snp_b", &err) && err.kind == ERROR_NOT_FOUND);
}

static void test_snapshot(struct storage *storage)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE, again = STORAGE_AREA_NONE;
    struct storage_job *job = NULL;
    bool is_copy = strcmp(storage_kind(storage), "btrfs") != 0;
    uint64_t bytes = 0;
    int why = 0;
    CHECK(storage_area_make(storage, SLOT, BASE, 64 * MIB, &area, &err));
    write_all(&area);
    int upper = open_upper(&area, "root");
    CHECK(fixture_fill(upper, "large", 10 * MIB, &why) == 10 * MIB);
    CHECK(storage_snapshot_take(storage, &area, "snp_a", &job, &err) && job != NULL);
    CHECK(fixture_finish(job));
    check_names(storage, &area);
    CHECK(storage_snapshot_size(storage, "snp_a", &bytes, &err) && bytes > 10 * MIB && bytes < 12 * MIB);
    put(upper, "plain", "changed", 0600); /* the snapshot does not see it */
    close(upper);
    CHECK(restore(storage, OTHER, OTHER_BASE, 64 * MIB, "snp_a", &again, &err));
    check_all(&again, is_copy);
    CHECK(!restore(storage, OTHER + 1, BASE, 8 * MIB, "snp_a", &again, &err) && err.kind == ERROR_DISK_FULL);
    CHECK(!restore(storage, OTHER + 1, BASE, 8 * MIB, "snp_b", &again, &err) && err.kind == ERROR_NOT_FOUND);
    upper = open_upper(&again, "root");
    uint64_t went = storage_has_quota(storage) ? fixture_fill(upper, "more", 64 * MIB, &why) : 50 * MIB;
    CHECK(went > 44 * MIB && went < 54 * MIB); /* what it was restored with counts */
    close(upper);
    CHECK(storage_area_remove(storage, SLOT, &err));
    storage_area_close(&area);
    CHECK(storage_snapshot_remove(storage, "snp_a", &err) && !storage_snapshot_exists(storage, "snp_a"));
    check_all(&again, is_copy); /* goes on */
    CHECK(storage_area_remove(storage, OTHER, &err));
    storage_area_close(&again);
}

/* --- what is hostile --- */

static void dig(const struct storage_area *area, int depth)
{
    int at = open_upper(area, "root");
    for (int i = 0; i < depth && at >= 0; i++) {
        CHECK(mkdirat(at, "d", 0755) == 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    put(at, "bottom", "b", 0644);
    close(at);
}

static void test_depth(struct storage *storage, int depth, bool fits)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct storage_job *job = NULL;
    CHECK(storage_area_make(storage, SLOT, BASE, 64 * MIB, &area, &err));
    dig(&area, depth);
    CHECK(storage_snapshot_take(storage, &area, "snp_deep", &job, &err));
    CHECK(fixture_finish(job) == fits);
    CHECK(storage_snapshot_exists(storage, "snp_deep") == fits);
    if (fits)
        CHECK(storage_snapshot_remove(storage, "snp_deep", &err));
    CHECK(storage_area_remove(storage, SLOT, &err));
    storage_area_close(&area);
}

static void test_cancel(struct storage *storage)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct storage_job *job = NULL;
    char names[1][STORAGE_NAME_BYTES];
    CHECK(storage_area_make(storage, SLOT, BASE, 64 * MIB, &area, &err));
    CHECK(storage_snapshot_take(storage, &area, "snp_c", &job, &err) && job != NULL);
    storage_job_cancel(job);
    job_bury(storage, true); /* on a busy machine it dies later than is waited for, and may have made it by then */
    CHECK(!storage_snapshot_exists(storage, "snp_c") && storage_snapshot_list(storage, names, 1) == 0);
    CHECK(storage_snapshot_take(storage, &area, "snp_c", &job, &err) && job != NULL);
    struct pollfd through = {.fd = storage_job_fd(job), .events = POLLIN};
    CHECK(poll(&through, 1, 60000) == 1); /* it was made, but nobody has heard of it */
    storage_job_cancel(job);
    job_bury(storage, true); /* on a busy machine it dies later than is waited for, and may have made it by then */
    CHECK(!storage_snapshot_exists(storage, "snp_c") && storage_snapshot_list(storage, names, 1) == 0);
    CHECK(storage_snapshot_take(storage, &area, "snp_c", &job, &err) && fixture_finish(job));
    CHECK(storage_snapshot_remove(storage, "snp_c", &err));
    CHECK(storage_area_remove(storage, SLOT, &err));
    storage_area_close(&area);
}

/* --- volumes, and what is thrown away --- */

static void test_volume(struct storage *storage)
{
    struct error err = {0};
    struct stat status;
    char path[STORAGE_PATH_BYTES], again[STORAGE_PATH_BYTES];
    int why = 0;
    CHECK(storage_volume_open(storage, "v_1", 16 * MIB, path, &err));
    CHECK(stat(path, &status) == 0 && status.st_uid == STORAGE_VOLUME_OWNER && (status.st_mode & 07777) == 0755);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(fd, "kept", "k", 0644);
    uint64_t went = fixture_fill(fd, "large", 32 * MIB, &why);
    CHECK(strcmp(storage_kind(storage), "btrfs") == 0 ? went < 16 * MIB && (why == EDQUOT || why == ENOSPC)
                                                      : went == 32 * MIB);
    CHECK(storage_volume_open(storage, "v_1", 16 * MIB, again, &err));
    CHECK_TEXT(again, path);
    check_text(fd, "kept", "k");
    close(fd);
    CHECK(!storage_volume_open(storage, "V", MIB, again, &err) && err.kind == ERROR_INVALID);
    CHECK(!storage_volume_remove(storage, "v_2", &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(storage_volume_remove(storage, "v_1", &err) && access(path, F_OK) < 0);
}

static void test_trash(struct storage *storage)
{
    for (int i = 0; i < 3000 && storage_next_wake(storage) != 0; i++) {
        storage_wake(storage, clock_boot_ns());
        usleep(10000);
        char base[sizeof fixture_state + 64];
        snprintf(base, sizeof base, "%s/sandboxd/storage/plain/trash", fixture_state);
        if (rmdir(base) == 0) { /* empty */
            CHECK(mkdir(base, 0700) == 0);
            return;
        }
    }
    CHECK(!"the trash was emptied");
}

static void test_kind(const char *kind)
{
    struct storage *storage = fixture_open(kind, 2048 * MIB);
    CHECK(storage != NULL);
    if (storage == NULL)
        return;
    test_snapshot(storage);
    test_depth(storage, DEEP, true);
    test_volume(storage);
    test_cancel(storage);
    if (strcmp(kind, "btrfs") != 0) {
        test_depth(storage, TOO_DEEP, false);
        test_trash(storage);
    }
    storage_close(storage);
}

int main(void)
{
    fixture_begin();
    umask(0);
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (i > 0 || fixture_has_btrfs())
            test_kind(KINDS[i]);
    }
    fixture_end();
    return check_done();
}
