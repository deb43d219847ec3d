/** life_rig.h - whole sandboxes for tests: the namespaces backend and the real parley-init, with the test as launcher
 * and front. Needs root. */
#pragma once

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/network/namespace.h"
#include "shared/base/memory.h"
#include "tests/unit/sandboxd/init/init_rig.h"

enum { LIFE_SLOT = 3980 };
#define LIFE_UID (1879048192U + LIFE_SLOT * 65536U)

static struct {
    char state[64], skeleton[128], socket[128];
    int program;
} life_house = {.state = "/tmp/parley-life-XXXXXX", .program = -1};

struct life {
    struct isolation_sandbox sandbox;
    struct rig rig; /* the front's half */
};

static const char *const LIFE_AREA[] = {"root", "root/upper", "root/work", "usr", "usr/upper", "usr/work"};
enum { LIFE_AREA_FOLDERS = sizeof LIFE_AREA / sizeof LIFE_AREA[0] };

/** What storage makes: folders with the ids 0..65535, to be idmapped. */
static UNUSED void life_make_area(const char *path)
{
    CHECK(mkdir(path, 0755) == 0);
    for (size_t i = 0; i < LIFE_AREA_FOLDERS; i++) {
        AUTO_FREE char *folder = memory_printf("%s/%s", path, LIFE_AREA[i]);
        CHECK(mkdir(folder, 0755) == 0);
    }
}

/** ... or a detached tmpfs with the ids of the slot. */
static UNUSED int life_make_tmpfs(const char *size)
{
    AUTO_FD int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    CHECK(context >= 0 && fsconfig(context, FSCONFIG_SET_STRING, "size", size, 0) == 0 &&
          fsconfig(context, FSCONFIG_SET_STRING, "mode", "0755", 0) == 0 &&
          fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0);
    int area = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    for (size_t i = 0; i < LIFE_AREA_FOLDERS; i++)
        CHECK(mkdirat(area, LIFE_AREA[i], 0755) == 0 && fchownat(area, LIFE_AREA[i], LIFE_UID, LIFE_UID, 0) == 0);
    return area;
}

/** A network namespace, until the test ends. */
static UNUSED int life_network(void)
{
    struct error err = {0};
    AUTO_FD int home = namespace_open(&err);
    int made = namespace_make(home, &err);
    CHECK(made >= 0);
    return made;
}

/** A plan over the host's /usr without an area, and a life without anything special. */
static UNUSED struct isolation_plan life_plan(void)
{
    return (struct isolation_plan){.slot = LIFE_SLOT,
                                   .uid_base = LIFE_UID,
                                   .lower_root = life_house.skeleton,
                                   .lower_usr = "/usr",
                                   .area_mount = -1,
                                   .socket_path = life_house.socket,
                                   .init_program = life_house.program,
                                   .network = life_network()};
}

static UNUSED struct isolation_life life_standard(void)
{
    return (struct isolation_life){.hostname = "brisk-otter",
                                   .limits = {.cpu_milli = 2000, .pids = 200, .memory_bytes = 512 << 20},
                                   .shared_bytes = 32 << 20,
                                   .uid = 1000,
                                   .gid = 1000,
                                   .open_files = 1024};
}

static UNUSED bool life_wait(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, RIG_PATIENCE_MS) == 1;
}

static UNUSED void life_end(struct life *life)
{
    struct error err = {0};
    siginfo_t how;
    if (life->rig.connection >= 0)
        close(life->rig.connection);
    CHECK(isolation_namespaces.kill(LIFE_SLOT, &err) && life_wait(life->sandbox.init));
    (void)waitid(P_PIDFD, (id_t)life->sandbox.init, &how, WEXITED);
    isolation_close(&life->sandbox);
    bool is_removed = false;
    for (int i = 0; i < 1000 && !is_removed; i++) {
        is_removed = isolation_namespaces.remove(LIFE_SLOT, &err);
        usleep(is_removed ? 0 : 5000);
    }
    CHECK(is_removed);
    unlink(life_house.socket);
}

static bool life_raise(struct life *life, const struct isolation_plan *plan, const struct isolation_life *what,
                       struct error *err)
{
    int news = 0;
    while (news == 0 && life_wait(life->sandbox.birth))
        news = isolation_namespaces.is_warm(plan->slot, &life->sandbox, err);
    if (news != 1 || !isolation_namespaces.become(plan->slot, plan->uid_base, &life->sandbox, what, err))
        return false;
    for (news = 0; news == 0 && life_wait(life->sandbox.birth);)
        news = isolation_namespaces.is_ready(&life->sandbox, err);
    return news == 1;
}

/** Makes it, and connects as its front. What cannot be made is ended. */
static UNUSED bool life_begin(struct life *life, const struct isolation_plan *plan, const struct isolation_life *what,
                              struct error *err)
{
    struct front_init_message message;
    *life = (struct life){.sandbox = ISOLATION_NONE, .rig = {.connection = -1}};
    snprintf(life->rig.folder, sizeof life->rig.folder, "%s", life_house.state);
    if (!isolation_namespaces.begin(plan, &life->sandbox, err))
        return false;
    if (!life_raise(life, plan, what, err)) {
        life_end(life);
        return false;
    }
    rig_connect(&life->rig);
    return rig_expect(&life->rig, FI_CURRENT, "", &message, NULL);
}

/** Runs a script and compares what it writes, errors behind output. */
static UNUSED bool life_says(struct life *life, const struct rig_start *how, const char *script, const char *expected)
{
    static int number;
    char id[32];
    snprintf(id, sizeof id, "c%d", number++);
    struct rig_result result = rig_run(&life->rig, id, how, script);
    AUTO_FREE char *all = memory_printf("%s%s%s", result.refused.message, result.output ? result.output : "",
                                        result.errors ? result.errors : "");
    bool is_same = strcmp(all, expected) == 0;
    if (!is_same)
        fprintf(stderr, "$ %s\n%s--- and not:\n%s---\n", script, all, expected);
    rig_result_done(&result);
    return is_same;
}

/** The first lines of main. */
static UNUSED void life_start(void)
{
    struct error err = {0};
    if (geteuid() != 0)
        check_skip("needs root");
    /* Its own mount namespace, as a launcher has. */
    CHECK(syscall(SYS_unshare, CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0);
    CHECK(mkdtemp(life_house.state) != NULL && chmod(life_house.state, 0711) == 0);
    AUTO_FREE char *folder = memory_printf("%s/sandboxd", life_house.state);
    CHECK(mkdir(folder, 0700) == 0);
    if (!isolation_namespaces.start(life_house.state, &err)) {
        (void)!fd_remove_tree(life_house.state, NULL);
        check_skip(err.message);
    }
    snprintf(life_house.skeleton, sizeof life_house.skeleton, "%s/sandboxd/templates/base/rootfs", life_house.state);
    snprintf(life_house.socket, sizeof life_house.socket, "%s/init.sock", life_house.state);
    AUTO_FD int program = rig_open_program();
    struct stat status;
    CHECK(fstat(program, &status) == 0);
    size_t size = (size_t)status.st_size;
    AUTO_FREE char *bytes = memory_new(size);
    CHECK(fd_read_exact(program, bytes, size, &err));
    life_house.program = fd_sealed_memfd("parley-init", bytes, size, &err);
    CHECK(life_house.program >= 0 && fchmod(life_house.program, 0511) == 0);
}

static UNUSED void life_stop(void)
{
    struct error err = {0};
    isolation_namespaces.stop();
    close(life_house.program);
    CHECK(fd_remove_tree(life_house.state, &err));
}
