/* route_fuzz.c - any bytes as the head of a request: the reader, the query, the table. What is accepted must hold what
 * the headers promise: clean decoded parameters, fields without control characters. */
#include "shared/base/text.h"
#include "shared/http/routes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http_route TABLE[] = {
    {"GET", "/hello", 0, NULL, 0, NULL},
    {"*", "/any/{x}/{y}", 0, NULL, 0, NULL},
    {"PUT", "/s/{sandbox}/files/{path...}", HTTP_PATH, "fs", 1, NULL},
    {"GET", "/s/{sandbox}/files/list", HTTP_PATH, "fs", 1, NULL},
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static bool has_dots(const char *path)
{
    char *wrapped = NULL;
    require(asprintf(&wrapped, "/%s/", path) >= 0);
    bool found = strstr(wrapped, "/../") != NULL || strstr(wrapped, "/./") != NULL;
    free(wrapped);
    return found;
}

static bool is_clean_rest(const char *value)
{
    size_t length = strlen(value);
    return length == 0 || (value[0] != '/' && value[length - 1] != '/' && strstr(value, "//") == NULL);
}

static void check_match(const struct http_head *head, const struct http_match *match)
{
    for (size_t i = 0; i < match->parameter_count; i++) {
        const struct http_pair *parameter = &match->parameters[i];
        require(!has_dots(parameter->value));
        bool is_rest = strcmp(parameter->name, "path") == 0;
        require(is_rest || strchr(parameter->value, '/') == NULL);
        require(is_rest || text_utf8_prefix(parameter->value, strlen(parameter->value)) == strlen(parameter->value));
        require(!is_rest || is_clean_rest(parameter->value));
        require(strlen(parameter->value) <= strlen(head->path));
    }
    require(!match->is_by_token || strncmp(head->path, "/c/", 3) == 0);
}

static void check_fields(const struct http_head *head)
{
    for (size_t i = 0; i < head->field_count; i++) {
        require(head->fields[i].name[0] != '\0');
        require(strpbrk(head->fields[i].name, "\r\n: ABCDEFGHIJKLMNOPQRSTUVWXYZ") == NULL);
        require(strpbrk(head->fields[i].value, "\r\n") == NULL);
    }
    require(!(head->is_chunked && head->content_length != 0));
    require(head->path[0] == '/' && !has_dots(head->path));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_routes *routes;
    if (routes == NULL)
        routes = http_routes_new(TABLE, sizeof TABLE / sizeof TABLE[0], NULL);
    require(routes != NULL);
    size_t scanned = 0;
    size_t length = http_head_length((const char *)data, size, &scanned);
    if (length == 0 || length > HTTP_HEAD_MAX_BYTES)
        return 0;
    struct http_head head = {0};
    struct error err;
    if (http_head_parse(&head, (const char *)data, length, &err)) {
        check_fields(&head);
        struct http_pair query[HTTP_QUERY_MAX];
        size_t count = 0;
        struct http_match match = {0};
        char allow[HTTP_ALLOW_BYTES];
        if (http_query_parse(head.query, false, query, &count, &err) &&
            http_routes_find(routes, head.method, head.path, &match, allow, &err))
            check_match(&head, &match);
        http_match_done(&match);
    }
    http_head_done(&head);
    return 0;
}
