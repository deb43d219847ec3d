#include "sandboxd/dialects/policy_relay.h"

#include "sandboxd/dialects/plane.h"
#include "sandboxd/dialects/port_relay.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/node_call.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

enum { TIMEOUT_MS = 60000, REST_BYTES = 160, HEADERS = 5 };

/* One request: copied for the thread, answered on its loop. */
struct item {
    struct item *next;
    struct policy_relay *relay;
    struct loop *loop;
    uint64_t request; /* http_request_number */
    char sandbox_id[CAPABILITY_ID_BYTES];
    char method[16];
    char *url;
    char *headers[HEADERS + 1]; /* owned; NULL behind the last */
    void *body;
    size_t body_size;
    struct node_answer answer;
    struct error err;
};

struct policy_relay {
    char *negotiator;
    struct node_caller *caller;
    pthread_t thread;
    bool is_started;
    atomic_bool is_stopping;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct item *first, **last; /* under the mutex, as the next */
    unsigned count;
};

/* ---- an item ---- */

static void item_free(struct item *item)
{
    for (size_t i = 0; i < HEADERS; i++) {
        if (item->headers[i])
            sodium_memzero(item->headers[i], strlen(item->headers[i]));
        free(item->headers[i]);
    }
    free(item->url);
    free(item->body);
    free(item->answer.body);
    free(item);
}

/* On the request's loop. */
static void answer(void *cookie)
{
    struct item *item = cookie;
    struct http_request *request = http_request_find(item->loop, item->request);
    const struct node_answer *got = &item->answer;
    if (request && item->err.kind != ERROR_NONE)
        http_reply_error(request, &item->err);
    else if (request)
        http_reply_bytes(request, got->status, got->type[0] ? got->type : "text/plain; charset=utf-8", got->body,
                         got->body_size);
    item_free(item);
}

static void ask(struct policy_relay *relay, struct item *item)
{
    const struct node_request question = {.method = item->method,
                                          .url = item->url,
                                          .headers = (const char *const *)item->headers,
                                          .body = item->body,
                                          .body_size = item->body_size,
                                          .timeout_ms = TIMEOUT_MS};
    if (!node_ask(relay->caller, &question, &item->answer, &item->err) && item->err.kind != ERROR_TOO_LARGE)
        error_set(&item->err, ERROR_BAD_GATEWAY, "the negotiator, which knows the policy, cannot be reached");
}

/* ---- the thread ---- */

/* NULL: it stops. */
static struct item *take(struct policy_relay *relay)
{
    pthread_mutex_lock(&relay->mutex);
    while (relay->first == NULL && !relay->is_stopping)
        pthread_cond_wait(&relay->changed, &relay->mutex);
    struct item *item = relay->is_stopping ? NULL : relay->first;
    if (item) {
        relay->first = item->next;
        relay->last = relay->first ? relay->last : &relay->first;
        relay->count--;
    }
    pthread_mutex_unlock(&relay->mutex);
    return item;
}

static void *run(void *cookie)
{
    struct policy_relay *relay = cookie;
    for (struct item *item; (item = take(relay)) != NULL;) {
        ask(relay, item);
        loop_post(item->loop, answer, item);
    }
    return NULL;
}

static unsigned waiting_of(const struct policy_relay *relay, const char *sandbox_id)
{
    unsigned count = 0;
    for (const struct item *each = relay->first; each; each = each->next)
        count += strcmp(each->sandbox_id, sandbox_id) == 0;
    return count;
}

/* Takes it, unless it says no. */
static bool put(struct policy_relay *relay, struct item *item, struct error *err)
{
    pthread_mutex_lock(&relay->mutex);
    bool is_full = relay->count >= POLICY_RELAY_WAITING || waiting_of(relay, item->sandbox_id) >= POLICY_RELAY_OF_ONE;
    bool is_taken = !is_full && !relay->is_stopping;
    if (is_taken) {
        *relay->last = item;
        relay->last = &item->next;
        relay->count++;
        pthread_cond_signal(&relay->changed);
    }
    pthread_mutex_unlock(&relay->mutex);
    if (is_full)
        error_set(err, ERROR_RATE_LIMITED, "too many requests about policies wait; ask again later");
    else if (!is_taken)
        error_set(err, ERROR_STARTING, "the node stops; ask again");
    return is_taken;
}

struct policy_relay *policy_relay_start(const char *negotiator, struct error *err)
{
    AUTO(policy_relay) *relay = memory_new(sizeof *relay);
    relay->negotiator = memory_string(negotiator);
    relay->caller = node_caller_new();
    node_caller_cancel_by(relay->caller, &relay->is_stopping);
    relay->last = &relay->first;
    pthread_mutex_init(&relay->mutex, NULL);
    pthread_cond_init(&relay->changed, NULL);
    int failed = pthread_create(&relay->thread, NULL, run, relay);
    if (failed) {
        error_set(err, ERROR_INTERNAL, "start the thread that asks about policies: %s", strerror(failed));
        return NULL;
    }
    relay->is_started = true;
    return TAKE(relay);
}

void policy_relay_stop(struct policy_relay *relay)
{
    if (!relay || !relay->is_started)
        return;
    pthread_mutex_lock(&relay->mutex);
    relay->is_stopping = true;
    pthread_cond_signal(&relay->changed);
    pthread_mutex_unlock(&relay->mutex);
    pthread_join(relay->thread, NULL);
    relay->is_started = false;
    for (struct item *next, *each = relay->first; each; each = next) {
        next = each->next;
        error_set(&each->err, ERROR_STARTING, "the node stops; ask again");
        loop_post(each->loop, answer, each);
    }
    relay->first = NULL;
}

void policy_relay_free(struct policy_relay *relay)
{
    if (!relay)
        return;
    policy_relay_stop(relay);
    node_caller_free(relay->caller);
    pthread_cond_destroy(&relay->changed);
    pthread_mutex_destroy(&relay->mutex);
    free(relay->negotiator);
    free(relay);
}

/* ---- the row ---- */

/* "policy", "credential-vault/credentials/x": nothing that two readers could take for two paths. */
static bool is_rest(const char *rest)
{
    return rest && text_is_made_of(rest, REST_BYTES - 1, "-_/.") && strstr(rest, "..") == NULL &&
           strstr(rest, "//") == NULL && rest[0] != '/';
}

static bool read_body(const struct http_request *request, struct item *item, struct error *err)
{
    size_t size = 0;
    const void *body = http_request_body(request, &size);
    if (size > POLICY_RELAY_BODY_BYTES)
        return error_set(err, ERROR_TOO_LARGE, "the body has over %d bytes", POLICY_RELAY_BODY_BYTES);
    item->body = size ? memory_copy(body, size) : NULL;
    item->body_size = size;
    return true;
}

static bool read_item(const struct http_request *request, struct item *item, struct error *err)
{
    const char *rest = http_request_parameter(request, "rest"), *credential = http_request_credential(request);
    const char *type = http_request_header(request, "content-type");
    if (!is_rest(rest))
        return error_set(err, ERROR_NOT_FOUND, "no such path; there are /policy and /healthz");
    if (!credential || !text_copy(item->sandbox_id, sizeof item->sandbox_id, caller_of(request)->claims.sandbox_id) ||
        !text_copy(item->method, sizeof item->method, http_request_method(request)) ||
        strcmp(item->method, "HEAD") == 0)
        return error_set(err, ERROR_METHOD, "the policy takes GET, PATCH, DELETE, POST and PUT");
    item->url = memory_printf("%s/v1/sandboxes/%s/port/18080/%s", item->relay->negotiator, item->sandbox_id, rest);
    item->headers[0] = memory_printf("OPENSANDBOX-EGRESS-AUTH: %s", credential);
    item->headers[1] = memory_printf("X-Request-ID: %s", http_request_id(request));
    item->headers[2] = memory_printf("Content-Type: %s", type && strlen(type) < 128 ? type : "application/json");
    return read_body(request, item, err);
}

void policy_relay_handle(struct http_request *request)
{
    struct error err = {0};
    struct policy_relay *relay = plane_of(request)->policy_relay;
    if (relay == NULL) {
        error_set(&err, ERROR_NOT_FOUND, "this node has no negotiator, which would know the policy");
        http_reply_error(request, &err);
        return;
    }
    struct item *item = memory_new(sizeof *item);
    item->relay = relay;
    item->loop = http_request_loop(request);
    item->request = http_request_number(request);
    if (read_item(request, item, &err) && put(relay, item, &err))
        return;
    item_free(item);
    http_reply_error(request, &err);
}

json_t *policy_relay_error(const struct http_request *request, const struct error *err)
{
    const struct http_route *route = http_request_route(request);
    if (!route || strcmp(route->path, PORT_RELAY_EGRESS_UNKNOWN) != 0)
        return NULL;
    return json_stringn(err->message, text_utf8_prefix(err->message, strnlen(err->message, sizeof err->message)));
}
