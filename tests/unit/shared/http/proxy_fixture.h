/** proxy_fixture.h - a server that passes requests on to a socket of the test's own: the test is client and upstream.
 */
#pragma once

#include "fixture.h"
#include "shared/http/proxy.h"

#include <fcntl.h>

static uint16_t upstream_port;
static int upstream_listener;
static atomic_uint overs, staled, keeps;
static _Atomic(struct loop_watch *) kept_watch;
static char seen[1 << 20], answer[1 << 20];

static void count_over(void *cookie UNUSED)
{
    atomic_fetch_add(&overs, 1);
}

static bool filter_header(void *cookie UNUSED, const char *name, const char **value)
{
    if (strcmp(name, "x-changed") == 0)
        *value = "by us";
    return strcmp(name, "x-dropped") != 0;
}

static int dial_upstream(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(upstream_port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)!connect(fd, (struct sockaddr *)&at, sizeof at);
    return fd;
}

static const struct http_pair SET_HEADERS[] = {{"X-Forwarded-Prefix", "/p"}, {"Referer", NULL}, {"Cookie", "left=1"}};

static struct http_proxy_order make_order(const struct text *target, struct loop_watch *kept)
{
    return (struct http_proxy_order){.upstream = kept == NULL ? dial_upstream() : -1,
                                     .kept_upstream = kept,
                                     .target = target->data,
                                     .headers = SET_HEADERS,
                                     .header_count = 3,
                                     .head_timeout_ms = strstr(target->data, "/soon") != NULL ? 300 : 60000,
                                     .upgrades = true,
                                     .answer_header = filter_header,
                                     .over = count_over};
}

static void pass_on(struct http_request *request)
{
    AUTO_TEXT target = {0};
    http_proxy_target(request, "rest", &target);
    struct http_proxy_order order = make_order(&target, NULL);
    http_proxy(request, &order);
}

static void keep(void *cookie UNUSED, struct loop_watch *watch)
{
    atomic_fetch_add(&keeps, 1);
    atomic_store(&kept_watch, watch);
}

static void try_anew(void *cookie UNUSED, struct http_request *request)
{
    atomic_fetch_add(&staled, 1);
    pass_on(request);
}

/* The connection of the exchange before, if it was kept. */
static void pass_on_kept(struct http_request *request)
{
    AUTO_TEXT target = {0};
    http_proxy_target(request, "rest", &target);
    struct http_proxy_order order = make_order(&target, atomic_exchange(&kept_watch, NULL));
    order.kept = keep;
    order.stale = order.kept_upstream != NULL ? try_anew : NULL;
    http_proxy(request, &order);
}

static void pass_on_other_body(struct http_request *request)
{
    AUTO_TEXT target = {0};
    text_append_string(&target, "/other");
    struct http_proxy_order order = make_order(&target, NULL);
    order.body_replaced = true;
    order.body = "replaced";
    order.body_size = 8;
    order.host = "app.internal";
    http_proxy(request, &order);
}

static const struct http_route OF_HOSTS = {"*",  "(hosts)", HTTP_QUERY | HTTP_LATER | HTTP_PROXIES,
                                           NULL, 0,         answer_mirror};

static const struct http_route PROXY_ROUTES[] = {
    {"*", "/p/{rest...}", HTTP_POURS | HTTP_PROXIES, NULL, 256 << 20, pass_on},
    {"*", "/held/{rest...}", HTTP_PROXIES, NULL, 1 << 20, pass_on},
    {"*", "/kept/{rest...}", HTTP_PROXIES, NULL, 1 << 20, pass_on_kept},
    {"POST", "/other", 0, NULL, 1 << 20, pass_on_other_body},
    {"*", "/s/{sandbox}/ports/{port}/{rest...}",
     HTTP_BEARER | HTTP_PATH | HTTP_QUERY | HTTP_PROTOCOL | HTTP_POURS | HTTP_PROXIES, "port", 1 << 20, pass_on},
    {"GET", "/plain/{rest...}", 0, NULL, 0, pass_on}, /* one that reads its parameters itself */
    {"GET", "/hello", 0, NULL, 0, answer_hello},
};

static void proxy_start(void)
{
    upstream_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(bind(upstream_listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(upstream_listener, 64) == 0);
    CHECK(getsockname(upstream_listener, (struct sockaddr *)&at, &size) == 0);
    upstream_port = ntohs(at.sin_port);
    struct http_server_options options = {.host = "127.0.0.1",
                                          .tls = tls_fixture(),
                                          .name = "proxy",
                                          .loops = 1,
                                          .routes = PROXY_ROUTES,
                                          .route_count = sizeof PROXY_ROUTES / sizeof PROXY_ROUTES[0],
                                          .host_rule = {"preview.test", &OF_HOSTS},
                                          .authorize = fixture_authorize};
    struct error err = {0};
    fixture = http_server_start(&options, &err);
    CHECK(fixture != NULL);
    client_port = http_server_port(fixture);
}

/* What the upstream is asked: its next connection, -1 after 5 s. */
UNUSED_HELPER static int upstream_accept(void)
{
    struct pollfd ready = {.fd = upstream_listener, .events = POLLIN};
    return poll(&ready, 1, 5000) > 0 ? accept4(upstream_listener, NULL, NULL, SOCK_CLOEXEC) : -1;
}

/* Reads until `wanted` came, into `seen`. */
UNUSED_HELPER static bool upstream_read(int fd, const char *wanted)
{
    size_t used = 0;
    seen[0] = '\0';
    while (strstr(seen, wanted) == NULL) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&ready, 1, 5000) > 0 ? recv(fd, seen + used, sizeof seen - 1 - used, 0) : -1;
        if (got <= 0)
            return false;
        used += (size_t)got;
        seen[used] = '\0';
    }
    return true;
}

/* Client says `request`, the upstream `reply` as soon as the request's head is there, and closes; what the client gets,
 * up to the connection's end or half a second's silence, is in `answer`. */
UNUSED_HELPER static void exchange(const char *request, const char *reply)
{
    int client = client_open();
    client_say(client, request);
    int upstream = upstream_accept();
    CHECK(upstream >= 0 && upstream_read(upstream, "\r\n\r\n"));
    client_say(upstream, reply);
    shutdown(upstream, SHUT_WR);
    client_read_all(client, answer, sizeof answer, 500);
    close(upstream);
    close(client);
}

#define HAS(text, wanted)   CHECK(strstr(text, wanted) != NULL)
#define LACKS(text, wanted) CHECK(strstr(text, wanted) == NULL)
