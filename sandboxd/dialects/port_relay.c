#include "sandboxd/dialects/port_relay.h"

#include "sandboxd/sandbox/ports/port_pool.h"
#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { SECRET_BYTES = 2 * (CAPABILITY_ID_BYTES + 64) };

/* One request, from here until `over`. */
struct passage {
    struct http_proxy_order order; /* the dialect's; its texts are copies */
    struct plane *plane;
    struct loop *loop;
    uint64_t number;
    char sandbox_id[CAPABILITY_ID_BYTES];
    char secret[SECRET_BYTES];
    uint16_t port;
    bool is_dialling, is_gone;
    bool is_connected; /* the connection is this request's */
};

static struct port_pool *pool_of(const struct passage *passage)
{
    return passage->plane->port_pools[loop_index(passage->loop)];
}

static void free_passage(struct passage *passage)
{
    http_proxy_order_done(&passage->order);
    free(passage);
}

static void hang_up(struct passage *passage)
{
    if (passage->is_connected)
        ports_hung_up(passage->plane->sandboxes, passage->sandbox_id);
    passage->is_connected = false;
}

static void end(struct passage *passage)
{
    hang_up(passage);
    if (passage->order.over != NULL)
        passage->order.over(passage->order.cookie);
    free_passage(passage);
}

/* ---- what an app must not say ---- */

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

bool port_relay_is_reserved(uint16_t port)
{
    static const uint16_t EXECD = 44772, EGRESS = 18080;
    return port == EXECD || port == EGRESS;
}

bool port_relay_may_say(const char *name, bool in_path)
{
    static const char *const OF_THE_HOST[] = {"alt-svc",
                                              "clear-site-data",
                                              "nel",
                                              "public-key-pins",
                                              "report-to",
                                              "reporting-endpoints",
                                              "service-worker-allowed",
                                              "strict-transport-security",
                                              NULL};
    static const char *const OF_A_BROWSER[] = {"set-cookie", "referrer-policy", NULL};
    return !is_one_of(name, OF_THE_HOST) && !(in_path && is_one_of(name, OF_A_BROWSER));
}

/* ---- what http_proxy asks ---- */

static bool on_answer_header(void *cookie, const char *name, const char **value)
{
    const struct passage *passage = cookie;
    const struct http_proxy_order *order = &passage->order;
    return order->answer_header == NULL || order->answer_header(order->cookie, name, value);
}

static void on_kept(void *cookie, struct loop_watch *upstream)
{
    struct passage *passage = cookie;
    if (pool_of(passage) == NULL) {
        fd_hang_up(loop_watch_fd(upstream));
        loop_watch_free(upstream);
        return;
    }
    passage->is_connected = false;
    port_pool_give(pool_of(passage), passage->sandbox_id, passage->port, upstream);
}

/* A guest is no server of the client's: that it went is told as of an init that went. */
static void on_failed(void *cookie, struct error *err)
{
    const struct passage *passage = cookie;
    if (passage->port == PORTS_GUEST && err->kind == ERROR_BAD_GATEWAY)
        error_set(err, ERROR_STARTING,
                  "the connection into the sandbox broke; whether what was asked is done will be seen there");
}

static void on_over(void *cookie)
{
    end(cookie);
}

static void dial(struct passage *passage, struct http_request *request);

/* The server closed a connection that was idle, as the request was on its way. */
static void on_stale(void *cookie, struct http_request *request)
{
    hang_up(cookie);
    dial(cookie, request);
}

static void pass(struct passage *passage, struct http_request *request, int fd, struct loop_watch *idle)
{
    struct http_proxy_order order = passage->order;
    passage->is_connected = true;
    order.secret = passage->secret;
    order.upstream = fd;
    order.kept_upstream = idle;
    order.answer_header = on_answer_header;
    order.kept = on_kept;
    order.stale = idle != NULL ? on_stale : NULL;
    order.failed = on_failed;
    order.over = on_over;
    order.cookie = passage;
    http_proxy(request, &order);
}

/* ---- a connection ---- */

static void on_gone(void *cookie)
{
    struct passage *passage = cookie;
    passage->is_gone = true;
    if (!passage->is_dialling)
        end(passage);
}

static void on_dialled(void *cookie, int fd, const struct error *err)
{
    struct passage *passage = cookie;
    AUTO_FD int taken = fd;
    passage->is_dialling = false;
    passage->is_connected = taken >= 0;
    struct http_request *request = passage->is_gone ? NULL : http_request_find(passage->loop, passage->number);
    if (request == NULL) {
        fd_hang_up(taken);
        end(passage);
    } else if (taken < 0) {
        struct error copy = *err;
        on_failed(passage, &copy);
        http_request_when_gone(request, NULL, NULL);
        end(passage);
        http_reply_error(request, &copy);
    } else {
        pass(passage, request, TAKE_FD(taken), NULL);
    }
}

static void dial(struct passage *passage, struct http_request *request)
{
    passage->is_dialling = true;
    http_request_when_gone(request, on_gone, passage);
    ports_dial(passage->plane->sandboxes, passage->sandbox_id, passage->port, on_dialled, passage);
}

/* What may be asked twice, should the idle connection turn out to be closed. */
static bool may_reuse(const struct http_request *request)
{
    const char *method = http_request_method(request);
    bool is_safe = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    return is_safe && http_body_length(request) == 0 && http_request_header(request, "upgrade") == NULL;
}

/* A paused sandbox goes on when it is dialled, and one that has ended says so. */
static bool is_running(const struct passage *passage)
{
    AUTO_REGISTRY_VIEW view = {0};
    struct registry *registry = sandboxes_registry(passage->plane->sandboxes);
    return registry_find(registry, passage->sandbox_id, &view) && view.state == REGISTRY_LIVE && !view.paused;
}

static struct loop_watch *find_idle(const struct passage *passage, const struct http_request *request)
{
    if (!may_reuse(request) || pool_of(passage) == NULL || !is_running(passage))
        return NULL;
    return port_pool_take(pool_of(passage), passage->sandbox_id, passage->port);
}

/* What each capability of this sandbox begins with, in whole groups of base64: also one that another carrier than the
 * judged one has is not the app's. */
static void write_secret(const char *sandbox_id, char to[static SECRET_BYTES])
{
    char head[CAPABILITY_ID_BYTES + 64];
    int length = snprintf(head, sizeof head, "{\"alg\":\"HS256\",\"typ\":\"JWT\",\"kid\":\"%s", sandbox_id);
    sodium_bin2base64(to, SECRET_BYTES, (const uint8_t *)head, (size_t)(length - length % 3),
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

static struct passage *new_passage(struct http_request *request, uint16_t port, const struct http_proxy_order *order)
{
    struct passage *passage = memory_new(sizeof *passage);
    http_proxy_order_copy(&passage->order, order);
    passage->plane = plane_of(request);
    passage->loop = http_request_loop(request);
    passage->number = http_request_number(request);
    passage->port = port;
    memcpy(passage->sandbox_id, caller_of(request)->claims.sandbox_id, sizeof passage->sandbox_id);
    write_secret(passage->sandbox_id, passage->secret);
    return passage;
}

void port_relay(struct http_request *request, uint16_t port, const struct http_proxy_order *order)
{
    if (caller_of(request)->is_guest && port != PORTS_GUEST) {
        struct error err = {0};
        error_set(&err, ERROR_INVALID, "previews are not there for a sandbox with this isolation: use /ports");
        if (order->over != NULL)
            order->over(order->cookie);
        http_reply_error(request, &err);
        return;
    }
    plane_stay(request);
    struct passage *passage = new_passage(request, port, order);
    struct loop_watch *idle = find_idle(passage, request);
    if (idle != NULL)
        pass(passage, request, -1, idle);
    else
        dial(passage, request);
}
