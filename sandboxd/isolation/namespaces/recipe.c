#include "sandboxd/isolation/namespaces/recipe.h"

#include "sandboxd/isolation/namespaces/apart.h"
#include "sandboxd/isolation/namespaces/mounts.h"
#include "sandboxd/isolation/namespaces/network.h"
#include "sandboxd/isolation/namespaces/recipe_child.h"
#include "sandboxd/isolation/namespaces/user_namespace.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, PROC_PATH_BYTES = 48 };

/* The others are the child's to take, below its user namespace, while this process goes on. */
static const uint64_t FLAGS = CLONE_NEWUSER | CLONE_NEWPID | CLONE_PIDFD | CLONE_INTO_CGROUP | CLONE_CLEAR_SIGHAND;

/* --- init's socket --- */

/* A socket's address holds 107 characters and a state folder may be longer: it is named through the folder's
 * descriptor. */
static bool bind_in(int folder, const char *name, int fd, gid_t group, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof address.sun_path)
        return error_set(err, ERROR_TOO_LARGE, "the name of init's socket is too long");
    if (unlinkat(folder, name, 0) < 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_INTERNAL, "remove the old %s", name);
    /* sizeof address: Linux takes the path up to its NUL. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        fchownat(folder, name, 0, group, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(folder, name, 0660, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind init's socket");
    return true;
}

static int bind_listener(const struct isolation_plan *plan, struct error *err)
{
    char folder_path[4096];
    const char *slash = strrchr(plan->socket_path, '/');
    size_t length = slash ? (size_t)(slash - plan->socket_path) : 0;
    if (length == 0 || length >= sizeof folder_path) {
        error_set(err, ERROR_INVALID, "init's socket needs an absolute path");
        return -1;
    }
    memcpy(folder_path, plan->socket_path, length);
    folder_path[length] = '\0';
    AUTO_FD int folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (folder < 0 || fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "open %s", folder_path);
        return -1;
    }
    return bind_in(folder, slash + 1, fd, plan->socket_group, err) ? TAKE_FD(fd) : -1;
}

/* --- the two ends of a birth --- */

/* What the parent holds while the child is being born. */
struct birth {
    int control[2]; /* [0] the launcher's end, [1] the child's, then init's */
    pid_t pid;
    int pidfd;
};

static void birth_done(struct birth *birth)
{
    int fds[] = {birth->control[0], birth->control[1], birth->pidfd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static void drop(int *fd)
{
    close(*fd);
    *fd = -1;
}

/* A network namespace that is the host's one cannot be come back to without the host's rights. */
static bool clone_apart(struct birth *birth, struct clone_args *arguments, const struct recipe_child *child,
                        struct error *err)
{
    pid_t pid = apart_clone(arguments, child, err);
    if (pid <= 0)
        return false;
    birth->pid = pid;
    drop(&birth->control[1]);
    return true;
}

static bool clone_child(struct birth *birth, const struct cgroup_slot *slot, const struct recipe_child *child,
                        struct error *err)
{
    struct clone_args arguments = {.flags = FLAGS,
                                   .pidfd = (uint64_t)(uintptr_t)&birth->pidfd,
                                   .exit_signal = SIGCHLD,
                                   .cgroup = (unsigned)slot->top};
    struct user_namespace_owner before;
    int home = -1;
    if (child->host->is_rootless)
        return clone_apart(birth, &arguments, child, err);
    if (!network_visit(child->plan->network, &home, err))
        return false;
    if (!user_namespace_begin_owner(child->plan->uid_base, &before, err)) {
        network_return(home);
        return false;
    }
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0)
        recipe_child_run(child);
    int failed = pid < 0 ? errno : 0;
    user_namespace_end_owner(&before);
    network_return(home);
    errno = failed;
    if (failed)
        return error_set_errno(err, ERROR_INTERNAL, "clone3 with a user namespace");
    birth->pid = (pid_t)pid;
    drop(&birth->control[1]);
    return true;
}

/* A service that the memory killer is to spare (OOMScoreAdjust=) would hand that on, and each process may take its
 * score down again as far as it ever was. What one with CAP_SYS_RESOURCE writes here is the new bound. */
static bool end_protection(pid_t pid, struct error *err)
{
    char path[PROC_PATH_BYTES];
    char score[16] = "";
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || pread(fd, score, sizeof score - 1, 0) <= 0)
        return error_set_errno(err, ERROR_INTERNAL, "read %s", path);
    const char *bound = score[0] == '-' ? "0" : score;
    if (write(fd, bound, strlen(bound)) < 0 && errno != EACCES)
        return error_set_errno(err, ERROR_INTERNAL, "write %s", path);
    return true;
}

/* Gives the child its ids, its nodes, and the layers that only root can idmap. It never waits for the child. */
static bool provide_layers(struct birth *birth, const struct recipe_host *host, const struct isolation_plan *plan,
                           struct error *err)
{
    if (!user_namespace_map(birth->pid, plan->uid_base, err) || !end_protection(birth->pid, err) ||
        !stage_make_slot(host->stage, plan->slot, err))
        return false;
    AUTO_FD int user_namespace = user_namespace_open(birth->pid, err);
    if (user_namespace < 0)
        return false;
    const int ids =
        host->is_rootless ? -1 : user_namespace; /* a user's slots have roots and areas with their own ids */
    AUTO_FD int root = mounts_open(plan->lower_root, ids, MOUNTS_READ_ONLY, err);
    AUTO_FD int area = -1;
    if (root >= 0 && plan->area_path)
        area = mounts_open(plan->area_path, ids, MOUNTS_WRITABLE, err);
    AUTO_FD int usr = -1;
    if (root >= 0 && plan->lower_usr)
        usr = mounts_open(plan->lower_usr, ids, MOUNTS_READ_ONLY, err);
    if (root < 0 || (plan->area_path && area < 0) || (plan->lower_usr && usr < 0))
        return false;
    int layers[RECIPE_LAYERS] = {root, plan->area_path ? area : plan->area_mount};
    size_t count = 2;
    if (plan->lower_usr)
        layers[count++] = usr;
    /* Not idmapped: a monitor may mount, and so make them writable; their owners are nobody to it then. */
    AUTO_FD int bundle = host->guest ? mounts_open(host->guest->bundle, -1, MOUNTS_READ_ONLY, err) : -1;
    AUTO_FD int tools = bundle >= 0 ? mounts_open("/usr", -1, MOUNTS_READ_ONLY, err) : -1;
    if (host->guest && tools < 0)
        return false;
    if (host->guest) {
        layers[count++] = bundle;
        layers[count++] = tools;
    }
    return fd_send_message(birth->control[0], "m", 1, layers, count, err);
}

/* Then what init needs; the child asks for it last. */
static bool provide_rest(struct birth *birth, const struct recipe_host *host, struct cgroup_slot *slot,
                         const struct isolation_plan *plan, struct error *err)
{
    if (!cgroup_slot_complete(host->layout, plan->slot, plan->uid_base, slot, err))
        return false;
    AUTO_FD int listener = bind_listener(plan, err);
    if (listener < 0)
        return false;
    int fds[2 + INHERIT_JOIN_MAX] = {listener, slot->run};
    for (size_t i = 0; i < slot->join_count; i++)
        fds[2 + i] = slot->join[i];
    return fd_send_message(birth->control[0], "r", 1, fds, 2 + slot->join_count, err);
}

static void kill_child(const struct birth *birth)
{
    /* Death of a pid namespace's init kills all in it, and waiting for it waits for them (pid_namespaces(7)). */
    (void)syscall(SYS_pidfd_send_signal, birth->pidfd, SIGKILL, NULL, 0U);
    siginfo_t how;
    while (waitid(P_PIDFD, (id_t)birth->pidfd, &how, WEXITED) < 0 && errno == EINTR) {
    }
}

/* A child that failed may have said why, and knows better than we do. */
static void prefer_its_word(const struct birth *birth, struct error *err)
{
    struct isolation_sandbox heard = ISOLATION_NONE;
    struct error its = {0};
    heard.birth = birth->control[0];
    if (recipe_hear(&heard, LI_READY, &its) < 0 && its.kind != ERROR_GONE && err)
        *err = its;
}

bool recipe_begin(const struct recipe_host *host, struct cgroup_slot *slot, const struct isolation_plan *plan,
                  struct isolation_sandbox *made, struct error *err)
{
    __attribute__((cleanup(birth_done))) struct birth birth = {{-1, -1}, 0, -1};
    if (!plan->area_path && plan->area_mount < 0)
        return error_set(err, ERROR_INVALID, "a sandbox needs an area");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, birth.control) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a socket pair");
    if (!fd_set_nonblocking(birth.control[0], err))
        return false;
    struct recipe_child child = {.plan = plan, .host = host, .leaf = slot->leaf, .control = birth.control[1]};
    if (!clone_child(&birth, slot, &child, err))
        return false;
    if (!provide_layers(&birth, host, plan, err) || !provide_rest(&birth, host, slot, plan, err)) {
        kill_child(&birth);
        prefer_its_word(&birth, err);
        return false;
    }
    struct isolation_sandbox born = ISOLATION_NONE;
    born.init_pid = birth.pid;
    born.init_start = recipe_start_time(birth.pid);
    born.init = TAKE_FD(birth.pidfd);
    born.birth = TAKE_FD(birth.control[0]);
    *made = born;
    return true;
}

/* What may go wrong in there; a token's end, say, is not its affair. */
static void take_failure(const struct error *said, struct error *why)
{
    static const enum error_kind KINDS[] = {ERROR_INVALID,   ERROR_FORBIDDEN,   ERROR_NOT_FOUND, ERROR_CONFLICT,
                                            ERROR_TOO_LARGE, ERROR_NO_CAPACITY, ERROR_DISK_FULL};
    *why = *said;
    why->kind = ERROR_INTERNAL;
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        why->kind = KINDS[i] == said->kind ? KINDS[i] : why->kind;
}

int recipe_hear(const struct isolation_sandbox *sandbox, uint32_t type, struct error *err)
{
    struct launcher_init_message message;
    struct error why = {0};
    int fds[LAUNCHER_INIT_FDS];
    size_t count = 0;
    int got = launcher_init_receive(sandbox->birth, &message, LI_FROM_INIT, fds, &count, &why);
    if (got > 0 && message.type == LI_BARRIER && type == LI_READY)
        got = launcher_init_receive(sandbox->birth, &message, LI_FROM_INIT, fds, &count, &why);
    if (got < 0 && why.system_errno == EAGAIN)
        return 0;
    if (got > 0 && message.type == type)
        return 1;
    if (got == 0 || why.system_errno == ECONNRESET)
        error_set(&why, ERROR_GONE, "init ended before it was ready");
    else if (got > 0 && message.type == LI_FAILED)
        take_failure(&message.as.failed, &why);
    else if (got > 0)
        error_set(&why, ERROR_INTERNAL, "init said %u out of turn", message.type);
    else
        why.kind = ERROR_INTERNAL; /* whatever it said, it is no fault of who asked */
    error_prefix(&why, "new sandbox");
    if (err)
        *err = why;
    return -1;
}

uint64_t recipe_start_time(pid_t pid)
{
    char path[32];
    char line[STAT_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (size <= 0)
        return 0;
    line[size] = '\0';
    /* The name in field 2 may hold anything, a ')' too: the last one ends it. */
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}
