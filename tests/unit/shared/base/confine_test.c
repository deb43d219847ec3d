/* Giving up rights: each check runs in a process of its own, for none of it can be undone. */
#include "shared/base/confine.h"

#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char folder[] = "/tmp/parley-confine-XXXXXX";

static bool can_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool can_bind(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return bound;
}

static void landlocked(void)
{
    struct error err = {0};
    int abi = -1;
    char file[64];
    char outside[64];
    snprintf(file, sizeof file, "%s/in/file", folder);
    snprintf(outside, sizeof outside, "%s/out", folder);
    struct confine_path paths[] = {{NULL, CONFINE_READ | CONFINE_WRITE},
                                   {"/no/such/path", CONFINE_READ},
                                   {"/dev/null", CONFINE_READ | CONFINE_WRITE | CONFINE_EXECUTE}};
    char in[64];
    snprintf(in, sizeof in, "%s/in", folder);
    paths[0].path = in;
    CHECK(can_open("/etc/passwd", O_RDONLY) && can_bind());
    if (!confine_landlock(paths, 3, true, &abi, &err)) {
        CHECK(err.kind == ERROR_NOT_FOUND && abi == 0);
        return;
    }
    CHECK(abi >= 1);
    CHECK(!can_open("/etc/passwd", O_RDONLY) && errno == EACCES);
    CHECK(!can_open(outside, O_WRONLY | O_CREAT));
    CHECK(can_open(file, O_WRONLY | O_CREAT) && can_open(file, O_RDONLY));
    CHECK(can_open("/dev/null", O_RDWR));
    CHECK(abi < 4 || !can_bind());
    CHECK(abi < 6 || kill(getppid(), 0) < 0);
}

static void unprivileged(void)
{
    struct error err = {0};
    CHECK(!confine_user(0, 0, &err) && err.kind == ERROR_INVALID);
    CHECK(confine_user(58702, 58703, &err));
    uid_t uid[3];
    gid_t gid[3];
    gid_t groups[4];
    CHECK(getresuid(&uid[0], &uid[1], &uid[2]) == 0 && uid[0] == 58702 && uid[1] == 58702 && uid[2] == 58702);
    CHECK(getresgid(&gid[0], &gid[1], &gid[2]) == 0 && gid[0] == 58703 && gid[1] == 58703 && gid[2] == 58703);
    CHECK(getgroups(4, groups) == 1 && groups[0] == 58703);
    CHECK(setuid(0) < 0);
    CHECK(prctl(PR_CAPBSET_READ, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
    CHECK(confine_user(58702, 58703, &err)); /* again, without rights: fine */
}

static void *thread(void *cookie)
{
    return cookie;
}

/* Each works before, as root, or fails for another reason than EPERM. */
static void fewer_calls(void)
{
    struct error err = {0};
    char program[] = "/bin/true", *const argv[] = {program, NULL};
    const int families[] = {AF_PACKET, AF_ALG, AF_VSOCK, AF_KEY}, kept[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0 && mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(unshare(CLONE_NEWUTS) == 0 && unshare(CLONE_NEWNS) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && confine_calls(&err));
    CHECK(execve(argv[0], argv, NULL) < 0 && errno == EPERM);
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 && errno == EPERM);
    CHECK(unshare(CLONE_NEWUSER) < 0 && errno == EPERM);
    CHECK(syscall(SYS_clone, CLONE_NEWUTS | SIGCHLD, NULL, NULL, NULL, NULL) < 0 && errno == EPERM);
    CHECK(syscall(SYS_clone3, NULL, 0) < 0 && errno == ENOSYS);
    CHECK(mount("none", "/mnt", "tmpfs", 0, NULL) < 0 && errno == EPERM);
    CHECK(syscall(SYS_bpf, 0, NULL, 0) < 0 && errno == EPERM);
    CHECK(syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == EPERM);
    CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) < 0 && errno == EPERM);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EPERM);
    for (size_t i = 0; i < 4; i++)
        CHECK(socket(families[i], SOCK_RAW, 0) < 0 && errno == EPERM);
    for (size_t i = 0; i < 4; i++)
        CHECK(close(socket(kept[i], SOCK_DGRAM, 0)) == 0);
    pthread_t started;
    CHECK(pthread_create(&started, NULL, thread, NULL) == 0 && pthread_join(started, NULL) == 0);
    CHECK(can_open("/etc/passwd", O_RDONLY) && can_bind());
}

static void in_child(void (*what)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        what();
        fflush(NULL);
        _exit(check_failures ? 1 : 0);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
    char in[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(in, sizeof in, "%s/in", folder);
    CHECK(mkdir(in, 0755) == 0);
    uid_t uid = 0;
    gid_t gid = 0;
    confine_find_user("no-such-user-here", 58702, &uid, &gid);
    CHECK(uid == 58702 && gid == 58702);
    confine_find_user("root", 58702, &uid, &gid); /* never root */
    CHECK(uid == 58702 && gid == 58702);
    confine_find_user("nobody", 58702, &uid, &gid);
    CHECK(uid != 58702 && uid != 0);
    in_child(landlocked);
    if (geteuid() == 0) {
        in_child(fewer_calls);
        in_child(unprivileged);
    }
    char file[64];
    snprintf(file, sizeof file, "%s/in/file", folder);
    unlink(file);
    rmdir(in);
    rmdir(folder);
    return check_done();
}
