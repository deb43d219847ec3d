/* gift_play.c - the lies to who asks for a connection to a port, or for the list of ports. */
#include "tests/hostile/programs/hostile_init.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void dialed_send(const struct play *play, uint64_t number, int error_number, const int *fds, size_t count)
{
    struct front_init_message message = {.type = FI_DIALED,
                                         .as.dialed = {.number = number, .error_number = error_number}};
    (void)raw_send(play->connection, &message, front_init_size(FI_DIALED), fds, count);
}

/* A connection that is what it should be, to a listener of our own at that port that reads nothing. */
static int connect_deaf(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 4) < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        _exit(60);
    return fd;
}

/* Takes away what the front has set on the socket, again and again: reads would wait, and close would linger. */
static void be_nasty(int fd)
{
    const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    if (fork() != 0)
        return;
    for (;;) {
        (void)fcntl(fd, F_SETFL, O_RDWR);
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour);
        usleep(1000);
    }
}

void dial_play(struct play *play, const struct fi_dial *dial)
{
    const char *mode = play->modes.dial;
    if (strcmp(mode, "silent") == 0)
        return;
    if (strcmp(mode, "") == 0 || strcmp(mode, "errno") == 0) {
        dialed_send(play, dial->number, mode[0] ? 4095 : ECONNREFUSED, NULL, 0);
        return;
    }
    bool is_deaf = strcmp(mode, "deaf") == 0 || strcmp(mode, "number") == 0 || strcmp(mode, "twice") == 0;
    int fd = is_deaf ? connect_deaf(dial->port) : descriptor_make(mode, play->connection);
    if (strcmp(mode, "deaf") == 0)
        be_nasty(fd);
    dialed_send(play, strcmp(mode, "number") == 0 ? dial->number + 4711 : dial->number, 0, &fd, 1);
    if (strcmp(mode, "twice") == 0)
        dialed_send(play, dial->number, 0, &fd, 1);
    close(fd);
}

/* A socket of the right family that is told lies by us, not by the kernel. */
static int forged_diag(void)
{
    struct sockaddr_nl own = {.nl_family = AF_NETLINK};
    socklen_t size = sizeof own;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    int liar = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct nlmsghdr forged = {.nlmsg_len = 12, .nlmsg_type = SOCK_DIAG_BY_FAMILY};
    if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0 || getsockname(fd, (struct sockaddr *)&own, &size) < 0)
        _exit(61);
    for (int i = 0; i < 100; i++)
        (void)sendto(liar, &forged, sizeof forged, MSG_DONTWAIT, (struct sockaddr *)&own, sizeof own);
    close(liar);
    return fd;
}

void listeners_play(struct play *play)
{
    const char *mode = play->modes.listeners;
    struct front_init_message message = {.type = FI_LISTENERS_IS};
    if (strcmp(mode, "silent") == 0)
        return;
    int fd = strcmp(mode, "forged") == 0 || !mode[0] ? forged_diag() : descriptor_make(mode, play->connection);
    (void)raw_send(play->connection, &message, front_init_size(FI_LISTENERS_IS), &fd, 1);
    close(fd);
}
