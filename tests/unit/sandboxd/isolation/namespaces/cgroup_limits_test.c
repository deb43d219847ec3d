/* Limits on fake trees of plain files: what is written where in v2 and in v1, and that memory which is in use is not
 * limited away. With real controllers: lives_test.c. */
#include "sandboxd/isolation/namespaces/cgroup_weights.h"
#include "sandboxd/isolation/namespaces/cgroups.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "/tmp/parley-limits-XXXXXX";

static void put(const char *path, const char *text)
{
    AUTO_FREE char *whole = memory_printf("%s/%s", root, path);
    AUTO_FREE char *folder = memory_copy(whole, (size_t)(strrchr(whole, '/') - whole));
    CHECK(fd_make_folders(folder, 0755, NULL));
    CHECK(fd_write_file(whole, 0644, text, strlen(text), NULL));
}

static bool holds(const char *path, const char *expected)
{
    AUTO_FREE char *whole = memory_printf("%s/%s", root, path);
    AUTO_FREE char *got = fd_read_file(whole, 4096, NULL, NULL);
    if (!text_equal(got, expected))
        fprintf(stderr, "%s: \"%s\", not \"%s\"\n", path, got ? got : "(none)", expected);
    return text_equal(got, expected);
}

static bool holds_nothing(const char *path)
{
    struct stat status;
    AUTO_FREE char *whole = memory_printf("%s/%s", root, path);
    return stat(whole, &status) < 0 || status.st_size == 0;
}

static const struct isolation_limits LIMITS = {.cpu_milli = 1500, .pids = 77, .memory_bytes = 100 << 20};

static void test_v2(void)
{
    static const char *const FILES[] = {"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"};
    struct cgroup_layout layout = {0};
    struct error err = {0};
    CHECK(fd_remove_tree(root, NULL));
    snprintf(layout.unified, sizeof layout.unified, "%s", root);
    CHECK(!cgroup_slot_limit(&layout, 7, &LIMITS, &err) && err.kind == ERROR_NOT_FOUND);
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        AUTO_FREE char *path = memory_printf("s7/run/%s", FILES[i]);
        put(path, "");
    }
    put("s7/cgroup.subtree_control", "");
    put("s7/run/cpu.idle", "");
    CHECK(cgroup_slot_control(&layout, 7, &err) && !holds_nothing("s7/cgroup.subtree_control"));
    put("s7/run/memory.current", "104857600\n"); /* as much as there shall be */
    CHECK(cgroup_slot_limit(&layout, 7, &LIMITS, &err));
    CHECK(holds("s7/run/memory.max", "104857600") && holds("s7/run/memory.swap.max", "0"));
    CHECK(holds("s7/run/memory.oom.group", "0") && holds("s7/run/pids.max", "77"));
    CHECK(holds("s7/run/cpu.max", "150000 100000") && holds("s7/run/cpu.idle", "1"));
    /* One byte more than that is in use: nothing is changed, and nobody killed for it. */
    put("s7/run/memory.current", "104857601\n");
    put("s7/run/memory.reclaim", "");
    put("s7/run/memory.max", "");
    put("s7/run/pids.max", "");
    CHECK(!cgroup_slot_limit(&layout, 7, &LIMITS, &err) && err.kind == ERROR_INVALID);
    CHECK(strstr(err.message, "104857601 are in use") != NULL);
    CHECK(holds("s7/run/memory.reclaim", "1") && holds("s7/run/memory.max", "") && holds("s7/run/pids.max", ""));
}

static void test_v1(void)
{
    static const char *const FILES[] = {"memory/s7/memory.memsw.limit_in_bytes", "memory/s7/memory.swappiness",
                                        "memory/s7/memory.kmem.tcp.limit_in_bytes", "pids/s7/pids.max",
                                        "cpu/s7/cpu.cfs_quota_us"};
    struct cgroup_layout layout = {0};
    struct error err = {0};
    CHECK(fd_remove_tree(root, NULL));
    snprintf(layout.unified, sizeof layout.unified, "%s/unified", root);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        snprintf(layout.v1[i], sizeof layout.v1[i], "%s/%s", root, CGROUP_CONTROLLER_NAMES[i]);
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        put(FILES[i], "");
    put("memory/s7/memory.limit_in_bytes", "");
    put("unified/s7/cgroup.subtree_control", "");
    CHECK(cgroup_slot_control(&layout, 7, &err) && holds("unified/s7/cgroup.subtree_control", ""));
    CHECK(cgroup_slot_limit(&layout, 7, &LIMITS, &err));
    CHECK(holds("memory/s7/memory.limit_in_bytes", "104857600") && holds(FILES[0], "104857600"));
    CHECK(holds(FILES[1], "0") && holds(FILES[2], "13107200") && holds(FILES[3], "77") && holds(FILES[4], "150000"));
}

/* As this host has it: the daemon's group is beside the slots, and goes without a trace. */
static void test_weights(void)
{
    struct cgroup_layout layout = {0};
    CHECK(fd_remove_tree(root, NULL));
    snprintf(layout.v1[CGROUP_CPU], sizeof layout.v1[CGROUP_CPU], "%s/cpu", root);
    put("cgroup.procs", "");
    put("cpu/cpu.shares", "");
    put("cpu/daemon/cpu.shares", "");
    put("cpu/daemon/cgroup.procs", "");
    cgroup_weights_join(&layout);
    CHECK(holds("cpu/daemon/cgroup.procs", "0") && holds("cpu/daemon/cpu.shares", "8192"));
    CHECK(!holds_nothing("cpu/cpu.shares") && holds("cgroup.procs", ""));
    AUTO_FREE char *shares = memory_printf("%s/cpu/daemon/cpu.shares", root);
    AUTO_FREE char *procs = memory_printf("%s/cpu/daemon/cgroup.procs", root);
    AUTO_FREE char *daemon = memory_printf("%s/cpu/daemon", root);
    CHECK(unlink(shares) == 0 && unlink(procs) == 0);
    cgroup_weights_leave(&layout);
    CHECK(holds("cgroup.procs", "0") && access(daemon, F_OK) < 0);
    layout.v1[CGROUP_CPU][0] = '\0';
    cgroup_weights_join(&layout); /* v2 has cpu: nothing to do */
    CHECK(access(daemon, F_OK) < 0);
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL);
    test_v2();
    test_v1();
    test_weights();
    CHECK(fd_remove_tree(root, NULL));
    return check_done();
}
