/* Where our cgroups go, on fake trees of plain files: hybrid, pure v2 in a service, pure v2 in a session, none. */
#include "sandboxd/isolation/namespaces/cgroup_keep.h"
#include "sandboxd/isolation/namespaces/cgroup_layout.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <sys/stat.h>
#include <sys/wait.h>

static char root[] = "/tmp/parley-layout-XXXXXX";

static void put(const char *path, const char *text)
{
    AUTO_FREE char *whole = memory_printf("%s%s", root, path);
    AUTO_FREE char *folder = memory_copy(whole, (size_t)(strrchr(whole, '/') - whole));
    CHECK(fd_make_folders(folder, 0755, NULL));
    CHECK(fd_write_file(whole, 0644, text, strlen(text), NULL));
}

static bool path_is(const char *got, const char *want)
{
    AUTO_FREE char *whole = memory_printf("%s%s", root, want);
    if (strcmp(got, whole) != 0)
        fprintf(stderr, "got %s, want %s\n", got, whole);
    return strcmp(got, whole) == 0;
}

static void begin(const char *mounts, const char *own)
{
    CHECK(fd_remove_tree(root, NULL));
    put("/proc/self/mountinfo", mounts);
    put("/proc/self/cgroup", own);
}

static const char V2_MOUNT[] = "24 1 0:22 / / rw - ext4 /dev/vda rw\n"
                               "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

static void test_hybrid(void)
{
    struct cgroup_layout layout = {0};
    struct error err = {0};
    begin("31 23 0:28 / /cg rw - tmpfs tmpfs rw\n32 31 0:29 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
          "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids\n"
          "40 31 0:37 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n41 31 0:38 / /cg/uni\\040fied rw - cgroup2 x rw\n",
          "8:pids:/\n4:memory:/api/6e\n3:cpuset:/other\n1:cpu,cpuacct:/\n0::/own\n");
    put("/cg/uni fied/cgroup.controllers", "hugetlb\n");
    CHECK(cgroup_layout_find(root, "parley-12345678", NULL, &layout, &err));
    CHECK(path_is(layout.unified, "/cg/uni fied/own/parley-12345678"));
    CHECK(path_is(layout.v1[CGROUP_MEMORY], "/cg/memory/api/6e/parley-12345678"));
    CHECK(path_is(layout.v1[CGROUP_PIDS], "/cg/pids/parley-12345678"));
    CHECK(path_is(layout.v1[CGROUP_CPU], "/cg/cpu,cpuacct/parley-12345678"));
    CHECK(cgroup_layout_has_v1(&layout));
}

static void test_v2_service(void)
{
    struct cgroup_layout layout = {0};
    struct error err = {0};
    char self[16];
    snprintf(self, sizeof self, "%d\n", (int)getpid());
    begin(V2_MOUNT, "0::/system.slice/parley.service\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    put("/sys/fs/cgroup/system.slice/parley.service/cgroup.controllers", "cpu memory pids\n");
    put("/sys/fs/cgroup/system.slice/parley.service/cgroup.type", "domain\n");
    put("/sys/fs/cgroup/system.slice/parley.service/cgroup.procs", self);
    CHECK(cgroup_layout_find(root, "parley-1", NULL, &layout, &err));
    CHECK(path_is(layout.parent, "/sys/fs/cgroup/system.slice/parley.service"));
    CHECK(path_is(layout.unified, "/sys/fs/cgroup/system.slice/parley.service/parley-1"));
    CHECK(!cgroup_layout_has_v1(&layout));
    CHECK(strstr(layout.options, "nsdelegate") != NULL);
    /* Made: the controllers are enabled for the parent's children and for ours. */
    put("/sys/fs/cgroup/system.slice/parley.service/cgroup.subtree_control", "memory\n");
    put("/sys/fs/cgroup/system.slice/parley.service/parley-1/cgroup.subtree_control", "\n");
    CHECK(cgroup_layout_make(&layout, &err));
    AUTO_FREE char *path = memory_printf("%s/cgroup.subtree_control", layout.parent);
    AUTO_FREE char *enabled = fd_read_file(path, 1000, NULL, &err);
    CHECK_TEXT(enabled, "+pids +cpu"); /* a plain file keeps what was written */
    AUTO_FREE char *below = memory_printf("%s/cgroup.subtree_control", layout.unified);
    AUTO_FREE char *enabled_below = fd_read_file(below, 1000, NULL, &err);
    CHECK_TEXT(enabled_below, "+memory +pids +cpu");
}

/* Another service keeps it, with its own process in a leaf: a service that is started again has cgroups in none of its. */
static void test_v2_kept(void)
{
    struct cgroup_layout layout = {0};
    struct error err = {0};
    static const char KEPT[] = "/system.slice/parley-sandboxes.service";
    begin(V2_MOUNT, "0::/system.slice/parley-sandboxd.service\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    CHECK(!cgroup_layout_find(root, "parley-1", KEPT, &layout, &err));
    CHECK(err.kind == ERROR_NOT_FOUND && strstr(err.message, "--keep-cgroup") != NULL);
    put("/sys/fs/cgroup/system.slice/parley-sandboxes.service/cgroup.controllers", "cpu memory pids\n");
    put("/sys/fs/cgroup/system.slice/parley-sandboxes.service/cgroup.type", "domain\n");
    put("/sys/fs/cgroup/system.slice/parley-sandboxes.service/cgroup.procs", "");
    CHECK(cgroup_layout_find(root, "parley-1", KEPT, &layout, &err));
    CHECK(path_is(layout.unified, "/sys/fs/cgroup/system.slice/parley-sandboxes.service/parley-1"));
    CHECK(!cgroup_layout_find(root, "parley-1", "/../../etc", &layout, &err));
    CHECK(!cgroup_layout_find(root, "parley-1", "system.slice", &layout, &err));
    CHECK(!cgroup_keep(root, &err)); /* ours has no procs file here */
    put("/sys/fs/cgroup/system.slice/parley-sandboxd.service/cgroup.type", "domain\n");
    put("/sys/fs/cgroup/system.slice/parley-sandboxd.service/cgroup.procs", "1\n2\n");
    CHECK(!cgroup_keep(root, &err) && err.kind == ERROR_CONFLICT);
    char self[16];
    snprintf(self, sizeof self, "%d\n", (int)getpid());
    put("/sys/fs/cgroup/system.slice/parley-sandboxd.service/cgroup.procs", self);
    put("/sys/fs/cgroup/system.slice/parley-sandboxd.service/keeper/cgroup.procs", "");
    CHECK(cgroup_keep(root, &err));
    begin(V2_MOUNT, "0::/system.slice/parley-sandboxd.service/keeper\n");
    CHECK(cgroup_keep(root, &err));
}

/* A session's cgroup has the shell in it, and often no cpu controller: then ours goes to the mount's top. */
static void test_v2_session(void)
{
    struct cgroup_layout layout = {0};
    struct error err = {0};
    begin(V2_MOUNT, "0::/user.slice/session-1.scope\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    put("/sys/fs/cgroup/cgroup.procs", "1\n2\n");
    put("/sys/fs/cgroup/user.slice/session-1.scope/cgroup.controllers", "cpu memory pids\n");
    put("/sys/fs/cgroup/user.slice/session-1.scope/cgroup.type", "domain\n");
    put("/sys/fs/cgroup/user.slice/session-1.scope/cgroup.procs", "1\n77\n");
    CHECK(cgroup_layout_find(root, "parley-1", NULL, &layout, &err));
    CHECK(path_is(layout.unified, "/sys/fs/cgroup/parley-1"));
    /* In a container that top is no real root, and others are in it: there is no place. */
    put("/sys/fs/cgroup/cgroup.type", "domain\n");
    CHECK(!cgroup_layout_find(root, "parley-1", NULL, &layout, &err));
    CHECK(err.kind == ERROR_NOT_FOUND && strstr(err.message, "Delegate=yes") != NULL);
}

static void test_missing(void)
{
    struct cgroup_layout layout = {.unified = "untouched"};
    struct error err = {0};
    begin("35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n", "4:memory:/\n");
    CHECK(!cgroup_layout_find(root, "parley-1", NULL, &layout, &err));
    CHECK(err.kind == ERROR_NOT_FOUND && strstr(err.message, "v2") != NULL);
    begin(V2_MOUNT, "0::/\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpu pids\n");
    CHECK(!cgroup_layout_find(root, "parley-1", NULL, &layout, &err));
    CHECK(err.kind == ERROR_NOT_FOUND && strstr(err.message, "memory") != NULL);
    CHECK_TEXT(layout.unified, "untouched");
    /* A mount that shows only part of the hierarchy, the own path outside of it. */
    begin("30 24 0:26 /docker/abc /cg rw - cgroup2 cgroup2 rw\n", "0::/docker/abc/x\n");
    put("/cg/cgroup.controllers", "cpu pids memory\n");
    put("/cg/x/cgroup.controllers", "cpu pids memory\n");
    CHECK(cgroup_layout_find(root, "parley-1", NULL, &layout, &err));
    CHECK(path_is(layout.unified, "/cg/x/parley-1"));
    begin("30 24 0:26 /docker/abc /cg rw - cgroup2 cgroup2 rw\n", "0::/../../elsewhere\n");
    put("/cg/cgroup.controllers", "cpu pids memory\n");
    CHECK(cgroup_layout_find(root, "parley-1", NULL, &layout, &err));
    CHECK(path_is(layout.unified, "/cg/parley-1"));
}

/* --- an ordinary user's --- */

static void put_cgroup(const char *folder, const char *controllers)
{
    AUTO_FREE char *procs = memory_printf("%s/cgroup.procs", folder);
    AUTO_FREE char *list = memory_printf("%s/cgroup.controllers", folder);
    put(procs, "77\n");
    put(list, controllers);
}

static void give(const char *folder)
{
    AUTO_FREE char *whole = memory_printf("%s%s", root, folder);
    AUTO_FREE char *procs = memory_printf("%s/cgroup.procs", whole);
    CHECK(chown(whole, 65534, 65534) == 0 && chown(procs, 65534, 65534) == 0);
}

/* What nobody (65534) finds, as it may write what is its own alone; true: found. */
static bool find_as_user(bool may_miss, struct cgroup_layout *layout, struct error *err)
{
    int ends[2];
    struct {
        bool is_found;
        struct cgroup_layout layout;
        struct error err;
    } told = {0};
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (chmod(root, 0755) < 0 || setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        told.is_found = cgroup_layout_find_delegated(root, "parley-1", may_miss, &told.layout, &told.err);
        _exit(write(ends[1], &told, sizeof told) == (ssize_t)sizeof told ? 0 : 1);
    }
    close(ends[1]);
    CHECK(read(ends[0], &told, sizeof told) == (ssize_t)sizeof told);
    close(ends[0]);
    CHECK(waitpid(pid, NULL, 0) == pid);
    *layout = told.layout;
    *err = told.err;
    return told.is_found;
}

static void test_delegated_v2(void)
{
    struct cgroup_layout layout;
    struct error err;
    if (geteuid() != 0)
        return;
    static const char SCOPE[] = "/sys/fs/cgroup/user.slice/run-1.scope";
    begin(V2_MOUNT, "0::/user.slice/run-1.scope\n");
    put_cgroup("/sys/fs/cgroup", "cpu memory pids\n");
    put_cgroup(SCOPE, "memory pids\n");
    CHECK(!find_as_user(true, &layout, &err)); /* root's: no setting goes without a place to kill and freeze in */
    CHECK(err.kind == ERROR_FORBIDDEN && strstr(err.message, "v2") && strstr(err.message, "Delegate=yes"));
    give(SCOPE);
    CHECK(!find_as_user(false, &layout, &err));
    CHECK(err.kind == ERROR_FORBIDDEN && strstr(err.message, "cpu") && strstr(err.message, "missing_limits"));
    CHECK(find_as_user(true, &layout, &err));
    CHECK(layout.is_missing[CGROUP_CPU] && !layout.is_missing[CGROUP_MEMORY] && !layout.is_missing[CGROUP_PIDS]);
    CHECK(layout.is_delegated && path_is(layout.unified, "/sys/fs/cgroup/user.slice/run-1.scope/parley-1"));
    put("/sys/fs/cgroup/user.slice/run-1.scope/cgroup.controllers", "memory pids cpu\n");
    CHECK(find_as_user(false, &layout, &err));
    CHECK(!layout.is_missing[CGROUP_CPU]);
    /* As one that `parley up` starts again, from where the first has moved all. */
    put("/proc/self/cgroup", "0::/user.slice/run-1.scope/daemon\n");
    put_cgroup("/sys/fs/cgroup/user.slice/run-1.scope/daemon", "memory pids cpu\n");
    give("/sys/fs/cgroup/user.slice/run-1.scope/daemon");
    CHECK(find_as_user(false, &layout, &err));
    CHECK(path_is(layout.unified, "/sys/fs/cgroup/user.slice/run-1.scope/parley-1"));
}

static void test_delegated_v1(void)
{
    struct cgroup_layout layout;
    struct error err;
    if (geteuid() != 0)
        return;
    begin("35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids\n"
          "40 31 0:37 / /cg/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /cg/unified rw - cgroup2 x rw\n",
          "8:pids:/her\n4:memory:/her\n1:cpu:/\n0::/her\n");
    static const char *const HERS[] = {"/cg/memory/her", "/cg/pids/her", "/cg/unified/her"};
    for (size_t i = 0; i < 3; i++) {
        put_cgroup(HERS[i], "");
        give(HERS[i]);
    }
    put_cgroup("/cg/cpu", "");
    CHECK(!find_as_user(false, &layout, &err));
    CHECK(err.kind == ERROR_FORBIDDEN && strstr(err.message, "cpu"));
    CHECK(find_as_user(true, &layout, &err));
    CHECK(layout.is_missing[CGROUP_CPU] && !layout.v1[CGROUP_CPU][0]);
    CHECK(path_is(layout.v1[CGROUP_MEMORY], "/cg/memory/her/parley-1"));
    /* Kept over a restart. */
    struct cgroup_layout again = {0};
    AUTO_FREE char *file = memory_printf("%s/kept", root);
    AUTO_FREE char *made = memory_printf("%s/cg/memory/her/parley-1", root);
    AUTO_FREE char *pids = memory_printf("%s/cg/pids/her/parley-1", root);
    AUTO_FREE char *unified = memory_printf("%s/cg/unified/her/parley-1", root);
    CHECK(mkdir(made, 0755) == 0 && mkdir(pids, 0755) == 0 && mkdir(unified, 0755) == 0);
    CHECK(cgroup_layout_save(&layout, file, NULL) && cgroup_layout_load(&again, file));
    CHECK(again.is_missing[CGROUP_CPU] && !again.v1[CGROUP_CPU][0] && !again.is_missing[CGROUP_PIDS]);
}

static void test_save_and_load(void)
{
    struct cgroup_layout layout = {.mount = "/", .options = "rw", .parent = "/", .unified = "/tmp", .v1 = {"/tmp"}};
    struct cgroup_layout again = {0};
    AUTO_FREE char *file = memory_printf("%s/cgroups", root);
    CHECK(cgroup_layout_save(&layout, file, NULL));
    CHECK(cgroup_layout_load(&again, file));
    CHECK(memcmp(&layout, &again, sizeof layout) == 0);
    CHECK(fd_write_file(file, 0600, "another boot\n/\nrw\n/\n/tmp\n\n\n\n", 29, NULL));
    CHECK(!cgroup_layout_load(&again, file));
    memcpy(layout.unified, "/no/such", 9);
    CHECK(cgroup_layout_save(&layout, file, NULL));
    CHECK(!cgroup_layout_load(&again, file));
    CHECK(!cgroup_layout_load(&again, "/no/such/file"));
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL);
    test_hybrid();
    test_v2_service();
    test_v2_kept();
    test_v2_session();
    test_missing();
    test_delegated_v2();
    test_delegated_v1();
    test_save_and_load();
    CHECK(fd_remove_tree(root, NULL));
    return check_done();
}
