/* descriptors.c - kinds of descriptors that no honest init would give. */
#include "tests/hostile/programs/hostile_init.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int fifo_open(int flags)
{
    static unsigned number;
    char path[64];
    __builtin_snprintf(path, sizeof path, "/tmp/.hostile-%u", number++);
    if (mkfifo(path, 0666) < 0)
        _exit(40);
    int fd = open(path, flags | O_CLOEXEC);
    unlink(path);
    return fd;
}

static int pipe_end(int end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        _exit(41);
    close(ends[1 - end]);
    return ends[end];
}

static int tcp_listen(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)address, sizeof *address) < 0 || listen(fd, 8) < 0 ||
        getsockname(fd, (struct sockaddr *)address, &size) < 0)
        _exit(42);
    return fd;
}

/* Bytes that nobody takes, and an hour in which close(2) waits for that. */
static int linger_make(void)
{
    static char bytes[65536];
    struct sockaddr_in address;
    const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    int listener = tcp_listen(&address); /* stays open, as does what it accepts: in its queue */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        _exit(43);
    (void)listener;
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour) < 0)
        _exit(44);
    return fd;
}

static int memory_make(unsigned seals, off_t size)
{
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, size) < 0 || (seals && fcntl(fd, F_ADD_SEALS, seals) < 0))
        _exit(45);
    return fd;
}

static int memory_far(void)
{
    int fd = memory_make(F_SEAL_SHRINK, INT64_MAX);
    (void)lseek(fd, INT64_MAX - 8, SEEK_SET);
    return fd;
}

static int memory_read_only(void)
{
    char path[64];
    int fd = memory_make(F_SEAL_SHRINK, 4096);
    __builtin_snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int other = open(path, O_RDONLY | O_CLOEXEC);
    close(fd);
    return other;
}

static int connected_udp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = 9};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        _exit(46);
    return fd;
}

static int unix_socket(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        _exit(47);
    close(ends[1]);
    return ends[0];
}

int descriptor_make(const char *kind, int connection)
{
    struct sockaddr_in address;
    static const struct {
        const char *kind, *path;
        int flags;
    } FILES[] = {{"null", "/dev/null", O_RDWR},      {"zero", "/dev/zero", O_RDWR}, {"dir", "/tmp", O_RDONLY},
                 {"proc", "/proc/uptime", O_RDONLY}, {"ptmx", "/dev/ptmx", O_RDWR}, {"root", "/", O_PATH},
                 {"file", "/etc/hosts", O_RDONLY}};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        if (strcmp(kind, FILES[i].kind) == 0)
            return open(FILES[i].path, FILES[i].flags | O_NOCTTY | O_CLOEXEC);
    }
    if (strcmp(kind, "fifo") == 0)
        return fifo_open(O_RDWR);
    if (strcmp(kind, "opath") == 0)
        return fifo_open(O_PATH);
    if (strcmp(kind, "write-end") == 0)
        return pipe_end(1);
    if (strcmp(kind, "read-end") == 0)
        return pipe_end(0);
    if (strcmp(kind, "epoll") == 0)
        return epoll_create1(EPOLL_CLOEXEC);
    if (strcmp(kind, "eventfd") == 0)
        return eventfd(0, EFD_CLOEXEC);
    if (strcmp(kind, "inotify") == 0)
        return inotify_init1(IN_CLOEXEC);
    if (strcmp(kind, "listen") == 0)
        return tcp_listen(&address);
    if (strcmp(kind, "linger") == 0)
        return linger_make();
    if (strcmp(kind, "udp") == 0)
        return connected_udp();
    if (strcmp(kind, "unix") == 0)
        return unix_socket();
    if (strcmp(kind, "route") == 0)
        return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (strcmp(kind, "own") == 0)
        return fcntl(connection, F_DUPFD_CLOEXEC, 3);
    if (strcmp(kind, "unsealed") == 0)
        return memory_make(0, 4096);
    if (strcmp(kind, "unwritable") == 0)
        return memory_make(F_SEAL_SHRINK | F_SEAL_WRITE, 4096);
    if (strcmp(kind, "far") == 0)
        return memory_far();
    if (strcmp(kind, "read-only") == 0)
        return memory_read_only();
    _exit(48);
}
