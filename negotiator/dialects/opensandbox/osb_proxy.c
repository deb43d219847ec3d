/* osb_proxy.c - L15: requests that go on to a sandbox's node. Who shows a capability of that sandbox uses it: its MAC,
 * its time and what was revoked are judged here, so that nobody makes a node refuse us for his guesses, and the node
 * judges all of it again. Who shows an API key of the owner gets a short capability by the rules, which he never sees.
 */
#include "negotiator/passing/kept_grants.h"
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_errors.h"
#include "negotiator/dialects/opensandbox/osb_port.h"
#include "negotiator/passing/passing_room.h"
#include "negotiator/dialects/waiting.h"
#include "negotiator/fleet/dial.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"
#include "shared/http/proxy.h"

#include <sodium.h>
#include <string.h>

#define BODY_BYTES ((size_t)16 << 30) /* of one request, as the node takes it */

enum {
    HEAD_TIMEOUT_MS = 660000, /* the node gives an app 600 s, and says so itself */
};

/* One request, as its path and its client say it. */
struct wish {
    struct http_request *request;
    const char *sandbox_id;
    const char *port; /* decimal, as in the path */
    uint16_t number;
    const char *credential;
    uint8_t key[KEPT_GRANTS_KEY_BYTES];
};

static struct kept_grants *kept_of(const struct http_request *request)
{
    return plane_of(request)->kept_grants[loop_index(http_request_loop(request))];
}

static bool read_wish(struct wish *wish, struct http_request *request, struct error *err)
{
    const struct principal *principal = http_request_identity(request);
    *wish = (struct wish){.request = request,
                          .sandbox_id = http_request_parameter(request, "sandbox_id"),
                          .port = http_request_parameter(request, "port"),
                          .credential = http_request_credential(request)};
    if (wish->credential == NULL)
        return error_set(err, ERROR_UNAUTHENTICATED, "an API key of the sandbox's owner is needed, or a capability");
    if (principal != NULL && principal->role < ROLE_USER)
        return error_set(err, ERROR_FORBIDDEN, "this needs role user; the key has role %s", role_name(principal->role));
    if (!random_is_id(wish->sandbox_id, "sbx"))
        return error_set(err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
    if (!osb_port_read(request, &wish->number, err))
        return false;
    kept_grants_key(kept_of(request), wish->credential, wish->sandbox_id, wish->port, wish->key);
    return true;
}

/* ---- on to the node ---- */

/* Until the exchange is over. */
struct passing {
    struct passing_room *room;
    char owner[PRINCIPAL_BYTES]; /* for whom it is in there */
    struct kept_grants *kept;
    uint8_t key[KEPT_GRANTS_KEY_BYTES];
};

/* Cookies would be those of everything at our address; and what a node does not let in is not kept. */
static bool on_header(void *cookie, const char *name, const char **value UNUSED)
{
    const struct passing *passing = cookie;
    if (strcmp(name, "www-authenticate") == 0)
        kept_grants_drop(passing->kept, passing->key);
    return strcmp(name, "set-cookie") != 0;
}

static void on_failed(void *cookie, struct error *err)
{
    const struct passing *passing = cookie;
    kept_grants_drop(passing->kept, passing->key);
    if (err->kind == ERROR_BAD_GATEWAY)
        error_set(err, ERROR_BAD_GATEWAY, "the sandbox's node cannot be reached, or broke off");
}

static void on_over(void *cookie)
{
    struct passing *passing = cookie;
    passing_room_leave(passing->room, passing->owner);
    free(passing);
}

/* Of one that has entered. */
static struct passing *new_passing(const struct wish *wish, const struct kept_grant *grant)
{
    struct passing *passing = memory_new(sizeof *passing);
    passing->room = plane_of(wish->request)->passing_room;
    passing->kept = kept_of(wish->request);
    memcpy(passing->owner, grant->owner, sizeof passing->owner);
    memcpy(passing->key, wish->key, sizeof passing->key);
    return passing;
}

static void pass_on(const struct wish *wish, const struct fleet_dialled *node, const struct kept_grant *grant)
{
    struct http_request *request = wish->request;
    AUTO_TEXT target = {0};
    char traceparent[HTTP_TRACEPARENT_BYTES];
    text_append_format(&target, "/s/%s/port/%s", wish->sandbox_id, wish->port);
    http_proxy_target(request, "rest", &target);
    http_request_traceparent(request, traceparent);
    const struct http_pair headers[] = {{"X-EXECD-ACCESS-TOKEN", grant->token},
                                        {"Authorization", NULL},
                                        {"X-API-Key", NULL},
                                        {"Cookie", NULL},
                                        {"Forwarded", NULL},
                                        {"X-Forwarded-For", http_request_remote(request)},
                                        {"X-Forwarded-Host", http_request_header(request, "host")},
                                        {"X-Forwarded-Proto", http_request_is_tls(request) ? "https" : "http"},
                                        {"traceparent", traceparent},
                                        {"tracestate", http_request_tracestate(request)}};
    const struct http_proxy_order order = {.upstream = node->socket,
                                           .upstream_tls = node->is_tls ? node->host : NULL,
                                           .target = target.data,
                                           .host = node->authority,
                                           .headers = headers,
                                           .header_count = sizeof headers / sizeof *headers,
                                           .head_timeout_ms = HEAD_TIMEOUT_MS,
                                           .upgrades = true,
                                           .answer_header = on_header,
                                           .failed = on_failed,
                                           .over = on_over,
                                           .cookie = new_passing(wish, grant)};
    http_proxy(request, &order);
}

static void use(const struct wish *wish, const struct kept_grant *grant)
{
    struct fleet_dialled node = {.socket = -1};
    struct error err = {0};
    const struct plane *plane = plane_of(wish->request);
    if (!passing_room_enter(plane->passing_room, grant->owner, &err)) {
        http_reply_error(wish->request, &err);
        return;
    }
    if (fleet_dial(plane->fleet, grant->node, &node, &err)) {
        pass_on(wish, &node, grant);
        return;
    }
    passing_room_leave(plane->passing_room, grant->owner);
    kept_grants_drop(kept_of(wish->request), wish->key);
    error_set(&err, ERROR_BAD_GATEWAY, "the sandbox's node cannot be reached");
    http_reply_error(wish->request, &err);
}

static void keep_and_use(const struct wish *wish, const struct kept_grant *grant, int64_t expires_at_s)
{
    int64_t left_s = expires_at_s - clock_wall_ms() / 1000;
    uint64_t left_ns = left_s > 0 ? (uint64_t)left_s * UINT64_C(1000000000) : 0;
    uint64_t until_ns = clock_boot_ns() + (left_ns < KEPT_GRANTS_NS ? left_ns : KEPT_GRANTS_NS);
    if (left_ns > 0)
        kept_grants_keep(kept_of(wish->request), wish->key, grant, until_ns);
    use(wish, grant);
}

/* ---- a capability that was shown ---- */

static void on_shown(struct http_request *request, const struct question *q)
{
    struct wish wish;
    struct error err = {0};
    AUTO_FREE struct kept_grant *grant = memory_new(sizeof *grant);
    if (!read_wish(&wish, request, &err) || !text_copy(grant->node, sizeof grant->node, q->sandbox.node) ||
        !text_copy(grant->owner, sizeof grant->owner, q->sandbox.principal) ||
        !text_copy(grant->token, sizeof grant->token, wish.credential))
        http_reply_error(request, &err);
    else
        keep_and_use(&wish, grant, q->claims->expires_at);
    sodium_memzero(grant->token, sizeof grant->token);
}

static void ask_about(const struct wish *wish)
{
    struct http_request *request = wish->request;
    struct error err = {0};
    AUTO(question) *q = question_new();
    q->verb = QUESTION_SHOWN;
    if (!plane_holder(request, &q->caller, &err) || !text_copy(q->sandbox_id, sizeof q->sandbox_id, wish->sandbox_id)) {
        http_reply_error(request, &err);
        return;
    }
    q->token = memory_string(wish->credential);
    waiting_ask(request, TAKE(q), on_shown);
}

/* ---- an API key of the owner ---- */

static void on_granted(struct http_request *request, const struct negotiation *n)
{
    struct wish wish;
    struct error err = n->refusal;
    AUTO_FREE struct kept_grant *grant = memory_new(sizeof *grant);
    bool is_granted = err.kind == ERROR_NONE && leasing_mint(plane_of(request)->leasing, n, grant->token, &err) &&
                      text_copy(grant->node, sizeof grant->node, n->sandbox.node) &&
                      text_copy(grant->owner, sizeof grant->owner, n->sandbox.principal) &&
                      read_wish(&wish, request, &err);
    if (is_granted) {
        keep_and_use(&wish, grant, n->claims.expires_at);
    } else {
        waiting_retry_after(request, n->retry_after_s);
        osb_answer(request, &err);
    }
    sodium_memzero(grant->token, sizeof grant->token);
}

static void ask_for(const struct wish *wish)
{
    struct error err = {0};
    struct http_request *request = wish->request;
    AUTO(negotiation) *n = negotiation_new();
    n->caller.principal = *(const struct principal *)http_request_identity(request);
    if (!plane_holder(request, &n->caller, &err) || !text_copy(n->sandbox_id, sizeof n->sandbox_id, wish->sandbox_id) ||
        !osb_port_scopes(wish->number, &n->wanted, &err)) {
        plane_refuse(request, &err);
        return;
    }
    struct waiting *waiting = waiting_start(request, n, on_granted);
    if (leasing_grant(plane_of(request)->leasing, n, &err)) {
        n = NULL; /* the rules have it */
        return;
    }
    waiting_cancel(waiting);
    plane_refuse(request, &err);
}

static void handle(struct http_request *request)
{
    struct wish wish;
    struct error err = {0};
    AUTO_FREE struct kept_grant *grant = memory_new(sizeof *grant);
    if (!read_wish(&wish, request, &err))
        plane_refuse(request, &err);
    else if (kept_grants_find(kept_of(request), wish.key, clock_boot_ns(), grant))
        use(&wish, grant);
    else if (!http_request_admit(request, &err)) /* what is kept costs the rules nothing */
        http_reply_error(request, &err);
    else if (http_request_identity(request) == NULL)
        ask_about(&wish);
    else
        ask_for(&wish);
    sodium_memzero(grant->token, sizeof grant->token);
}

#define CARRIERS (OSB_KEY | HTTP_EXECD | HTTP_POURS | HTTP_PROXIES | HTTP_UNLIMITED)

struct plane_rows osb_proxy_rows(void)
{
    static const struct http_route ROWS[] = {
        {"*", "/v1/sandboxes/{sandbox_id}/proxy/{port}", CARRIERS, PLANE_HOLDER, BODY_BYTES, handle},
        {"*", "/v1/sandboxes/{sandbox_id}/proxy/{port}/{rest...}", CARRIERS, PLANE_HOLDER, BODY_BYTES, handle},
        {"*", "/sandboxes/{sandbox_id}/proxy/{port}", CARRIERS, PLANE_HOLDER, BODY_BYTES, handle},
        {"*", "/sandboxes/{sandbox_id}/proxy/{port}/{rest...}", CARRIERS, PLANE_HOLDER, BODY_BYTES, handle},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
