/* The process without rights: what it still does (everything it is for), and what it cannot do any more, each thing
 * first seen to work. */
#include "tests/unit/sandboxd/egress/egress_rig.h"

#include "sandboxd/egress/rights.h"

#include <openssl/ssl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static bool can_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool can_make_socket(int family, int type)
{
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool can_listen(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0;
    close(fd);
    return can;
}

static bool can_run_memory(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED)
        munmap(page, 4096);
    return page != MAP_FAILED;
}

static bool can_fork(void)
{
    pid_t pid = (pid_t)syscall(SYS_fork);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid > 0;
}

/* How many of the things it can do. */
static unsigned count_rights(void)
{
    unsigned count = 0;
    count += can_open("/etc/passwd", O_RDONLY);
    count += can_open("/proc/self/status", O_RDONLY);
    count += can_open("/tmp/parley-rights-test", O_RDWR | O_CREAT);
    count += can_make_socket(AF_UNIX, SOCK_STREAM);
    count += can_make_socket(AF_NETLINK, SOCK_RAW);
    count += can_make_socket(AF_INET6, SOCK_STREAM);
    count += can_listen();
    count += can_run_memory();
    count += can_fork();
    count += kill(getppid(), 0) == 0;
    count += syscall(SYS_ptrace, 0 /* PTRACE_TRACEME */, 0, NULL, NULL) == 0;
    count += prctl(PR_GET_DUMPABLE) == 1;
    return count;
}

static void test_lost(void)
{
    int result[2];
    const struct eg_config config = {.uid = 991, .gid = 991};
    CHECK(pipe2(result, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct error err = {0};
        unsigned counts[2] = {count_rights(), 99};
        if (rights_give_up(&config, &err))
            counts[1] = count_rights();
        (void)!write(result[1], counts, sizeof counts);
        _exit(0);
    }
    unsigned counts[2] = {0, 99};
    CHECK(read(result[0], counts, sizeof counts) == sizeof counts);
    CHECK(counts[0] == 12);
    CHECK(counts[1] == 0);
    waitpid(pid, NULL, 0);
    (void)unlink("/tmp/parley-rights-test");
    close(result[0]);
    close(result[1]);
}

static struct rig rig;

static size_t receive_up_to(int fd, char *to, size_t want)
{
    size_t had = 0;
    for (ssize_t got = 1; had < want && got > 0; had += got > 0 ? (size_t)got : 0)
        got = recv(fd, to + had, want - had, 0);
    return had;
}

static void test_kept(void)
{
    static const char GET[] = "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n";
    char told[512];
    char got[512];
    rig_ask(&rig, "good.test", 1, told);
    CHECK_TEXT(told, "0 203.0.113.7");
    rig_ask(&rig, "cut.test", 1, told); /* UDP, then TCP upstream */
    CHECK_TEXT(told, "0 203.0.113.13");
    rig_ask(&rig, "evil.test", 1, told);
    CHECK_TEXT(told, "5");
    for (int i = 0; i < 50; i++) {
        int client = rig_connect(rig.proxy);
        CHECK(send(client, GET, sizeof GET - 1, MSG_NOSIGNAL) == sizeof GET - 1);
        int server = accept4(rig.web, NULL, NULL, SOCK_CLOEXEC);
        CHECK(receive_up_to(server, got, sizeof GET - 1) == sizeof GET - 1);
        CHECK(send(server, "answer", 6, MSG_NOSIGNAL) == 6);
        close(server);
        CHECK(receive_up_to(client, got, sizeof got) == 6);
        close(client);
    }
}

static void test_tls(void)
{
    char got[16];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *tls = SSL_new(context);
    int client = rig_connect(rig.proxy);
    SSL_set_fd(tls, client);
    SSL_set_tlsext_host_name(tls, "good.test");
    SSL_set_connect_state(tls);
    struct timeval soon = {.tv_usec = 1};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    (void)SSL_do_handshake(tls); /* says hello; nobody answers */
    int server = accept4(rig.web, NULL, NULL, SOCK_CLOEXEC);
    CHECK(receive_up_to(server, got, 16) == 16 && got[0] == 22);
    close(server);
    close(client);
    SSL_free(tls);
    SSL_CTX_free(context);
}

int main(void)
{
    if (geteuid() != 0)
        check_skip("giving up root's rights takes root");
    test_lost();
    rig_destination = inet_addr("203.0.113.7");
    rig_port = 80;
    int log = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); /* as the launcher's: a file that grows */
    int before = dup(STDERR_FILENO);
    dup2(log, STDERR_FILENO);
    rig_start_as(&rig, rights_give_up);
    dup2(before, STDERR_FILENO);
    rig_new_sandbox(&rig, 7, EG_ALLOW, "good.test cut.test");
    test_kept();
    rig_stop(&rig);
    CHECK(lseek(log, 0, SEEK_END) > 0);
    close(log);
    close(before);
    rig_port = 443;
    rig_start_as(&rig, rights_give_up);
    rig_new_sandbox(&rig, 7, EG_ALLOW, "good.test cut.test");
    test_tls();
    rig_stop(&rig);
    return check_done();
}
