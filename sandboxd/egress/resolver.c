#include "sandboxd/egress/resolver.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <ares.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/time.h>

enum { TRY_MS = 2000, TRIES = 2, EDNS_BYTES = 1232, CLASS_IN = 1 };

/* A socket of c-ares; the watch has a duplicate, as it closes what it watches. */
struct channel_socket {
    struct channel_socket *next;
    struct resolver *resolver;
    ares_socket_t fd;
    bool wants_write;
    struct loop_watch *watch;
};

struct resolver {
    struct loop *loop;
    ares_channel channel;
    struct channel_socket *sockets;
    struct loop_timer *timer;
};

struct question {
    void (*done)(void *cookie, const void *answer, size_t size);
    void *cookie;
};

static struct channel_socket **find(struct resolver *resolver, ares_socket_t fd)
{
    struct channel_socket **at = &resolver->sockets;
    while (*at != NULL && (*at)->fd != fd)
        at = &(*at)->next;
    return at;
}

static void on_timer(void *cookie);

static void arm(struct resolver *resolver)
{
    struct timeval wait;
    loop_timer_cancel(TAKE(resolver->timer));
    if (ares_timeout(resolver->channel, NULL, &wait) == NULL)
        return;
    uint64_t wait_ns = (uint64_t)wait.tv_sec * 1000000000 + (uint64_t)wait.tv_usec * 1000;
    resolver->timer = loop_timer_start(resolver->loop, clock_boot_ns() + wait_ns, on_timer, resolver);
}

static void on_timer(void *cookie)
{
    struct resolver *resolver = cookie;
    resolver->timer = NULL;
    ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    arm(resolver);
}

/* In both the socket may be gone after ares_process_fd. */
static void on_readable(void *cookie)
{
    const struct channel_socket *socket = cookie;
    struct resolver *resolver = socket->resolver;
    ares_process_fd(resolver->channel, socket->fd, ARES_SOCKET_BAD);
    arm(resolver);
}

static void on_writable(void *cookie)
{
    const struct channel_socket *socket = cookie;
    struct resolver *resolver = socket->resolver;
    ares_socket_t fd = socket->fd;
    ares_process_fd(resolver->channel, ARES_SOCKET_BAD, fd);
    struct channel_socket *after = *find(resolver, fd);
    if (after != NULL && after->wants_write)
        loop_watch_writable(after->watch, on_writable, after);
    arm(resolver);
}

static struct channel_socket *add_socket(struct resolver *resolver, ares_socket_t fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return NULL; /* out of descriptors: the question times out */
    struct channel_socket *socket = memory_new(sizeof *socket);
    *socket = (struct channel_socket){
        .resolver = resolver, .fd = fd, .watch = loop_watch_new(resolver->loop, copy), .next = resolver->sockets};
    resolver->sockets = socket;
    return socket;
}

static void remove_socket(struct channel_socket **at)
{
    struct channel_socket *socket = *at;
    *at = socket->next;
    loop_watch_free(socket->watch);
    free(socket);
}

static void on_state(void *cookie, ares_socket_t fd, int readable, int writable)
{
    struct resolver *resolver = cookie;
    struct channel_socket **at = find(resolver, fd);
    if (!readable && !writable) {
        if (*at != NULL)
            remove_socket(at);
        return;
    }
    struct channel_socket *socket = *at != NULL ? *at : add_socket(resolver, fd);
    if (socket == NULL)
        return;
    loop_watch_readable(socket->watch, readable ? on_readable : NULL, socket);
    socket->wants_write = writable != 0;
    if (writable)
        loop_watch_writable(socket->watch, on_writable, socket);
}

static bool set_servers(ares_channel channel, const struct eg_config *config)
{
    struct ares_addr_port_node servers[LAUNCHER_EGRESS_SERVERS] = {0};
    for (uint32_t i = 0; i < config->server_count; i++) {
        servers[i].family = AF_INET;
        servers[i].addr.addr4.s_addr = config->servers[i].address;
        servers[i].udp_port = servers[i].tcp_port = config->servers[i].port;
        servers[i].next = i + 1 < config->server_count ? &servers[i + 1] : NULL;
    }
    return ares_set_servers_ports(channel, config->server_count > 0 ? servers : NULL) == ARES_SUCCESS;
}

struct resolver *resolver_new(struct loop *loop, const struct eg_config *config, struct error *err)
{
    AUTO(resolver) *resolver = memory_new(sizeof *resolver);
    resolver->loop = loop;
    char lookups[] = "b";
    struct ares_options options = {.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS,
                                   .timeout = TRY_MS,
                                   .tries = TRIES,
                                   .ednspsz = EDNS_BYTES,
                                   .lookups = lookups,
                                   .sock_state_cb = on_state,
                                   .sock_state_cb_data = resolver};
    int which = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_EDNSPSZ | ARES_OPT_LOOKUPS |
                ARES_OPT_SOCK_STATE_CB | ARES_OPT_DOMAINS | ARES_OPT_NOROTATE;
    int status = ares_init_options(&resolver->channel, &options, which);
    if (status != ARES_SUCCESS || !set_servers(resolver->channel, config)) {
        error_set(err, ERROR_INTERNAL, "c-ares: %s", ares_strerror(status));
        return NULL;
    }
    return TAKE(resolver);
}

void resolver_free(struct resolver *resolver)
{
    if (resolver == NULL)
        return;
    if (resolver->channel != NULL)
        ares_destroy(resolver->channel);
    while (resolver->sockets != NULL)
        remove_socket(&resolver->sockets);
    loop_timer_cancel(resolver->timer);
    free(resolver);
}

static void on_answer(void *cookie, int status UNUSED, int timeouts UNUSED, unsigned char *answer, int size)
{
    AUTO_FREE struct question *question = cookie;
    if (answer != NULL && size > 0)
        question->done(question->cookie, answer, (size_t)size);
    else
        question->done(question->cookie, NULL, 0);
}

void resolver_ask(struct resolver *resolver, const char *name, uint16_t type,
                  void (*done)(void *cookie, const void *answer, size_t size), void *cookie)
{
    struct question *question = memory_new(sizeof *question);
    *question = (struct question){.done = done, .cookie = cookie};
    ares_query(resolver->channel, name, CLASS_IN, type, on_answer, question);
    arm(resolver);
}
