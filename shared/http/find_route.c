/* find_route.c - which row a request is for: its path in the table, and what moves it there: a host, a header, an
 * alias.
 */
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"

#include <string.h>
#include <strings.h>

/* ---- what the options say ---- */

static bool begins_and_ends(const char *text, bool ends)
{
    size_t length = strlen(text);
    return length > 1 && text[0] == '/' && (text[length - 1] == '/') == ends;
}

bool http_find_route_check(const struct http_server_options *options, struct error *err)
{
    const struct http_prefix_alias *alias = &options->prefix_alias;
    const char *prefix = options->header_prefix.prefix;
    if (prefix != NULL && !begins_and_ends(prefix, false))
        return error_set(err, ERROR_INVALID, "prefix %s does not begin with / or ends with it", prefix);
    if (alias->from == NULL || alias->to == NULL)
        return true;
    if (!begins_and_ends(alias->from, true) || !begins_and_ends(alias->to, true) ||
        strlen(alias->to) > strlen(alias->from))
        return error_set(err, ERROR_INVALID, "alias %s of %s: both begin and end with /, and the first is the longer",
                         alias->from, alias->to);
    for (size_t i = 0; i < options->route_count; i++) {
        if (text_starts_with(options->routes[i].path, alias->from))
            return error_set(err, ERROR_INVALID, "route %s stands below the alias %s", options->routes[i].path,
                             alias->from);
    }
    return true;
}

/* ---- a request's path ---- */

static void move(struct http_request *request, const char *prefix, const char *rest)
{
    char *path = memory_printf("%s%s", prefix, rest);
    free(request->moved_path);
    request->head.path = request->moved_path = path;
}

/* Nothing is decoded for it: what is escaped is no alias, and is judged where the table is read. */
static void move_alias(struct http_request *request, const struct http_prefix_alias *alias)
{
    const char *path = request->head.path;
    if (alias->from != NULL && alias->to != NULL && text_starts_with(path, alias->from))
        move(request, alias->to, path + strlen(alias->from));
}

static void move_by_header(struct http_request *request, const struct http_header_prefix *rule)
{
    const char *path = request->head.path;
    if (rule->header == NULL || rule->prefix == NULL || http_head_field(&request->head, rule->header) == NULL)
        return;
    size_t length = strlen(rule->prefix);
    bool is_there = strncmp(path, rule->prefix, length) == 0 && (path[length] == '/' || path[length] == '\0');
    if (!is_there)
        move(request, rule->prefix, path);
}

/* ---- a request's host ---- */

/* Host is {label}.{suffix}, perhaps with a dot behind and a port; *size of the label. */
static bool is_of_rule(const char *host, const char *suffix, size_t *size)
{
    size_t length = strlen(host);
    const char *port = strrchr(host, ':');
    if (port != NULL && strspn(port + 1, "0123456789") == strlen(port + 1))
        length = (size_t)(port - host);
    while (length > 0 && host[length - 1] == '.')
        length--;
    size_t tail = strlen(suffix);
    if (length < tail + 1 || strncasecmp(host + length - tail, suffix, tail) != 0 || host[length - tail - 1] != '.')
        return false;
    *size = length - tail - 1;
    return true;
}

static bool move_below(struct http_request *request, const struct http_host_rule *rule)
{
    AUTO_TEXT path = {0};
    if (rule->below == NULL || !rule->below(http_match_parameter(&request->match, "label"), &path))
        return false;
    move(request, path.data, request->head.path);
    http_match_done(&request->match);
    request->match = (struct http_match){0};
    return true;
}

/* True: the rule's own route. */
static bool find_by_host(struct http_request *request, const struct http_host_rule *rule)
{
    const char *host = http_head_field(&request->head, "host");
    size_t size;
    if (rule->route == NULL || rule->suffix == NULL || host == NULL || !is_of_rule(host, rule->suffix, &size))
        return false;
    http_match_host(&request->match, rule->route, host, size);
    return !move_below(request, rule);
}

bool http_find_route(struct http_request *request, struct error *err)
{
    const struct http_server *server = request->worker->server;
    const struct http_server_options *options = &server->options;
    const struct http_head *head = &request->head;
    if (find_by_host(request, &options->host_rule))
        return true;
    if (request->moved_path == NULL)
        move_by_header(request, &options->header_prefix);
    if (request->moved_path == NULL)
        move_alias(request, &options->prefix_alias);
    return http_routes_find(server->routes, head->method, head->path, &request->match, request->allow, err);
}
