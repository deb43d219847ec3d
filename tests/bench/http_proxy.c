/* http_proxy.c - libh2o's own reverse proxy before a server on loopback: the peer for requests through a port.
 * Usage: http_proxy PORT UPSTREAM_PORT [THREADS]; prints nothing. */
#include <h2o.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static h2o_globalconf_t config;

struct worker {
    pthread_t thread;
    h2o_context_t context;
    h2o_accept_ctx_t accept;
    int listen_fd;
};

static void on_accept(h2o_socket_t *listener, const char *broken)
{
    for (int i = 0; broken == NULL && i < 16; i++) {
        h2o_socket_t *socket = h2o_evloop_socket_accept(listener);
        if (socket == NULL)
            return;
        h2o_accept(listener->data, socket);
    }
}

static void *run(void *cookie)
{
    struct worker *worker = cookie;
    h2o_context_init(&worker->context, h2o_evloop_create(), &config);
    worker->accept = (h2o_accept_ctx_t){.ctx = &worker->context, .hosts = config.hosts};
    h2o_socket_t *listener =
        h2o_evloop_socket_create(worker->context.loop, worker->listen_fd, H2O_SOCKET_FLAG_DONT_READ);
    listener->data = &worker->accept;
    h2o_socket_read_start(listener, on_accept);
    for (;;)
        (void)h2o_evloop_run(worker->context.loop, INT32_MAX);
    return NULL;
}

static int listen_at(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1024) == 0 ? fd : -1;
}

static void configure(unsigned long upstream_port)
{
    static char url[64];
    h2o_url_t upstream;
    h2o_proxy_config_vars_t vars = {.io_timeout = 30000, .preserve_host = 1, .keepalive_timeout = 2000};
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%lu/", upstream_port);
    h2o_config_init(&config);
    config.http1.upgrade_to_http2 = 0;
    h2o_hostconf_t *host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    if (h2o_url_parse(url, SIZE_MAX, &upstream) != 0)
        exit(1);
    h2o_proxy_register_reverse_proxy(h2o_config_register_path(host, "/", 0), &upstream, &vars);
}

int main(int argc, char *argv[])
{
    unsigned long port = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned long upstream_port = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    unsigned long threads = argc > 3 ? strtoul(argv[3], NULL, 10) : 1;
    if (port == 0 || port > UINT16_MAX || upstream_port == 0 || upstream_port > UINT16_MAX || threads < 1 ||
        threads > 64)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    int fd = listen_at((uint16_t)port);
    if (fd < 0)
        return 1;
    configure(upstream_port);
    struct worker workers[64] = {0};
    for (unsigned long i = 0; i < threads; i++) {
        workers[i].listen_fd = i == 0 ? fd : dup(fd);
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            return 1;
    }
    for (unsigned long i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    return 0;
}
