/* reply.c - replies of known length, and the headers that every reply has. */
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"
#include "shared/http/proxy_answer.h"

#include <string.h>
#include <strings.h>

const char *http_reply_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } REASONS[] = {{101, "Switching Protocols"},
                   {200, "OK"},
                   {201, "Created"},
                   {202, "Accepted"},
                   {204, "No Content"},
                   {206, "Partial Content"},
                   {304, "Not Modified"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {410, "Gone"},
                   {412, "Precondition Failed"},
                   {413, "Content Too Large"},
                   {416, "Range Not Satisfiable"},
                   {423, "Locked"},
                   {426, "Upgrade Required"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"},
                   {507, "Insufficient Storage"}};
    for (size_t i = 0; i < sizeof REASONS / sizeof REASONS[0]; i++) {
        if (REASONS[i].status == status)
            return REASONS[i].reason;
    }
    return http_answer_reason(status);
}

static bool has_header(const struct http_request *request, const char *name)
{
    const char *end = request->headers.data + request->headers.length;
    for (const char *at = request->headers.data; at != NULL && at < end;) {
        if (strcasecmp(at, name) == 0)
            return true;
        at += strlen(at) + 1;
        at += strlen(at) + 1;
    }
    return false;
}

void http_reply_each_header(const struct http_request *request,
                            void (*emit)(void *to, const char *name, const char *value), void *to)
{
    emit(to, "X-Request-ID", request->id);
    if (request->carries_credential) {
        if (!has_header(request, "Cache-Control"))
            emit(to, "Cache-Control", "no-store");
        if (!has_header(request, "Referrer-Policy"))
            emit(to, "Referrer-Policy", "no-referrer");
    }
    const char *end = request->headers.data + request->headers.length;
    for (const char *at = request->headers.data; at != NULL && at < end;) {
        const char *value = at + strlen(at) + 1;
        emit(to, at, value);
        at = value + strlen(value) + 1;
    }
}

void http_reply_each_error_header(const struct http_request *request, int status,
                                  void (*emit)(void *to, const char *name, const char *value), void *to)
{
    if (status == 401 && !has_header(request, "WWW-Authenticate"))
        emit(to, "WWW-Authenticate", "Bearer error=\"invalid_token\"");
    bool is_later = status == 423 || status == 429 || status == 503;
    if (is_later && !has_header(request, "Retry-After"))
        emit(to, "Retry-After", "1");
    if (status == 426) {
        emit(to, "Upgrade", "websocket");
        emit(to, "Sec-WebSocket-Version", "13");
    }
    if (status == 405 && request->allow[0] != '\0')
        emit(to, "Allow", request->allow);
}

static bool is_header_text(const char *text)
{
    for (; *text != '\0'; text++) {
        if (((unsigned char)*text < 0x20 && *text != '\t') || *text == 0x7F)
            return false;
    }
    return true;
}

void http_reply_header(struct http_request *request, const char *name, const char *value)
{
    /* A line break would let whoever chose the value write headers of its own. */
    if (!is_header_text(name) || name[0] == '\0' || strpbrk(name, ": ") != NULL || !is_header_text(value))
        return;
    text_append(&request->headers, name, strlen(name) + 1);
    text_append(&request->headers, value, strlen(value) + 1);
}

static void emit_h2o(void *to, const char *name, const char *value)
{
    h2o_req_t *h2o = to;
    h2o_iovec_t kept_name = h2o_strdup(&h2o->pool, name, SIZE_MAX);
    h2o_iovec_t kept_value = h2o_strdup(&h2o->pool, value, SIZE_MAX);
    h2o_add_header_by_str(&h2o->pool, &h2o->res.headers, kept_name.base, kept_name.len, 0, NULL, kept_value.base,
                          kept_value.len);
}

void http_reply_prepare(struct http_request *request, int status, const char *type)
{
    h2o_req_t *h2o = request->h2o;
    http_measure_answered(request);
    request->status = status;
    h2o->res.status = status;
    h2o->res.reason = http_reply_reason(status);
    if (type != NULL)
        emit_h2o(h2o, "Content-Type", type);
    http_reply_each_header(request, emit_h2o, h2o);
    if (!request->pour.goes_on)
        http_pour_stop(request);
    if (request->worker->is_stopping || (http_pour_is_cut_short(request) && !request->pour.goes_on))
        h2o->http1_is_persistent = 0;
}

static bool is_open(const struct http_request *request)
{
    return request->phase == HTTP_OPEN && request->h2o != NULL;
}

void http_reply_finish(struct http_request *request, char *data, size_t size)
{
    http_reply_finish_of(request, data, size, size);
}

void http_reply_finish_of(struct http_request *request, char *data, size_t size, uint64_t length)
{
    static h2o_generator_t nothing_to_proceed;
    h2o_req_t *h2o = request->h2o;
    bool has_no_body = request->status == 204 || request->status == 304;
    bool is_head = strcmp(request->head.method, "HEAD") == 0;
    h2o->res.content_length = has_no_body ? SIZE_MAX : (size_t)length;
    h2o_iovec_t body = {data, size};
    size_t count = size > 0 && !is_head && !has_no_body ? 1 : 0;
    request->sent_bytes = count > 0 ? size : 0;
    http_request_end(request);
    h2o_start_response(h2o, &nothing_to_proceed);
    h2o_send(h2o, &body, count, H2O_SEND_STATE_FINAL);
    http_pour_head_sent(request);
}

void http_reply_bytes(struct http_request *request, int status, const char *type, const void *data, size_t size)
{
    if (!is_open(request))
        return;
    http_reply_prepare(request, status, type);
    char *copy = h2o_mem_alloc_pool(&request->h2o->pool, size + 1);
    if (size > 0)
        memcpy(copy, data, size);
    http_reply_finish(request, copy, size);
}

void http_reply_json(struct http_request *request, int status, json_t *body)
{
    AUTO_FREE char *text = body != NULL ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY | HTTP_JSON_REALS) : NULL;
    json_decref(body);
    if (text != NULL) {
        http_reply_bytes(request, status, "application/json", text, strlen(text));
        return;
    }
    struct error err;
    error_set(&err, ERROR_INTERNAL, "the reply could not be written as JSON");
    http_reply_error(request, &err);
}

void http_reply_empty(struct http_request *request, int status)
{
    http_reply_bytes(request, status, NULL, NULL, 0);
}

json_t *http_error_json(const struct http_request *request, const struct error *err)
{
    size_t length = strnlen(err->message, sizeof err->message);
    json_t *message = json_stringn(err->message, text_utf8_prefix(err->message, length));
    return json_pack("{s:{s:s, s:o, s:b, s:s}}", "error", "code", error_code(err->kind), "message", message,
                     "retryable", error_retryable(err->kind), "request_id", request->id);
}

char *http_reply_error_body(const struct http_request *request, const struct error *err, const char **type)
{
    const struct http_server_options *options = &request->worker->server->options;
    json_t *own = options->error_body ? options->error_body(request, err) : NULL;
    json_t *body = own ? own : http_error_json(request, err);
    bool is_text = json_is_string(body);
    *type = is_text ? "text/plain; charset=utf-8" : "application/json";
    char *text = is_text ? memory_string(json_string_value(body)) : json_dumps(body, JSON_COMPACT | HTTP_JSON_REALS);
    json_decref(body);
    return text ? text : memory_string("");
}

void http_reply_error(struct http_request *request, const struct error *err)
{
    if (!is_open(request))
        return;
    int status = err->kind != ERROR_NONE ? error_http_status(err->kind) : 500;
    http_limits_count_refusal(request, err);
    if (err->kind == ERROR_TIMEOUT && request->pour.is_slow)
        status = 408;             /* it was the client, and not somebody behind us */
    if (err->kind != ERROR_QUOTA) /* nobody knows when there is room again, but who says so himself */
        http_reply_each_error_header(request, status, emit_h2o, request->h2o);
    const char *type;
    AUTO_FREE char *body = http_reply_error_body(request, err, &type);
    http_reply_bytes(request, status, type, body, strlen(body));
}

/* ---- what libh2o refuses by itself ---- */

struct own_error {
    h2o_ostream_t super;
    h2o_iovec_t body;
};

static void send_own_error(h2o_ostream_t *stream, h2o_req_t *h2o, h2o_iovec_t *bufs UNUSED, size_t count UNUSED,
                           h2o_send_state_t state)
{
    struct own_error *own = (struct own_error *)stream;
    h2o_ostream_send_next(stream, h2o, &own->body, 1, state);
}

void http_reply_on_setup_ostream(h2o_filter_t *filter UNUSED, h2o_req_t *h2o, h2o_ostream_t **slot)
{
    const struct http_connection *connection = h2o->conn->callbacks->get_socket(h2o->conn)->on_close.data;
    struct http_request *request = connection->request;
    if (request != NULL && request->h2o == NULL) {
        struct error err;
        error_set(&err, ERROR_INVALID, "the body is not well-formed");
        json_t *object = http_error_json(request, &err);
        AUTO_FREE char *text = json_dumps(object, JSON_COMPACT);
        json_decref(object);
        struct own_error *own = (struct own_error *)h2o_add_ostream(h2o, sizeof *own, slot);
        own->super.do_send = send_own_error;
        own->body = h2o_strdup(&h2o->pool, text != NULL ? text : "", SIZE_MAX);
        slot = &own->super.next;
        request->status = h2o->res.status;
        h2o->res.headers.size = 0;
        h2o->res.content_length = own->body.len;
        emit_h2o(h2o, "Content-Type", "application/json");
        http_reply_each_header(request, emit_h2o, h2o);
        request->phase = HTTP_ENDED;
    }
    h2o_setup_next_ostream(h2o, slot);
}
