/* freezer_test.c - a cgroup that is stopped, one that cannot be, and one that goes on before it has stopped. */
#include "sandboxd/sandbox/freezer.h"

#include "shared/base/clock.h"
#include "shared/http/loop_internal.h"
#include "tests/unit/sandboxd/init/init_world.h"

#include <sys/mman.h>
#include <sys/wait.h>

static struct rig rig; /* for its cgroups' place alone */
static struct loop *loop;

struct told {
    unsigned times;
    struct error error;
};

static void on_stopped(void *cookie, const struct error *err)
{
    struct told *told = cookie;
    told->times++;
    if (err)
        told->error = *err;
    loop_end(loop);
}

static void on_late(void *cookie)
{
    (void)cookie;
    loop_end(loop);
}

static void run_loop(void)
{
    loop->ending = false; /* of the time before */
    loop_run(loop);
}

static int open_file(const char *folder, const char *name, int flags)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        rig_fail(path);
    return fd;
}

static bool is_stopped(pid_t child, volatile const uint64_t *count)
{
    uint64_t before = *count;
    usleep(200000);
    return kill(child, 0) == 0 && *count == before;
}

static bool runs(volatile const uint64_t *count)
{
    uint64_t before = *count;
    for (int i = 0; i < 1000 && *count == before; i++)
        usleep(10000);
    return *count != before;
}

static void test_stop(const char *folder, pid_t child, volatile const uint64_t *count)
{
    struct error err = {0};
    AUTO_FD int freeze = open_file(folder, "cgroup.freeze", O_RDWR);
    AUTO_FD int events = open_file(folder, "cgroup.events", O_RDONLY);
    AUTO(freezer) *freezer = freezer_new(loop, freeze, events);
    struct told told = {0};
    CHECK(!freezer_is_set(freezer) && runs(count));
    freezer_stop(freezer, on_stopped, &told);
    CHECK(told.times == 0); /* never inside of the call */
    run_loop();
    CHECK(told.times == 1 && told.error.kind == ERROR_NONE && freezer_is_set(freezer) && is_stopped(child, count));
    CHECK(freezer_go_on(freezer, &err) && !freezer_is_set(freezer));
    CHECK(runs(count));
    /* It goes on before it has stopped: who waited hears nothing. */
    freezer_stop(freezer, on_stopped, &told);
    CHECK(freezer_go_on(freezer, &err));
    loop_timer_start(loop, clock_boot_ns() + UINT64_C(300000000), on_late, NULL);
    run_loop();
    CHECK(told.times == 1 && runs(count));
}

/* Stops one cgroup and looks at another, where something runs: as if one process never stopped. */
static void test_bound(const char *folder, const char *other, volatile const uint64_t *count)
{
    AUTO_FD int freeze = open_file(other, "cgroup.freeze", O_RDWR);
    AUTO_FD int events = open_file(folder, "cgroup.events", O_RDONLY);
    AUTO(freezer) *freezer = freezer_new(loop, freeze, events);
    struct told told = {0};
    uint64_t before = clock_boot_ns();
    freezer_stop(freezer, on_stopped, &told);
    run_loop();
    CHECK(told.times == 1 && told.error.kind == ERROR_TIMEOUT && strstr(told.error.message, "all goes on"));
    CHECK(clock_boot_ns() - before >= FREEZER_BOUND_MS * UINT64_C(1000000));
    CHECK(!freezer_is_set(freezer) && runs(count));
}

static void test_no_cgroup(void)
{
    AUTO_FD int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    AUTO(freezer) *freezer = freezer_new(loop, null, null);
    struct told told = {0};
    freezer_stop(freezer, on_stopped, &told);
    run_loop();
    CHECK(told.times == 1 && told.error.kind == ERROR_INTERNAL && !freezer_is_set(freezer));
}

static pid_t count_in(const char *folder, volatile uint64_t *count)
{
    char text[32];
    pid_t child = fork();
    if (child == 0)
        for (;;) {
            ++*count;
            if (getppid() == 1)
                _exit(0);
        }
    AUTO_FD int procs = open_file(folder, "cgroup.procs", O_WRONLY);
    int length = snprintf(text, sizeof text, "%d", child);
    CHECK(write(procs, text, (size_t)length) == length);
    return child;
}

int main(void)
{
    struct error err = {0};
    char other[600];
    struct rig_options options = {0};
    rig_make_cgroups(&rig, &options);
    snprintf(other, sizeof other, "%s/init", rig.cgroup);
    char folder[600];
    snprintf(folder, sizeof folder, "%s/run", rig.cgroup);
    volatile uint64_t *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = count_in(folder, count);
    loop = loop_new(0, &err);
    CHECK(loop != NULL);
    loop_open(loop);
    test_stop(folder, child, count);
    test_bound(folder, other, count);
    test_no_cgroup();
    loop_close(loop);
    loop_free(loop);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    static const char *const LEAVES[] = {"/run", "/init", ""};
    for (size_t i = 0; i < 3; i++) {
        char path[640];
        snprintf(path, sizeof path, "%s%s", rig.cgroup, LEAVES[i]);
        for (int tries = 0; rmdir(path) < 0 && tries < 100; tries++)
            usleep(10000);
    }
    if (rig.v1[0])
        rmdir(rig.v1);
    return check_done();
}
