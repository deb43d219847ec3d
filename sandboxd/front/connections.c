#include "sandboxd/front/connections.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <sys/socket.h>

enum { MESSAGES_A_TURN = 64 };

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
    fd_drop_all(fds, count);
    log_warn("front", "a message with %zu descriptors instead of a connection was dropped", count);
}

/* 1 a message, with what came in it; 0 none now; -1 the end. */
static int receive(int socket, int fds[static FD_MESSAGE_FDS], size_t *count)
{
    struct error err = {0};
    char byte;
    ssize_t size = fd_receive_message(socket, &byte, 1, fds, count, &err);
    if (size >= 0)
        return size > 0 ? 1 : -1;
    *count = 0;
    if (err.kind == ERROR_INVALID) /* too much in one: nothing of it was kept */
        return 1;
    return err.system_errno == EAGAIN ? 0 : -1;
}

static void on_readable(void *cookie)
{
    struct connections *connections = cookie;
    for (int i = 0; i < MESSAGES_A_TURN; i++) {
        int fds[FD_MESSAGE_FDS];
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
