/* uri_fuzz.c - a request's target and whatever else decides whom it reaches: path templates, capability URLs, queries,
 * hosts of previews, credentials in every carrier. Input, by lines: target, Host, Authorization, X-API-Key,
 * Sec-WebSocket-Protocol; those that are missing are not sent. */
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"
#include "shared/http/proxy.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES = 5 };

static void handle(struct http_request *request UNUSED)
{
}

static const struct http_route TABLE[] = {
    {"GET", "/sandboxes/{id}", HTTP_BEARER | HTTP_API_KEY, "user", 0, handle},
    {"GET", "/s/{sandbox}/info", HTTP_BEARER | HTTP_PATH, "", 0, handle},
    {"GET", "/s/{sandbox}/processes/{id}/output", HTTP_BEARER | HTTP_PATH, "process", 0, handle},
    {"GET", "/s/{sandbox}/files/{path...}", HTTP_BEARER | HTTP_PATH, "fs:ro", 0, handle},
    {"GET", "/s/{sandbox}/port/44772/files/info", HTTP_BEARER | HTTP_PATH | HTTP_EXECD | HTTP_REPEATS, "", 0, handle},
    {"GET", "/s/{sandbox}/ws", HTTP_BEARER | HTTP_PATH | HTTP_QUERY | HTTP_PROTOCOL | HTTP_LATER, "", 0, handle},
    {"*", "/s/{sandbox}/ports/{port}/{rest...}", HTTP_BEARER | HTTP_PATH | HTTP_PROXIES, "port", 9, handle},
};
static const struct http_route PREVIEW = {
    "*", "/{rest...}", HTTP_BEARER | HTTP_QUERY | HTTP_LATER | HTTP_PROXIES, "port", 9, handle};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static struct http_worker *make_worker(void)
{
    static struct http_server server;
    static struct http_worker worker;
    struct error err;
    server.options.host_rule = (struct http_host_rule){.suffix = "localhost", .route = &PREVIEW};
    server.routes = http_routes_new(TABLE, sizeof TABLE / sizeof *TABLE, &err);
    require(server.routes != NULL);
    worker.server = &server;
    return &worker;
}

/* Every byte of it as an escape. */
static void append_escaped(struct text *to, const char *value)
{
    for (; *value; value++)
        text_append_format(to, "%%%02x", (unsigned char)*value);
}

static bool has_dots(const char *path)
{
    AUTO_FREE char *wrapped = memory_printf("/%s/", path);
    return strstr(wrapped, "/../") != NULL || strstr(wrapped, "/./") != NULL;
}

/* What was decoded is what comes out again when it is encoded otherwise: nothing is decoded twice. */
static void require_one_decoding(const struct http_match *match)
{
    AUTO_TEXT path = {0};
    const char *pattern = match->route->path;
    if (match->is_by_token) {
        text_append_string(&path, "/c/");
        append_escaped(&path, http_match_parameter(match, "token"));
        pattern += strlen(HTTP_SANDBOX_PREFIX);
    }
    for (const char *at = pattern; *at;) {
        size_t plain = strcspn(at, "{");
        text_append(&path, at, plain);
        at += plain;
        if (*at == '\0')
            break;
        size_t length = strcspn(at, "}.");
        AUTO_FREE char *name = memory_copy(at + 1, length - 1);
        append_escaped(&path, http_match_parameter(match, name));
        at += strcspn(at, "}") + 1;
    }
    struct http_match again = {0};
    char allow[HTTP_ALLOW_BYTES];
    struct error err = {0};
    AUTO(http_routes) *routes = http_routes_new(match->route, 1, &err);
    require(routes && path.data && http_path_check(path.data, &err));
    require(http_routes_find(routes, "GET", path.data, &again, allow, &err));
    require(again.parameter_count == match->parameter_count);
    for (size_t i = 0; i < again.parameter_count; i++)
        require(strcmp(again.parameters[i].value, match->parameters[i].value) == 0);
    http_match_done(&again);
}

static void check_match(const struct http_request *request)
{
    const struct http_match *match = &request->match;
    for (size_t i = 0; i < match->parameter_count; i++) {
        const char *value = match->parameters[i].value;
        bool is_rest = strcmp(match->parameters[i].name, "path") == 0 || strcmp(match->parameters[i].name, "rest") == 0;
        require(match->route == &PREVIEW || !has_dots(value));
        require(is_rest || match->route == &PREVIEW || strchr(value, '/') == NULL);
    }
    require(!match->is_by_token || (match->route->carriers & HTTP_PATH) != 0);
    require(match->is_by_token == (strncmp(request->head.path, "/c/", 3) == 0) || match->route == &PREVIEW);
    bool is_repeated_slash = (match->route->carriers & HTTP_PROXIES) != 0;
    if (match->route != &PREVIEW && !is_repeated_slash)
        require_one_decoding(match);
}

static void check_credential(const struct http_request *request)
{
    const char *credential = http_request_credential(request);
    unsigned carriers = request->match.route->carriers;
    require(credential == NULL || request->carries_credential);
    require(credential == NULL || (carriers & HTTP_API_KEY) || strncmp(credential, "pk_", 3) != 0);
    if (!request->match.is_by_token)
        return;
    const char *token = http_match_parameter(&request->match, "token");
    require(!token[0] || strncmp(token, "pk_", 3) == 0 || (credential && strcmp(credential, token) == 0));
}

/* What goes on to an app has no token of ours in its query, and is one target. */
static void check_target(const struct http_request *request)
{
    AUTO_TEXT target = {0};
    http_proxy_target(request, request->match.route == &PREVIEW ? NULL : "rest", &target);
    require(target.data[0] == '/' && strpbrk(target.data, " \r\n\t") == NULL && strlen(target.data) == target.length);
    const char *query = strchr(target.data, '?');
    if (query == NULL || !request->query_token || request->credential != request->query_token)
        return;
    AUTO_FREE char *ours = memory_printf("token=%s", request->credential);
    for (const char *at = query + 1;; at += strcspn(at, "&") + 1) { /* another token may be the app's own */
        require(strncmp(at, ours, strlen(ours)) != 0 || (at[strlen(ours)] != '&' && at[strlen(ours)] != '\0'));
        if (at[strcspn(at, "&")] == '\0')
            break;
    }
}

static void check_query(const struct http_request *request)
{
    bool may_repeat = (request->match.route->carriers & HTTP_REPEATS) != 0;
    for (size_t i = 0; i < request->query_count; i++)
        for (size_t j = 0; j < i; j++)
            require(may_repeat || strcmp(request->query[i].name, request->query[j].name) != 0);
}

static void clear(struct http_request *request)
{
    free(request->protocol_bearer);
    free(request->late_credential);
    free(request->query_came);
    free(request->query_token);
    free(request->many_pairs);
    http_match_done(&request->match);
    http_head_done(&request->head);
}

static void read_request(struct http_worker *worker, const struct text *head)
{
    struct http_request request = {.worker = worker};
    request.query = request.few_pairs;
    struct error err = {0};
    size_t scanned = 0;
    if (http_head_length(head->data, head->length, &scanned) == head->length &&
        http_request_read_head(&request, head->data, head->length, &err)) {
        if (request.refusal.kind == ERROR_NONE) {
            check_match(&request);
            check_credential(&request);
            check_query(&request);
            if ((request.match.route->carriers & HTTP_PROXIES) != 0)
                check_target(&request);
        } else {
            require(request.refusal.message[0] && error_http_status(request.refusal.kind) < 500);
        }
    }
    clear(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const BEFORE[LINES] = {"GET ",
                                              "Host: ", "Authorization: ", "X-API-Key: ", "Sec-WebSocket-Protocol: "};
    static struct http_worker *worker;
    AUTO_TEXT head = {0};
    if (worker == NULL)
        worker = make_worker();
    const char *at = (const char *)data;
    for (size_t i = 0; i < LINES; i++) {
        const char *end = size ? memchr(at, '\n', size) : NULL;
        size_t length = end ? (size_t)(end - at) : size;
        if (length == 0 && i != 0 && i != 1)
            break;
        text_append_string(&head, BEFORE[i]);
        text_append(&head, at, length);
        text_append_string(&head, i == 0 ? " HTTP/1.1\r\n" : "\r\n");
        size -= end ? length + 1 : length;
        at += end ? length + 1 : length;
    }
    text_append_string(&head, "\r\n");
    if (head.length <= HTTP_HEAD_MAX_BYTES)
        read_request(worker, &head);
    return 0;
}
