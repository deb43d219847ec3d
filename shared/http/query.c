/* query.c - nothing in a query that nobody asked for: a misspelt parameter is told, not ignored. */
#include "shared/http/http_internal.h"

#include <string.h>

bool http_request_query_only(const struct http_request *request, const char *const *names, struct error *err)
{
    for (size_t i = 0; i < request->query_count; i++) {
        const char *name = request->query[i].name;
        bool is_carrier = (http_request_route(request)->carriers & HTTP_QUERY) != 0 && strcmp(name, "token") == 0;
        size_t at = 0;
        while (names[at] != NULL && strcmp(names[at], name) != 0)
            at++;
        if (names[at] == NULL && !is_carrier)
            return error_set(err, ERROR_INVALID, "unknown query parameter \"%.64s\"", name);
    }
    return true;
}
