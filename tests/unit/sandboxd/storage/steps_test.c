/** steps_test.c - kill -9 before each system call by which a launcher changes its storage: the next one opens
 *  it, finds each snapshot whole or not at all, uses the same slots again, and nothing is left behind. */
#include "tests/unit/sandboxd/storage/fixture.h"

#include "shared/base/clock.h"

#include <dirent.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SLOT = 2, BASE = 1879048192, STEPS_MAX = 2000, OPENED = 200 };

static const char CONTENT[] = "all of it";

/* What changes something that outlives the caller, or that another may wait for. */
static const uint64_t CHANGES[] = {
#ifdef SYS_mkdir
    SYS_mkdir,   SYS_rename,    SYS_unlink,   SYS_rmdir,     SYS_chmod,     SYS_vfork,
#endif
    SYS_mkdirat, SYS_renameat2, SYS_unlinkat, SYS_fallocate, SYS_ftruncate, SYS_ioctl,
    SYS_mount,   SYS_umount2,   SYS_fchmodat, SYS_fchownat,  SYS_fchown,    SYS_fchmod,
    SYS_flock,   SYS_fsync,     SYS_fsconfig, SYS_fsmount,   SYS_clone};

/* --- a launcher's life --- */

static bool put_content(const struct storage_area *area)
{
    int fd = fixture_area(area), file = openat(fd, "root/upper/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool ok = write(file, CONTENT, sizeof CONTENT) == sizeof CONTENT;
    close(file);
    close(fd);
    return ok;
}

static bool has_content(const struct storage_area *area)
{
    char text[sizeof CONTENT] = "";
    int fd = fixture_area(area), file = openat(fd, "root/upper/f", O_RDONLY | O_CLOEXEC);
    bool ok = read(file, text, sizeof text) == sizeof text && memcmp(text, CONTENT, sizeof text) == 0;
    close(file);
    close(fd);
    return ok;
}

static void live(const char *kind)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE, again = STORAGE_AREA_NONE;
    struct storage_job *job = NULL;
    char path[STORAGE_PATH_BYTES];
    struct storage *storage = fixture_open(kind, 512 * MIB);
    if (storage == NULL)
        _exit(1);
    bool ok = storage_area_make(storage, SLOT, BASE, 16 * MIB, &area, &err) && put_content(&area) &&
              storage_snapshot_take(storage, &area, "snp_s", &job, &err) && fixture_finish(job) &&
              storage_area_restore(storage, SLOT + 1, BASE, 16 * MIB, "snp_s", &again, &job, &err) &&
              fixture_finish(job) && has_content(&again) && storage_volume_open(storage, "v_s", 16 * MIB, path, &err) &&
              (!storage_has_quota(storage) || storage_area_limit(storage, &again, 32 * MIB, &err)) &&
              storage_snapshot_remove(storage, "snp_s", &err) && storage_volume_remove(storage, "v_s", &err) &&
              storage_area_remove(storage, SLOT, &err) && storage_area_remove(storage, SLOT + 1, &err);
    for (int i = 0; i < 3; i++)
        storage_wake(storage, clock_boot_ns());
    storage_close(storage);
    if (!ok)
        fprintf(stderr, "a life: %s\n", err.message);
    _exit(ok ? OPENED : 1);
}

/* --- the next one --- */

static bool is_empty(const char *folder)
{
    char path[160];
    int count = 0;
    snprintf(path, sizeof path, "%s/sandboxd/storage/%s", fixture_state, folder);
    DIR *names = opendir(path);
    while (names && readdir(names))
        count++;
    if (names)
        closedir(names);
    return count <= 2;
}

static bool is_clean(const char *base)
{
    static const char *const NAMES[] = {"areas", "snapshots", "volumes", "trash"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "%s/%s", base, NAMES[i]);
        if (!is_empty(folder))
            return false;
    }
    return true;
}

static void check_snapshot(struct storage *storage)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    struct storage_job *job = NULL;
    char names[4][STORAGE_NAME_BYTES];
    size_t count = storage_snapshot_list(storage, names, 4);
    CHECK(count == (storage_snapshot_exists(storage, "snp_s") ? 1 : 0));
    if (count == 0)
        return;
    CHECK(storage_area_restore(storage, SLOT + 2, BASE, 16 * MIB, "snp_s", &area, &job, &err) && fixture_finish(job));
    CHECK(has_content(&area));
    CHECK(storage_area_remove(storage, SLOT + 2, &err) && storage_snapshot_remove(storage, "snp_s", &err));
    storage_area_close(&area);
}

static void check_volume(struct storage *storage)
{
    struct error err = {0};
    struct stat status = {0};
    char path[STORAGE_PATH_BYTES];
    CHECK(storage_volume_open(storage, "v_s", 16 * MIB, path, &err)); /* there or not */
    CHECK(stat(path, &status) == 0 && status.st_uid == STORAGE_VOLUME_OWNER && (status.st_mode & 07777) == 0755);
    CHECK(storage_volume_remove(storage, "v_s", &err));
}

static void check_next(const char *kind)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE;
    const char *base = strcmp(kind, "btrfs") == 0 ? "pool" : "plain";
    CHECK(unshare(CLONE_NEWNS) == 0);
    struct storage *storage = fixture_open(kind, 512 * MIB);
    CHECK(storage != NULL);
    if (storage == NULL)
        return;
    check_snapshot(storage);
    check_volume(storage);
    for (uint32_t slot = SLOT; slot < SLOT + 2; slot++) {
        CHECK(storage_area_make(storage, slot, BASE, 16 * MIB, &area, &err));
        CHECK(put_content(&area) && storage_area_remove(storage, slot, &err));
        storage_area_close(&area);
    }
    for (int i = 0; i < 3000 && !is_clean(base); i++) {
        storage_wake(storage, clock_boot_ns());
        usleep(10000);
    }
    CHECK(is_clean(base));
    storage_close(storage);
}

/* --- killing --- */

static bool is_change(uint64_t number)
{
    for (size_t i = 0; i < sizeof CHANGES / sizeof CHANGES[0]; i++) {
        if (CHANGES[i] == number)
            return true;
    }
    return false;
}

/* True when it was killed before the `step`th change. */
static bool kill_at(pid_t pid, int step)
{
    int status = 0, met = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
    for (long signal = 0;;) {
        CHECK(ptrace(PTRACE_SYSCALL, pid, 0, signal) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (!WIFSTOPPED(status))
            break;
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        signal = is_call ? 0 : WSTOPSIG(status);
        struct __ptrace_syscall_info call = {0};
        if (!is_call || ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, &call) < 0 ||
            call.op != PTRACE_SYSCALL_INFO_ENTRY || !is_change(call.entry.nr))
            continue;
        if (++met == step) {
            kill(pid, SIGKILL);
            CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
            return true;
        }
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == OPENED);
    return false;
}

static bool one_step(const char *kind, int step)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 || ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
            _exit(1);
        raise(SIGSTOP);
        live(kind);
    }
    bool was_killed = kill_at(pid, step);
    pid = fork();
    if (pid == 0) {
        check_failures = 0;
        check_next(kind);
        _exit(check_done());
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (check_failures)
        fprintf(stderr, "%s: after step %d\n", kind, step);
    return was_killed;
}

static void remove_pool(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s/sandboxd", fixture_state);
    CHECK(fd_remove_tree(path, NULL));
}

/* `fresh`: of each life the pool is the first. */
static void test_steps(const char *kind, int first, int most, bool fresh)
{
    int step = first;
    while (step < most && check_failures == 0 && one_step(kind, step)) {
        if (fresh)
            remove_pool();
        step++;
    }
    printf("%s: killed before each of %d changes%s\n", kind, step - first, fresh ? " of the first start" : "");
    CHECK(step - first > 10);
    remove_pool();
}

int main(void)
{
    fixture_begin();
    if (fixture_has_btrfs()) {
        test_steps("btrfs", 1, 30, true);
        test_steps("btrfs", 1, STEPS_MAX, false);
    }
    test_steps("tmpfs", 1, STEPS_MAX, false);
    test_steps("folder", 1, STEPS_MAX, false);
    fixture_end();
    return check_done();
}
