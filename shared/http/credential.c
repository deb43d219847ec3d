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

static const unsigned KEYS = HTTP_API_KEY | HTTP_OPENSANDBOX;

/* An API key where only capabilities are taken is not looked at. */
static const char *capability(unsigned carriers, const char *value)
{
    bool is_foreign_key = value != NULL && text_starts_with(value, "pk_") && (carriers & KEYS) == 0;
    return is_foreign_key ? NULL : value;
}

/* What a header says that the route takes as this carrier. */
static const char *carried(const struct http_request *request, unsigned carrier, const char *name)
{
    bool is_taken = (request->match.route->carriers & carrier) != 0;
    return is_taken ? not_empty(http_head_field(&request->head, name)) : NULL;
}

static bool find_capability(const struct http_request *request, const char **chosen)
{
    unsigned carriers = request->match.route->carriers;
    const char *path = request->match.is_by_token ? http_match_parameter(&request->match, "token") : NULL;
    const char *execd = carried(request, HTTP_EXECD, "x-execd-access-token");
    const char *egress = carried(request, HTTP_EGRESS_AUTH, "opensandbox-egress-auth");
    const char *key = carried(request, HTTP_OPENSANDBOX, "open-sandbox-api-key");
    bool has_own = path != NULL || execd != NULL || egress != NULL || key != NULL;
    bool is_foreign = has_own && (carriers & HTTP_PROXIES) != 0;
    const char *bearer = (carriers & HTTP_BEARER) != 0 && !is_foreign ? authorization(request, "Bearer") : NULL;
    const char *query = (carriers & HTTP_QUERY) != 0 ? http_request_query(request, "token") : NULL;
    const char *protocol = (carriers & HTTP_PROTOCOL) != 0 ? request->protocol_bearer : NULL;
    return take(chosen, capability(carriers, not_empty(path))) && take(chosen, capability(carriers, execd)) &&
           take(chosen, capability(carriers, egress)) && take(chosen, capability(carriers, bearer)) &&
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

static bool find_key(const struct http_request *request, const char **chosen)
{
    bool takes_api_key = (request->match.route->carriers & HTTP_API_KEY) != 0;
    return take(chosen, takes_api_key ? authorization(request, "ApiKey") : NULL) &&
           take(chosen, carried(request, HTTP_API_KEY, "x-api-key")) &&
           take(chosen, carried(request, HTTP_OPENSANDBOX, "open-sandbox-api-key"));
}

bool http_credential_find(struct http_request *request, struct error *err)
{
    const char *chosen = NULL;
    bool takes_protocol = (request->match.route->carriers & HTTP_PROTOCOL) != 0;
    if ((takes_protocol && !read_protocol(request)) || !find_capability(request, &chosen))
        return error_set(err, ERROR_INVALID, "the request carries two different credentials");
    if (chosen == NULL && !find_key(request, &chosen))
        return error_set(err, ERROR_INVALID, "the request carries two different API keys");
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
