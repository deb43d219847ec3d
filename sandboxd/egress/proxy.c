#include "sandboxd/egress/proxy.h"

#include "sandboxd/egress/acceptor.h"
#include "sandboxd/egress/http_guard.h"
#include "sandboxd/egress/lookup.h"
#include "sandboxd/egress/relay.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/node_protocol/egress_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

static const uint64_t SECOND = 1000000000;

enum { FIRST_BYTES_S = 10, FIRST_BYTES_MAX = 16384, PORT_HTTP = 80, PORT_TLS = 443 };

/* Reading the first bytes; looking the name up when it is not known for the address; relaying; over. */
enum stage { STAGE_FIRST, STAGE_LOOKUP, STAGE_RELAY, STAGE_OVER };

struct connection {
    struct connection *next;
    struct proxy *proxy;
    enum stage stage;
    uint32_t address; /* network order */
    uint16_t port;
    char name[HOST_NAME_BYTES]; /* what the client said first; "" until then */
    struct loop_watch *client;  /* until the relay has it */
    struct loop_timer *timer;
    struct text first; /* what may go to the server */
    size_t first_read;
    struct client_hello *hello; /* one of the two */
    struct http_guard *guard;
    struct lookup *lookup;
    struct relay *relay;
};

struct proxy {
    struct sandbox *sandbox;
    struct acceptor *acceptor;
    struct connection *connections;
};

/* ---- the end ---- */

static void connection_free(struct connection *connection)
{
    struct sandbox *sandbox = connection->proxy->sandbox;
    struct connection **at = &connection->proxy->connections;
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    sandbox->connections--;
    sandbox->house->connections--;
    loop_timer_cancel(connection->timer);
    lookup_cancel(connection->lookup);
    relay_free(connection->relay);
    loop_watch_free(connection->client);
    client_hello_free(connection->hello);
    http_guard_free(connection->guard);
    text_done(&connection->first);
    free(connection);
}

static void on_over(void *cookie)
{
    struct connection *connection = cookie;
    connection->timer = NULL;
    connection_free(connection);
}

/* Frees it with the loop's next turn: what calls may still use it. */
static void end(struct connection *connection)
{
    loop_timer_cancel(connection->timer);
    connection->stage = STAGE_OVER;
    connection->timer = loop_timer_start(connection->proxy->sandbox->house->loop, 0, on_over, connection);
    if (connection->client != NULL)
        loop_watch_readable(connection->client, NULL, NULL);
}

static const char *address_text(const struct connection *connection, char to[static INET_ADDRSTRLEN])
{
    const struct in_addr address = {.s_addr = connection->address};
    return inet_ntop(AF_INET, &address, to, INET_ADDRSTRLEN);
}

/* What a client shows its user: a TLS alert, or a reply that says why. Best effort: whatever the socket takes at once.
 */
static void tell_client(const struct connection *connection, const char *why)
{
    char text[1024];
    const void *data = text;
    size_t size = 0;
    if (connection->client == NULL) /* a server may be speaking already */
        return;
    if (connection->port == PORT_TLS) {
        data = CLIENT_HELLO_ALERT;
        size = sizeof CLIENT_HELLO_ALERT;
    } else if (connection->port == PORT_HTTP &&
               text_format(text, sizeof text,
                           "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: "
                           "close\r\nContent-Length: %zu\r\n\r\nThis sandbox's network: %s\n",
                           strlen(why) + 25, why)) {
        size = strlen(text);
    }
    if (size > 0)
        (void)send(loop_watch_fd(connection->client), data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void refuse(struct connection *connection, const char *why)
{
    char address[INET_ADDRSTRLEN];
    sandbox_refused(connection->proxy->sandbox, "connection to %s:%u: %s", address_text(connection, address),
                    connection->port, why);
    tell_client(connection, why);
    end(connection);
}

/* ---- the relay ---- */

static bool has_address(const struct connection *connection, const char *name)
{
    return pins_expiry(connection->proxy->sandbox->pins, name, connection->address, clock_boot_ns()) > 0;
}

/* Asked for the host of every request. The first one's address is checked where that can wait for a look-up. */
static bool is_allowed(void *cookie, const char *name)
{
    struct connection *connection = cookie;
    if (!policy_allows(connection->proxy->sandbox->policy, name, connection->port))
        return false;
    if (connection->name[0] == '\0')
        return text_copy(connection->name, sizeof connection->name, name);
    return strcmp(connection->name, name) == 0 || has_address(connection, name);
}

static bool filter(void *cookie, const void *data, size_t size, struct text *out, struct error *err)
{
    const struct connection *connection = cookie;
    return http_guard_read(connection->guard, data, size, out, err);
}

static void on_ended(void *cookie, const struct error *err)
{
    struct connection *connection = cookie;
    const struct sandbox *sandbox = connection->proxy->sandbox;
    bool is_refused =
        err != NULL && (err->kind == ERROR_FORBIDDEN || err->kind == ERROR_INVALID || err->kind == ERROR_TOO_LARGE);
    if (is_refused) {
        refuse(connection, err->message);
        return;
    }
    if (err != NULL)
        log_debug("egress", "connection to %s:%u: %s sandbox=%s", connection->name, connection->port, err->message,
                  sandbox->id);
    end(connection);
}

static void begin_relay(struct connection *connection)
{
    const struct house *house = connection->proxy->sandbox->house;
    int server = house->face.dial(connection->address, connection->port);
    if (server < 0) {
        refuse(connection, errno == EACCES ? "the address is this host's, or may not be reached" : strerror(errno));
        return;
    }
    const struct relay_options options = {.loop = house->loop,
                                          .pipes = house->pipes,
                                          .client = TAKE(connection->client),
                                          .server = server,
                                          .first = connection->first.data,
                                          .first_bytes = connection->first.length,
                                          .filter = connection->guard != NULL ? filter : NULL,
                                          .ended = on_ended,
                                          .cookie = connection};
    connection->relay = relay_new(&options);
    connection->stage = STAGE_RELAY;
    text_done(&connection->first);
    client_hello_free(TAKE(connection->hello));
    log_debug("egress", "connection to %s:%u sandbox=%s", connection->name, connection->port,
              connection->proxy->sandbox->id);
}

/* ---- the name ---- */

static void on_looked_up(void *cookie, const struct lookup_result *result UNUSED)
{
    struct connection *connection = cookie;
    char why[HOST_NAME_BYTES + 64];
    connection->lookup = NULL;
    if (has_address(connection, connection->name)) {
        begin_relay(connection);
        return;
    }
    refuse(connection,
           text_format(why, sizeof why, "it is no address of %s", connection->name) ? why : "wrong address");
}

/* The name is allowed; now whether the address is one of its. An answer may have been given before this process was. */
static void on_named(struct connection *connection)
{
    loop_watch_readable(connection->client, NULL, NULL);
    loop_timer_cancel(TAKE(connection->timer));
    if (has_address(connection, connection->name)) {
        begin_relay(connection);
        return;
    }
    connection->stage = STAGE_LOOKUP;
    struct lookup *lookup = lookup_start(connection->proxy->sandbox, connection->name, DNS_A, on_looked_up, connection);
    if (lookup != NULL)
        connection->lookup = lookup;
}

static void read_hello(struct connection *connection, const char *data, size_t size)
{
    struct error err = {0};
    char why[HOST_NAME_BYTES + 64];
    text_append(&connection->first, data, size);
    enum client_hello_state state = client_hello_read(connection->hello, data, size, &err);
    if (state == CLIENT_HELLO_MORE)
        return;
    const char *name = client_hello_name(connection->hello);
    if (state == CLIENT_HELLO_WRONG) {
        refuse(connection, err.message);
    } else if (!is_allowed(connection, name)) {
        refuse(connection, text_format(why, sizeof why, "%s is not allowed", name) ? why : "the name is not allowed");
    } else {
        on_named(connection);
    }
}

static void read_request(struct connection *connection, const char *data, size_t size)
{
    struct error err = {0};
    if (!http_guard_read(connection->guard, data, size, &connection->first, &err))
        refuse(connection, err.message);
    else if (http_guard_has_begun(connection->guard))
        on_named(connection);
}

static void on_readable(void *cookie)
{
    struct connection *connection = cookie;
    char data[4096];
    ssize_t got = recv(loop_watch_fd(connection->client), data, sizeof data, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end(connection); /* left without a word that names a host: nothing to tell anybody */
        return;
    }
    connection->first_read += (size_t)got;
    if (connection->hello != NULL)
        read_hello(connection, data, (size_t)got);
    else
        read_request(connection, data, (size_t)got);
    if (connection->stage == STAGE_FIRST && connection->first_read >= FIRST_BYTES_MAX)
        refuse(connection, "its first message is too long");
}

static void on_late(void *cookie)
{
    struct connection *connection = cookie;
    connection->timer = NULL;
    refuse(connection, "it names no host within 10 s");
}

/* ---- the start ---- */

static void begin(struct connection *connection)
{
    const struct house *house = connection->proxy->sandbox->house;
    const int one = 1;
    int fd = loop_watch_fd(connection->client);
    if (!house->face.destination(fd, &connection->address, &connection->port)) {
        refuse(connection, "it was made to the proxy itself");
    } else if (egress_is_blocked(ntohl(connection->address))) {
        refuse(connection, "the address is in a range that nobody may reach");
    } else if (policy_denies_address(connection->proxy->sandbox->policy, ntohl(connection->address),
                                     connection->port)) {
        refuse(connection, "the address is denied");
    } else if (connection->port == PORT_TLS) {
        connection->hello = client_hello_new(house->hellos);
    } else if (connection->port == PORT_HTTP) {
        connection->guard = http_guard_new(connection->port, is_allowed, connection);
    } else {
        refuse(connection, "the port is not the proxy's");
    }
    if (connection->stage == STAGE_OVER)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    connection->timer = loop_timer_start(house->loop, clock_boot_ns() + FIRST_BYTES_S * SECOND, on_late, connection);
    loop_watch_readable(connection->client, on_readable, connection);
}

static void on_connection(void *cookie, int fd)
{
    struct proxy *proxy = cookie;
    struct sandbox *sandbox = proxy->sandbox;
    if (house_is_full_for(sandbox->connections, CONNECTIONS_OF_ONE, sandbox->house->connections, CONNECTIONS_OF_ALL)) {
        sandbox_refused(sandbox, "a connection beyond the %u that it has", sandbox->connections);
        close(fd);
        return;
    }
    struct connection *connection = memory_new(sizeof *connection);
    *connection = (struct connection){
        .next = proxy->connections, .proxy = proxy, .client = loop_watch_new(sandbox->house->loop, fd)};
    proxy->connections = connection;
    sandbox->connections++;
    sandbox->house->connections++;
    begin(connection);
}

struct proxy *proxy_new(struct sandbox *sandbox, int listener)
{
    struct proxy *proxy = memory_new(sizeof *proxy);
    proxy->sandbox = sandbox;
    proxy->acceptor = acceptor_new(sandbox->house->loop, listener, RATE_OF(CONNECTIONS_A_SECOND, CONNECTIONS_OF_ONE),
                                   on_connection, proxy);
    return proxy;
}

void proxy_free(struct proxy *proxy)
{
    if (proxy == NULL)
        return;
    while (proxy->connections != NULL)
        connection_free(proxy->connections);
    acceptor_free(proxy->acceptor);
    free(proxy);
}

/* What has not named anybody yet is checked when it does. */
void proxy_check_again(struct proxy *proxy)
{
    const struct policy *policy = proxy->sandbox->policy;
    for (struct connection *at = proxy->connections, *next; at != NULL; at = next) {
        next = at->next;
        bool is_denied = policy_denies_address(policy, ntohl(at->address), at->port);
        if (at->stage == STAGE_OVER ||
            (!is_denied && (at->name[0] == '\0' || policy_allows(policy, at->name, at->port))))
            continue;
        sandbox_refused(proxy->sandbox, "connection to %s: %s is not allowed any more", at->name,
                        is_denied ? "its address" : at->name);
        connection_free(at);
    }
}
