/** quota_test.c - attacks on a sandbox's disk limit, through what a sandbox has: an overlay in its own user namespace
 * on an idmapped area, as uid 1000 there. What counts is what the pool's disk has lost, not what the kernel tells. Each
 *  attack first works where nothing limits it. */
#include "tests/unit/sandboxd/storage/fixture.h"

#include "shared/base/clock.h"

#include <btrfsutil.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

enum { SLOT = 9, BASE = 1879048192, USER = 1000, PIECE = 1 << 20, TRIES = 40000 };

#define LIMIT (24 * MIB)
#define ROOMY (512 * MIB)
#define SLACK (LIMIT / 4) /* trees that are nobody's: checksums, extents */

static char piece[PIECE];

/* --- a sandbox's view --- */

static void write_map(pid_t pid, const char *file)
{
    char path[64], map[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    snprintf(map, sizeof map, "0 %u 65536\n", (unsigned)BASE);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map));
    close(fd);
}

static int open_user_namespace(void)
{
    char path[64];
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char ready = unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';
        if (write(ends[1], &ready, 1) == 1)
            pause();
        _exit(0);
    }
    char ready = 0;
    CHECK(read(ends[0], &ready, 1) == 1 && ready == 'y');
    write_map(pid, "uid_map");
    write_map(pid, "gid_map");
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    close(ends[0]);
    close(ends[1]);
    return fd;
}

static int open_idmapped(const char *path, int user_namespace)
{
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | O_CLOEXEC);
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                                    .userns_fd = (unsigned)user_namespace};
    CHECK(tree >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0);
    return tree;
}

static bool become(int user_namespace, uid_t user)
{
    return setns(user_namespace, CLONE_NEWUSER) == 0 && setgid(0) == 0 && setuid(0) == 0 && unshare(CLONE_NEWNS) == 0 &&
           (user == 0 || user == USER);
}

/* In a child: / of an overlay on the area; 0 when that is so. */
static int enter_overlay(int user_namespace, int area, int lower)
{
    if (!become(user_namespace, USER) || mount("tmp", "/mnt", "tmpfs", 0, NULL) < 0 || mkdir("/mnt/area", 0755) < 0 ||
        mkdir("/mnt/lower", 0755) < 0 || mkdir("/mnt/new", 0755) < 0)
        return 1;
    if (syscall(SYS_move_mount, area, "", AT_FDCWD, "/mnt/area", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        syscall(SYS_move_mount, lower, "", AT_FDCWD, "/mnt/lower", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return 2;
    if (mount("overlay", "/mnt/new", "overlay", MS_NOSUID | MS_NODEV,
              "lowerdir=/mnt/lower,upperdir=/mnt/area/root/upper,workdir=/mnt/area/root/work,userxattr") < 0)
        return 3;
    if (chdir("/mnt/new") < 0 || mkdir("tenant", 0777) < 0 || chmod("tenant", 0777) < 0 || chdir("tenant") < 0)
        return 4;
    return setgid(USER) == 0 && setuid(USER) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : 5;
}

/* --- attacks: in the child, in a folder that it may write; each ends when the kernel says no, or has had enough --- */

static void write_until(int fd, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes; done += PIECE) {
        if (write(fd, piece, PIECE) < 0)
            return;
    }
}

static int open_new(char kind, int number)
{
    char name[32];
    snprintf(name, sizeof name, "%c%d", kind, number);
    return open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
}

static void attack_dd(void)
{
    int fd = open_new('d', 0);
    write_until(fd, 4 * LIMIT);
}

static void attack_without_sync_then_sync(void)
{
    for (int i = 0; i < 8; i++) {
        int fd = open_new('s', i);
        write_until(fd, LIMIT / 2);
        fsync(fd);
        close(fd);
    }
}

static void attack_small_files(void)
{
    for (int i = 0; i < TRIES; i++) {
        int fd = open_new('f', i);
        if (fd < 0 || write(fd, piece, 1500) < 0)
            return;
        close(fd);
    }
}

static void attack_names(void)
{
    char name[256], first[] = "n0";
    close(open_new('n', 0));
    for (int i = 0; i < TRIES; i++) {
        memset(name, 'a', sizeof name - 1);
        name[snprintf(name, sizeof name, "%d", i)] = 'a';
        name[255] = '\0';
        if (i % 60000 == 59999)
            close(open(first, O_CREAT | O_CLOEXEC, 0644));
        if ((link(first, name) < 0 && errno == EMLINK ? mkdir(name, 0755) : 0) < 0)
            return;
        if (access(name, F_OK) < 0)
            return;
    }
}

static void attack_attributes(void)
{
    for (int i = 0; i < TRIES / 4; i++) {
        int fd = open_new('x', i);
        if (fd < 0)
            return;
        for (int k = 0; k < 4; k++) {
            char name[32];
            snprintf(name, sizeof name, "user.a%d", k);
            if (fsetxattr(fd, name, piece, 3500, 0) < 0 && k == 0) {
                close(fd);
                return;
            }
        }
        close(fd);
    }
}

static void attack_sparse(void)
{
    int fd = open_new('s', 0);
    for (off_t i = 0; i < TRIES; i++) {
        if (pwrite(fd, piece, 4096, i << 24) < 0)
            return;
    }
}

static void attack_fallocate(void)
{
    for (int i = 0; i < 64; i++) {
        int fd = open_new('f', i);
        if (fallocate(fd, i % 2 ? FALLOC_FL_KEEP_SIZE : 0, 0, 4 * PIECE) < 0 && i > 8)
            return;
        close(fd);
    }
}

/* Extents live as long as one block of them is used. */
static void attack_punch(void)
{
    for (int i = 0; i < 64; i++) {
        int fd = open_new('p', i);
        for (int k = 0; k < 8; k++) {
            if (write(fd, piece, PIECE) < 0)
                break;
        }
        fsync(fd);
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8 * PIECE - 8192);
        close(fd);
    }
}

static void attack_truncate(void)
{
    for (int i = 0; i < 64; i++) {
        int fd = open_new('t', i);
        write_until(fd, 8 * MIB);
        fsync(fd);
        if (ftruncate(fd, 4096) < 0 || ftruncate(fd, 1LL << 40) < 0)
            return;
        close(fd);
    }
}

static void attack_reflink(void)
{
    int first = open_new('r', 0);
    write_until(first, 8 * MIB);
    fsync(first);
    for (int i = 1; i < 64; i++) {
        int fd = open_new('r', i);
        ioctl(fd, FICLONE, first);
        for (off_t at = 0; at < (off_t)(8 * MIB); at += 4096 * 4) {
            if (pwrite(fd, piece + i, 4096, at) < 0)
                break;
        }
        close(fd);
    }
}

static void attack_unlinked(void)
{
    for (int i = 0; i < 64; i++) {
        int fd = open_new('u', i);
        char name[16];
        snprintf(name, sizeof name, "u%d", i);
        unlink(name);
        write_until(fd, 8 * MIB);
    }
    sync();
}

static sigjmp_buf on_bus;

static void hit_bus(int number)
{
    (void)number;
    siglongjmp(on_bus, 1);
}

static void attack_mmap(void)
{
    int fd = open_new('m', 0);
    if (ftruncate(fd, 4 * (off_t)LIMIT) < 0)
        return;
    volatile char *map = mmap(NULL, 4 * LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    signal(SIGBUS, hit_bus);
    if (sigsetjmp(on_bus, 1) == 0) {
        for (uint64_t at = 0; at < 4 * LIMIT; at += 4096)
            map[at] = 1;
    }
    fsync(fd);
}

static void attack_no_cow(void)
{
    for (int i = 0; i < 64; i++) {
        int fd = open_new('c', i), flags = FS_NOCOW_FL;
        ioctl(fd, FS_IOC_SETFLAGS, &flags);
        fallocate(fd, 0, 0, 8 * PIECE);
        write_until(fd, 8 * MIB);
        close(fd);
    }
}

static void attack_temporary(void)
{
    for (int i = 0; i < 32; i++)
        write_until(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), 8 * MIB);
    sync();
}

/* Not an attack: a full disk is no dead end. What was written can be removed, and is room again. */
static void fill_and_remove(void)
{
    for (int i = 0; i < 64; i++)
        write_until(open_new('k', i), 2 * MIB);
    for (int i = 0; i < 64; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        unlink(name);
    }
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    for (int i = 0; i < 200 && access("room", F_OK) < 0; i++) { /* as soon as the kernel has counted */
        int fd = open("again", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd >= 0 && write(fd, piece, PIECE) == PIECE && fsync(fd) == 0)
            rename("again", "room");
        close(fd);
        usleep(50000);
    }
}

struct attack {
    const char *name;
    void (*run)(void);
};

static const struct attack ATTACKS[] = {
    {"dd", attack_dd},
    {"dd and sync", attack_without_sync_then_sync},
    {"many small files", attack_small_files},
    {"many names", attack_names},
    {"attributes", attack_attributes},
    {"sparse files", attack_sparse},
    {"fallocate", attack_fallocate},
    {"punched holes", attack_punch},
    {"truncate", attack_truncate},
    {"reflinks", attack_reflink},
    {"unlinked but open", attack_unlinked},
    {"mmap", attack_mmap},
    {"no copy on write", attack_no_cow},
    {"files without a name", attack_temporary},
};

enum { ATTACKS_COUNT = sizeof ATTACKS / sizeof ATTACKS[0] };

/* --- the field --- */

/* Areas that were removed give their blocks back in their own time. */
static void wait_for_removals(int pool)
{
    for (int i = 0; i < 6000; i++) {
        uint64_t *ids = NULL;
        size_t count = 0;
        CHECK(btrfs_util_deleted_subvolumes_fd(pool, &ids, &count) == BTRFS_UTIL_OK);
        free(ids);
        if (count == 0)
            return;
        CHECK(btrfs_util_sync_fd(pool) == BTRFS_UTIL_OK);
        usleep(10000);
    }
    CHECK(!"removed areas go");
}

static uint64_t used_of_disk(void)
{
    char path[128];
    struct statfs disk = {0};
    snprintf(path, sizeof path, "%s/sandboxd/storage/pool", fixture_state);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    wait_for_removals(fd);
    CHECK(syncfs(fd) == 0 && syncfs(fd) == 0 && fstatfs(fd, &disk) == 0);
    close(fd);
    return (uint64_t)(disk.f_blocks - disk.f_bfree) * (uint64_t)disk.f_bsize;
}

static void check_room(const struct storage_area *area)
{
    struct stat status = {0};
    int fd = fixture_area(area);
    CHECK(fstatat(fd, "root/upper/tenant/room", &status, 0) == 0 && status.st_size == PIECE);
    close(fd);
}

/* Runs it in an overlay; what the disk has lost meanwhile, while the attacker still lives. */
static uint64_t attack(struct storage *storage, const struct attack *attack, uint64_t limit)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    int ends[2], user_namespace = open_user_namespace(), result = -1;
    char lower[128];
    CHECK(storage_area_make(storage, SLOT, BASE, limit, &area, &err));
    uint64_t before = used_of_disk();
    snprintf(lower, sizeof lower, "%s/lower", fixture_state);
    mkdir(lower, 0755);
    int area_tree = open_idmapped(area.path, user_namespace), lower_tree = open_idmapped(lower, user_namespace);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        result = enter_overlay(user_namespace, area_tree, lower_tree);
        if (dup2(ends[1], 300) != 300)
            _exit(1);
        if (result == 0)
            attack->run();
        if (write(300, &result, sizeof result) == sizeof result)
            pause();
        _exit(0);
    }
    close(ends[1]);
    CHECK(read(ends[0], &result, sizeof result) == sizeof result && result == 0);
    if (attack->run == fill_and_remove)
        check_room(&area);
    uint64_t after = used_of_disk(), told = 0;
    CHECK(storage_area_usage(storage, &area, &told, &err) && told <= limit + MIB);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    close(ends[0]);
    close(area_tree);
    close(lower_tree);
    close(user_namespace);
    CHECK(storage_area_remove(storage, SLOT, &err));
    return after > before ? after - before : 0;
}

static void test_attacks(struct storage *storage)
{
    const struct attack full = {"full, then rm", fill_and_remove};
    CHECK(attack(storage, &full, LIMIT) <= LIMIT / 4);
    for (size_t i = 0; i < ATTACKS_COUNT; i++) {
        uint64_t freely = attack(storage, &ATTACKS[i], ROOMY), held = attack(storage, &ATTACKS[i], LIMIT);
        printf("%-22s %4llu MiB without a limit, %3llu MiB with %llu\n", ATTACKS[i].name,
               (unsigned long long)(freely / MIB), (unsigned long long)(held / MIB), (unsigned long long)(LIMIT / MIB));
        CHECK(freely > LIMIT + SLACK); /* it does work as an attack */
        CHECK(held <= LIMIT + SLACK);
        CHECK(held > LIMIT / 4); /* and went on until the limit */
    }
}

/* --- the ioctls of btrfs --- */

struct escape {
    bool made_subvolume, made_snapshot, changed_limit, disabled_quota;
};

static void try_ioctls(struct escape *got)
{
    struct btrfs_ioctl_vol_args volume = {.name = "loose"};
    int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct btrfs_ioctl_vol_args_v2 snapshot = {.fd = folder, .name = "copy"};
    struct btrfs_ioctl_qgroup_limit_args limit = {
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = UINT64_MAX}};
    struct btrfs_ioctl_quota_ctl_args off = {.cmd = BTRFS_QUOTA_CTL_DISABLE};
    got->made_subvolume = ioctl(folder, BTRFS_IOC_SUBVOL_CREATE, &volume) == 0;
    got->made_snapshot = ioctl(folder, BTRFS_IOC_SNAP_CREATE_V2, &snapshot) == 0;
    got->changed_limit = ioctl(folder, BTRFS_IOC_QGROUP_LIMIT, &limit) == 0;
    got->disabled_quota = ioctl(folder, BTRFS_IOC_QUOTA_CTL, &off) == 0;
}

static struct escape escape_from(struct storage *storage, bool bare)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct escape got = {0};
    int ends[2], user_namespace = open_user_namespace();
    char lower[128];
    snprintf(lower, sizeof lower, "%s/lower", fixture_state);
    CHECK(storage_area_make(storage, SLOT, BASE, LIMIT, &area, &err));
    int tree = open_idmapped(area.path, user_namespace), lower_tree = open_idmapped(lower, user_namespace);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool there = bare ? fchdir(tree) == 0 && chdir("root/upper") == 0 && chmod(".", 0777) == 0 &&
                                become(user_namespace, USER) && setgid(USER) == 0 && setuid(USER) == 0
                          : enter_overlay(user_namespace, tree, lower_tree) == 0;
        if (there)
            try_ioctls(&got);
        _exit(there && write(ends[1], &got, sizeof got) == sizeof got ? 0 : 1);
    }
    close(ends[1]);
    CHECK(read(ends[0], &got, sizeof got) == sizeof got);
    CHECK(waitpid(pid, NULL, 0) == pid);
    close(ends[0]);
    close(tree);
    close(lower_tree);
    close(user_namespace);
    CHECK(storage_area_remove(storage, SLOT, &err)); /* also with a loose subvolume in it */
    CHECK(access(area.path, F_OK) < 0);
    return got;
}

static void test_ioctls(struct storage *storage)
{
    struct escape bare = escape_from(storage, true), overlay = escape_from(storage, false);
    CHECK(bare.made_subvolume && !bare.changed_limit && !bare.disabled_quota);
    CHECK(!overlay.made_subvolume && !overlay.made_snapshot && !overlay.changed_limit && !overlay.disabled_quota);
}

/* --- that the kernel goes on counting --- */

static void check_counting(const char *name, const char *want)
{
    char command[200];
    snprintf(command, sizeof command,
             "id=$(findmnt -n -o UUID %s/sandboxd/storage/pool) && grep -qx %s /sys/fs/btrfs/$id/qgroups/%s",
             fixture_state, want, name);
    CHECK(system(command) == 0); // NOLINT(concurrency-mt-unsafe)
}

static bool is_counting(void)
{
    char command[200];
    snprintf(command, sizeof command,
             "id=$(findmnt -n -o UUID %s/sandboxd/storage/pool) && grep -qx 0 /sys/fs/btrfs/$id/qgroups/inconsistent",
             fixture_state);
    return system(command) == 0; // NOLINT(concurrency-mt-unsafe)
}

/* Removes the group of an area that is just going; true when that was met while it counted still. */
static bool make_it_give_up(struct storage *storage, int pool)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct btrfs_ioctl_qgroup_create_args group = {.create = 0};
    uint64_t id = 0;
    int why = 0, result = -1;
    CHECK(storage_area_make(storage, SLOT, BASE, ROOMY, &area, &err));
    int fd = fixture_area(&area);
    CHECK(fixture_fill(fd, "root/upper/f", MIB, &why) == MIB && btrfs_util_subvolume_id_fd(fd, &id) == BTRFS_UTIL_OK);
    CHECK(btrfs_util_sync_fd(fd) == BTRFS_UTIL_OK);
    close(fd);
    CHECK(storage_area_remove(storage, SLOT, &err));
    group.qgroupid = id;
    CHECK(btrfs_util_sync_fd(pool) == BTRFS_UTIL_OK); /* wakes what cleans */
    for (int i = 0; i < 200000 && result < 0; i++) {
        result = ioctl(pool, BTRFS_IOC_QGROUP_CREATE, &group);
        if (result < 0 && errno != EBUSY)
            return false;
    }
    return !is_counting();
}

/* Should the kernel give up counting, it is made to count again. */
static void test_recount(struct storage *storage)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    int why = 0;
    char path[128];
    snprintf(path, sizeof path, "%s/sandboxd/storage/pool", fixture_state);
    int pool = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), tries = 0;
    while (tries < 100 && !make_it_give_up(storage, pool))
        tries++;
    close(pool);
    if (tries == 100)
        printf("this kernel was not to be made to give up counting\n");
    for (int i = 0; i < 3000 && !is_counting(); i++) {
        storage_wake(storage, clock_boot_ns() + 60000000000ULL);
        usleep(10000);
    }
    CHECK(is_counting());
    CHECK(storage_area_make(storage, SLOT, BASE, LIMIT, &area, &err));
    int fd = fixture_area(&area);
    CHECK(fixture_fill(fd, "root/upper/f", 2 * LIMIT, &why) <= LIMIT && (why == EDQUOT || why == ENOSPC));
    close(fd);
    CHECK(storage_area_remove(storage, SLOT, &err));
}

/* Groups of removed areas are forgotten while others are just going: that must not end the counting for all. */
static void test_forgetting(struct storage *storage)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    int why = 0;
    for (uint32_t i = 0; i < 200; i++) {
        CHECK(storage_area_make(storage, SLOT + i % 3, BASE, LIMIT, &area, &err));
        int fd = fixture_area(&area);
        CHECK(fixture_fill(fd, "root/upper/f", 256 * 1024ULL, &why) == 256 * 1024ULL);
        CHECK(i % 16 != 0 || btrfs_util_sync_fd(fd) == BTRFS_UTIL_OK);
        close(fd);
        CHECK(storage_area_remove(storage, SLOT + i % 3, &err));
        storage_wake(storage, clock_boot_ns() + i * 60000000000ULL); /* each is due */
    }
    (void)used_of_disk();
    storage_wake(storage, clock_boot_ns() + 20000000000000ULL);
    CHECK(is_counting());
}

int main(void)
{
    fixture_begin();
    if (!fixture_has_btrfs())
        check_skip("no btrfs");
    for (size_t i = 0; i < sizeof piece; i++)
        piece[i] = (char)(i * 2654435761U >> 11);
    struct storage *storage = fixture_open("btrfs", 4096 * MIB);
    CHECK(storage != NULL);
    if (storage) {
        test_forgetting(storage);
        test_attacks(storage);
        test_ioctls(storage);
        check_counting("inconsistent", "0");
        check_counting("drop_subtree_threshold", "8");
        check_counting("mode", "qgroup");
        test_recount(storage);
    }
    storage_close(storage);
    fixture_end();
    return check_done();
}
