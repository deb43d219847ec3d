/* threads.c - the native dialect's threads: negotiate a sandbox, look at it, let it go (protocol.md, 2). */
#include "negotiator/dialects/granted.h"
#include "negotiator/dialects/plane.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/waiting.h"
#include "negotiator/dialects/wish.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

enum { HASH_BYTES = 32, ONCE_KEY_MAX = 255, REFRESH_BODY_BYTES = 16384, SIGN_BODY_BYTES = 1024 };

/* --- the question --- */

static void hash_parts(char to[static 2 * HASH_BYTES + 1], const char *const *parts, size_t count)
{
    crypto_generichash_state state;
    uint8_t hash[HASH_BYTES];
    crypto_generichash_init(&state, NULL, 0, sizeof hash);
    for (size_t i = 0; i < count; i++) /* each with its NUL, so that parts cannot run into each other */
        crypto_generichash_update(&state, (const uint8_t *)parts[i], strlen(parts[i]) + 1);
    crypto_generichash_final(&state, hash, sizeof hash);
    text_hex(to, hash, sizeof hash);
}

static bool read_once(const struct http_request *request, struct negotiation *n, struct error *err)
{
    const char *key = http_request_header(request, "idempotency-key");
    if (key == NULL)
        return true;
    size_t length = strnlen(key, ONCE_KEY_MAX + 1);
    if (length == 0 || length > ONCE_KEY_MAX)
        return error_set(err, ERROR_INVALID, "Idempotency-Key must be 1 to %d bytes", ONCE_KEY_MAX);
    const char *parts[] = {n->caller.principal.name, n->caller.owner, "POST /threads/{thread}/sandbox", n->thread_id,
                           key};
    hash_parts(n->idempotency, parts, sizeof parts / sizeof *parts);
    size_t size = 0;
    const char *body = http_request_body(request, &size);
    uint8_t hash[HASH_BYTES];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)body, size, NULL, 0);
    text_hex(n->body_hash, hash, sizeof hash);
    return true;
}

static bool read_negotiation(const struct http_request *request, struct negotiation *n, struct error *err)
{
    if (!plane_thread(request, n->thread_id, err) || !plane_caller(request, &n->caller, err) ||
        !read_once(request, n, err))
        return false;
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    bool read = wish_read(&n->wanted, body, err);
    json_decref(body);
    return read;
}

static void negotiate(struct http_request *request)
{
    granted_ask(request, read_negotiation, leasing_negotiate);
}

/* --- refresh --- */

/* The body is a small part of a negotiation's, and the token; takes the latter out of it. */
static bool read_wish(struct negotiation *n, json_t *body, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach (body, name, value) {
        if (strcmp(name, "current_token") != 0 && strcmp(name, "ttl") != 0 && strcmp(name, "scopes") != 0)
            return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
    }
    const json_t *token = json_object_get(body, "current_token");
    if (!json_is_string(token) || json_string_length(token) == 0 || json_string_length(token) >= CAPABILITY_TEXT_BYTES)
        return error_set(err, ERROR_INVALID, "current_token must be the token to refresh");
    n->current_token = memory_string(json_string_value(token));
    json_object_del(body, "current_token");
    return wish_read(&n->wanted, body, err);
}

static bool read_refresh(const struct http_request *request, struct negotiation *n, struct error *err)
{
    if (!plane_thread(request, n->thread_id, err) || !plane_caller(request, &n->caller, err))
        return false;
    if (n->caller.owner[0]) /* nobody refreshes for others, whoever they are */
        return error_set(err, ERROR_NOT_FOUND, "thread %s has no sandbox", n->thread_id);
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    bool read = read_wish(n, body, err);
    json_decref(body);
    return read;
}

static void refresh(struct http_request *request)
{
    granted_ask(request, read_refresh, leasing_refresh);
}

/* --- the others --- */

static void print_thread(struct http_request *request, const struct question *q)
{
    http_reply_json(request, 200,
                    json_pack("{s:o, s:o}", "sandbox", shown_sandbox(&q->sandbox), "lease", shown_lease(&q->lease)));
}

static void ask(struct http_request *request, enum question_verb verb,
                void (*print)(struct http_request *request, const struct question *q))
{
    struct error err = {0};
    AUTO(question) *q = question_new();
    q->verb = verb;
    if (plane_thread(request, q->thread_id, &err) && plane_caller(request, &q->caller, &err))
        waiting_ask(request, TAKE(q), print);
    else if (verb == QUESTION_RELEASE)
        plane_refuse(request, &err);
    else
        http_reply_error(request, &err);
}

/* Whose sign it is: the API key's, or who shows a capability of the thread. */
static bool read_signer(const struct http_request *request, struct question *q, struct error *err)
{
    if (http_request_identity(request))
        return plane_caller(request, &q->caller, err);
    const char *token = http_request_credential(request);
    if (token == NULL)
        return error_set(err, ERROR_UNAUTHENTICATED, "this needs an API key, or a capability of the thread");
    if (http_request_query(request, "principal"))
        return error_set(err, ERROR_INVALID, "?principal= goes with an API key");
    q->token = memory_string(token);
    return plane_holder(request, &q->caller, err);
}

static bool read_sign(const struct http_request *request, struct question *q, struct error *err)
{
    if (!plane_thread(request, q->thread_id, err) || !read_signer(request, q, err))
        return false;
    json_t *body = http_request_json(request, err);
    bool is_empty = body && json_object_size(body) == 0;
    json_decref(body);
    return is_empty || (body && error_set(err, ERROR_INVALID, "the body must be {}"));
}

static void sign(struct http_request *request)
{
    struct error err = {0};
    AUTO(question) *q = question_new();
    q->verb = QUESTION_SIGN;
    if (read_sign(request, q, &err)) {
        waiting_ask(request, TAKE(q), print_thread);
        return;
    }
    if (err.kind == ERROR_UNAUTHENTICATED)
        leasing_stranger(plane_of(request)->leasing, http_request_remote(request));
    http_reply_error(request, &err);
}

static void get_thread(struct http_request *request)
{
    ask(request, QUESTION_THREAD, print_thread);
}

static void release_thread(struct http_request *request)
{
    ask(request, QUESTION_RELEASE, waiting_print_done);
}

struct plane_rows threads_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/threads/{thread_id}/sandbox", HTTP_BEARER | HTTP_API_KEY, "user", PLANE_BODY_BYTES, negotiate},
        {"GET", "/threads/{thread_id}/sandbox", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, get_thread},
        {"POST", "/threads/{thread_id}/sandbox/refresh", HTTP_BEARER | HTTP_API_KEY, "user", REFRESH_BODY_BYTES,
         refresh},
        {"POST", "/threads/{thread_id}/sandbox/heartbeat", HTTP_BEARER | HTTP_API_KEY, PLANE_HOLDER, SIGN_BODY_BYTES,
         sign},
        {"DELETE", "/threads/{thread_id}/sandbox", HTTP_BEARER | HTTP_API_KEY, "user", 0, release_thread},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
