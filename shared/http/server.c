#include "shared/http/server.h"

#include "shared/base/memory.h"
#include "shared/http/websocket.h"
#include "shared/http/worker.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum {
    LOOPS_MAX = 64,
    BACKLOG = 1024,
    HEAD_TIMEOUT_MS = 10000,
    BODY_GRACE_MS = 10000,
    BODY_MIN_RATE = 1024,
    SPOOL_MAX_BYTES = 256 << 20,
    STALL_MS = 60000,
    TURN_BYTES = 1 << 20,
    KEEP_IDLE_S = 60,
    KEEP_INTERVAL_S = 10,
    KEEP_PROBES = 6,
    SPOOL_THRESHOLD_BYTES = 1 << 20
};

/* libh2o's own limit on a request's time, moved out of the way: connection.c has better ones. Must stay below the
 * present time in ms, for libh2o subtracts it. Ten years. */
static const uint64_t NEVER_MS = 10 * 365 * 86400 * (uint64_t)1000;

static void set_defaults(struct http_server_options *options)
{
    if (options->head_timeout_ms == 0)
        options->head_timeout_ms = HEAD_TIMEOUT_MS;
    if (options->body_grace_ms == 0)
        options->body_grace_ms = BODY_GRACE_MS;
    if (options->body_min_rate == 0)
        options->body_min_rate = BODY_MIN_RATE;
    if (options->spool_max_bytes == 0)
        options->spool_max_bytes = SPOOL_MAX_BYTES;
    if (options->stall_ms == 0)
        options->stall_ms = STALL_MS;
    if (options->turn_bytes == 0)
        options->turn_bytes = TURN_BYTES;
    if (options->ping_ms == 0)
        options->ping_ms = HTTP_WEBSOCKET_PING_MS;
    if (options->pong_ms == 0)
        options->pong_ms = HTTP_WEBSOCKET_PONG_MS;
}

/* Accepted connections take it over. Where nothing is sent, nothing else tells of a client whose machine is gone. */
static void keep_alive(int fd)
{
    const struct {
        int level, name, value;
    } OPTIONS[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, KEEP_PROBES}};
    for (size_t i = 0; i < sizeof OPTIONS / sizeof OPTIONS[0]; i++)
        (void)setsockopt(fd, OPTIONS[i].level, OPTIONS[i].name, &OPTIONS[i].value, sizeof OPTIONS[i].value);
}

static bool listen_at(struct http_server *server, const struct addrinfo *address, struct error *err)
{
    AUTO_FD int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "socket");
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* connections in TIME_WAIT do not count */
    keep_alive(fd);
    /* No SO_REUSEPORT: a second server on this port has to fail, not to share it. */
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        bool is_taken = errno == EADDRINUSE;
        return error_set_errno(err, is_taken ? ERROR_CONFLICT : ERROR_INTERNAL, "listen on %s port %u", server->host,
                               server->options.port);
    }
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &size) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "getsockname");
    char port[8];
    if (getnameinfo((struct sockaddr *)&bound, size, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
        return error_set(err, ERROR_INTERNAL, "the port of %s cannot be read", server->host);
    server->port = (uint16_t)strtoul(port, NULL, 10);
    server->listen_fd = TAKE_FD(fd);
    return true;
}

static bool open_listener(struct http_server *server, struct error *err)
{
    char port[8];
    snprintf(port, sizeof port, "%u", server->options.port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    int failed = getaddrinfo(server->host, port, &hints, &found);
    if (failed != 0)
        return error_set(err, ERROR_INVALID, "host %s: %s", server->host, gai_strerror(failed));
    bool ok = listen_at(server, found, err);
    freeaddrinfo(found);
    return ok;
}

/* A setting of the whole process, in libh2o: the first server's counts. */
static void set_spool_folder(const char *folder)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool is_set;
    pthread_mutex_lock(&mutex);
    h2o_buffer_mmap_settings_t *settings = &h2o_socket_buffer_mmap_settings;
    if (!is_set && text_format(settings->fn_template, sizeof settings->fn_template, "%s/body.XXXXXX", folder)) {
        settings->threshold = SPOOL_THRESHOLD_BYTES;
        is_set = true;
    }
    pthread_mutex_unlock(&mutex);
}

static void configure(struct http_server *server)
{
    h2o_globalconf_t *config = &server->config;
    h2o_config_init(config);
    config->server_name = (h2o_iovec_t){NULL, 0};
    config->http1.upgrade_to_http2 = 0; /* no answer to rapid reset in 2.2.5 */
    config->http2.callbacks =
        (h2o_protocol_callbacks_t){NULL, NULL}; /* its shutdown starts a timer that outlives the loop */
    config->http1.req_timeout = NEVER_MS;
    config->max_request_entity_size = SIZE_MAX / 4; /* body_guard.c knows better */
    h2o_hostconf_t *host = h2o_config_register_host(config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    h2o_pathconf_t *path = h2o_config_register_path(host, "/", 0);
    h2o_create_handler(path, sizeof(h2o_handler_t))->on_req = http_request_on_request;
    h2o_create_filter(path, sizeof(h2o_filter_t))->on_setup_ostream = http_reply_on_setup_ostream;
    h2o_create_filter(&host->fallback_path, sizeof(h2o_filter_t))->on_setup_ostream = http_reply_on_setup_ostream;
}

/* A quarter of the descriptors is for what the requests need. */
static size_t connections_max(const struct http_server_options *options)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT_MAX)
        limit.rlim_cur = 1 << 20;
    size_t left = limit.rlim_cur > options->descriptors_apart ? (size_t)limit.rlim_cur - options->descriptors_apart : 0;
    size_t each = options->tls != NULL ? 3 : 1; /* the client's, and a pair (tls_relay.c) */
    size_t max = left / 4 * 3 / options->loops / each;
    return max > 16 ? max : 16;
}

static void wait_until_ready(struct http_server *server)
{
    pthread_mutex_lock(&server->mutex);
    while (server->ready_count < server->options.loops)
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
}

static struct http_server *new_server(const struct http_server_options *options)
{
    struct http_server *server = memory_new(sizeof *server);
    server->options = *options;
    set_defaults(&server->options);
    server->host = memory_string(options->host != NULL ? options->host : "");
    server->name = memory_string(options->name != NULL ? options->name : "http");
    server->spool_folder = memory_string(options->spool_folder != NULL ? options->spool_folder : "/tmp");
    server->listen_fd = -1;
    server->connections_max = connections_max(options);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    configure(server);
    return server;
}

struct http_server *http_server_start(const struct http_server_options *options, struct error *err)
{
    if (options->loops < 1 || options->loops > LOOPS_MAX) {
        error_set(err, ERROR_INVALID, "a server needs 1..%d loops", LOOPS_MAX);
        return NULL;
    }
    if (!http_find_route_check(options, err))
        return NULL;
    AUTO(http_server) *server = new_server(options);
    server->routes = http_routes_new(options->routes, options->route_count, err);
    if (server->routes == NULL || !http_limits_open(server, err) ||
        (options->host != NULL && !open_listener(server, err)))
        return NULL;
    server->spools = http_routes_body_max(server->routes) > SPOOL_THRESHOLD_BYTES;
    if (server->spools)
        set_spool_folder(server->spool_folder);
    server->workers = memory_array(options->loops, sizeof *server->workers);
    for (unsigned i = 0; i < options->loops; i++) {
        server->worker_count++;
        if (!http_worker_prepare(&server->workers[i], server, i, err))
            return NULL;
    }
    for (unsigned i = 0; i < options->loops; i++) {
        if (!http_worker_start(&server->workers[i], err))
            return NULL;
    }
    wait_until_ready(server);
    return TAKE(server);
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

struct handed {
    struct http_worker *worker;
    int fd;
};

static void serve_handed(void *cookie)
{
    AUTO_FREE struct handed *handed = cookie;
    http_worker_serve(handed->worker, handed->fd);
}

void http_server_serve(struct http_server *server, int fd)
{
    struct handed *handed = memory_new(sizeof *handed);
    unsigned turn = atomic_fetch_add(&server->next_worker, 1);
    *handed = (struct handed){.worker = &server->workers[turn % server->worker_count], .fd = fd};
    loop_post(handed->worker->loop, serve_handed, handed);
}

unsigned http_server_loop_count(const struct http_server *server)
{
    return server->worker_count;
}

struct loop *http_server_loop(const struct http_server *server, unsigned index)
{
    return index < server->worker_count ? server->workers[index].loop : NULL;
}

static unsigned post_to_all(struct http_server *server, void (*run)(void *cookie))
{
    unsigned posted = 0;
    for (unsigned i = 0; i < server->worker_count; i++) {
        if (!server->workers[i].has_thread)
            continue;
        loop_post(server->workers[i].loop, run, &server->workers[i]);
        posted++;
    }
    return posted;
}

/* False when the time is over before all of `count` loops have no connection left. */
static bool wait_until_idle(struct http_server *server, unsigned count, unsigned grace_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += grace_ms / 1000;
    until.tv_nsec += (long)(grace_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int failed = 0;
    pthread_mutex_lock(&server->mutex);
    while (server->idle_count < count && failed == 0)
        failed = pthread_cond_timedwait(&server->changed, &server->mutex, &until);
    bool is_idle = server->idle_count >= count;
    pthread_mutex_unlock(&server->mutex);
    return is_idle;
}

void http_server_stop(struct http_server *server, unsigned grace_ms)
{
    if (server->is_stopped)
        return;
    server->is_stopped = true;
    if (server->listen_fd >= 0)
        close(TAKE_FD(server->listen_fd));
    unsigned count = post_to_all(server, http_worker_begin_stop);
    /* All loops go on until the last one is idle: a request may wait for the answer of another loop. */
    if (!wait_until_idle(server, count, grace_ms))
        post_to_all(server, http_worker_cut);
    post_to_all(server, http_worker_end);
    for (unsigned i = 0; i < server->worker_count; i++) {
        struct http_worker *worker = &server->workers[i];
        if (!worker->has_thread)
            continue;
        pthread_join(worker->thread, NULL);
        worker->has_thread = false;
        worker->is_joined = true;
    }
}

void http_server_free(struct http_server *server)
{
    if (server == NULL)
        return;
    http_server_stop(server, 0);
    for (unsigned i = 0; i < server->worker_count; i++)
        http_worker_done(&server->workers[i]);
    free(server->workers);
    http_routes_free(server->routes);
    http_limits_close(server);
    h2o_config_dispose(&server->config);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    free(server->host);
    free(server->name);
    free(server->spool_folder);
    free(server);
}
