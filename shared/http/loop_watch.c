/* loop_watch.c - descriptors watched by a loop, as libh2o sockets that never read by themselves. */
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/http/loop_internal.h"

struct loop_watch {
    struct loop *loop;
    int fd;
    h2o_socket_t *socket; /* NULL on a loop that has ended */
    void (*readable)(void *cookie), (*writable)(void *cookie);
    void *readable_cookie, *writable_cookie;
};

/* In both callbacks the watch may be freed by the call, which is therefore the last thing done. */
static void on_readable(h2o_socket_t *socket, const char *broken UNUSED)
{
    const struct loop_watch *watch = socket->data;
    watch->readable(watch->readable_cookie);
}

static void on_writable(h2o_socket_t *socket, const char *broken UNUSED)
{
    struct loop_watch *watch = socket->data;
    void (*ready)(void *) = watch->writable;
    watch->writable = NULL;
    if (ready != NULL)
        ready(watch->writable_cookie);
}

struct loop_watch *loop_watch_new(struct loop *loop, int fd)
{
    struct loop_watch *watch = memory_new(sizeof *watch);
    watch->loop = loop;
    watch->fd = fd;
    if (loop->evloop != NULL)
        watch->socket = loop_poll(loop, fd, NULL, watch);
    return watch;
}

void loop_watch_readable(struct loop_watch *watch, void (*ready)(void *cookie), void *cookie)
{
    watch->readable = ready;
    watch->readable_cookie = cookie;
    if (watch->socket == NULL)
        return;
    if (ready == NULL)
        h2o_socket_read_stop(watch->socket);
    else if (!h2o_socket_is_reading(watch->socket))
        h2o_socket_read_start(watch->socket, on_readable);
}

void loop_watch_writable(struct loop_watch *watch, void (*ready)(void *cookie), void *cookie)
{
    if (ready == NULL)
        return;
    watch->writable = ready;
    watch->writable_cookie = cookie;
    if (watch->socket != NULL && !h2o_socket_is_writing(watch->socket))
        h2o_socket_notify_write(watch->socket, on_writable);
}

int loop_watch_fd(const struct loop_watch *watch)
{
    return watch->fd;
}

void loop_watch_free(struct loop_watch *watch)
{
    if (watch == NULL)
        return;
    fd_disarm(watch->fd); /* whoever gave it may have it too, and let us wait (SO_LINGER) */
    if (watch->socket != NULL && watch->loop->evloop != NULL)
        h2o_socket_close(watch->socket);
    else
        close(watch->fd);
    free(watch);
}
