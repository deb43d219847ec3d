#include "sandboxd/egress/acceptor.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <sys/socket.h>

struct acceptor {
    struct loop *loop;
    struct loop_watch *watch;
    struct loop_timer *timer;
    struct rate rate;
    void (*accepted)(void *cookie, int fd);
    void *cookie;
};

static void on_connection(void *cookie);

static void on_waited(void *cookie)
{
    struct acceptor *acceptor = cookie;
    acceptor->timer = NULL;
    loop_watch_readable(acceptor->watch, on_connection, acceptor);
}

static void wait_a_while(struct acceptor *acceptor)
{
    loop_watch_readable(acceptor->watch, NULL, NULL);
    acceptor->timer = loop_timer_start(acceptor->loop, clock_boot_ns() + RATE_WAIT_NS, on_waited, acceptor);
}

/* One a turn: the loop's other descriptors have theirs between two of them. */
static void on_connection(void *cookie)
{
    struct acceptor *acceptor = cookie;
    if (!rate_take(&acceptor->rate, clock_boot_ns())) {
        wait_a_while(acceptor);
        return;
    }
    int fd = accept4(loop_watch_fd(acceptor->watch), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        acceptor->accepted(acceptor->cookie, fd);
        return;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return;
    wait_a_while(acceptor);
}

struct acceptor *acceptor_new(struct loop *loop, int listener, struct rate rate, void (*accepted)(void *cookie, int fd),
                              void *cookie)
{
    struct acceptor *acceptor = memory_new(sizeof *acceptor);
    *acceptor = (struct acceptor){
        .loop = loop, .watch = loop_watch_new(loop, listener), .rate = rate, .accepted = accepted, .cookie = cookie};
    loop_watch_readable(acceptor->watch, on_connection, acceptor);
    return acceptor;
}

void acceptor_free(struct acceptor *acceptor)
{
    if (acceptor == NULL)
        return;
    loop_timer_cancel(acceptor->timer);
    loop_watch_free(acceptor->watch);
    free(acceptor);
}
