/* execute.c - one-shot runs (specs/execute.md): a sandbox is made for the one request, on a thread of its own, the
 * request goes on to its node as it came, and the sandbox goes when the answer has been sent. What it left to be
 * fetched by URL keeps it until its idle timeout, and so does a process of ours that is killed in between. */
#include "negotiator/dialects/plane.h"
#include "negotiator/dialects/waiting.h"
#include "negotiator/fleet/dial.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/proxy.h"

#include <sodium.h>
#include <string.h>

enum {
    IDLE_S = 130, /* longer than an artifact's URL holds (sandboxd: 120 s) */
    TTL_MIN_S = 60,
    TTL_MAX_S = 3600,
    TIMEOUT_DEFAULT_S = 60,
    TIMEOUT_MAX_S = 86400,
    LATE_MS = 5000 /* the node answers in time by itself; beyond that it is not there any more */
};
static const char ROUTE[] = "/execute", THREAD_PREFIX[] = "execute-";

/* One request and its sandbox; belongs to the request's loop, but for `granted`, which the ledger thread sets. */
struct once {
    struct plane *plane;
    struct loop *loop;
    uint64_t request;  /* its number */
    uint64_t begun_ns; /* boot */
    double timeout_s;
    struct caller caller;
    char thread_id[CAPABILITY_THREAD_BYTES];
    struct loop_timer *timer;
    struct negotiation *granted;
    bool has_urls; /* something is to be fetched from it */
};

static void once_free(struct once *once)
{
    loop_timer_cancel(once->timer);
    negotiation_free(once->granted);
    free(once);
}

/* ---- its sandbox goes ---- */

static void on_released(void *cookie UNUSED, struct question *q)
{
    question_free(q); /* when it could not be released its idle timeout ends it */
}

static void release(const struct once *once)
{
    struct question *q = question_new();
    q->verb = QUESTION_RELEASE;
    q->caller = once->caller;
    memcpy(q->thread_id, once->thread_id, sizeof q->thread_id);
    q->answered = on_released;
    leasing_ask(once->plane->leasing, q);
}

/* ---- passing it on ---- */

static bool on_header(void *cookie, const char *name, const char **value UNUSED)
{
    struct once *once = cookie;
    if (strcmp(name, "x-parley-artifacts-for") != 0)
        return true;
    once->has_urls = true;
    return false;
}

static void on_over(void *cookie)
{
    struct once *once = cookie;
    if (!once->has_urls)
        release(once);
    once_free(once);
}

static unsigned elapsed_ms(const struct once *once)
{
    return (unsigned)((clock_boot_ns() - once->begun_ns) / 1000000);
}

static void pass_on(struct http_request *request, struct once *once, const struct fleet_dialled *node,
                    const char *token)
{
    char elapsed[16], bearer[CAPABILITY_TEXT_BYTES + 8];
    AUTO_FREE char *target = memory_printf("/s/%s/execute", once->granted->sandbox.id);
    (void)snprintf(elapsed, sizeof elapsed, "%u", elapsed_ms(once));
    (void)snprintf(bearer, sizeof bearer, "Bearer %s", token);
    char traceparent[HTTP_TRACEPARENT_BYTES];
    http_request_traceparent(request, traceparent);
    const struct http_pair headers[] = {{"Authorization", bearer},
                                        {"X-API-Key", NULL},
                                        {"X-Parley-Elapsed-Ms", elapsed},
                                        {"traceparent", traceparent},
                                        {"tracestate", http_request_tracestate(request)}};
    const struct http_proxy_order order = {.upstream = node->socket,
                                           .upstream_tls = node->is_tls ? node->host : NULL,
                                           .target = target,
                                           .host = node->authority,
                                           .headers = headers,
                                           .header_count = sizeof headers / sizeof *headers,
                                           .head_timeout_ms = (unsigned)(once->timeout_s * 1000) + LATE_MS,
                                           .answer_header = on_header,
                                           .over = on_over,
                                           .cookie = once};
    http_proxy(request, &order);
    sodium_memzero(bearer, sizeof bearer);
}

static void refuse(struct http_request *request, struct once *once, const struct error *err)
{
    struct error why = *err;
    once_free(once);
    waiting_refuse(request, &why);
}

/* On the loop: the grant is durable. Of a loop that has ended, whose posts its server runs last, nobody is left to ask:
 * the idle timeout ends what was made. */
static void on_granted(void *cookie)
{
    struct once *once = cookie;
    if (loop_current() != once->loop) {
        once_free(once);
        return;
    }
    const struct negotiation *n = once->granted;
    struct http_request *request = http_request_find(once->loop, once->request);
    char token[CAPABILITY_TEXT_BYTES];
    struct fleet_dialled node = {.socket = -1};
    struct error err = n->refusal;
    loop_timer_cancel(TAKE(once->timer));
    bool is_granted = n->refusal.kind == ERROR_NONE;
    bool goes_on = is_granted && request && leasing_mint(once->plane->leasing, n, token, &err) &&
                   fleet_dial(once->plane->fleet, n->sandbox.node, &node, &err);
    if (is_granted && !goes_on)
        release(once);
    if (request)
        http_request_when_gone(request, NULL, NULL);
    if (goes_on)
        pass_on(request, once, &node, token);
    else if (request)
        refuse(request, once, &err);
    else
        once_free(once);
    sodium_memzero(token, sizeof token);
}

/* ---- its sandbox is made ---- */

static json_t *result(bool timed_out, const char *error)
{
    return json_pack("{s:s, s:s, s:i, s:b, s:s, s:n, s:n}", "stdout", "", "stderr", "", "exit_code",
                     timed_out ? 124 : 1, "timed_out", timed_out, "error", error, "sandbox_id", "artifacts");
}

/* The client leaves: when the answer comes, its request is not found. */
static void on_gone(void *cookie)
{
    struct once *once = cookie;
    loop_timer_cancel(TAKE(once->timer));
}

/* Answered while the client still waits; what is being made is let go when it is there. */
static void on_late(void *cookie)
{
    struct once *once = cookie;
    once->timer = NULL;
    struct http_request *request = http_request_find(once->loop, once->request);
    if (request)
        http_reply_json(request, 200, result(true, "Execution timed out: no sandbox was ready in time"));
}

/* On the ledger thread. */
static void on_answered(void *cookie, struct negotiation *n)
{
    struct once *once = cookie;
    once->granted = n;
    loop_post(once->loop, on_granted, once);
}

static void on_starting(void *cookie UNUSED)
{
}

static bool is_abandoned(void *cookie UNUSED)
{
    return false; /* what it made has to be let go */
}

static bool read_timeout(struct http_request *request, double *timeout_s, struct error *err)
{
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    const json_t *value = json_object_get(body, "timeout_s");
    bool is_given = value && !json_is_null(value);
    *timeout_s = is_given ? json_number_value(value) : TIMEOUT_DEFAULT_S;
    json_decref(body);
    return (*timeout_s > 0 && *timeout_s <= TIMEOUT_MAX_S) ||
           error_set(err, ERROR_INVALID, "timeout_s: seconds, over 0, at most %d", TIMEOUT_MAX_S);
}

static int64_t clamp(double value, int64_t low, int64_t high)
{
    return value < (double)low ? low : value > (double)high ? high : (int64_t)value;
}

static bool make_wish(struct negotiation *n, const struct once *once, struct error *err)
{
    static const char SCOPE[] = "process";
    n->caller = once->caller;
    memcpy(n->thread_id, once->thread_id, sizeof n->thread_id);
    n->wanted.mode = WANTED_CREATE_ONLY;
    n->wanted.idle_timeout_s = IDLE_S;
    n->wanted.ttl_s = clamp(once->timeout_s + IDLE_S, TTL_MIN_S, TTL_MAX_S);
    n->wanted.scopes_given = true;
    n->starting = on_starting;
    n->is_abandoned = is_abandoned;
    n->answered = on_answered;
    return scope_parse(&n->wanted.scopes, SCOPE, strlen(SCOPE), SCOPE_UNKNOWN_REFUSED, err);
}

/* A little before the client gives up, and after the node would have answered. */
static uint64_t late_at(const struct once *once)
{
    double margin = once->timeout_s * 0.05;
    margin = margin < 0.1 ? 0.1 : margin > 1 ? 1 : margin;
    double wait_s = margin > once->timeout_s / 2 ? once->timeout_s / 2 : once->timeout_s - margin;
    return once->begun_ns + (uint64_t)(wait_s * 1e9);
}

static bool begin(struct http_request *request, struct once *once, struct error *err)
{
    char random[RANDOM_ID_BYTES];
    random_id(random, "x");
    AUTO(negotiation) *n = negotiation_new();
    if (!read_timeout(request, &once->timeout_s, err) || !plane_caller(request, &once->caller, err) ||
        !text_format(once->thread_id, sizeof once->thread_id, "%s%s", THREAD_PREFIX, random + 2) ||
        !make_wish(n, once, err))
        return false;
    n->cookie = once;
    http_request_when_gone(request, on_gone, once);
    once->timer = loop_timer_start(once->loop, late_at(once), on_late, once);
    if (leasing_negotiate(once->plane->leasing, n, err)) {
        n = NULL; /* the rules have it */
        return true;
    }
    http_request_when_gone(request, NULL, NULL);
    return false;
}

static void execute(struct http_request *request)
{
    struct error err = {0};
    struct once *once = memory_new(sizeof *once);
    *once = (struct once){.plane = plane_of(request),
                          .loop = http_request_loop(request),
                          .request = http_request_number(request),
                          .begun_ns = clock_boot_ns()};
    if (begin(request, once, &err))
        return;
    once_free(once);
    plane_refuse(request, &err);
}

json_t *execute_error(const struct http_request *request, const struct error *err)
{
    const struct http_route *route = http_request_route(request);
    return route && strcmp(route->path, ROUTE) == 0 ? result(false, err->message) : NULL;
}

struct plane_rows execute_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/execute", HTTP_BEARER | HTTP_API_KEY, "user", PLANE_BODY_BYTES, execute},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
