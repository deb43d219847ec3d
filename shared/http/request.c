/* request.c - the life of a request: its head, its judgement, its handler, its end. */
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/http/http_internal.h"
#include "shared/http/proxy_internal.h"
#include "shared/http/websocket.h"

#include <string.h>
#include <strings.h>

static _Atomic uint64_t last_number;

/* As random_id makes them, but without a system call: unique, not secret. */
static void make_id(struct http_request *request)
{
    memcpy(request->id, request->worker->id, RANDOM_ID_BYTES);
    uint64_t count = ++request->worker->id_count;
    for (size_t at = RANDOM_ID_BYTES - 1; at > HTTP_ID_RANDOM_BYTES; count /= 36)
        request->id[--at] = "0123456789abcdefghijklmnopqrstuvwxyz"[count % 36];
}

/* splitmix64, from a seed of the kernel's: without a system call. Never 0. */
static uint64_t next_random(uint64_t *seed)
{
    uint64_t mixed = *seed += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    mixed ^= mixed >> 31;
    return mixed != 0 ? mixed : 1;
}

static void begin_span(struct http_request *request)
{
    uint64_t id = next_random(&request->worker->span_seed);
    text_hex(request->trace.span_id, &id, sizeof id);
}

static void begin_trace(struct http_request *request)
{
    const uint64_t id[] = {next_random(&request->worker->trace_seed), next_random(&request->worker->span_seed)};
    text_hex(request->trace.trace_id, id, sizeof id);
    begin_span(request);
}

struct http_request *http_request_new(struct http_connection *connection)
{
    struct http_request *request = memory_new(sizeof *request);
    request->query = request->few_pairs;
    request->worker = connection->worker;
    request->connection = connection;
    request->began_ns = clock_monotonic_ns();
    request->client = connection->peer;
    request->has_client = connection->has_peer;
    memcpy(request->remote, "?", 2);
    if (request->has_client)
        address_format(request->remote, &request->client);
    make_id(request);
    begin_trace(request);
    http_measure_began(request);
    return request;
}

/* The client's own, if it sent a sane one. */
static void take_id(struct http_request *request)
{
    const char *given = http_head_field(&request->head, "x-request-id");
    char id[sizeof request->id];
    if (given != NULL && text_is_made_of(given, sizeof id - 1, "._-") && text_copy(id, sizeof id, given))
        memcpy(request->id, id, sizeof id);
}

/* Said twice is not said. */
static void take_trace(struct http_request *request)
{
    const char *given = NULL;
    for (size_t i = 0; i < request->head.field_count; i++) {
        if (strcmp(request->head.fields[i].name, "traceparent") != 0)
            continue;
        if (given != NULL)
            return;
        given = request->head.fields[i].value;
    }
    (void)!http_trace_parse(&request->trace, given);
}

void http_request_continue(struct http_request *request, const char *id, const char *traceparent)
{
    char copy[sizeof request->id];
    if (id != NULL && text_is_made_of(id, sizeof copy - 1, "._-") && text_copy(copy, sizeof copy, id))
        memcpy(request->id, copy, sizeof copy);
    (void)!http_trace_parse(&request->trace, traceparent);
}

void http_request_traceparent(const struct http_request *request, char to[static HTTP_TRACEPARENT_BYTES])
{
    http_trace_format(&request->trace, to);
}

const char *http_request_tracestate(const struct http_request *request)
{
    const char *state = http_head_field(&request->head, "tracestate");
    bool goes_on = request->trace.parent_id[0] != '\0' && state != NULL && strlen(state) <= HTTP_TRACESTATE_MAX;
    return goes_on ? state : NULL;
}

static bool carries_credential(const struct http_request *request)
{
    return strncmp(request->head.path, "/c/", 3) == 0 || http_head_field(&request->head, "authorization") != NULL ||
           http_head_field(&request->head, "x-api-key") != NULL ||
           http_head_field(&request->head, "x-execd-access-token") != NULL ||
           http_head_field(&request->head, "opensandbox-egress-auth") != NULL ||
           http_head_field(&request->head, "open-sandbox-api-key") != NULL ||
           http_request_query(request, "token") != NULL || http_websocket_bearer(request, &(size_t){0}) != NULL;
}

static bool read_query(struct http_request *request, struct error *err)
{
    if ((request->match.route->carriers & HTTP_PROXIES) != 0)
        return http_proxy_find_token(request, err);
    request->query_came = memory_string(request->head.query); /* what follows cuts it up */
    bool may_repeat = (request->match.route->carriers & HTTP_REPEATS) != 0;
    if (may_repeat)
        request->query = request->many_pairs = memory_array(HTTP_QUERY_REPEATS_MAX, sizeof *request->many_pairs);
    return http_query_parse(request->head.query, may_repeat, request->query, &request->query_count, err);
}

bool http_request_read_head(struct http_request *request, const char *data, size_t length, struct error *err)
{
    bool is_sound = http_head_parse(&request->head, data, length, err);
    if (request->head.text != NULL)
        take_id(request);
    if (request->head.text != NULL)
        take_trace(request);
    if (!is_sound)
        return false;
    http_limits_find_client(request);
    struct error refusal = {0};
    bool is_served =
        http_find_route(request, &refusal) && read_query(request, &refusal) && http_credential_find(request, &refusal);
    if (!is_served)
        request->refusal = refusal;
    request->carries_credential = carries_credential(request);
    return true;
}

bool http_request_authorize(struct http_request *request, struct error *err)
{
    const struct http_route *route = request->match.route;
    const struct http_server_options *options = &request->worker->server->options;
    bool is_asked_later = (route->carriers & HTTP_LATER) != 0 && request->credential == NULL;
    bool is_open = route->needs == NULL, is_limited = !is_open || (route->carriers & HTTP_LIMITED) != 0;
    if (is_limited && !http_limits_admit(request, err))
        return false;
    if (is_open)
        return true;
    if (is_asked_later)
        return true;
    bool is_shown = request->credential != NULL && request->identity == NULL;
    if (is_shown && !http_authentication_allowed(request, err))
        return false;
    struct error refusal = {0};
    if (options->authorize == NULL)
        return error_set(err, ERROR_UNAUTHENTICATED, "nobody can judge a credential here");
    if (options->authorize(request, route, &refusal))
        return true;
    if (refusal.kind == ERROR_NONE)
        error_set(&refusal, ERROR_UNAUTHENTICATED, "the credential was refused");
    if (err != NULL)
        *err = refusal;
    return false;
}

/* ---- numbers ---- */

uint64_t http_request_number(const struct http_request *request)
{
    return request->number;
}

static void register_number(struct http_request *request)
{
    request->number = atomic_fetch_add(&last_number, 1) + 1;
    struct http_request **bucket = &request->worker->requests[request->number % HTTP_REQUEST_BUCKETS];
    request->next = *bucket;
    *bucket = request;
    request->is_registered = true;
}

void http_request_forget(struct http_request *request)
{
    if (!request->is_registered)
        return;
    struct http_request **at = &request->worker->requests[request->number % HTTP_REQUEST_BUCKETS];
    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    request->is_registered = false;
}

struct http_request *http_request_find(struct loop *loop, uint64_t number)
{
    if (loop->worker == NULL)
        return NULL;
    struct http_request *request = loop->worker->requests[number % HTTP_REQUEST_BUCKETS];
    while (request != NULL && request->number != number)
        request = request->next;
    return request;
}

/* ---- the end ---- */

void http_request_end(struct http_request *request)
{
    request->phase = HTTP_ENDED;
    request->gone = NULL;
    http_request_forget(request);
    http_connection_expect_taking(request->connection);
}

static void tell_gone(struct http_request *request)
{
    enum http_phase phase = request->phase;
    request->phase = HTTP_GONE;
    http_request_forget(request);
    if (phase == HTTP_OPEN && request->gone != NULL)
        request->gone(request->gone_cookie);
    else if (phase == HTTP_STREAMING && request->stream.events->gone != NULL)
        request->stream.events->gone(request->stream.cookie);
    else if (phase == HTTP_SOCKET && request->tunnel != NULL)
        http_tunnel_gone(request->tunnel);
    else if (phase == HTTP_SOCKET)
        http_websocket_gone(request->websocket);
    http_pour_stop(request); /* after that: its reader must not take the end of the pipe for the body's */
}

/* Somebody waits for its answer, streams, or talks. */
static bool is_owned(const struct http_request *request)
{
    return request->phase == HTTP_OPEN || request->phase == HTTP_STREAMING || request->phase == HTTP_SOCKET;
}

void http_request_cut(struct http_request *request)
{
    http_connection_doom(request->connection);
    if (is_owned(request))
        tell_gone(request);
}

void http_request_drop(struct http_request *request)
{
    request->phase = HTTP_GONE;
    http_request_forget(request);
    http_connection_doom(request->connection);
}

void http_request_free(struct http_request *request)
{
    if (is_owned(request))
        tell_gone(request);
    http_access_log(request);
    http_measure_ended(request);
    if (request->free_identity != NULL)
        request->free_identity(request->identity);
    atomic_fetch_sub(&request->worker->server->spooled_bytes, request->spooled_bytes);
    loop_timer_cancel(request->probe);
    http_stream_done(request);
    http_websocket_free(request->websocket);
    http_tunnel_free(request->tunnel);
    free(request->protocol_bearer);
    free(request->late_credential);
    free(request->query_came);
    free(request->many_pairs);
    free(request->query_token);
    free(request->moved_path);
    http_pour_done(request);
    http_file_done(request);
    http_match_done(&request->match);
    http_head_done(&request->head);
    text_done(&request->headers);
    free(request);
}

static void on_pool_cleared(void *slot)
{
    struct http_request *request = *(struct http_request **)slot;
    if (request->websocket != NULL || request->tunnel != NULL) {
        request->h2o = NULL;
        return; /* it ends with the socket */
    }
    bool lingers = request->phase == HTTP_ENDED && (http_pour_is_cut_short(request) || request->pour.closes);
    http_connection_request_ended(request->connection);
    if (lingers)
        http_connection_linger(request->connection);
    http_request_free(request);
}

/* ---- the handler ---- */

/* libh2o's input now ends with bytes of the next request, which must not be parsed before they were judged. */
static void put_surplus_aside(struct http_connection *connection, const h2o_req_t *h2o)
{
    h2o_buffer_t *input = connection->socket->input;
    size_t used = (size_t)(h2o->entity.base + h2o->entity.len - input->bytes);
    http_connection_set_surplus(connection, input->bytes + used, input->size - used);
    input->size = used;
}

static void serve(struct http_request *request)
{
    const struct http_route *route = request->match.route;
    bool (*gate)(struct http_request *) = request->worker->server->options.gate;
    struct error err = request->refusal;
    bool is_served = err.kind == ERROR_NONE;
    request->received_bytes = request->h2o->entity.len;
    if (is_served && request->h2o->entity.len > route->body_max_bytes)
        is_served = error_set(&err, ERROR_TOO_LARGE, "the body is over %zu bytes", route->body_max_bytes);
    /* While the body came, the credential may have been revoked. */
    if (is_served && request->is_judged_early)
        is_served = http_request_authorize(request, &err);
    if (!is_served)
        http_reply_error(request, &err);
    else if (gate == NULL || !gate(request))
        route->handle(request);
}

int http_request_on_request(h2o_handler_t *handler UNUSED, h2o_req_t *h2o)
{
    struct http_connection *connection = h2o->conn->callbacks->get_socket(h2o->conn)->on_close.data;
    struct http_request *request = connection->request;
    request->h2o = h2o;
    struct http_request **slot = h2o_mem_alloc_shared(&h2o->pool, sizeof(struct http_request *), on_pool_cleared);
    *slot = request;
    if (request->head.is_chunked && !request->pours)
        put_surplus_aside(connection, h2o);
    if (connection->worker->is_stopping)
        h2o->http1_is_persistent = 0;
    http_connection_set_state(connection, HTTP_RUNNING);
    register_number(request);
    serve(request);
    if (is_owned(request))
        http_peer_watch(request);
    return 0;
}

void http_request_when_gone(struct http_request *request, void (*gone)(void *cookie), void *cookie)
{
    request->gone = gone;
    request->gone_cookie = cookie;
}

void http_request_set_identity(struct http_request *request, void *identity, void (*free_identity)(void *),
                               const char *label)
{
    if (request->free_identity != NULL)
        request->free_identity(request->identity);
    request->identity = identity;
    request->free_identity = free_identity;
    if (label == NULL || !text_copy(request->label, sizeof request->label, label))
        request->label[0] = '\0';
}
