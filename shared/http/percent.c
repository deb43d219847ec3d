/* percent.c - percent escapes, paths and queries (RFC 3986). */
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/head.h"

#include <string.h>

static bool decode(char *to, const char *from, size_t length, bool is_query)
{
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        char c = from[i];
        if (c == '%') {
            uint8_t byte;
            if (length - i < 3 || !text_hex_decode(&byte, 1, from + i + 1, 2) || byte == 0)
                return false;
            c = (char)byte;
            i += 2;
        } else if (c == '+' && is_query) {
            c = ' ';
        }
        to[at++] = c;
    }
    to[at] = '\0';
    return memchr(to, '\0', at) == NULL;
}

bool http_percent_decode_bytes(char *to, const char *from, size_t length)
{
    return decode(to, from, length, false);
}

bool http_percent_decode(char *to, const char *from, size_t length, bool is_query)
{
    if (!decode(to, from, length, is_query))
        return false;
    size_t decoded = strlen(to);
    return text_utf8_prefix(to, decoded) == decoded;
}

/* Of a decoded path, so that %2e and %2f hide nothing. */
static bool has_dot_segment(const char *path)
{
    for (const char *segment = path; segment != NULL; segment = strchr(segment, '/')) {
        segment += *segment == '/';
        size_t length = strcspn(segment, "/");
        if ((length == 1 && segment[0] == '.') || (length == 2 && segment[0] == '.' && segment[1] == '.'))
            return true;
    }
    return false;
}

bool http_path_check(const char *path, struct error *err)
{
    if (path[0] != '/')
        return error_set(err, ERROR_INVALID, "the request's target must be a path that begins with /");
    size_t length = strlen(path);
    AUTO_FREE char *decoded = memory_new(length + 1);
    if (strchr(path, '#') != NULL || !http_percent_decode_bytes(decoded, path, length))
        return error_set(err, ERROR_INVALID, "the path has a broken percent escape, a NUL or a #");
    if (has_dot_segment(decoded))
        return error_set(err, ERROR_INVALID, "the path has a . or .. segment");
    return true;
}

static bool is_repeated(const struct http_pair *pairs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(pairs[i].name, name) == 0)
            return true;
    }
    return false;
}

bool http_query_parse(char *query, bool may_repeat, struct http_pair *pairs, size_t *count, struct error *err)
{
    size_t found = 0, room = may_repeat ? HTTP_QUERY_REPEATS_MAX : HTTP_QUERY_MAX;
    for (char *next = query; next != NULL;) {
        char *name = next;
        next = strchr(name, '&');
        if (next != NULL)
            *next++ = '\0';
        if (*name == '\0')
            continue;
        char *value = strchr(name, '=');
        if (value != NULL)
            *value++ = '\0';
        else
            value = name + strlen(name);
        if (!http_percent_decode(name, name, strlen(name), true) ||
            !http_percent_decode(value, value, strlen(value), true))
            return error_set(err, ERROR_INVALID, "the query has a broken percent escape, a NUL or is not UTF-8");
        if (found == room)
            return error_set(err, ERROR_INVALID, "the query has over %zu parameters", room);
        if ((!may_repeat || strcmp(name, "token") == 0) && is_repeated(pairs, found, name))
            return error_set(err, ERROR_INVALID, "a query parameter is given twice");
        pairs[found++] = (struct http_pair){name, value};
    }
    *count = found;
    return true;
}
