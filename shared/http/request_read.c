/* request_read.c - what a handler may read of its request. */
#include "shared/http/http_internal.h"

#include <string.h>

enum {
    JSON_DEPTH_MAX = 32,
    JSON_VALUES_MAX = 100000 /* each costs some hundred bytes, whose text is one or two */
};

const char *http_request_method(const struct http_request *request)
{
    return request->head.method;
}

const char *http_request_path(const struct http_request *request)
{
    return request->head.path;
}

const char *http_request_parameter(const struct http_request *request, const char *name)
{
    return http_match_parameter(&request->match, name);
}

const char *http_request_query_nth(const struct http_request *request, const char *name, size_t nth)
{
    for (size_t i = 0; i < request->query_count; i++) {
        if (strcmp(request->query[i].name, name) == 0 && nth-- == 0)
            return request->query[i].value;
    }
    return NULL;
}

const char *http_request_query(const struct http_request *request, const char *name)
{
    return http_request_query_nth(request, name, 0);
}

const char *http_request_header(const struct http_request *request, const char *name)
{
    return http_head_field(&request->head, name);
}

const char *http_request_body(const struct http_request *request, size_t *size)
{
    if (request->h2o == NULL || request->h2o->entity.base == NULL) {
        *size = 0;
        return "";
    }
    *size = request->h2o->entity.len;
    return request->h2o->entity.base;
}

/* jansson's own limit of depth is 2048, and not to be set; of values it has none. Counts what stands outside of
 * strings. */
static bool check_json(const char *text, size_t size, struct error *err)
{
    unsigned depth = 0, values = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && depth > 0)
            depth--;
        values += !in_string && (c == '{' || c == '[' || c == ',');
        if (depth > JSON_DEPTH_MAX)
            return error_set(err, ERROR_INVALID, "the body's JSON is nested over %d deep", JSON_DEPTH_MAX);
        if (values > JSON_VALUES_MAX)
            return error_set(err, ERROR_TOO_LARGE, "the body's JSON has over %d values", JSON_VALUES_MAX);
    }
    return true;
}

static json_t *read_json(const char *body, size_t size, struct error *err)
{
    if (!check_json(body, size, err))
        return NULL;
    json_error_t json_error;
    json_t *value = json_loadb(body, size, JSON_REJECT_DUPLICATES, &json_error);
    if (value == NULL) {
        /* jansson's text quotes the body, which may hold a secret. */
        const char *what =
            json_error_code(&json_error) == json_error_duplicate_key ? "has a key twice" : "is not valid";
        error_set(err, ERROR_INVALID, "the body's JSON %s at line %d, column %d", what, json_error.line,
                  json_error.column);
    }
    return value;
}

static json_t *read_json_of(const struct http_request *request, json_type type, struct error *err)
{
    size_t size;
    const char *body = http_request_body(request, &size);
    if (size == 0)
        return type == JSON_ARRAY ? json_array() : json_object();
    json_t *value = read_json(body, size, err);
    if (value != NULL && json_typeof(value) != type) {
        json_decref(value);
        error_set(err, ERROR_INVALID, "the body is not a JSON %s", type == JSON_ARRAY ? "array" : "object");
        return NULL;
    }
    return value;
}

json_t *http_request_json(const struct http_request *request, struct error *err)
{
    return read_json_of(request, JSON_OBJECT, err);
}

json_t *http_request_json_array(const struct http_request *request, struct error *err)
{
    return read_json_of(request, JSON_ARRAY, err);
}

const char *http_request_remote(const struct http_request *request)
{
    return request->remote;
}

bool http_request_is_tls(const struct http_request *request)
{
    return request->connection->tls != NULL;
}

bool http_request_is_local(const struct http_request *request)
{
    static const char *const OF_PROXIES[] = {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"};
    const struct http_connection *connection = request->connection;
    for (size_t i = 0; i < sizeof OF_PROXIES / sizeof *OF_PROXIES; i++)
        if (http_head_field(&request->head, OF_PROXIES[i]) != NULL)
            return false;
    return connection->has_peer && address_is_loopback(&connection->peer);
}

const char *http_request_id(const struct http_request *request)
{
    return request->id;
}

struct loop *http_request_loop(const struct http_request *request)
{
    return request->worker->loop;
}

void *http_server_context(const struct http_request *request)
{
    return request->worker->server->options.context;
}

void *http_request_identity(const struct http_request *request)
{
    return request->identity;
}
