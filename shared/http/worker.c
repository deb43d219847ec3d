/* worker.c - one thread of a server: its loop, its libh2o context, its listener. */
#include "shared/http/worker.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/http/tls_internal.h"
#include "shared/http/tls_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

enum { ACCEPTS_A_TURN = 16 };

static const uint64_t ACCEPT_PAUSE_NS = 100 * (uint64_t)1000000;

static void on_accept(h2o_socket_t *listener, const char *broken);

static void accept_again(void *cookie)
{
    struct http_worker *worker = cookie;
    worker->retry = NULL;
    if (worker->listener != NULL)
        h2o_socket_read_start(worker->listener, on_accept);
}

/* False: there is none, or errno. */
static bool accept_one(struct http_worker *worker, h2o_socket_t *listener)
{
    errno = 0;
    if (worker->server->options.tls != NULL) {
        int fd = accept4(h2o_socket_get_fd(listener), NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            http_tls_relay_start(worker, fd);
        return fd >= 0;
    }
    h2o_socket_t *socket = h2o_evloop_socket_accept(listener);
    if (socket != NULL)
        (void)http_connection_accept(worker, socket, NULL);
    return socket != NULL;
}

static void on_accept(h2o_socket_t *listener, const char *broken UNUSED)
{
    struct http_worker *worker = listener->data;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        if (accept_one(worker, listener))
            continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The connection stays in the queue, and would wake this loop without end. */
            h2o_socket_read_stop(listener);
            worker->retry = loop_timer_start(worker->loop, clock_boot_ns() + ACCEPT_PAUSE_NS, accept_again, worker);
        }
        return;
    }
}

void http_worker_serve(struct http_worker *worker, int fd)
{
    struct error ignored = {0};
    if (worker->is_stopping || !fd_set_nonblocking(fd, &ignored)) {
        close(fd);
        return;
    }
    h2o_socket_t *socket = h2o_evloop_socket_create(worker->loop->evloop, fd, H2O_SOCKET_FLAG_IS_ACCEPTED_CONNECTION);
    (void)http_connection_accept(worker, socket, NULL);
}

static void stop_accepting(struct http_worker *worker)
{
    loop_timer_cancel(worker->retry);
    worker->retry = NULL;
    if (worker->listener != NULL)
        h2o_socket_close(worker->listener);
    worker->listener = NULL;
}

void http_worker_begin_stop(void *cookie)
{
    struct http_worker *worker = cookie;
    worker->is_stopping = true;
    stop_accepting(worker);
    h2o_context_request_shutdown(&worker->context);
    http_connections_close_idle(worker);
    http_worker_settle_soon(worker);
}

void http_worker_cut(void *cookie)
{
    struct http_worker *worker = cookie;
    for (h2o_linklist_t *link = worker->connections.next; link != &worker->connections; link = link->next) {
        struct http_connection *connection = HTTP_OWNER(struct http_connection, all, link);
        http_connection_doom(connection); /* owners are told when it closes */
    }
    while (http_tls_relay_drop_oldest(worker))
        continue;
}

void http_worker_end(void *cookie)
{
    struct http_worker *worker = cookie;
    worker->is_ending = true;
    http_worker_cut(worker);
    http_worker_settle_soon(worker);
}

void http_worker_settle_soon(struct http_worker *worker)
{
    if (!h2o_timeout_is_linked(&worker->settle))
        h2o_timeout_link(worker->loop->evloop, &worker->context.zero_timeout, &worker->settle);
}

static void tell_idle(struct http_worker *worker)
{
    struct http_server *server = worker->server;
    worker->is_idle_told = true;
    pthread_mutex_lock(&server->mutex);
    server->idle_count++;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void on_settle(h2o_timeout_entry_t *entry)
{
    struct http_worker *worker = HTTP_OWNER(struct http_worker, settle, entry);
    http_connections_settle(worker);
    while (worker->is_ending && http_tls_relay_drop_oldest(worker))
        continue;
    if (worker->connection_count + worker->orphan_count > 0)
        return;
    if (worker->is_stopping && !worker->is_idle_told)
        tell_idle(worker);
    if (!worker->is_ending)
        return;
    http_tls_relay_drop_dialled(worker);
    loop_end(worker->loop);
}

static void open_worker(struct http_worker *worker)
{
    struct http_server *server = worker->server;
    loop_open(worker->loop);
    h2o_linklist_init_anchor(&worker->connections);
    h2o_linklist_init_anchor(&worker->unguarded);
    h2o_linklist_init_anchor(&worker->doomed);
    h2o_linklist_init_anchor(&worker->orphans);
    h2o_linklist_init_anchor(&worker->dialled);
    h2o_context_init(&worker->context, worker->loop->evloop, &server->config);
    worker->settle.cb = on_settle;
    worker->accept = (h2o_accept_ctx_t){.ctx = &worker->context, .hosts = server->config.hosts};
    worker->peer_socket = loop_poll(worker->loop, worker->peer_epoll, http_peers_on_ready, worker);
    if (server->options.loop_started != NULL)
        server->options.loop_started(worker->loop, server->options.context);
    if (server->options.tls != NULL && loop_index(worker->loop) == 0)
        http_tls_follow(server->options.tls, worker->loop);
    if (worker->listen_fd >= 0)
        worker->listener = loop_poll(worker->loop, worker->listen_fd, on_accept, worker);
}

static void close_worker(struct http_worker *worker)
{
    h2o_timeout_unlink(&worker->settle);
    if (worker->server->options.tls != NULL && loop_index(worker->loop) == 0)
        http_tls_unfollow(worker->server->options.tls);
    if (worker->server->options.loop_ending != NULL)
        worker->server->options.loop_ending(worker->loop, worker->server->options.context);
    h2o_socket_close(worker->peer_socket);
    h2o_context_dispose(&worker->context);
    free(worker->context.queue); /* 2.2.5 forgets it; its socket does not look at it again */
    loop_close(worker->loop);
}

static void *run(void *cookie)
{
    struct http_worker *worker = cookie;
    struct http_server *server = worker->server;
    open_worker(worker);
    pthread_mutex_lock(&server->mutex);
    server->ready_count++;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    loop_run(worker->loop);
    close_worker(worker);
    return NULL;
}

bool http_worker_prepare(struct http_worker *worker, struct http_server *server, unsigned index, struct error *err)
{
    worker->server = server;
    worker->peer_epoll = -1;
    http_measure_open(worker);
    worker->listen_fd = -1;
    random_id(worker->id, "req");
    random_bytes(&worker->span_seed, sizeof worker->span_seed);
    random_bytes(&worker->trace_seed, sizeof worker->trace_seed);
    worker->loop = loop_new(index, err);
    if (worker->loop == NULL || !http_peers_open(worker, err))
        return false;
    worker->loop->worker = worker;
    if (server->listen_fd < 0)
        return true;
    worker->listen_fd = fcntl(server->listen_fd, F_DUPFD_CLOEXEC, 0);
    return worker->listen_fd >= 0 || error_set_errno(err, ERROR_INTERNAL, "duplicate the listening socket");
}

bool http_worker_start(struct http_worker *worker, struct error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    /* Signals are the program's; and a write to a closed connection is an error here, not a SIGPIPE. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&worker->thread, NULL, run, worker);
    bool is_started = errno == 0;
    if (!is_started)
        error_set_errno(err, ERROR_INTERNAL, "start a loop's thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    worker->has_thread = is_started;
    return is_started;
}

void http_worker_done(struct http_worker *worker)
{
    bool was_run = worker->is_joined;
    if (!was_run && worker->peer_epoll >= 0)
        close(worker->peer_epoll);
    if (!was_run && worker->listen_fd >= 0)
        close(worker->listen_fd);
    loop_free(worker->loop);
    http_measure_close(worker);
}
