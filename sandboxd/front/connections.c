#include "sandboxd/front/connections.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGES_A_TURN = 64, FDS_MAX = 4 };

struct connections {
    struct http_server *server;
    struct loop_watch *watch;
    int socket; /* until its loop has it */
};

static bool is_stream(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* Exactly one, or none is served. */
static void take(struct http_server *server, const int *fds, size_t count)
{
    if (count == 1 && is_stream(fds[0])) {
        http_server_serve(server, fds[0]);
        return;
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    log_warn("front", "a message with %zu descriptors instead of a connection was dropped", count);
}

/* 1 a message, 0 none now, -1 the end. */
static int receive(int socket, int fds[static FDS_MAX], size_t *count)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
        struct cmsghdr align;
    } control;
    char byte;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    *count = 0;
    ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    const struct cmsghdr *head = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        *count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(head), *count * sizeof(int));
    }
    return size > 0 ? 1 : -1;
}

static void on_readable(void *cookie)
{
    struct connections *connections = cookie;
    for (int i = 0; i < MESSAGES_A_TURN; i++) {
        int fds[FDS_MAX];
        size_t count;
        int got = receive(loop_watch_fd(connections->watch), fds, &count);
        if (got > 0)
            take(connections->server, fds, count);
        if (got == 0)
            return;
        if (got < 0) {
            log_info("front", "no more connections come: their socket has ended");
            loop_watch_readable(connections->watch, NULL, NULL);
            return;
        }
    }
}

static void start(void *cookie)
{
    struct connections *connections = cookie;
    struct error err = {0};
    if (!fd_set_nonblocking(connections->socket, &err))
        log_error("front", "%s", err.message);
    connections->watch = loop_watch_new(http_server_loop(connections->server, 0), TAKE_FD(connections->socket));
    loop_watch_readable(connections->watch, on_readable, connections);
}

static void stop(void *cookie)
{
    struct connections *connections = cookie;
    loop_watch_free(TAKE(connections->watch));
}

struct connections *connections_start(struct http_server *server, int socket)
{
    struct connections *connections = memory_new(sizeof *connections);
    *connections = (struct connections){.server = server, .socket = socket};
    loop_post(http_server_loop(server, 0), start, connections);
    return connections;
}

void connections_stop(struct connections *connections)
{
    if (connections)
        loop_post(http_server_loop(connections->server, 0), stop, connections);
}

void connections_free(struct connections *connections)
{
    free(connections);
}
