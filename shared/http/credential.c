/* credential.c - which credential a request is judged by (protocol.md, 3 "Carriers"). */
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"

#include <string.h>
#include <strings.h>

/* What follows "<scheme> " in Authorization; NULL when it is another scheme or nothing follows. */
static const char *authorization(const struct http_request *request, const char *scheme)
{
    const char *value = http_head_field(&request->head, "authorization");
    size_t length = strlen(scheme);
    if (value == NULL || strncasecmp(value, scheme, length) != 0 || value[length] != ' ')
        return NULL;
    value += length;
    value += strspn(value, " ");
    return *value != '\0' ? value : NULL;
}

static const char *not_empty(const char *value)
{
    return value != NULL && *value != '\0' ? value : NULL;
}

/* Keeps the first candidate; false when another one differs from it. */
static bool take(const char **chosen, const char *candidate)
{
    if (candidate == NULL)
        return true;
    if (*chosen == NULL)
        *chosen = candidate;
    return strcmp(*chosen, candidate) == 0;
}

/* An API key where only capabilities are taken is not looked at. */
static const char *capability(unsigned carriers, const char *value)
{
    bool is_foreign_key = value != NULL && text_starts_with(value, "pk_") && (carriers & HTTP_API_KEY) == 0;
    return is_foreign_key ? NULL : value;
}

static bool find_capability(const struct http_request *request, const char **chosen)
{
    unsigned carriers = request->match.route->carriers;
    const char *path = request->match.is_by_token ? http_match_parameter(&request->match, "token") : NULL;
    bool is_foreign = path != NULL && (carriers & HTTP_PROXIES) != 0;
    const char *bearer = (carriers & HTTP_BEARER) != 0 && !is_foreign ? authorization(request, "Bearer") : NULL;
    const char *query = (carriers & HTTP_QUERY) != 0 ? http_request_query(request, "token") : NULL;
    const char *protocol = (carriers & HTTP_PROTOCOL) != 0 ? request->protocol_bearer : NULL;
    return take(chosen, capability(carriers, not_empty(path))) && take(chosen, capability(carriers, bearer)) &&
           take(chosen, capability(carriers, not_empty(query))) && take(chosen, capability(carriers, protocol));
}

/* The bearer among the subprotocols; false when there are two different ones. */
static bool read_protocol(struct http_request *request)
{
    const char *list = http_head_field(&request->head, "sec-websocket-protocol");
    size_t size;
    for (const char *bearer; (bearer = http_websocket_next_bearer(&list, &size)) != NULL;) {
        const char *kept = request->protocol_bearer;
        if (kept != NULL && (strlen(kept) != size || memcmp(kept, bearer, size) != 0))
            return false;
        if (kept == NULL)
            request->protocol_bearer = memory_printf("%.*s", (int)size, bearer);
    }
    return true;
}

bool http_credential_find(struct http_request *request, struct error *err)
{
    const char *chosen = NULL;
    bool takes_protocol = (request->match.route->carriers & HTTP_PROTOCOL) != 0;
    if ((takes_protocol && !read_protocol(request)) || !find_capability(request, &chosen))
        return error_set(err, ERROR_INVALID, "the request carries two different credentials");
    if (chosen == NULL && (request->match.route->carriers & HTTP_API_KEY) != 0) {
        const char *header = not_empty(http_head_field(&request->head, "x-api-key"));
        if (!take(&chosen, authorization(request, "ApiKey")) || !take(&chosen, header))
            return error_set(err, ERROR_INVALID, "the request carries two different API keys");
    }
    request->credential = chosen;
    return true;
}

const char *http_request_credential(const struct http_request *request)
{
    return request->credential;
}

void http_request_set_credential(struct http_request *request, const char *credential)
{
    char *copy = memory_string(credential);
    free(request->late_credential);
    request->credential = request->late_credential = copy;
}
