#include "sandboxd/egress/http_guard.h"

#include "shared/base/memory.h"

#include <http_parser.h>
#include <string.h>
#include <strings.h>

struct piece {
    const char *at;
    size_t length;
};

struct http_guard {
    http_parser parser; /* its data: this */
    uint16_t port;
    bool (*is_allowed)(void *cookie, const char *name);
    void *cookie;
    bool is_in_body, has_begun;
    struct text head; /* of the request that is being read, not yet allowed */
    /* Of the request, pointing into `head`; valid while it is parsed. */
    struct piece url, field, host;
    unsigned hosts, codings, lengths;
    bool was_checked;      /* all of the head was seen, and is allowed */
    const char *framing;   /* of a chunked body: from here on no data was seen; NULL in others */
    bool had_cr, wants_cr; /* the byte before was one; data ended before this one */
    struct error *err;     /* of the call that runs */
};

static int wrong(struct http_guard *guard, const char *what)
{
    (void)error_set(guard->err, ERROR_INVALID, "%s", what);
    return -1; /* 1 and 2 mean other things to on_headers_complete */
}

/* ---- the head ---- */

static int on_url(http_parser *parser, const char *at, size_t length)
{
    struct http_guard *guard = parser->data;
    guard->url = (struct piece){at, length};
    return 0;
}

static int on_field(http_parser *parser, const char *at, size_t length)
{
    struct http_guard *guard = parser->data;
    if (guard->is_in_body)
        return wrong(guard, "a chunked body with trailers is not let through");
    guard->field = (struct piece){at, length};
    return 0;
}

static bool is_field(const struct piece *field, const char *name)
{
    return field->length == strlen(name) && strncasecmp(field->at, name, field->length) == 0;
}

static int on_value(http_parser *parser, const char *at, size_t length)
{
    struct http_guard *guard = parser->data;
    const struct piece *field = &guard->field;
    if (is_field(field, "Host")) {
        guard->hosts++;
        guard->host = (struct piece){at, length};
    } else if (is_field(field, "Transfer-Encoding")) {
        guard->codings++;
        if (length != 7 || strncasecmp(at, "chunked", 7) != 0)
            return wrong(guard, "the only transfer coding that is let through is chunked");
    } else if (is_field(field, "Content-Length")) {
        guard->lengths++;
    } else if (is_field(field, "Upgrade") || is_field(field, "HTTP2-Settings")) {
        return wrong(guard, "an Upgrade is not let through: over port 80 only plain HTTP/1");
    }
    return 0;
}

/* Host = name [ ":" port ]; the port may be missing or the connection's. */
static bool read_host(const struct http_guard *guard, const char *at, size_t length, char name[static HOST_NAME_BYTES])
{
    const char *colon = memchr(at, ':', length);
    size_t name_length = colon ? (size_t)(colon - at) : length;
    uint64_t port = guard->port;
    if (colon != NULL && !text_parse_u64(colon + 1, length - name_length - 1, UINT16_MAX, &port))
        return false;
    return port == guard->port && host_name_read(name, at, name_length);
}

/* A target with a scheme and a host (RFC 9112, 3.2.2): the host must be the one that Host says. */
static bool is_absolute_for(const struct http_guard *guard, const char *name)
{
    char other[HOST_NAME_BYTES];
    const struct piece *url = &guard->url;
    if (url->length <= 7 || strncasecmp(url->at, "http://", 7) != 0)
        return false;
    const char *at = url->at + 7;
    size_t length = 0;
    while (length < url->length - 7 && strchr("/?#", at[length]) == NULL)
        length++;
    return read_host(guard, at, length, other) && strcmp(other, name) == 0;
}

static bool is_target_for(const struct http_guard *guard, const char *name)
{
    const struct piece *url = &guard->url;
    if (url->length > 0 && url->at[0] == '/')
        return true;
    if (url->length == 1 && url->at[0] == '*')
        return guard->parser.method == HTTP_OPTIONS;
    return is_absolute_for(guard, name);
}

static int on_head(http_parser *parser)
{
    struct http_guard *guard = parser->data;
    char name[HOST_NAME_BYTES];
    if (parser->http_major != 1 || parser->http_minor > 1)
        return wrong(guard, "this is no request of HTTP/1.0 or HTTP/1.1");
    if (parser->method == HTTP_CONNECT || parser->upgrade)
        return wrong(guard, "CONNECT and Upgrade are not let through: over port 80 only plain HTTP/1");
    if (guard->hosts != 1)
        return wrong(guard, guard->hosts == 0 ? "the request has no Host" : "the request has more than one Host");
    if (guard->codings > 1 || guard->lengths > 1 || (guard->codings && (guard->lengths || parser->http_minor == 0)))
        return wrong(guard, "the length of the request's body is ambiguous");
    if (!read_host(guard, guard->host.at, guard->host.length, name))
        return wrong(guard, "the request's Host is no name of a host, or names another port");
    if (!is_target_for(guard, name))
        return wrong(guard, "the request's target is for another host than its Host");
    if (!guard->is_allowed(guard->cookie, name)) {
        (void)error_set(guard->err, ERROR_FORBIDDEN, "%s is not allowed", name);
        return -1;
    }
    guard->was_checked = true;
    return 0;
}

/* Printable ASCII and beyond, blanks and tabs; CR and LF only as the pair. */
static bool has_plain_lines(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '\r' ? i + 1 == length || text[i + 1] != '\n' : byte == '\n' && (i == 0 || text[i - 1] != '\r'))
            return false;
        if ((byte < ' ' && byte != '\t' && byte != '\r' && byte != '\n') || byte == 0x7f)
            return false;
    }
    return true;
}

/* The characters of a token (RFC 9110, 5.6.2). */
static bool is_token(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte <= ' ' || byte >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", byte) != NULL)
            return false;
    }
    return length > 0;
}

/* What the parser is lenient about: every line behind the first is NAME ":" VALUE. `length` is without the empty line.
 */
static bool has_strict_lines(const char *head, size_t length)
{
    const char *end = head + length;
    if (length == 0 || head[0] < 'A' || head[0] > 'Z' || !has_plain_lines(head, length))
        return false;
    const char *at = memchr(head, '\n', length);
    for (at = at ? at + 1 : end; at < end;) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        const char *colon = memchr(at, ':', (size_t)((next ? next : end) - at));
        if (colon == NULL || !is_token(at, (size_t)(colon - at)))
            return false;
        at = next ? next + 1 : end;
    }
    return true;
}

/* ---- the body ---- */

/* Between the chunks' data: sizes and line ends, CR and LF only as the pair. */
static bool check_framing(struct http_guard *guard, const char *end)
{
    for (const char *at = guard->framing; at < end; at++) {
        if ((*at == '\n') != guard->had_cr || (guard->wants_cr && *at != '\r'))
            return false;
        guard->wants_cr = false;
        guard->had_cr = *at == '\r';
    }
    return true;
}

static int on_body(http_parser *parser, const char *at, size_t length)
{
    struct http_guard *guard = parser->data;
    if (guard->framing == NULL)
        return 0;
    if (!check_framing(guard, at))
        return wrong(guard, "the request's chunks are malformed");
    guard->framing = at + length;
    guard->had_cr = false;
    guard->wants_cr = true;
    return 0;
}

static int on_complete(http_parser *parser)
{
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings SETTINGS = {.on_url = on_url,
                                              .on_header_field = on_field,
                                              .on_header_value = on_value,
                                              .on_headers_complete = on_head,
                                              .on_body = on_body,
                                              .on_message_complete = on_complete};

/* ---- both ---- */

struct http_guard *http_guard_new(uint16_t port, bool (*is_allowed)(void *cookie, const char *name), void *cookie)
{
    struct http_guard *guard = memory_new(sizeof *guard);
    *guard = (struct http_guard){.port = port, .is_allowed = is_allowed, .cookie = cookie};
    http_parser_init(&guard->parser, HTTP_REQUEST);
    guard->parser.data = guard;
    return guard;
}

void http_guard_free(struct http_guard *guard)
{
    if (guard == NULL)
        return;
    text_done(&guard->head);
    free(guard);
}

/* Runs the parser up to a message's end. *taken says how far; *is_over whether the message ended. */
static bool parse(struct http_guard *guard, const char *data, size_t size, size_t *taken, bool *is_over)
{
    *taken = http_parser_execute(&guard->parser, &SETTINGS, data, size);
    enum http_errno why = HTTP_PARSER_ERRNO(&guard->parser);
    *is_over = why == HPE_PAUSED;
    if (*is_over)
        http_parser_pause(&guard->parser, 0);
    if (why == HPE_OK || why == HPE_PAUSED)
        return true;
    if (why != HPE_CB_url && why != HPE_CB_header_field && why != HPE_CB_header_value &&
        why != HPE_CB_headers_complete && why != HPE_CB_body)
        (void)error_set(guard->err, ERROR_INVALID, "it is no HTTP/1 request: %s", http_errno_description(why));
    return false;
}

static bool read_whole_head(struct http_guard *guard, struct text *out)
{
    size_t taken = 0;
    bool is_over = false;
    if (!has_strict_lines(guard->head.data, guard->head.length - 4))
        return error_set(guard->err, ERROR_INVALID, "it does not begin as a request of HTTP/1, or a line is malformed");
    guard->hosts = guard->codings = guard->lengths = 0;
    guard->was_checked = false;
    if (!parse(guard, guard->head.data, guard->head.length, &taken, &is_over))
        return false;
    if (taken != guard->head.length || !guard->was_checked) /* "GET / H" is taken and never completed */
        return error_set(guard->err, ERROR_INVALID, "the request ends where its head does not");
    text_append(out, guard->head.data, guard->head.length);
    guard->has_begun = true;
    guard->is_in_body = !is_over;
    guard->had_cr = guard->wants_cr = false;
    guard->head.length = 0;
    return true;
}

/* Adds to the head up to its empty line; *taken of the data. */
static bool read_head(struct http_guard *guard, const char *data, size_t size, size_t *taken, struct text *out)
{
    struct text *head = &guard->head;
    size_t before = head->length;
    size_t room = HTTP_GUARD_HEAD_BYTES - before;
    text_append(head, data, size < room ? size : room);
    size_t from = before > 3 ? before - 3 : 0;
    const char *end = memmem(head->data + from, head->length - from, "\r\n\r\n", 4);
    if (end == NULL && head->length == HTTP_GUARD_HEAD_BYTES)
        return error_set(guard->err, ERROR_TOO_LARGE, "the head of a request is over %d bytes", HTTP_GUARD_HEAD_BYTES);
    if (end == NULL) {
        *taken = size;
        return true;
    }
    head->length = (size_t)(end - head->data) + 4;
    *taken = head->length - before;
    return read_whole_head(guard, out);
}

static bool read_body(struct http_guard *guard, const char *data, size_t size, size_t *taken, struct text *out)
{
    bool is_over = false;
    guard->framing = guard->codings > 0 ? data : NULL;
    if (!parse(guard, data, size, taken, &is_over))
        return false;
    if (guard->framing != NULL && !check_framing(guard, data + *taken))
        return error_set(guard->err, ERROR_INVALID, "the request's chunks are malformed");
    text_append(out, data, *taken);
    guard->is_in_body = !is_over;
    return true;
}

bool http_guard_read(struct http_guard *guard, const void *data, size_t size, struct text *out, struct error *err)
{
    const char *at = data;
    guard->err = err;
    while (size > 0) {
        size_t taken = 0;
        if (guard->is_in_body ? !read_body(guard, at, size, &taken, out) : !read_head(guard, at, size, &taken, out))
            return false;
        if (taken == 0)
            return error_set(err, ERROR_INVALID, "it is no HTTP/1 request");
        at += taken;
        size -= taken;
    }
    return true;
}

bool http_guard_has_begun(const struct http_guard *guard)
{
    return guard->has_begun;
}
