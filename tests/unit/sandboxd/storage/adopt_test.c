/** adopt_test.c - a tmpfs area found again by the descriptor that its init holds; an init that lies about it. */
#include "tests/unit/sandboxd/storage/fixture.h"

#include "sandboxd/init/inherit.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SLOT = 5, BASE = 1879048192 };

struct stand_in {
    pid_t pid;
    int pidfd;
};

/* An init that holds `fd` as INHERIT_FD_AREA, or nothing. */
static struct stand_in hold(int fd)
{
    struct stand_in init = {.pidfd = -1};
    int ends[2];
    char ready = 0;
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    init.pid = fork();
    if (init.pid == 0) {
        int tell = fcntl(ends[1], F_DUPFD_CLOEXEC, 100), held = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 100);
        close(INHERIT_FD_AREA);
        if (held >= 0 && dup2(held, INHERIT_FD_AREA) < 0)
            _exit(1);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        if (write(tell, "r", 1) == 1)
            pause();
        _exit(1);
    }
    close(ends[1]);
    CHECK(read(ends[0], &ready, 1) == 1);
    close(ends[0]);
    init.pidfd = (int)syscall(SYS_pidfd_open, init.pid, 0);
    CHECK(init.pidfd >= 0);
    return init;
}

static void let_go(struct stand_in *init)
{
    kill(init->pid, SIGKILL);
    CHECK(waitpid(init->pid, NULL, 0) == init->pid);
    close(init->pidfd);
}

static bool adopt(struct storage *storage, int held, uint64_t device, struct storage_area *found)
{
    struct error err = {0};
    struct stand_in init = hold(held);
    bool ok = storage_area_adopt(storage, SLOT, BASE, init.pidfd, device, found, &err);
    CHECK(ok == (err.kind == ERROR_NONE));
    let_go(&init);
    return ok;
}

static void check_usable(struct storage *storage, struct storage_area *found)
{
    struct error err = {0};
    struct storage_job *job = NULL;
    uint64_t bytes = 0;
    int why = 0, fd = fixture_area(found);
    CHECK(fixture_fill(fd, "root/upper/f", 32 * MIB, &why) < 32 * MIB && why == ENOSPC);
    CHECK(storage_area_limit(storage, found, 64 * MIB, &err));
    CHECK(fixture_fill(fd, "root/upper/g", 32 * MIB, &why) == 32 * MIB);
    CHECK(storage_area_usage(storage, found, &bytes, &err) && bytes > 40 * MIB);
    CHECK(storage_snapshot_take(storage, found, "snp_f", &job, &err) && fixture_finish(job));
    CHECK(storage_snapshot_size(storage, "snp_f", &bytes, &err) && bytes > 40 * MIB);
    CHECK(storage_snapshot_remove(storage, "snp_f", &err));
    close(fd);
}

int main(void)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE, other = STORAGE_AREA_NONE, found = STORAGE_AREA_NONE;
    fixture_begin();
    struct storage *storage = fixture_open("tmpfs", 0);
    CHECK(storage && storage_area_make(storage, SLOT, BASE, 16 * MIB, &area, &err));
    CHECK(storage_area_make(storage, SLOT + 1, BASE + 65536, 16 * MIB, &other, &err));
    int root = fixture_area(&area), not_mine = fixture_area(&other);
    int below = openat(root, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file = openat(root, "root/upper/x", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int host = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t device = area.device;
    struct stat of_host;
    CHECK(device != 0 && device != other.device && fstat(host, &of_host) == 0);
    CHECK(!adopt(storage, -1, device, &found) && !adopt(storage, not_mine, device, &found));
    CHECK(!adopt(storage, below, device, &found) && !adopt(storage, file, device, &found));
    CHECK(!adopt(storage, host, device, &found) && !adopt(storage, host, of_host.st_dev, &found));
    CHECK(!adopt(storage, root, 0, &found) && found.mount < 0);
    storage_area_close(&area); /* the launcher that knew it is gone */
    CHECK(adopt(storage, root, device, &found));
    CHECK(found.device == device && found.slot == SLOT && found.uid_base == BASE && found.mount >= 0);
    close(root);
    if (found.mount >= 0)
        check_usable(storage, &found);
    storage_area_close(&found);
    storage_area_close(&other);
    storage_close(storage);
    fixture_end();
    return check_done();
}
