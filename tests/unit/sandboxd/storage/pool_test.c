/** pool_test.c - the pool in its file: found again while sandboxes hold it, never on two loop devices, grown, at its
 * end and at the end of the host's disk an error and no damage. */
#include "tests/unit/sandboxd/storage/fixture.h"

#include "shared/base/clock.h"

#include <dirent.h>
#include <linux/loop.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

enum { SLOT = 1, BASE = 1879048192 };

static const uint64_t GIB = 1ULL << 30;

static void image_path(char path[static 128])
{
    snprintf(path, 128, "%s/sandboxd/storage/pool.img", fixture_state);
}

static struct stat image_status(void)
{
    char path[128];
    struct stat status = {0};
    image_path(path);
    CHECK(stat(path, &status) == 0);
    return status;
}

/* How many loop devices have the image. */
static int count_devices(void)
{
    struct stat image = image_status();
    DIR *blocks = opendir("/sys/block");
    int count = 0;
    for (struct dirent *entry = readdir(blocks); entry; entry = readdir(blocks)) {
        char path[300];
        struct loop_info64 info;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        int fd = strncmp(entry->d_name, "loop", 4) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        count += fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == image.st_dev &&
                 info.lo_inode == image.st_ino;
        if (fd >= 0)
            close(fd);
    }
    closedir(blocks);
    return count;
}

/* 0 when the kernel's own tool finds no fault in the image that nobody has. */
static int fsck(void)
{
    char command[300];
    for (int i = 0; i < 500 && count_devices() > 0; i++)
        usleep(20000); /* the device goes a moment after its last user */
    CHECK(count_devices() == 0);
    snprintf(command, sizeof command, "btrfs check --readonly %s/sandboxd/storage/pool.img >/dev/null 2>&1",
             fixture_state);
    return system(command); // NOLINT(concurrency-mt-unsafe)
}

/* --- kill -9 with a sandbox --- */

struct told {
    int failures;
    pid_t sandbox;
};

/* A launcher: makes an area, has a "sandbox" hold it from a mount namespace of its own, dies. */
__attribute__((noreturn)) static void launcher_that_dies(int tell)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    CHECK(unshare(CLONE_NEWNS) == 0);
    struct storage *storage = fixture_open("btrfs", 2 * GIB);
    CHECK(storage && storage_area_make(storage, SLOT, BASE, 64 * MIB, &area, &err));
    pid_t sandbox = fork();
    if (sandbox == 0) {
        CHECK(unshare(CLONE_NEWNS) == 0 && chdir(area.path) == 0);
        int fd = open("root/upper/written", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        CHECK(write(fd, "before", 6) == 6);
        for (int file = 3; file < 64; file++) /* the launcher's: else it, not the mount, would hold the device */
            close(file == tell ? -1 : file);
        const struct told told = {.failures = check_failures, .sandbox = getpid()};
        CHECK(write(tell, &told, sizeof told) == sizeof told);
        pause();
        _exit(0);
    }
    for (;;)
        pause();
}

static void check_adopted(void)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    char text[8] = "";
    struct storage *storage = fixture_open("btrfs", 2 * GIB);
    CHECK(storage != NULL);
    if (storage == NULL)
        return;
    CHECK(count_devices() == 1);
    CHECK(storage_area_adopt(storage, SLOT, BASE, -1, 0, &area, &err));
    int fd = fixture_area(&area), file = openat(fd, "root/upper/written", O_RDONLY | O_CLOEXEC);
    CHECK(read(file, text, sizeof text) == 6); /* never synced: it is the same file system */
    close(file);
    close(fd);
    CHECK(storage_area_limit(storage, &area, 32 * MIB, &err));
    CHECK(storage_area_remove(storage, SLOT, &err));
    storage_close(storage);
}

static void check_adopted_again(void)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct storage *storage = fixture_open("btrfs", 2 * GIB);
    CHECK(storage && !storage_area_adopt(storage, SLOT, BASE, -1, 0, &area, &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(storage && storage_area_make(storage, SLOT, BASE, 64 * MIB, &area, &err));
    storage_close(storage);
}

static void test_killed(void)
{
    int ends[2];
    struct told told = {.failures = -1};
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t launcher = fork();
    check_failures = launcher == 0 ? 0 : check_failures;
    if (launcher == 0)
        launcher_that_dies(ends[1]);
    close(ends[1]);
    CHECK(read(ends[0], &told, sizeof told) == sizeof told && told.failures == 0);
    kill(launcher, SIGKILL);
    CHECK(waitpid(launcher, NULL, 0) == launcher);
    CHECK(count_devices() == 1);
    check_adopted();
    CHECK(count_devices() == 1); /* the sandbox has it still */
    check_adopted_again();
    if (told.sandbox > 0)
        kill(told.sandbox, SIGKILL);
    CHECK(fsck() == 0);
}

/* --- another's device --- */

static void test_foreign_device(void)
{
    struct error err = {0};
    char command[300];
    const struct storage_options options = {.kind = "btrfs", .state_folder = fixture_state, .pool_bytes_max = GIB};
    struct storage *storage = fixture_open("btrfs", GIB);
    CHECK(storage != NULL);
    storage_close(storage);
    CHECK(fsck() == 0);
    snprintf(command, sizeof command, "losetup -f %s/sandboxd/storage/pool.img", fixture_state);
    CHECK(system(command) == 0); // NOLINT(concurrency-mt-unsafe)
    CHECK(storage_open(&options, &err) == NULL && err.kind == ERROR_CONFLICT && count_devices() == 1);
    snprintf(command, sizeof command, "losetup -d $(losetup -j %s/sandboxd/storage/pool.img -O NAME -n)",
             fixture_state);
    CHECK(system(command) == 0); // NOLINT(concurrency-mt-unsafe)
}

/* --- growing --- */

static void reserve(const struct storage_area *area, const char *name, uint64_t bytes, int want)
{
    int fd = fixture_area(area), file = openat(fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        fprintf(stderr, "open %s: %s\n", name, strerror(errno));
    int why = file >= 0 && fallocate(file, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    CHECK(why == want || (want == ENOSPC && why == EDQUOT));
    if (why != want)
        fprintf(stderr, "%s: %s, pool of %lld MiB\n", name, strerror(why), (long long)image_status().st_size >> 20);
    close(file);
    close(fd);
}

static void check_files_can_be_made(const struct storage_area *area)
{
    int why = 0, fd = fixture_area(area);
    for (int i = 0; i < 2000; i++) {
        char name[32];
        snprintf(name, sizeof name, "root/upper/%d", i);
        CHECK(fixture_fill(fd, name, 1000, &why) == 1000 && why == 0);
    }
    close(fd);
}

static void test_growth(void)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct storage *storage = fixture_open("btrfs", 4 * GIB);
    if (storage == NULL)
        return;
    CHECK((uint64_t)image_status().st_size == GIB);
    CHECK(storage_area_make(storage, SLOT, BASE, 8 * GIB, &area, &err));
    CHECK((uint64_t)image_status().st_size == 4 * GIB); /* as large as it may be */
    storage_close(storage);
    storage = fixture_open("btrfs", 8 * GIB); /* may be more now */
    CHECK(storage_area_adopt(storage, SLOT, BASE, -1, 0, &area, &err));
    reserve(&area, "root/upper/a", 3 * GIB, 0);
    for (int i = 0; i < 3; i++)
        storage_wake(storage, clock_boot_ns() + 60000000000ULL);
    struct stat image = image_status();
    CHECK((uint64_t)image.st_size >= 5 * GIB && (uint64_t)image.st_blocks * 512 >= (uint64_t)image.st_size);
    reserve(&area, "root/upper/b", GIB, 0);
    reserve(&area, "root/upper/c", 3 * GIB, ENOSPC);
    check_files_can_be_made(&area); /* data has not taken what the trees need */
    storage_close(storage);
    CHECK(fsck() == 0);
}

/* --- the end of the host's disk --- */

static bool mount_small_host(const char *folder, const char *size)
{
    char command[400];
    snprintf(command, sizeof command,
             "truncate -s %s %s.ext4 && mkfs.ext4 -q -m 0 %s.ext4 && mount -o loop %s.ext4 %s 2>/dev/null", size,
             folder, folder, folder, folder);
    return system(command) == 0; // NOLINT(concurrency-mt-unsafe)
}

static void fill_host(void)
{
    int why = 0, fd = open(fixture_state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file = openat(fd, "full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    off_t at = 0;
    for (off_t step = 256 << 20; step >= 4096; step /= 2) {
        while (fallocate(file, 0, at, step) == 0)
            at += step;
    }
    CHECK(fixture_fill(fd, "fuller", MIB, &why) < MIB && why == ENOSPC);
    close(file);
    close(fd);
}

static void check_full_host(struct storage *storage)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct storage_job *job = NULL;
    int why = 0;
    CHECK(storage_area_make(storage, SLOT, BASE, 8 * GIB, &area, &err));
    CHECK((uint64_t)image_status().st_size < 3 * GIB);
    fill_host();
    int fd = fixture_area(&area);
    CHECK(fixture_fill(fd, "root/upper/kept", 16 * MIB, &why) == 16 * MIB && why == 0);
    for (int i = 0; i < 200 && why == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "root/upper/%d", i);
        uint64_t went = fixture_fill(fd, name, 16 * MIB, &why);
        CHECK(went == 16 * MIB || why == ENOSPC);
        storage_wake(storage, clock_boot_ns() + 60000000000ULL);
    }
    CHECK(why == ENOSPC); /* and not EIO or EROFS */
    CHECK(unlinkat(fd, "root/upper/0", 0) == 0 && unlinkat(fd, "root/upper/1", 0) == 0 && syncfs(fd) == 0);
    CHECK(fixture_fill(fd, "root/upper/again", 8 * MIB, &why) == 8 * MIB && why == 0);
    CHECK(storage_snapshot_take(storage, &area, "snp_full", &job, &err) || err.kind == ERROR_DISK_FULL);
    close(fd);
}

static void test_full_host(void)
{
    char big[sizeof fixture_state];
    memcpy(big, fixture_state, sizeof big);
    strcat(fixture_state, "/h");
    CHECK(mkdir(fixture_state, 0700) == 0);
    if (!mount_small_host(fixture_state, "2400M")) {
        printf("no small host: mkfs.ext4 or a loop device is missing\n");
        memcpy(fixture_state, big, sizeof big);
        return;
    }
    struct storage *storage = fixture_open("btrfs", 8 * GIB);
    CHECK(storage != NULL);
    if (storage)
        check_full_host(storage);
    storage_close(storage);
    CHECK(fsck() == 0);
    storage = fixture_open("btrfs", 8 * GIB); /* a full disk keeps nobody from starting */
    CHECK(storage != NULL);
    storage_close(storage);
    CHECK(fsck() == 0);
    CHECK(umount(fixture_state) == 0);
    memcpy(fixture_state, big, sizeof big);
}

static void test_too_small(void)
{
    struct error err = {0};
    struct storage_options options = {.kind = "btrfs", .state_folder = fixture_state, .pool_bytes_max = 64 * MIB};
    CHECK(storage_open(&options, &err) == NULL && err.kind == ERROR_DISK_FULL);
    options.kind = "auto";
    struct storage *storage = storage_open(&options, &err);
    CHECK(storage != NULL);
    if (storage)
        CHECK_TEXT(storage_kind(storage), "tmpfs");
    storage_close(storage);
}

/* Each in a folder of its own, so that none meets what another left. */
static void in_child(void (*test)(void))
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        check_failures = 0;
        fixture_begin();
        test();
        fflush(NULL);
        fixture_end();
        _exit(check_done());
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    if (geteuid() != 0)
        check_skip("needs root");
    if (!fixture_has_btrfs())
        check_skip("no btrfs");
    in_child(test_too_small);
    in_child(test_foreign_device);
    in_child(test_growth);
    in_child(test_full_host);
    in_child(test_killed);
    return check_done();
}
