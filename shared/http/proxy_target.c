/* proxy_target.c - the target of a request that is passed on: as it came, but without our credential. */
#include "shared/base/memory.h"
#include "shared/http/proxy.h"
#include "shared/http/proxy_internal.h"

#include <string.h>

/* The value of a piece "name=value" of a query, decoded, when it is named so; the caller's. */
static char *value_of(const char *piece, size_t size, const char *name)
{
    AUTO_FREE char *text = memory_copy(piece, size);
    size_t length = strcspn(text, "=");
    AUTO_FREE char *decoded = memory_new(size + 1);
    if (!http_percent_decode(decoded, text, length, true) || strcmp(decoded, name) != 0)
        return NULL;
    const char *value = text[length] == '=' ? text + length + 1 : "";
    return http_percent_decode(decoded, value, strlen(value), true) ? TAKE(decoded) : NULL;
}

bool http_proxy_find_token(struct http_request *request, struct error *err)
{
    const char *at = request->head.query;
    if ((request->match.route->carriers & (HTTP_QUERY | HTTP_LATER)) == 0)
        return true;
    while (at != NULL && *at != '\0') {
        size_t size = strcspn(at, "&");
        AUTO_FREE char *value = value_of(at, size, "token");
        if (value != NULL && request->query_token != NULL)
            return error_set(err, ERROR_INVALID, "the query has token twice");
        if (value != NULL)
            request->query_token = TAKE(value);
        at += size + (at[size] == '&');
    }
    if (request->query_token != NULL)
        request->query[request->query_count++] = (struct http_pair){"token", request->query_token};
    return true;
}

/* Where the raw path goes on behind what the route names before its {rest...}; "" when there is no such. */
static const char *find_rest(const struct http_request *request, const char *rest)
{
    const char *path = request->head.path, *pattern = request->match.route->path;
    AUTO_FREE char *wanted = memory_printf("{%s...}", rest);
    const char *end = strstr(pattern, wanted);
    if (end == NULL)
        return "";
    size_t slashes = 0;
    for (const char *c = pattern; c < end; c++)
        slashes += *c == '/';
    for (; *path != '\0' && slashes > 0; path++) {
        if (*path == '/' && --slashes == 0)
            return path;
    }
    return "";
}

void http_proxy_target(const struct http_request *request, const char *rest, struct text *target)
{
    const char *path = rest != NULL ? find_rest(request, rest) : request->head.path;
    text_append_string(target, path[0] == '/' ? path : "/");
    char before = '?';
    const char *query = request->query_came != NULL ? request->query_came : request->head.query;
    bool has_token = request->credential != NULL && http_request_query(request, "token") != NULL;
    for (const char *at = query != NULL ? query : ""; *at != '\0';) {
        size_t size = strcspn(at, "&");
        AUTO_FREE char *value = has_token ? value_of(at, size, "token") : NULL;
        bool is_ours = value != NULL && text_equal(value, request->credential);
        if (!is_ours)
            text_append_format(target, "%c%.*s", before, (int)size, at);
        before = is_ours ? before : '&';
        at += size + (at[size] == '&');
    }
}
