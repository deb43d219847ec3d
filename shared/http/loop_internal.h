/** loop_internal.h - the inside of a loop, for this room only. */
#pragma once

#include "shared/http/loop.h"

#include <h2o.h>
#include <pthread.h>
#include <stddef.h>

struct loop_post;
struct http_worker;

struct loop {
    unsigned index;
    struct http_worker *worker; /* the server's part of this loop */
    int wake_fd, timer_fd;      /* the loop's own; the event loop polls duplicates */
    pthread_mutex_t mutex;      /* guards the posts */
    struct loop_post *first_post, **last_post;
    /* From here on: the loop's thread only. */
    h2o_loop_t *evloop; /* NULL before loop_open and after loop_close */
    h2o_socket_t *wake_socket, *timer_socket;
    struct loop_timer **timers; /* a heap, the earliest first */
    size_t timer_count, timer_capacity;
    uint64_t timer_sequence;
    uint64_t armed_ns; /* what timer_fd is set to; 0: not set */
    bool ending;
};

/** Wraps `fd` in a socket that only tells readiness and never reads; the socket owns the descriptor. */
h2o_socket_t *loop_poll(struct loop *loop, int fd, void (*ready)(h2o_socket_t *socket, const char *broken), void *data);

/** Fires what is due; the timer descriptor's callback. */
void loop_timers_run(struct loop *loop);

/** Frees the timers that never fired. */
void loop_timers_done(struct loop *loop);
