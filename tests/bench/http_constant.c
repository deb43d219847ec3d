/* http_constant.c - libh2o alone, answering every request with a constant: the peer for our requests a second.
 * Usage: http_constant PORT [THREADS]; prints nothing. */
#include <h2o.h>
#include <h2o/http1.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

static h2o_globalconf_t config;

struct worker {
    pthread_t thread;
    h2o_context_t context;
    h2o_accept_ctx_t accept;
    int listen_fd;
};

static int on_request(h2o_handler_t *handler, h2o_req_t *request)
{
    static h2o_generator_t nothing_to_proceed;
    (void)handler;
    h2o_iovec_t body = h2o_iovec_init(H2O_STRLIT("{\"hello\":\"world\"}"));
    request->res.status = 200;
    request->res.reason = "OK";
    request->res.content_length = body.len;
    h2o_add_header(&request->pool, &request->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, H2O_STRLIT("application/json"));
    h2o_start_response(request, &nothing_to_proceed);
    h2o_send(request, &body, 1, H2O_SEND_STATE_FINAL);
    return 0;
}

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

int main(int argc, char *argv[])
{
    unsigned long port = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned long threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    if (port == 0 || port > UINT16_MAX || threads < 1 || threads > 64)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 1024) != 0)
        return 1;
    h2o_config_init(&config);
    config.http1.upgrade_to_http2 = 0;
    h2o_hostconf_t *host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(h2o_handler_t))->on_req = on_request;
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
