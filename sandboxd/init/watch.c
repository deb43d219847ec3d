/* watch.c - descriptors in the epoll set. */
#include "sandboxd/init/init.h"

#include <sys/epoll.h>
#include <unistd.h>

bool watch_add(struct init *init, struct watch *watch, int fd, uint32_t events, struct error *err)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(init->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "epoll_ctl");
        close(fd);
        return false;
    }
    watch->fd = fd;
    return true;
}

void watch_change(struct init *init, struct watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    epoll_ctl(init->epoll, EPOLL_CTL_MOD, watch->fd, &event);
}

void watch_end(struct init *init, struct watch *watch)
{
    if (watch->fd < 0)
        return;
    /* Explicitly: a copy elsewhere (a child before execve) would keep the registration alive. */
    epoll_ctl(init->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    close(watch->fd);
    watch->fd = -1;
}
