/* fd_test.c - whole files, atomic replacement, trees with links and great depth, descriptors over a socket. */
#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include "shared/base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

static char *folder; /* of this run; paths below are relative to it */

static bool is_there(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

/* Names here that start with `prefix`. */
static int count_entries(const char *prefix)
{
    int count = 0;
    DIR *here = opendir(".");
    for (const struct dirent *entry = readdir(here); entry; entry = readdir(here))
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(here);
    return count;
}

static mode_t mode_of(const char *path)
{
    struct stat status = {0};
    return stat(path, &status) == 0 ? status.st_mode & 07777 : 0;
}

static bool has_content(const char *path, const char *want)
{
    AUTO_FREE char *data = fd_read_file(path, 1000, NULL, NULL);
    return data && strcmp(data, want) == 0;
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_write_file(void)
{
    struct error err = {0};
    umask(077); /* the mode is exact all the same */
    CHECK(fd_write_file("a", 0644, "one", 3, &err));
    CHECK(has_content("a", "one") && mode_of("a") == 0644);
    CHECK(symlink("a", "link") == 0);
    CHECK(fd_write_file("link", 0600, "two", 3, &err)); /* the link is replaced, not followed */
    CHECK(has_content("link", "two") && has_content("a", "one") && mode_of("link") == 0600);
    CHECK(!fd_write_file("no/such/file", 0600, "x", 1, &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(mkdir("taken", 0700) == 0 && mkdir("taken/x", 0700) == 0);
    CHECK(!fd_write_file("taken", 0600, "x", 1, &err) && strstr(err.message, "taken") != NULL);
    CHECK(count_entries("taken.") == 0); /* nothing is left beside it */
    CHECK(fd_write_file("empty", 0600, NULL, 0, &err) && has_content("empty", ""));
    umask(022);
}

static void test_disk_full(void)
{
    struct error err = {0};
    AUTO_FD int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full >= 0)
        CHECK(!fd_write_all(full, "x", 1, &err) && err.kind == ERROR_DISK_FULL && err.system_errno == ENOSPC);
    CHECK(!fd_write_all(-1, "x", 1, &err) && err.kind == ERROR_INTERNAL && err.system_errno == EBADF);
}

static void test_read_file(void)
{
    struct error err = {0};
    size_t size = 99;
    CHECK(fd_write_file("ten", 0600,
                        "0123\0"
                        "56789",
                        10, &err));
    AUTO_FREE char *ten = fd_read_file("ten", 10, &size, &err);
    CHECK(ten && size == 10 &&
          memcmp(ten,
                 "0123\0"
                 "56789",
                 11) == 0);
    size = 99;
    CHECK(fd_read_file("ten", 9, &size, &err) == NULL && err.kind == ERROR_TOO_LARGE);
    CHECK(fd_read_file("none", 9, &size, &err) == NULL && err.kind == ERROR_NOT_FOUND && err.system_errno == ENOENT);
    CHECK(fd_read_file(".", 9, &size, &err) == NULL && err.kind == ERROR_INVALID);
    CHECK(mkfifo("fifo", 0600) == 0);
    CHECK(fd_read_file("fifo", 9, &size, &err) == NULL && err.kind == ERROR_INVALID); /* and does not wait */
    CHECK(size == 99);
    AUTO_FREE char *status = fd_read_file("/proc/self/status", 65536, &size, &err); /* says it has 0 bytes */
    CHECK(status && size > 100 && strstr(status, "Name:") != NULL);
    CHECK(fd_read_file("/proc/self/status", 20, NULL, &err) == NULL && err.kind == ERROR_TOO_LARGE);
    AUTO_FREE char *large = memory_new(300000);
    memset(large, 'z', 300000);
    CHECK(fd_write_file("large", 0600, large, 300000, &err));
    AUTO_FREE char *again = fd_read_file("large", SIZE_MAX, &size, &err);
    CHECK(again && size == 300000 && memcmp(again, large, size) == 0);
}

static void test_read_exact(void)
{
    int ends[2];
    struct error err = {0};
    char bytes[4] = "";
    CHECK(pipe(ends) == 0);
    CHECK(fd_write_all(ends[1], "abcdef", 6, &err));
    CHECK(fd_read_exact(ends[0], bytes, 4, &err) && memcmp(bytes, "abcd", 4) == 0);
    close(ends[1]);
    CHECK(!fd_read_exact(ends[0], bytes, 4, &err) && err.kind == ERROR_INVALID);
    CHECK_TEXT(err.message, "ended after 2 of 4 bytes");
    close(ends[0]);
}

static void test_make_folders(void)
{
    struct error err = {0};
    umask(077);
    CHECK(fd_make_folders("m/n//o/", 0755, &err) && mode_of("m/n/o") == 0755 && mode_of("m") == 0755);
    umask(022);
    CHECK(chmod("m/n", 0700) == 0);
    CHECK(fd_make_folders("m/n/p", 0710, &err) && mode_of("m/n") == 0700 && mode_of("m/n/p") == 0710);
    CHECK(fd_make_folders("m/n/p", 0700, &err) && mode_of("m/n/p") == 0710);
    CHECK(fd_write_file("m/file", 0600, "", 0, &err));
    CHECK(!fd_make_folders("m/file/x", 0700, &err) && strstr(err.message, "m/file") != NULL);
    CHECK(!fd_make_folders("m/file", 0700, &err) && !fd_make_folders("", 0700, &err));
    CHECK(fd_make_folders("/", 0700, &err) && fd_make_folders("/tmp", 0700, &err));
}

static void test_remove_tree(void)
{
    struct error err = {0};
    CHECK(fd_make_folders("keep/inner", 0700, &err) && fd_write_file("keep/file", 0600, "k", 1, &err));
    CHECK(fd_make_folders("t/a/b/c", 0700, &err) && fd_make_folders("t/d/e", 0700, &err));
    CHECK(fd_write_file("t/a/b/file", 0400, "x", 1, &err) && mkfifo("t/d/fifo", 0600) == 0);
    CHECK(symlink("../keep", "t/link") == 0 && symlink("../../../keep/inner", "t/a/b/c/link") == 0);
    CHECK(symlink("nowhere", "t/dangling") == 0);
    for (int i = 0; i < 500; i++) {
        AUTO_FREE char *name = memory_printf("t/d/e/file-%d", i);
        CHECK(mknod(name, S_IFREG | 0600, 0) == 0);
    }
    unsigned before = open_descriptors();
    CHECK(fd_remove_tree("t", &err) && !is_there("t"));
    CHECK(open_descriptors() == before);
    CHECK(is_there("keep/inner") && has_content("keep/file", "k"));
    CHECK(fd_remove_tree("t", &err));
    CHECK(symlink("keep", "to-keep") == 0);
    CHECK(fd_remove_tree("to-keep", &err) && !is_there("to-keep") && is_there("keep/inner"));
    CHECK(fd_remove_tree("keep/file", &err) && !is_there("keep/file"));
    CHECK(fd_remove_tree("keep/", &err) && !is_there("keep"));
    CHECK(!fd_remove_tree("/proc/self/fdinfo", &err) && err.system_errno != 0);
}

/* Deeper than PATH_MAX, than the descriptors we may have, and than a stack with a frame a level. */
static void test_remove_deep(void)
{
    enum { DEPTH = 5000 };
    struct error err = {0};
    CHECK(mkdir("deep", 0700) == 0);
    int fd = open("deep", O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEPTH && fd >= 0; i++) {
        int below = mkdirat(fd, "d", 0700) == 0 ? openat(fd, "d", O_DIRECTORY | O_CLOEXEC) : -1;
        close(fd);
        fd = below;
    }
    CHECK(fd >= 0);
    close(fd);
    struct rlimit old;
    getrlimit(RLIMIT_NOFILE, &old);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 32, .rlim_max = old.rlim_max});
    CHECK(fd_remove_tree("deep", &err));
    CHECK(!is_there("deep"));
    setrlimit(RLIMIT_NOFILE, &old);
}

static void test_memfd(void)
{
    struct error err = {0};
    AUTO_FD int fd = fd_sealed_memfd("spec", "hello", 5, &err);
    char bytes[8] = "";
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    CHECK(read(fd, bytes, sizeof bytes) == 5 && memcmp(bytes, "hello", 5) == 0);
    CHECK(write(fd, "x", 1) < 0 && errno == EPERM);
    CHECK(ftruncate(fd, 2) < 0 && ftruncate(fd, 20) < 0);
    CHECK(mmap(NULL, 5, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) < 0);
}

static void test_messages(void)
{
    int pair[2];
    struct error err = {0};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    int many[FD_MESSAGE_FDS + 1];
    for (size_t i = 0; i < FD_MESSAGE_FDS + 1; i++)
        many[i] = STDIN_FILENO;
    many[3] = pair[0];
    char bytes[16] = "";
    int fds[FD_MESSAGE_FDS];
    size_t count = 99;
    unsigned before = open_descriptors();
    CHECK(fd_send_message(pair[0], "plain", 5, NULL, 0, &err));
    CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == 5 && count == 0);
    CHECK(fd_send_message(pair[0], "with", 4, many, FD_MESSAGE_FDS, &err));
    CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == 4 && count == FD_MESSAGE_FDS);
    CHECK(memcmp(bytes, "with", 4) == 0 && open_descriptors() == before + FD_MESSAGE_FDS);
    struct stat sent;
    struct stat received;
    CHECK(fstat(pair[0], &sent) == 0 && fstat(fds[3], &received) == 0 && sent.st_ino == received.st_ino);
    for (size_t i = 0; i < count; i++) {
        CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        close(fds[i]);
    }
    CHECK(!fd_send_message(pair[0], "x", 1, many, FD_MESSAGE_FDS + 1, &err) && err.kind == ERROR_INVALID);
    CHECK(!fd_send_message(pair[0], "", 0, NULL, 0, &err) && err.kind == ERROR_INVALID);

    /* Cut short: refused, and its descriptors do not stay open. */
    CHECK(fd_send_message(pair[0], "0123456789abcdefX", 17, many, 2, &err));
    count = 99;
    CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == -1 && err.kind == ERROR_INVALID);
    CHECK(count == 99 && open_descriptors() == before);

    CHECK(fd_set_nonblocking(pair[1], &err) && !fd_set_nonblocking(-1, &err));
    CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == -1 && err.system_errno == EAGAIN);
    CHECK(fd_set_nonblocking(pair[0], &err));
    int sent_count = 0;
    while (sent_count < 100000 && fd_send_message(pair[0], "fill", 4, NULL, 0, &err))
        sent_count++;
    CHECK(sent_count > 0 && sent_count < 100000 && err.system_errno == EAGAIN);
    close(pair[0]);
    for (int i = 0; i < sent_count; i++)
        CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == 4);
    CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == 0 && count == 0);
    CHECK(!fd_send_message(pair[1], "x", 1, NULL, 0, &err) && err.system_errno == EPIPE); /* and no SIGPIPE */
    close(pair[1]);
    CHECK(open_descriptors() == before - 2);
}

/* A sender that keeps to no rule: more descriptors than we take, and a message of no bytes with some. */
static void send_raw(int socket, size_t size, size_t fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 100)];
    } control = {0};
    char data[4] = "abcd";
    struct iovec piece = {.iov_base = data, .iov_len = size};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * fd_count)};
    control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * fd_count)};
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size); /* all zero: descriptor 0, many times */
}

static void test_hostile_messages(void)
{
    int pair[2];
    struct error err = {0};
    char bytes[16];
    int fds[FD_MESSAGE_FDS];
    size_t count = 99;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    unsigned before = open_descriptors();
    for (size_t sent = FD_MESSAGE_FDS + 1; sent < 30; sent++) {
        send_raw(pair[0], 4, sent);
        CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == -1);
        CHECK(err.kind == ERROR_INVALID && count == 99 && open_descriptors() == before);
    }
    send_raw(pair[0], 0, 3);
    CHECK(fd_receive_message(pair[1], bytes, sizeof bytes, fds, &count, &err) == 0);
    CHECK(count == 0 && open_descriptors() == before);
    close(pair[0]);
    close(pair[1]);
}

/* More descriptors than fd_send_message sends. */
static void send_forty(int socket, const int many[static 40])
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 40)] = {0};
    const struct cmsghdr head = {
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * 40)};
    char byte = 'x';
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    memcpy(control, &head, sizeof head);
    memcpy(control + CMSG_LEN(0), many, sizeof(int) * 40);
    CHECK(sendmsg(socket, &message, 0) == 1);
}

/* A TCP connection whose peer does not read, with bytes for it, and a minute in which close(2) waits. */
static int lingering(void)
{
    static char bytes[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger minute = {.l_onoff = 1, .l_linger = 60};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 4) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &minute, sizeof minute) == 0);
    return fd; /* the listener stays open: its end is the peer's */
}

/* Each of these would wait for a minute by close(2); the alarm ends the test. */
static void test_drop(void)
{
    struct error err = {0};
    int pair[2], inner[2], many[40], fds[FD_MESSAGE_FDS];
    size_t count = 0;
    char byte;
    alarm(30);
    fd_drop(-1);
    fd_drop(lingering());
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    fd_drop(file);
    CHECK(fcntl(file, F_GETFD) < 0);

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0); /* one in a socket's queue, in another's */
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, inner) == 0);
    int one = lingering();
    CHECK(fd_send_message(inner[0], "x", 1, &one, 1, &err) && fd_send_message(pair[0], "x", 1, &inner[1], 1, &err));
    close(one);
    close(inner[1]);
    fd_empty(pair[1]);
    CHECK(recv(pair[0], &byte, 1, 0) <= 0); /* its peer sees the end */
    close(pair[0]);
    close(pair[1]);
    close(inner[0]);

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0); /* more than a message may have */
    many[0] = lingering();
    for (size_t i = 1; i < 40; i++)
        many[i] = fcntl(many[0], F_DUPFD_CLOEXEC, 3);
    send_forty(pair[0], many);
    for (size_t i = 0; i < 40; i++)
        close(many[i]);
    CHECK(fd_receive_message(pair[1], &byte, 1, fds, &count, &err) == -1 && err.kind == ERROR_INVALID);
    close(pair[0]);
    close(pair[1]);
    alarm(0);
}

/* A stream: recv would close what comes with its bytes, close(2) what lies in it. */
static void test_stream_with_descriptors(void)
{
    struct error err = {0};
    int pair[2];
    char bytes[64];
    alarm(30);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    int one = lingering(), two = lingering();
    CHECK(fd_receive(pair[1], bytes, sizeof bytes) == -1 && errno == EAGAIN);
    CHECK(fd_send_message(pair[0], "one", 3, &one, 1, &err) && fd_send_message(pair[0], "two", 3, &two, 1, &err));
    close(one);
    close(two);
    CHECK(fd_receive(pair[1], bytes, sizeof bytes) == 3 && memcmp(bytes, "one", 3) == 0);
    fd_hang_up(pair[1]); /* with "two" */
    close(pair[1]);
    CHECK(recv(pair[0], bytes, 1, 0) <= 0);
    close(pair[0]);

    int tcp = lingering(); /* what was sent arrives: only its close does not wait */
    fd_hang_up(tcp);
    CHECK(send(tcp, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EAGAIN);
    close(tcp);
    alarm(0);
}

int main(void)
{
    char template[] = "/tmp/parley-fd-test-XXXXXX";
    folder = mkdtemp(template);
    if (folder == NULL || chdir(folder) < 0)
        return 1;
    test_write_file();
    test_disk_full();
    test_read_file();
    test_read_exact();
    test_make_folders();
    test_remove_tree();
    test_remove_deep();
    test_memfd();
    test_messages();
    test_hostile_messages();
    test_drop();
    test_stream_with_descriptors();
    CHECK(chdir("/") == 0 && fd_remove_tree(folder, NULL) && !is_there(folder));
    return check_done();
}
