#include "shared/http/head.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Fields that mean something else to whoever reads the last one instead of the first. */
static const char *const ONCE[] = {"host",
                                   "content-length",
                                   "transfer-encoding",
                                   "authorization",
                                   "x-api-key",
                                   "content-type",
                                   "expect",
                                   "content-range",
                                   "range",
                                   "if-match",
                                   "if-none-match",
                                   "if-range",
                                   "idempotency-key",
                                   "x-request-id",
                                   "x-access-token",
                                   "x-execd-access-token",
                                   "opensandbox-egress-auth",
                                   "open-sandbox-api-key",
                                   "origin",
                                   "upgrade",
                                   "sec-websocket-key",
                                   "sec-websocket-version",
                                   "sec-websocket-protocol"};

size_t http_head_length(const char *data, size_t size, size_t *scanned)
{
    size_t from = *scanned < 3 ? 0 : *scanned - 3;
    const char *end = size - from >= 4 ? memmem(data + from, size - from, "\r\n\r\n", 4) : NULL;
    *scanned = size;
    return end != NULL ? (size_t)(end - data) + 4 : 0;
}

static bool is_token(const char *text, size_t length)
{
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_alphanumeric && (c == '\0' || strchr("!#$%&'*+-.^_`|~", c) == NULL))
            return false;
    }
    return true;
}

static bool has_control(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return true;
    }
    return false;
}

/* method SP target SP HTTP/1.x, exactly one blank each. `line` ends at `end`, which holds the CR. */
static bool parse_request_line(struct http_head *head, char *line, char *end, struct error *err)
{
    *end = '\0';
    char *target = strchr(line, ' ');
    char *version = target != NULL ? strchr(target + 1, ' ') : NULL;
    if (version == NULL || strlen(line) != (size_t)(end - line) || !is_token(line, (size_t)(target - line)))
        return error_set(err, ERROR_INVALID, "the request line is not METHOD SP target SP version");
    *target++ = '\0';
    *version++ = '\0';
    head->method = line;
    head->is_1_1 = strcmp(version, "HTTP/1.1") == 0;
    if (!head->is_1_1 && strcmp(version, "HTTP/1.0") != 0)
        return error_set(err, ERROR_INVALID, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    if (has_control(target, strlen(target)) || strchr(target, '\t') != NULL)
        return error_set(err, ERROR_INVALID, "the request's target has control characters");
    head->query = strchr(target, '?');
    if (head->query != NULL)
        *head->query++ = '\0';
    head->path = target;
    return http_path_check(target, err);
}

static bool parse_field(struct http_head *head, char *line, char *end, struct error *err)
{
    *end = '\0';
    char *colon = memchr(line, ':', (size_t)(end - line));
    if (colon == NULL || !is_token(line, (size_t)(colon - line)))
        return error_set(err, ERROR_INVALID, "a header line is not name: value");
    if (has_control(colon, (size_t)(end - colon)))
        return error_set(err, ERROR_INVALID, "a header's value has control characters");
    if (head->field_count == HTTP_FIELDS_MAX)
        return error_set(err, ERROR_INVALID, "the request has over %d headers", HTTP_FIELDS_MAX);
    *colon = '\0';
    for (char *c = line; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    char *value = colon + 1;
    value += strspn(value, " \t");
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    head->fields[head->field_count++] = (struct http_pair){line, value};
    return true;
}

const char *http_head_field(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->field_count; i++) {
        if (strcmp(head->fields[i].name, name) == 0)
            return head->fields[i].value;
    }
    return NULL;
}

static bool check_repeated(const struct http_head *head, struct error *err)
{
    for (size_t once = 0; once < sizeof ONCE / sizeof ONCE[0]; once++) {
        unsigned seen = 0;
        for (size_t i = 0; i < head->field_count; i++)
            seen += strcmp(head->fields[i].name, ONCE[once]) == 0;
        if (seen > 1)
            return error_set(err, ERROR_INVALID, "the header %s is given twice", ONCE[once]);
    }
    return true;
}

/* Which bytes are the body (RFC 9112, 6.3); whatever two readers could see differently is refused. */
static bool parse_framing(struct http_head *head, struct error *err)
{
    const char *encoding = http_head_field(head, "transfer-encoding");
    const char *length = http_head_field(head, "content-length");
    const char *expect = http_head_field(head, "expect");
    if (encoding != NULL && length != NULL)
        return error_set(err, ERROR_INVALID, "Content-Length beside Transfer-Encoding");
    if (encoding != NULL && (!head->is_1_1 || strcasecmp(encoding, "chunked") != 0))
        return error_set(err, ERROR_INVALID, "the only Transfer-Encoding is chunked, in HTTP/1.1");
    if (length != NULL && !text_parse_u64(length, strlen(length), INT64_MAX, &head->content_length))
        return error_set(err, ERROR_INVALID, "Content-Length is not a number");
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        return error_set(err, ERROR_INVALID, "the only expectation met is 100-continue");
    if (head->is_1_1 && http_head_field(head, "host") == NULL)
        return error_set(err, ERROR_INVALID, "the header Host is missing");
    head->is_chunked = encoding != NULL;
    head->expects_continue = expect != NULL;
    return true;
}

bool http_head_parse(struct http_head *head, const char *data, size_t length, struct error *err)
{
    head->text = memory_copy(data, length);
    char *line = head->text;
    char *stop = head->text + length - 2; /* the empty line */
    bool is_first = true;
    while (line < stop) {
        char *end = memchr(line, '\r', (size_t)(stop - line));
        if (end == NULL || end[1] != '\n')
            return error_set(err, ERROR_INVALID, "a line of the head does not end with CR LF");
        bool ok = is_first ? parse_request_line(head, line, end, err) : parse_field(head, line, end, err);
        if (!ok)
            return false;
        is_first = false;
        line = end + 2;
    }
    return check_repeated(head, err) && parse_framing(head, err);
}

void http_head_done(struct http_head *head)
{
    free(head->text);
    head->text = NULL;
}
