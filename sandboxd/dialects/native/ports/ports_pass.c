/* ports_pass.c - a request on its way to the app that listens. */
#include "sandboxd/dialects/native/ports/ports_pass.h"

#include "sandboxd/dialects/native/ports/ports_admit.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/dialects/port_relay.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

/* Until the exchange is over. */
struct relayed {
    uint64_t number; /* the request's */
    bool in_path;    /* its token: it may be a browser's, whose cookies are those of others at this address too */
    struct loop_timer *timer;
};

static void on_expired(void *cookie)
{
    struct relayed *relayed = cookie;
    struct error err = {0};
    relayed->timer = NULL;
    struct http_request *request = http_request_find(loop_current(), relayed->number);
    error_set(&err, ERROR_TOKEN_EXPIRED, "the token expired; ask again with a fresh one");
    if (request)
        http_request_revoke(request, &err);
}

static void on_over(void *cookie)
{
    AUTO_FREE struct relayed *relayed = cookie;
    loop_timer_cancel(relayed->timer);
}

static bool pass_answer_header(void *cookie, const char *name, const char **value UNUSED)
{
    const struct relayed *relayed = cookie;
    return port_relay_may_say(name, relayed->in_path);
}

static void relay(struct http_request *request, uint16_t port, struct relayed *relayed)
{
    struct http_pair headers[5];
    size_t count = 0;
    char host[32];
    const char *referer = http_request_header(request, "referer");
    AUTO_TEXT target = {0};
    (void)snprintf(host, sizeof host, "localhost:%u", port);
    headers[count++] = (struct http_pair){"x-forwarded-host", http_request_header(request, "host")};
    headers[count++] = (struct http_pair){"x-forwarded-for", http_request_remote(request)};
    headers[count++] = (struct http_pair){"forwarded", NULL};
    if (referer && strstr(referer, PORT_RELAY_TOKEN_BEGINS))
        headers[count++] = (struct http_pair){"referer", NULL};
    if (relayed->in_path)
        headers[count++] = (struct http_pair){"cookie", NULL};
    http_proxy_target(request, "rest", &target);
    const struct http_proxy_order order = {.target = target.data,
                                           .host = host,
                                           .headers = headers,
                                           .header_count = count,
                                           .head_timeout_ms = PORT_RELAY_HEAD_TIMEOUT_MS,
                                           .upgrades = true,
                                           .answer_header = pass_answer_header,
                                           .over = on_over,
                                           .cookie = relayed};
    port_relay(request, port, &order);
}

void ports_pass(struct http_request *request)
{
    struct error err = {0};
    uint16_t port;
    if (!ports_admit(request, &port, &err) || !ports_admit_carrier(request, &err)) {
        http_reply_error(request, &err);
        return;
    }
    plane_record_read(request); /* whatever its method: what it does there is the app's to say */
    struct relayed *relayed = memory_new(sizeof *relayed);
    *relayed = (struct relayed){.number = http_request_number(request),
                                .in_path = http_request_parameter(request, "sandbox") == NULL};
    relayed->timer = loop_timer_start(http_request_loop(request),
                                      plane_deadline_ns(caller_of(request)->claims.expires_at), on_expired, relayed);
    relay(request, port, relayed);
}
