#include "shared/http/proxy_answer.h"

#include "shared/base/memory.h"

#include <ctype.h>
#include <http_parser.h>
#include <string.h>
#include <strings.h>

/* The parser takes blanks in names, as a reader of the client's might not. */
static const char TOKEN[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";

static bool refuse(struct http_answer *answer, const char *why)
{
    answer->is_broken = true;
    return error_set(&answer->broken, ERROR_BAD_GATEWAY, "what listens there %s", why);
}

const char *http_answer_next(const struct http_answer *answer, const char *at, const char **value)
{
    const char *end = answer->fields.data + answer->fields.length;
    const char *next = answer->fields.data;
    if (at != NULL) {
        next = at + strlen(at) + 1;
        next += strlen(next) + 1;
    }
    if (next == NULL || next >= end)
        return NULL;
    *value = next + strlen(next) + 1;
    return next;
}

/* ---- the head, piece by piece ---- */

static bool append(struct http_answer *answer, const char *data, size_t size)
{
    if (answer->fields.length + size > HTTP_ANSWER_HEAD_MAX_BYTES)
        return refuse(answer, "answers with a head over 64 KiB");
    if (memchr(data, '\0', size) != NULL)
        return refuse(answer, "answers with a NUL in a header");
    text_append(&answer->fields, data, size);
    return true;
}

static void end_value(struct http_answer *answer)
{
    struct text *fields = &answer->fields;
    while (fields->data[fields->length - 1] == ' ' || fields->data[fields->length - 1] == '\t')
        fields->length--; /* a NUL stands before the value */
    text_append(fields, "", 1);
    answer->is_in_value = false;
}

static int on_field(http_parser *parser, const char *data, size_t size)
{
    struct http_answer *answer = parser->data;
    if (answer->state != HTTP_ANSWER_HEAD)
        return 0; /* a trailer */
    if (answer->is_in_value)
        end_value(answer);
    size_t from = answer->fields.length;
    if (!append(answer, data, size))
        return -1;
    for (size_t i = from; i < answer->fields.length; i++)
        answer->fields.data[i] = (char)tolower((unsigned char)answer->fields.data[i]);
    return 0;
}

static int on_value(http_parser *parser, const char *data, size_t size)
{
    struct http_answer *answer = parser->data;
    if (answer->state != HTTP_ANSWER_HEAD)
        return 0;
    if (!answer->is_in_value) {
        text_append(&answer->fields, "", 1);
        answer->is_in_value = true;
        if (++answer->field_count > HTTP_ANSWER_FIELDS_MAX) {
            refuse(answer, "answers with over 200 headers");
            return -1;
        }
    }
    return append(answer, data, size) ? 0 : -1;
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return true;
    }
    return false;
}

/* The parser takes whatever ends in "chunked" for chunks, and all else for a body up to the connection's end. */
static bool check_fields(struct http_answer *answer)
{
    bool is_encoded = false, is_chunked = false;
    const char *value;
    for (const char *name = NULL; (name = http_answer_next(answer, name, &value)) != NULL;) {
        bool is_token = name[0] != '\0' && name[strspn(name, TOKEN)] == '\0';
        if (!is_token || has_control(value))
            return refuse(answer, "answers with a header that is not well-formed");
        if (strcmp(name, "transfer-encoding") != 0)
            continue;
        is_chunked = !is_encoded && strcasecmp(value, "chunked") == 0;
        is_encoded = true;
    }
    if (is_encoded && !is_chunked)
        return refuse(answer, "answers in a Transfer-Encoding that is not chunked alone");
    if (is_encoded && (answer->parser->flags & F_CONTENTLENGTH) != 0)
        return refuse(answer, "answers with Content-Length beside Transfer-Encoding");
    return true;
}

static void start_again(struct http_answer *answer)
{
    answer->fields.length = 0;
    answer->field_count = 0;
}

static bool take_framing(struct http_answer *answer)
{
    const http_parser *parser = answer->parser;
    answer->status = (int)parser->status_code;
    bool is_chunked = (parser->flags & F_CHUNKED) != 0;
    answer->length = parser->flags & F_CONTENTLENGTH ? parser->content_length : UINT64_MAX;
    bool is_bodiless = answer->status == 101 || answer->status == 204 || answer->status == 304;
    answer->has_body = !answer->is_for_head && !is_bodiless;
    answer->is_by_end = answer->has_body && !is_chunked && answer->length == UINT64_MAX;
    if (answer->length != UINT64_MAX && answer->length > INT64_MAX)
        return refuse(answer, "answers with a length that cannot be");
    return true;
}

/* 1: no body follows; 2: nor anything else of HTTP; -1: broken (http_parser.h). */
static int on_head(http_parser *parser)
{
    struct http_answer *answer = parser->data;
    if (answer->is_in_value)
        end_value(answer);
    if (parser->http_major != 1 || parser->status_code < 100 || parser->status_code > 599)
        return refuse(answer, "answers in no HTTP/1.1 that is known") - 1;
    if (!check_fields(answer) || !take_framing(answer))
        return -1;
    if (answer->status == 101) {
        if (!answer->may_upgrade)
            return refuse(answer, "changes to a protocol that nobody asked for") - 1;
        answer->state = HTTP_ANSWER_UPGRADED;
        return 2;
    }
    if (answer->status < 200) {
        if (++answer->interim > HTTP_ANSWER_INTERIM_MAX)
            return refuse(answer, "says 1xx without end") - 1;
        start_again(answer);
        return 1;
    }
    answer->state = HTTP_ANSWER_BODY;
    http_parser_pause(parser, 1);
    return answer->has_body ? 0 : 1;
}

static int on_body(http_parser *parser, const char *data, size_t size)
{
    const struct http_answer *answer = parser->data;
    answer->body(answer->cookie, data, size);
    return 0;
}

static int on_end(http_parser *parser)
{
    struct http_answer *answer = parser->data;
    if (answer->state != HTTP_ANSWER_BODY)
        return 0; /* of an interim answer */
    answer->keeps_alive = http_should_keep_alive(parser) != 0;
    answer->state = HTTP_ANSWER_END;
    http_parser_pause(parser, 1);
    return 0;
}

/* ---- its reader ---- */

static const http_parser_settings SETTINGS = {.on_header_field = on_field,
                                              .on_header_value = on_value,
                                              .on_headers_complete = on_head,
                                              .on_body = on_body,
                                              .on_message_complete = on_end};

void http_answer_init(struct http_answer *answer, bool is_for_head, bool may_upgrade,
                      void (*body)(void *cookie, const char *data, size_t size), void *cookie)
{
    *answer =
        (struct http_answer){.is_for_head = is_for_head, .may_upgrade = may_upgrade, .body = body, .cookie = cookie};
    answer->parser = memory_new(sizeof *answer->parser);
    http_parser_init(answer->parser, HTTP_RESPONSE);
}

void http_answer_done(struct http_answer *answer)
{
    text_done(&answer->fields);
    free(TAKE(answer->parser));
}

const char *http_answer_reason(int status)
{
    return http_status_str((enum http_status)status);
}

static bool check_parser(struct http_answer *answer, struct error *err)
{
    enum http_errno found = HTTP_PARSER_ERRNO(answer->parser);
    if (answer->is_broken) {
        *err = answer->broken;
        return false;
    }
    if (found == HPE_OK || found == HPE_PAUSED)
        return true;
    return error_set(err, ERROR_BAD_GATEWAY, "what listens there answers in no HTTP/1.1: %s",
                     http_errno_description(found));
}

bool http_answer_read(struct http_answer *answer, const char *data, size_t size, size_t *used, struct error *err)
{
    *used = 0;
    if (size == 0 || answer->state == HTTP_ANSWER_END || answer->state == HTTP_ANSWER_UPGRADED)
        return true;
    answer->parser->data = answer;
    answer->has_begun = true;
    if (HTTP_PARSER_ERRNO(answer->parser) == HPE_PAUSED)
        http_parser_pause(answer->parser, 0);
    *used = http_parser_execute(answer->parser, &SETTINGS, data, size);
    return check_parser(answer, err);
}

bool http_answer_read_end(struct http_answer *answer, struct error *err)
{
    answer->parser->data = answer;
    if (HTTP_PARSER_ERRNO(answer->parser) == HPE_PAUSED)
        http_parser_pause(answer->parser, 0);
    http_parser_execute(answer->parser, &SETTINGS, NULL, 0);
    if (!answer->is_broken && answer->state == HTTP_ANSWER_END)
        return true;
    return error_set(err, ERROR_BAD_GATEWAY, "what listens there closed the connection before its answer was whole");
}
