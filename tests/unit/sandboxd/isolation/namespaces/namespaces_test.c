/* Real sandboxes by the namespaces backend, as root: two at once, what they see, limits, failure leaves nothing, births
 * that are ended,
 * adoption after the maker was killed, removal, orphans. The init is this program itself (stand_in_init.h). */
#include "sandboxd/isolation/isolation.h"
#include "sandboxd/network/namespace.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/sandboxd/stand_in_init.h"

#include <errno.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

enum { SLOT_A = 3990, SLOT_B = 3991 };

static char state[] = "/tmp/parley-isolation-XXXXXX";
static char skeleton[128], socket_a[128], socket_b[128];
static int program = -1;

static uint32_t uid_of(uint32_t slot)
{
    return 1879048192U + slot * 65536U;
}

/* A tmpfs with the ids of the slot, as storage makes it. */
static int area_make(uint32_t slot, uint64_t bytes)
{
    static const char *const FOLDERS[] = {"root", "root/upper", "root/work", "usr", "usr/upper", "usr/work"};
    char size[32];
    snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
    AUTO_FD int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    CHECK(context >= 0 && fsconfig(context, FSCONFIG_SET_STRING, "size", size, 0) == 0 &&
          fsconfig(context, FSCONFIG_SET_STRING, "mode", "0755", 0) == 0 &&
          fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0);
    int area = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++)
        CHECK(mkdirat(area, FOLDERS[i], 0755) == 0 && fchownat(area, FOLDERS[i], uid_of(slot), uid_of(slot), 0) == 0);
    return area;
}

/* Until the test ends. */
static int network_make(void)
{
    struct error err = {0};
    AUTO_FD int home = namespace_open(&err);
    int made = namespace_make(home, &err);
    CHECK(made >= 0);
    return made;
}

static struct isolation_plan plan_of(uint32_t slot)
{
    return (struct isolation_plan){.slot = slot,
                                   .uid_base = uid_of(slot),
                                   .lower_root = skeleton,
                                   .lower_usr = "/usr",
                                   .area_mount = -1,
                                   .socket_path = slot == SLOT_A ? socket_a : socket_b,
                                   .init_program = program,
                                   .network = network_make()};
}

static struct isolation_life life_of(uint32_t slot)
{
    return (struct isolation_life){.hostname = slot == SLOT_A ? "brisk-otter" : "calm-heron",
                                   .limits = {.cpu_milli = 500, .pids = 64, .memory_bytes = 256 << 20},
                                   .shared_bytes = 32 << 20,
                                   .deadline_boot_ns = clock_boot_ns() + 600000000000ULL,
                                   .uid = 1000,
                                   .gid = 1000,
                                   .open_files = 1024};
}

static bool wait_readable(int fd, int ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, ms) == 1;
}

static bool remove_whole(uint32_t slot)
{
    struct error err = {0};
    for (int i = 0; i < 500; i++) {
        if (isolation_namespaces.remove(slot, &err))
            return true;
        if (err.kind != ERROR_STARTING)
            fprintf(stderr, "remove: %s\n", err.message);
        usleep(2000);
    }
    return false;
}

static bool end(uint32_t slot, struct isolation_sandbox *sandbox)
{
    siginfo_t how;
    bool killed = isolation_namespaces.kill(slot, NULL) && wait_readable(sandbox->init, 5000);
    (void)waitid(P_PIDFD, (id_t)sandbox->init, &how, WEXITED);
    isolation_close(sandbox);
    return killed && remove_whole(slot);
}

/* 1, or -1: it never takes so long that it is neither. */
static int wait_warm(uint32_t slot, struct isolation_sandbox *made, struct error *err)
{
    int news = 0;
    while (news == 0 && wait_readable(made->birth, 20000))
        news = isolation_namespaces.is_warm(slot, made, err);
    return news;
}

static int wait_ready(struct isolation_sandbox *made, struct error *err)
{
    int news = 0;
    while (news == 0 && wait_readable(made->birth, 20000))
        news = isolation_namespaces.is_ready(made, err);
    return news;
}

/* Both steps at once. What was begun and failed is ended. */
static bool make(const struct isolation_plan *plan, const struct isolation_life *life, struct isolation_sandbox *made,
                 struct error *err)
{
    struct isolation_sandbox begun = ISOLATION_NONE;
    if (!isolation_namespaces.begin(plan, &begun, err))
        return false;
    if (wait_warm(plan->slot, &begun, err) == 1 &&
        isolation_namespaces.become(plan->slot, plan->uid_base, &begun, life, err) && wait_ready(&begun, err) == 1) {
        *made = begun;
        return true;
    }
    CHECK(end(plan->slot, &begun));
    return false;
}

static bool create(uint32_t slot, struct isolation_sandbox *made)
{
    struct error err = {0};
    struct isolation_plan plan = plan_of(slot);
    struct isolation_life life = life_of(slot);
    AUTO_FD int area = area_make(slot, 16 << 20);
    plan.area_mount = area;
    bool created = make(&plan, &life, made, &err);
    if (!created)
        fprintf(stderr, "create: %s\n", err.message);
    return created;
}

static size_t count_slots(void)
{
    uint32_t slots[16];
    return isolation_namespaces.list(slots, 16);
}

static bool says(const char *socket_path, const char *command, const char *expected)
{
    const struct stand_in_reply *reply = stand_in_run(socket_path, command);
    bool same = strcmp(reply->output, expected) == 0;
    if (!same)
        fprintf(stderr, "$ %s\n[%x] \"%s\", not \"%s\"\n", command, (unsigned)reply->status, reply->output, expected);
    return same;
}

static bool fails(const char *socket_path, const char *command)
{
    const struct stand_in_reply *reply = stand_in_run(socket_path, command);
    bool failed = reply->status != 0 && reply->status != -1;
    if (!failed)
        fprintf(stderr, "$ %s\n[%x] %s, and should have failed\n", command, (unsigned)reply->status, reply->output);
    return failed;
}

static void check_inside(void)
{
    CHECK(says(socket_a, "id -u; id -g; id -G; hostname; pwd", "1000\n1000\n1000\nbrisk-otter\n/workspace\n"));
    CHECK(says(socket_b, "hostname", "calm-heron\n"));
    CHECK(says(socket_a, "grep -E '^(CapPrm|CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t' ' '",
               "CapPrm: 0000000000000000\nCapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n"));
    CHECK(says(socket_a, "cat /proc/1/cgroup 2>/dev/null | grep ^0; cat /proc/self/cgroup | grep ^0",
               "0::/init\n0::/run\n"));
    CHECK(fails(socket_a, "ls /proc | grep -qE '^[0-9]{3,}$'"));
    CHECK(says(socket_a, "touch /tmp/x /workspace/y /run/z && echo writable", "writable\n"));
    CHECK(fails(socket_a, "touch /usr/x"));
    CHECK(fails(socket_a, "touch /etc/x"));
    CHECK(fails(socket_a, "cat /etc/shadow"));
    CHECK(fails(socket_a, "ls /root"));
    CHECK(fails(socket_a, "ls /etc/ssh || ls /etc/ssl/private"));
    CHECK(fails(socket_b, "cat /workspace/y")); /* the neighbour's */
    CHECK(says(socket_a, "cat /proc/net/dev | grep -c :", "1\n"));
    CHECK(says(socket_a, "head -c 4 /dev/zero | wc -c; ls /dev | tr '\\n' ' '",
               "4\nfd full null ptmx pts random shm stderr stdin stdout tty urandom zero "));
    CHECK(says(socket_a, "ls /sys; wc -c < /proc/kallsyms; ls /proc/acpi 2>/dev/null", "0\n"));
    CHECK(
        says(socket_a,
             "cd /proc; cat cmdline locks diskstats interrupts softirqs iomem ioports partitions misc modules slabinfo "
             "buddyinfo pagetypeinfo zoneinfo kpagecount kpageflags kpagecgroup kmsg swaps schedstat 2>/dev/null | wc "
             "-c; ls pressure 2>/dev/null",
             "0\n"));
    CHECK(says(socket_a,
               "for f in meminfo stat loadavg cpuinfo uptime vmstat version; do grep -q . /proc/$f || echo $f; done",
               ""));
    CHECK(says(socket_a, "cat /proc/sys/kernel/shm_rmid_forced; bash -c 'ulimit -i -q' | grep -oE '[0-9]+$'",
               "1\n4096\n819200\n"));
    CHECK(says(socket_a,
               "/usr/bin/python3 -c 'import os; l = []\ntry:\n  while len(l) < 200: l.append(os.openpty())\n"
               "except OSError: pass\nprint(len(l))'",
               "64\n"));
    CHECK(fails(socket_a, "echo 1 > /proc/sys/kernel/hostname"));
    CHECK(fails(socket_a, "kill -9 1"));
    CHECK(fails(socket_a, "cat /proc/1/environ || cat /proc/1/maps || ls /proc/1/fd"));
    CHECK(says(socket_a, "echo $(ulimit -c) $(ulimit -Sn)", "0 1024\n"));
    CHECK(says(socket_a, "env | sort", "PWD=/workspace\n"));
    CHECK(says(socket_a, "/usr/bin/python3 -c 'print(6*7)'", "42\n"));
}

static void check_seccomp(void)
{
    CHECK(fails(socket_a, "unshare -U true"));
    CHECK(fails(socket_a, "unshare -r -m true"));
    CHECK(fails(socket_a, "mount -t tmpfs none /tmp"));
    static const char CALLS[] =
        "/usr/bin/python3 - <<'E'\n"
        "import ctypes, os, socket\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "def call(*a):\n"
        "    ctypes.set_errno(0); c.syscall(*[ctypes.c_long(x) for x in a]); return ctypes.get_errno()\n"
        "x = os.uname().machine == 'x86_64'\n"
        "print(call(425, 1, 0), call(323 if x else 282, 0), call(321 if x else 280, 0, 0, 0), call(435, 0, 0),\n"
        "      call(16 if x else 29, 0, 0x5412, 0), call(16 if x else 29, 0, 0x7700005412, 0),\n"
        "      call(135 if x else 92, 0x0400000), call(56 if x else 220, 0x10000011, 0, 0, 0, 0), call(999))\n"
        "for f, p in ((16, 0), (16, 9), (40, 0), (17, 0), (38, 0)):\n"
        "    try: socket.socket(f, 3 if f == 16 else 2, p); print('socket', f, p)\n"
        "    except OSError as e: print('no', f, p, e.errno)\n"
        "E\n";
    /* io_uring, userfaultfd, bpf: EPERM; clone3: ENOSYS; TIOCSTI, also with a high bit; personality; clone(NEWUSER). */
    CHECK(says(socket_a, CALLS, "1 1 1 38 1 1 1 1 38\nsocket 16 0\nno 16 9 1\nno 40 0 1\nno 17 0 1\nno 38 0 1\n"));
}

static void check_limits(void)
{
    CHECK(fails(socket_a, "dd if=/dev/zero of=/workspace/big bs=1M count=20 2>/dev/null"));
    CHECK(says(socket_a, "rm /workspace/big; echo $?", "0\n"));
    const struct stand_in_reply *reply =
        stand_in_run(socket_a, "/usr/bin/python3 -c 'b = bytearray(400 << 20); print(len(b))'");
    CHECK(reply->status != 0 && strstr(reply->output, "419430400") == NULL);
    reply = stand_in_run(socket_a, "for i in $(seq 100); do sleep 1 & done 2>&1; wait");
    CHECK(strstr(reply->output, "fork") != NULL); /* "Cannot fork" */
    CHECK(says(socket_a, "echo alive", "alive\n"));
}

static unsigned long long number_after(int fd, const char *word)
{
    char text[1024] = "";
    ssize_t size = pread(fd, text, sizeof text - 1, 0);
    const char *at = size > 0 ? strstr(text, word) : NULL;
    return at ? strtoull(at + strlen(word), NULL, 10) : 0;
}

static void test_two_at_once(void)
{
    struct isolation_sandbox a = ISOLATION_NONE;
    struct isolation_sandbox b = ISOLATION_NONE;
    CHECK(create(SLOT_A, &a));
    CHECK(create(SLOT_B, &b));
    CHECK(count_slots() == 2);
    check_inside();
    check_seccomp();
    check_limits();
    CHECK(number_after(a.stats[5], "oom_kill ") >= 1);
    CHECK(number_after(b.stats[5], "oom_kill ") == 0);
    CHECK(number_after(a.stats[3], "usage_usec ") > 0);
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int connection = stand_in_connect(socket_a);
    CHECK(getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0);
    CHECK(peer.uid == 1879048192U + SLOT_A * 65536U); /* listen(2) was init's */
    close(connection);
    /* The slot is taken: nothing happens to who has it. */
    struct error err = {0};
    struct isolation_sandbox third = ISOLATION_NONE;
    struct isolation_plan plan = plan_of(SLOT_B);
    plan.socket_path = "/tmp/parley-isolation-none/init.sock";
    plan.area_path = "/tmp";
    CHECK(!isolation_namespaces.begin(&plan, &third, &err));
    CHECK(err.kind == ERROR_CONFLICT);
    CHECK(says(socket_b, "echo here", "here\n"));
    /* Freeze stops what runs; kill works on what is frozen. */
    CHECK(write(b.stats[1], "1", 1) == 1);
    CHECK(!isolation_namespaces.remove(SLOT_A, &err));
    CHECK(err.kind == ERROR_STARTING);
    CHECK(end(SLOT_B, &b));
    CHECK(says(socket_a, "echo neighbour unharmed", "neighbour unharmed\n"));
    CHECK(end(SLOT_A, &a));
    CHECK(count_slots() == 0);
}

/* What is wrong with a plan, and what the error says. */
static void check_failure(struct isolation_plan plan, const char *expected)
{
    struct error err = {0};
    struct isolation_sandbox made = {.init = -7};
    struct isolation_life life = life_of(SLOT_A);
    AUTO_FD int area = area_make(SLOT_A, 16 << 20);
    if (!plan.area_path)
        plan.area_mount = area;
    CHECK(!make(&plan, &life, &made, &err));
    if (strstr(err.message, expected) == NULL)
        fprintf(stderr, "\"%s\" is not in: %s\n", expected, err.message);
    CHECK(strstr(err.message, expected) != NULL);
    CHECK(made.init == -7); /* untouched */
    CHECK(count_slots() == 0);
}

static void test_failures_leave_nothing(void)
{
    struct error err = {0};
    struct isolation_plan plan = plan_of(SLOT_A);
    plan.lower_root = "/no/such/skeleton";
    check_failure(plan, "/no/such/skeleton");
    plan.lower_root = "/proc/self"; /* cannot be idmapped */
    check_failure(plan, "idmap the mount");
    plan = plan_of(SLOT_A);
    plan.socket_path = "/no/such/folder/init.sock";
    check_failure(plan, "/no/such/folder");
    plan = plan_of(SLOT_A);
    plan.area_path = state; /* has no root/upper: the child finds out */
    check_failure(plan, "new sandbox: mount overlay");
    plan = plan_of(SLOT_A);
    AUTO_FD int no_program = fd_sealed_memfd("init", "#!/no/such/interpreter\n", 23, &err);
    plan.init_program = no_program;
    check_failure(plan, "execute init");
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* A birth can be ended at any stage, and one that hangs is. */
static void test_births_are_ended(void)
{
    for (int stage = 0; stage < 4; stage++) {
        struct error err = {0};
        struct isolation_sandbox made = ISOLATION_NONE;
        struct isolation_plan plan = plan_of(SLOT_A);
        struct isolation_life life = life_of(SLOT_A);
        AUTO_FD int area = area_make(SLOT_A, 16 << 20);
        plan.area_mount = area;
        life.hostname = stage == 3 ? "deaf" : life.hostname;
        CHECK(isolation_namespaces.begin(&plan, &made, &err));
        if (stage > 0)
            CHECK(wait_warm(SLOT_A, &made, &err) == 1);
        if (stage > 1)
            CHECK(isolation_namespaces.become(SLOT_A, plan.uid_base, &made, &life, &err));
        if (stage == 3)
            CHECK(isolation_namespaces.is_ready(&made, &err) == 0 && !wait_readable(made.birth, 50));
        CHECK(end(SLOT_A, &made));
        CHECK(count_slots() == 0);
    }
    unlink(socket_a);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* A launcher that dies before it told what to become leaves no warm one behind. */
static void test_abandoned(void)
{
    struct error err = {0};
    struct isolation_sandbox made = ISOLATION_NONE;
    struct isolation_plan plan = plan_of(SLOT_A);
    AUTO_FD int area = area_make(SLOT_A, 16 << 20);
    plan.area_mount = area;
    CHECK(isolation_namespaces.begin(&plan, &made, &err) && wait_warm(SLOT_A, &made, &err) == 1);
    CHECK(!wait_readable(made.init, 50) && stand_in_connect(socket_a) < 0); /* alive, and listening to nobody */
    close(made.birth);
    made.birth = -1;
    CHECK(wait_readable(made.init, 20000));
    CHECK(end(SLOT_A, &made));
    unlink(socket_a);
}

static void test_adoption(void)
{
    int pipe_ends[2];
    struct error err = {0};
    CHECK(pipe2(pipe_ends, O_CLOEXEC) == 0);
    pid_t maker = fork();
    if (maker == 0) {
        struct isolation_sandbox made = ISOLATION_NONE;
        uint64_t told[2] = {0};
        if (create(SLOT_A, &made)) {
            told[0] = (uint64_t)made.init_pid;
            told[1] = made.init_start;
        }
        (void)!write(pipe_ends[1], told, sizeof told);
        raise(SIGKILL); /* no good-bye */
    }
    uint64_t told[2] = {0};
    CHECK(read(pipe_ends[0], told, sizeof told) == sizeof told);
    CHECK(waitpid(maker, NULL, 0) == maker);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    CHECK(says(socket_a, "echo still here", "still here\n"));
    struct isolation_sandbox found = ISOLATION_NONE;
    CHECK(!isolation_namespaces.adopt(SLOT_A, (pid_t)told[0], told[1] + 1, &found, &err));
    CHECK(err.kind == ERROR_NOT_FOUND);
    CHECK(!isolation_namespaces.adopt(SLOT_B, (pid_t)told[0], told[1], &found, &err));
    CHECK(!isolation_namespaces.adopt(SLOT_A, getpid(), told[1], &found, &err));
    CHECK(isolation_namespaces.adopt(SLOT_A, (pid_t)told[0], told[1], &found, &err));
    CHECK(!wait_readable(found.init, 0));
    /* An orphan, as another launcher would find it. */
    uint32_t slots[4];
    CHECK(isolation_namespaces.list(slots, 4) == 1 && slots[0] == SLOT_A);
    CHECK(end(SLOT_A, &found));
    CHECK(count_slots() == 0);
    CHECK(isolation_namespaces.kill(SLOT_A, &err));   /* nothing there: fine */
    CHECK(isolation_namespaces.remove(SLOT_A, &err)); /* too */
    CHECK(!isolation_namespaces.adopt(SLOT_A, (pid_t)told[0], told[1], &found, &err));
}

/* The user namespace is the slot's own: what is counted for its owner is counted for nobody else. The launcher is as
 * it was. */
static void test_owner(void)
{
    struct isolation_sandbox a = ISOLATION_NONE;
    uid_t owner = 0;
    CHECK(create(SLOT_A, &a));
    AUTO_FREE char *path = memory_printf("/proc/%d/ns/user", (int)a.init_pid);
    AUTO_FD int namespace_fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(namespace_fd >= 0 && ioctl(namespace_fd, NS_GET_OWNER_UID, &owner) == 0);
    CHECK(owner == 1879048192U + SLOT_A * 65536U);
    CHECK(geteuid() == 0 && getuid() == 0 && prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
    CHECK(access("/proc/1/environ", R_OK) == 0);
    CHECK(end(SLOT_A, &a));
}

/* What all may write to in a skeleton is out of the reach of the host's users. */
static void test_templates_are_closed(void)
{
    struct stat status = {0};
    AUTO_FREE char *templates = memory_printf("%s/sandboxd/templates", state);
    CHECK(stat(templates, &status) == 0 && (status.st_mode & 07777) == 0700 && status.st_uid == 0);
}

/* init's own end ends all that runs inside. */
static void test_init_ends(void)
{
    struct isolation_sandbox a = ISOLATION_NONE;
    CHECK(create(SLOT_A, &a));
    (void)stand_in_run(socket_a, "sleep 1000 > /dev/null 2>&1 & exit 0");
    (void)stand_in_run(socket_a, "exit");
    CHECK(wait_readable(a.init, 5000));
    siginfo_t how;
    CHECK(waitid(P_PIDFD, (id_t)a.init, &how, WEXITED) == 0 && how.si_status == 0);
    isolation_close(&a);
    CHECK(remove_whole(SLOT_A));
}

static void test_probe(void)
{
    struct isolation_layer layers[ISOLATION_LAYERS_MAX];
    size_t count = isolation_namespaces.probe(layers);
    CHECK(count > 15 && count <= ISOLATION_LAYERS_MAX);
    for (size_t i = 0; i < count; i++) {
        CHECK(layers[i].name[0] && layers[i].detail[0]);
        if (!layers[i].active)
            printf("layer not active: %s: %s\n", layers[i].name, layers[i].detail);
    }
}

int main(int argc, char *argv[])
{
    stand_in_init(argc, argv);
    struct error err = {0};
    if (geteuid() != 0)
        check_skip("needs root");
    CHECK(syscall(SYS_unshare, 0x00020000 /* CLONE_NEWNS */) == 0 &&
          mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0);
    CHECK(mkdtemp(state) != NULL && chmod(state, 0711) == 0);
    AUTO_FREE char *templates = memory_printf("%s/sandboxd/templates", state);
    CHECK(fd_make_folders(templates, 0711, &err)); /* an older release's */
    if (!isolation_namespaces.start(state, &err)) {
        (void)!fd_remove_tree(state, NULL);
        check_skip(err.message);
    }
    snprintf(skeleton, sizeof skeleton, "%s/sandboxd/templates/base/rootfs", state);
    snprintf(socket_a, sizeof socket_a, "%s/a.sock", state);
    snprintf(socket_b, sizeof socket_b, "%s/b.sock", state);
    program = stand_in_program();
    test_probe();
    test_failures_leave_nothing();
    test_births_are_ended();
    test_abandoned();
    test_two_at_once();
    test_adoption();
    test_owner();
    test_templates_are_closed();
    test_init_ends();
    isolation_namespaces.stop();
    close(program);
    CHECK(fd_remove_tree(state, &err));
    return check_done();
}
