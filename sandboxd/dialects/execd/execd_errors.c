/* execd_errors.c - one word a kind of error and family of routes. */
#include "sandboxd/dialects/execd/execd_errors.h"

#include "sandboxd/dialects/execd/execd.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

/* What was not found, by the route that was asked. */
static const struct family {
    const char *path, *missing;
} FAMILIES[] = {
    {EXECD_PREFIX "/files", "FILE_NOT_FOUND"},   {EXECD_PREFIX "/directories", "FILE_NOT_FOUND"},
    {EXECD_PREFIX "/code", "CONTEXT_NOT_FOUND"}, {EXECD_PREFIX "/session", "CONTEXT_NOT_FOUND"},
    {EXECD_PREFIX "/pty", "CONTEXT_NOT_FOUND"},
};

static const char *missing(const char *path)
{
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++)
        if (text_starts_with(path, FAMILIES[i].path))
            return FAMILIES[i].missing;
    return "INVALID_REQUEST_BODY";
}

const char *execd_error_code(const char *path, enum error_kind kind)
{
    switch ((int)kind) {
    case ERROR_INVALID:
    case ERROR_TOO_LARGE:
        return "INVALID_REQUEST_BODY";
    case ERROR_NOT_FOUND:
        return missing(path);
    case ERROR_METHOD:
        return "NOT_SUPPORTED";
    case ERROR_RANGE:
        return "UNKNOWN";
    default:
        return "RUNTIME_ERROR";
    }
}

static json_t *text_json(const char *text)
{
    return json_stringn(text, text_utf8_prefix(text, strlen(text)));
}

json_t *execd_error(const struct http_request *request, const struct error *err)
{
    const struct http_route *route = http_request_route(request);
    if (!route || !text_starts_with(route->path, EXECD_PREFIX "/"))
        return NULL;
    json_t *body = json_object();
    if (error_http_status(err->kind) == 401) {
        char text[ERROR_MESSAGE_BYTES + 16];
        (void)snprintf(text, sizeof text, "Unauthorized: %s", err->message);
        json_object_set_new(body, "error", text_json(text));
    } else {
        json_object_set_new(body, "code", json_string(execd_error_code(route->path, err->kind)));
        json_object_set_new(body, "message", text_json(err->message));
    }
    return body;
}

void execd_reply_error(struct http_request *request, int status, const char *code, const char *message)
{
    json_t *body = json_object();
    json_object_set_new(body, "code", json_string(code));
    json_object_set_new(body, "message", text_json(message));
    http_reply_json(request, status, body);
}
