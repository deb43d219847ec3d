#include "shared/http/routes.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* In the order of preference. */
enum segment_kind { SEGMENT_LITERAL, SEGMENT_PARAMETER, SEGMENT_REST };

struct segment {
    enum segment_kind kind;
    char *text; /* the literal, or the parameter's name */
    size_t length;
};

struct pattern {
    const struct http_route *route;
    bool is_by_token;
    bool has_rest;
    struct segment *segments;
    size_t count;
};

struct http_routes {
    struct pattern *patterns; /* sorted: of two that match, the first is meant */
    size_t count;
};

struct span {
    const char *text;
    size_t length;
};

static const char TOKEN_PREFIX[] = "/c/{token}";

static bool takes_token_in_path(const struct http_route *route)
{
    size_t length = sizeof HTTP_SANDBOX_PREFIX - 1;
    return (route->carriers & HTTP_PATH) != 0 && strncmp(route->path, HTTP_SANDBOX_PREFIX, length) == 0 &&
           (route->path[length] == '/' || route->path[length] == '\0');
}

/* Cuts "/a//b" into "a", "", "b"; SIZE_MAX when there are more than `max`. */
static size_t split(const char *path, struct span *spans, size_t max)
{
    size_t count = 0;
    for (const char *at = path; *at == '/';) {
        at++;
        if (count == max)
            return SIZE_MAX;
        spans[count].text = at;
        spans[count].length = strcspn(at, "/");
        at += spans[count++].length;
    }
    return count;
}

static bool compile_segment(struct segment *segment, const struct span *span, bool is_last, struct error *err)
{
    const char *text = span->text;
    size_t length = span->length;
    segment->kind = SEGMENT_LITERAL;
    if (length >= 2 && text[0] == '{' && text[length - 1] == '}') {
        segment->kind = SEGMENT_PARAMETER;
        text++;
        length -= 2;
        if (length >= 3 && memcmp(text + length - 3, "...", 3) == 0) {
            segment->kind = SEGMENT_REST;
            length -= 3;
        }
    }
    segment->text = memory_copy(text, length);
    segment->length = length;
    if (segment->kind == SEGMENT_REST && !is_last)
        return error_set(err, ERROR_INVALID, "{x...} is not the last segment");
    if (segment->kind != SEGMENT_LITERAL && !text_is_made_of(segment->text, 32, "_"))
        return error_set(err, ERROR_INVALID, "a parameter has no plain name");
    if (segment->kind == SEGMENT_LITERAL && strpbrk(segment->text, "{}%?#") != NULL)
        return error_set(err, ERROR_INVALID, "a literal segment has one of {}%%?#");
    return true;
}

static void pattern_done(struct pattern *pattern)
{
    for (size_t i = 0; i < pattern->count; i++)
        free(pattern->segments[i].text);
    free(pattern->segments);
}

static bool compile(struct pattern *pattern, const struct http_route *route, const char *path, struct error *err)
{
    struct span spans[HTTP_SEGMENTS_MAX];
    size_t count = path[0] == '/' ? split(path, spans, HTTP_SEGMENTS_MAX) : SIZE_MAX;
    if (count == SIZE_MAX)
        return error_set(err, ERROR_INVALID, "it does not begin with / or has over %d segments", HTTP_SEGMENTS_MAX);
    pattern->route = route;
    pattern->segments = memory_array(count + 1, sizeof *pattern->segments);
    size_t parameters = 0;
    for (size_t i = 0; i < count; i++) {
        pattern->count++;
        if (!compile_segment(&pattern->segments[i], &spans[i], i + 1 == count, err))
            return false;
        parameters += pattern->segments[i].kind != SEGMENT_LITERAL;
        pattern->has_rest = pattern->segments[i].kind == SEGMENT_REST;
    }
    if (parameters > HTTP_PARAMETERS_MAX)
        return error_set(err, ERROR_INVALID, "it has over %d parameters", HTTP_PARAMETERS_MAX);
    if ((route->carriers & ~(unsigned)(HTTP_POURS | HTTP_PROXIES | HTTP_UNLIMITED | HTTP_LIMITED | HTTP_REPEATS)) ==
            0 &&
        route->needs != NULL)
        return error_set(err, ERROR_INVALID, "it needs a credential and takes no carrier");
    return true;
}

/* 0: the same paths match. Of two that overlap the smaller is the more special one. */
static int compare_paths(const struct pattern *a, const struct pattern *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        const struct segment *left = &a->segments[i], *right = &b->segments[i];
        if (left->kind != right->kind)
            return left->kind < right->kind ? -1 : 1;
        int order = left->kind == SEGMENT_LITERAL ? strcmp(left->text, right->text) : 0;
        if (order != 0)
            return order;
    }
    return (a->count > b->count) - (a->count < b->count);
}

static int compare_patterns(const void *left, const void *right)
{
    const struct pattern *a = left, *b = right;
    int order = compare_paths(a, b);
    if (order != 0)
        return order;
    bool is_any_a = strcmp(a->route->method, "*") == 0, is_any_b = strcmp(b->route->method, "*") == 0;
    return is_any_a != is_any_b ? (is_any_a ? 1 : -1) : strcmp(a->route->method, b->route->method);
}

static bool add_pattern(struct http_routes *routes, const struct http_route *route, const char *path, struct error *err)
{
    struct pattern *pattern = &routes->patterns[routes->count++];
    return compile(pattern, route, path, err) || error_prefix(err, "route %s %s", route->method, route->path);
}

static bool add_route(struct http_routes *routes, const struct http_route *route, struct error *err)
{
    if (!add_pattern(routes, route, route->path, err))
        return false;
    if (!takes_token_in_path(route))
        return true;
    AUTO_FREE char *path = memory_printf("%s%s", TOKEN_PREFIX, route->path + sizeof HTTP_SANDBOX_PREFIX - 1);
    if (!add_pattern(routes, route, path, err))
        return false;
    routes->patterns[routes->count - 1].is_by_token = true;
    return true;
}

struct http_routes *http_routes_new(const struct http_route *routes, size_t count, struct error *err)
{
    AUTO(http_routes) *made = memory_new(sizeof *made);
    made->patterns = memory_array(2 * count + 1, sizeof *made->patterns);
    for (size_t i = 0; i < count; i++) {
        if (!add_route(made, &routes[i], err))
            return NULL;
    }
    qsort(made->patterns, made->count, sizeof *made->patterns, compare_patterns);
    for (size_t i = 1; i < made->count; i++) {
        const struct http_route *route = made->patterns[i].route;
        if (compare_patterns(&made->patterns[i - 1], &made->patterns[i]) == 0) {
            error_set(err, ERROR_INVALID, "route %s %s stands in the table twice", route->method, route->path);
            return NULL;
        }
    }
    return TAKE(made);
}

void http_routes_free(struct http_routes *routes)
{
    if (routes == NULL)
        return;
    for (size_t i = 0; i < routes->count; i++)
        pattern_done(&routes->patterns[i]);
    free(routes->patterns);
    free(routes);
}

size_t http_routes_body_max(const struct http_routes *routes)
{
    size_t max = 0;
    for (size_t i = 0; i < routes->count; i++) {
        const struct http_route *route = routes->patterns[i].route;
        if (route->body_max_bytes > max && (route->carriers & HTTP_POURS) == 0)
            max = route->body_max_bytes;
    }
    return max;
}

static bool path_matches(const struct pattern *pattern, const struct span *spans, size_t count)
{
    if (pattern->has_rest ? count < pattern->count : count != pattern->count)
        return false;
    for (size_t i = 0; i < pattern->count; i++) {
        const struct segment *segment = &pattern->segments[i];
        if (segment->kind == SEGMENT_REST)
            return true;
        if (segment->kind == SEGMENT_PARAMETER && spans[i].length == 0)
            return false;
        if (segment->kind == SEGMENT_LITERAL &&
            (segment->length != spans[i].length || memcmp(segment->text, spans[i].text, segment->length) != 0))
            return false;
    }
    return true;
}

static bool method_matches(const char *row, const char *method)
{
    return strcmp(row, method) == 0 || strcmp(row, "*") == 0 ||
           (strcmp(row, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* Decodes the rest of a path, of whatever bytes, without the slash at its end; one that is meant for another server as
 * it is. */
static bool take_rest(char *value, const char *text, bool is_foreign, struct error *err)
{
    if (!http_percent_decode_bytes(value, text, strlen(text)))
        return error_set(err, ERROR_INVALID, "the path has a broken percent escape or a NUL");
    if (is_foreign)
        return true;
    size_t length = strlen(value);
    if (length > 1 && value[length - 1] == '/')
        value[--length] = '\0';
    for (const char *segment = length > 0 ? value : NULL; segment != NULL;) {
        size_t size = strcspn(segment, "/");
        bool is_dots = (size == 1 || size == 2) && strspn(segment, ".") >= size;
        if (size == 0 || is_dots)
            return error_set(err, ERROR_INVALID, "the path has an empty, . or .. segment");
        segment = segment[size] == '/' ? segment + size + 1 : NULL;
    }
    return true;
}

static bool take_segment(char *value, const struct span *span, const char *name, struct error *err)
{
    if (http_percent_decode(value, span->text, span->length, false) && strchr(value, '/') == NULL)
        return true;
    return error_set(err, ERROR_INVALID, "the path's part {%s} holds %%2F or NUL or is not UTF-8", name);
}

static bool fill(struct http_match *match, const struct pattern *pattern, const char *path, const struct span *spans,
                 struct error *err)
{
    match->values = memory_new(strlen(path) + HTTP_PARAMETERS_MAX + 1);
    char *value = match->values;
    for (size_t i = 0; i < pattern->count; i++) {
        const struct segment *segment = &pattern->segments[i];
        if (segment->kind == SEGMENT_LITERAL)
            continue;
        bool is_foreign = (pattern->route->carriers & HTTP_PROXIES) != 0;
        bool is_taken = segment->kind == SEGMENT_REST ? take_rest(value, spans[i].text, is_foreign, err)
                                                      : take_segment(value, &spans[i], segment->text, err);
        if (!is_taken)
            return false;
        match->parameters[match->parameter_count++] = (struct http_pair){segment->text, value};
        value += strlen(value) + 1;
    }
    match->route = pattern->route;
    match->is_by_token = pattern->is_by_token;
    return true;
}

static void add_allowed(char *allow, const char *method)
{
    size_t used = strlen(allow);
    bool is_get = strcmp(method, "GET") == 0;
    if (strstr(allow, method) == NULL)
        snprintf(allow + used, HTTP_ALLOW_BYTES - used, "%s%s%s", used > 0 ? ", " : "", method, is_get ? ", HEAD" : "");
}

bool http_routes_find(const struct http_routes *routes, const char *method, const char *path, struct http_match *match,
                      char allow[static HTTP_ALLOW_BYTES], struct error *err)
{
    struct span spans[HTTP_SEGMENTS_MAX];
    /* A {x...} takes any depth: what is deeper than the table stays in its last span, which runs to the end. */
    size_t count = split(path, spans, HTTP_SEGMENTS_MAX);
    if (count == SIZE_MAX)
        count = HTTP_SEGMENTS_MAX + 1;
    allow[0] = '\0';
    for (size_t i = 0; i < routes->count; i++) {
        const struct pattern *pattern = &routes->patterns[i];
        if (!path_matches(pattern, spans, count))
            continue;
        if (method_matches(pattern->route->method, method))
            return fill(match, pattern, path, spans, err);
        add_allowed(allow, pattern->route->method);
    }
    if (allow[0] != '\0')
        return error_set(err, ERROR_METHOD, "this path takes %s", allow);
    return error_set(err, ERROR_NOT_FOUND, "no such path");
}

void http_match_host(struct http_match *match, const struct http_route *route, const char *host, size_t size)
{
    match->values = memory_copy(host, size);
    for (size_t i = 0; i < size; i++)
        match->values[i] = (char)tolower((unsigned char)match->values[i]);
    match->parameters[match->parameter_count++] = (struct http_pair){"label", match->values};
    match->route = route;
}

void http_match_done(struct http_match *match)
{
    free(match->values);
    match->values = NULL;
    match->parameter_count = 0;
}

const char *http_match_parameter(const struct http_match *match, const char *name)
{
    for (size_t i = 0; i < match->parameter_count; i++) {
        if (strcmp(match->parameters[i].name, name) == 0)
            return match->parameters[i].value;
    }
    return NULL;
}

static void append_carriers(struct text *to, unsigned carriers)
{
    static const struct {
        unsigned carrier;
        const char *name;
    } NAMES[] = {{HTTP_BEARER, "bearer"}, {HTTP_API_KEY, "api_key"},         {HTTP_PATH, "path"},
                 {HTTP_QUERY, "query"},   {HTTP_PROTOCOL, "protocol"},       {HTTP_LATER, "later"},
                 {HTTP_EXECD, "execd"},   {HTTP_EGRESS_AUTH, "egress_auth"}, {HTTP_OPENSANDBOX, "opensandbox"}};
    size_t start = to->length;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (carriers & NAMES[i].carrier)
            text_append_format(to, "%s%s", to->length > start ? "," : "", NAMES[i].name);
    }
    if (to->length == start)
        text_append_string(to, "-");
}

void http_routes_print(const struct http_route *routes, size_t route_count)
{
    for (size_t i = 0; i < route_count; i++) {
        AUTO_TEXT carriers = {0};
        append_carriers(&carriers, routes[i].carriers);
        const char *needs = routes[i].needs == NULL ? "-" : routes[i].needs[0] == '\0' ? "any" : routes[i].needs;
        printf("%s %s  carriers=%s  needs=%s\n", routes[i].method, routes[i].path, carriers.data, needs);
    }
}
