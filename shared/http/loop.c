#include "shared/http/loop.h"

#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/http/loop_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

struct loop_post {
    struct loop_post *next;
    void (*run)(void *cookie);
    void *cookie;
};

static __thread struct loop *current;

struct loop *loop_current(void)
{
    return current;
}

unsigned loop_index(const struct loop *loop)
{
    return loop->index;
}

struct loop *loop_new(unsigned index, struct error *err)
{
    AUTO_FD int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "eventfd for a loop");
        return NULL;
    }
    AUTO_FD int timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer_fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "timerfd for a loop");
        return NULL;
    }
    struct loop *loop = memory_new(sizeof *loop);
    loop->index = index;
    loop->wake_fd = TAKE_FD(wake_fd);
    loop->timer_fd = TAKE_FD(timer_fd);
    loop->last_post = &loop->first_post;
    pthread_mutex_init(&loop->mutex, NULL);
    return loop;
}

static void wake(const struct loop *loop)
{
    const uint64_t one = 1;
    ssize_t written;
    do
        written = write(loop->wake_fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

void loop_post(struct loop *loop, void (*run)(void *cookie), void *cookie)
{
    struct loop_post *post = memory_new(sizeof *post);
    *post = (struct loop_post){.run = run, .cookie = cookie};
    pthread_mutex_lock(&loop->mutex);
    bool was_empty = loop->first_post == NULL;
    *loop->last_post = post;
    loop->last_post = &post->next;
    /* Under the lock, so that the loop cannot be freed between the post and its signal. */
    if (was_empty)
        wake(loop);
    pthread_mutex_unlock(&loop->mutex);
}

static bool run_posts(struct loop *loop)
{
    pthread_mutex_lock(&loop->mutex);
    struct loop_post *post = loop->first_post;
    loop->first_post = NULL;
    loop->last_post = &loop->first_post;
    pthread_mutex_unlock(&loop->mutex);
    bool any = post != NULL;
    while (post != NULL) {
        struct loop_post *next = post->next;
        post->run(post->cookie);
        free(post);
        post = next;
    }
    return any;
}

static void on_wake(h2o_socket_t *socket, const char *broken UNUSED)
{
    struct loop *loop = socket->data;
    uint64_t count;
    if (read(loop->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
        return;
    run_posts(loop);
}

static void on_timer(h2o_socket_t *socket, const char *broken UNUSED)
{
    loop_timers_run(socket->data);
}

h2o_socket_t *loop_poll(struct loop *loop, int fd, void (*ready)(h2o_socket_t *socket, const char *broken), void *data)
{
    h2o_socket_t *socket = h2o_evloop_socket_create(loop->evloop, fd, H2O_SOCKET_FLAG_DONT_READ);
    socket->data = data;
    if (ready != NULL)
        h2o_socket_read_start(socket, ready);
    return socket;
}

/* Out of descriptors before the server serves: as with memory, there is nothing to go on with. */
static int duplicate(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        perror("loop: duplicate a descriptor");
        abort();
    }
    return copy;
}

void loop_open(struct loop *loop)
{
    current = loop;
    loop->evloop = h2o_evloop_create();
    loop->wake_socket = loop_poll(loop, duplicate(loop->wake_fd), on_wake, loop);
    loop->timer_socket = loop_poll(loop, duplicate(loop->timer_fd), on_timer, loop);
}

void loop_run(struct loop *loop)
{
    log_hold(true);
    /* Negative: a signal, or one descriptor that cannot be polled; the rest goes on in the next turn. */
    while (!loop->ending) {
        (void)h2o_evloop_run(loop->evloop, INT32_MAX);
        log_flush(); /* a turn begins with waiting */
    }
    log_hold(false);
}

void loop_end(struct loop *loop)
{
    loop->ending = true;
}

/* h2o_evloop_destroy of 2.2.5 forgets its epoll descriptor, which stands right behind the public part. */
static int epoll_fd_of(const h2o_loop_t *evloop)
{
    int fd;
    memcpy(&fd, (const char *)evloop + sizeof *evloop, sizeof fd);
    char link[64], target[64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    return length > 0 && strcmp(target, "anon_inode:[eventpoll]") == 0 ? fd : -1;
}

/* libh2o keeps up to 16 freed chunks of two kinds for each thread, and a thread that ends loses them. */
static void free_thread_caches(void)
{
    for (int i = 0; i < 16; i++) {
        h2o_mem_pool_t pool;
        h2o_mem_init_pool(&pool);
        (void)h2o_mem_alloc_pool(&pool, 1);
        free(pool.chunks);
    }
    h2o_mem_recycle_t *buffers = &h2o_socket_buffer_prototype.allocator;
    while (buffers->cnt > 0)
        free(h2o_mem_alloc_recycle(buffers, 1));
}

void loop_close(struct loop *loop)
{
    run_posts(loop);
    h2o_socket_close(loop->wake_socket);
    h2o_socket_close(loop->timer_socket);
    loop->wake_socket = loop->timer_socket = NULL;
    int epoll_fd = epoll_fd_of(loop->evloop);
    h2o_evloop_destroy(loop->evloop);
    if (epoll_fd >= 0)
        close(epoll_fd);
    loop->evloop = NULL;
    free_thread_caches();
    current = NULL;
}

void loop_free(struct loop *loop)
{
    if (loop == NULL)
        return;
    struct loop *before = current;
    current = loop;
    while (run_posts(loop))
        continue;
    current = before;
    loop_timers_done(loop);
    pthread_mutex_lock(&loop->mutex); /* waits for a sender that is still inside loop_post */
    pthread_mutex_unlock(&loop->mutex);
    pthread_mutex_destroy(&loop->mutex);
    close(loop->wake_fd);
    close(loop->timer_fd);
    free(loop);
}
