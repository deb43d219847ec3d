/* multipart_head.c - parameters as clients write them, and the three fields that matter. */
#include "shared/http/multipart_head.h"

#include "shared/base/memory.h"
#include "shared/http/head.h"

#include <string.h>
#include <strings.h>

#define ALNUM    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define TCHARS   ALNUM "!#$%&'*+-.^_`|~" /* RFC 9110, 5.6.2 */
#define BCHARS   ALNUM "'()+_,-./:=? "   /* RFC 2046, 5.1.1 */
#define UNQUOTED TCHARS "()/:=?,@[]{}"   /* also what a strict reader wants in quotes */

/* ---- parameters: *( OWS ";" OWS [ token "=" ( token / quoted-string ) ] ) ---- */

struct parameter {
    const char *name; /* any case */
    struct text value;
};

static void skip_blanks(char **at)
{
    *at += strspn(*at, " \t");
}

/* A quoted-string behind its first quote. Only what would end it too early is taken for escaped: Windows' paths have
 * backslashes too, and browsers escape none (WHATWG). */
static bool read_quoted(char **at, struct text *value)
{
    for (;;) {
        size_t plain = strcspn(*at, "\"\\");
        text_append(value, *at, plain);
        *at += plain;
        if (**at == '\0')
            return false;
        if (**at == '"') {
            ++*at;
            return true;
        }
        if ((*at)[1] == '"' || (*at)[1] == '\\')
            ++*at;
        text_append(value, (*at)++, 1);
    }
}

/* 1: one was read; 0: no more; -1: malformed. */
static int next_parameter(char **at, struct parameter *parameter)
{
    parameter->value.length = 0;
    text_append(&parameter->value, NULL, 0);
    do {
        skip_blanks(at);
        if (**at == '\0')
            return 0;
        if (**at != ';')
            return -1;
        ++*at;
        skip_blanks(at);
    } while (**at == ';' || **at == '\0');
    size_t length = strspn(*at, TCHARS);
    parameter->name = *at;
    *at += length;
    if (length == 0 || **at != '=')
        return -1;
    *(*at)++ = '\0';
    if (**at == '"') {
        ++*at;
        return read_quoted(at, &parameter->value) ? 1 : -1;
    }
    size_t size = strspn(*at, UNQUOTED);
    text_append(&parameter->value, *at, size);
    *at += size;
    return size > 0 ? 1 : -1;
}

/* ---- Content-Disposition ---- */

/* In place: what browsers and curl escape so, and nothing else. */
static void unescape(struct text *value)
{
    static const struct {
        const char *escaped;
        char byte;
    } ESCAPES[] = {{"%22", '"'}, {"%0D", '\r'}, {"%0A", '\n'}};
    size_t to = 0;
    for (size_t from = 0; from < value->length; to++) {
        char byte = value->data[from++];
        for (size_t i = 0; byte == '%' && i < sizeof ESCAPES / sizeof *ESCAPES; i++)
            if (strncasecmp(value->data + from - 1, ESCAPES[i].escaped, 3) == 0) {
                byte = ESCAPES[i].byte;
                from += 2;
                break;
            }
        value->data[to] = byte;
    }
    value->data[value->length = to] = '\0';
}

/* UTF-8'language'percent-encoded (RFC 8187, 3.2). */
static bool read_extended(struct text *to, const char *value, struct error *err)
{
    const char *language = strchr(value, '\''), *text = language ? strchr(language + 1, '\'') : NULL;
    bool is_utf8 = language && language - value == 5 && strncasecmp(value, "utf-8", 5) == 0;
    if (!text || !is_utf8)
        return error_set(err, ERROR_INVALID, "a part's filename*: UTF-8''percent-encoded");
    size_t length = strlen(++text);
    AUTO_FREE char *decoded = memory_new(length + 1);
    if (!http_percent_decode(decoded, text, length, false))
        return error_set(err, ERROR_INVALID, "a part's filename*: a broken escape, or no UTF-8");
    to->length = 0;
    text_append_string(to, decoded);
    return true;
}

static bool repeated(struct error *err, const char *what)
{
    return error_set(err, ERROR_INVALID, "a part's head has %s twice", what);
}

static bool take_parameter(struct multipart_head *head, const struct parameter *parameter, bool *has_name,
                           struct error *err)
{
    const struct text *value = &parameter->value;
    if (strcasecmp(parameter->name, "name") == 0) {
        if (*has_name)
            return repeated(err, "name=");
        *has_name = true;
        text_append(&head->name, value->data, value->length);
        unescape(&head->name);
    } else if (strcasecmp(parameter->name, "filename") == 0) {
        if (head->has_filename)
            return repeated(err, "filename=");
        head->has_filename = true;
        if (!head->is_extended) {
            text_append(&head->filename, value->data, value->length);
            unescape(&head->filename);
        }
    } else if (strcasecmp(parameter->name, "filename*") == 0) {
        if (head->is_extended)
            return repeated(err, "filename*=");
        head->is_extended = true;
        return read_extended(&head->filename, value->data, err);
    }
    return true;
}

static bool read_disposition(struct multipart_head *head, char *value, struct error *err)
{
    struct parameter parameter = {0};
    bool has_name = false, is_sound = true;
    size_t length = strcspn(value, "; \t");
    if (head->has_disposition)
        return repeated(err, "Content-Disposition");
    head->has_disposition = true;
    if (length != 9 || strncasecmp(value, "form-data", length) != 0)
        return error_set(err, ERROR_INVALID, "a part's Content-Disposition: form-data with a name is allowed");
    char *at = value + length;
    int got = 0;
    while (is_sound && (got = next_parameter(&at, &parameter)) == 1)
        is_sound = take_parameter(head, &parameter, &has_name, err);
    text_done(&parameter.value);
    if (!is_sound)
        return false;
    return got == 0 || error_set(err, ERROR_INVALID,
                                 "a part's Content-Disposition is malformed: name=\"...\"; "
                                 "filename=\"...\" are allowed");
}

/* ---- lines ---- */

static bool is_clean(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            return false;
    return true;
}

static bool read_encoding(struct multipart_head *head, const char *value, struct error *err)
{
    if (head->has_encoding)
        return repeated(err, "Content-Transfer-Encoding");
    head->has_encoding = true;
    if (strcasecmp(value, "binary") == 0 || strcasecmp(value, "8bit") == 0 || strcasecmp(value, "7bit") == 0)
        return true;
    return error_set(err, ERROR_INVALID, "a part's Content-Transfer-Encoding: binary, 8bit and 7bit are allowed");
}

static bool read_type(struct multipart_head *head, char *value, struct error *err)
{
    if (head->has_type)
        return repeated(err, "Content-Type");
    head->has_type = true;
    if (strncasecmp(value, "multipart/", 10) == 0)
        return error_set(err, ERROR_INVALID, "a part that is itself multipart is not served");
    text_append_string(&head->type, value);
    return true;
}

bool multipart_head_line(struct multipart_head *head, char *line, size_t length, struct error *err)
{
    size_t name = strspn(line, TCHARS);
    if (++head->fields > HTTP_MULTIPART_FIELDS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "a part's head has over %d lines", HTTP_MULTIPART_FIELDS_MAX);
    if (!is_clean(line, length) || name == 0 || line[name] != ':')
        return error_set(err, ERROR_INVALID, "a line of a part's head is malformed: \"Name: value\" is allowed");
    char *value = line + name + 1;
    line[name] = '\0';
    skip_blanks(&value);
    for (size_t end = strlen(value); end > 0 && strchr(" \t", value[end - 1]); end--)
        value[end - 1] = '\0';
    if (strcasecmp(line, "content-disposition") == 0)
        return read_disposition(head, value, err);
    if (strcasecmp(line, "content-type") == 0)
        return read_type(head, value, err);
    if (strcasecmp(line, "content-transfer-encoding") == 0)
        return read_encoding(head, value, err);
    return true;
}

bool multipart_head_finish(const struct multipart_head *head, struct error *err)
{
    if (!head->has_disposition || head->name.length == 0)
        return error_set(err, ERROR_INVALID, "a part needs Content-Disposition: form-data; name=\"...\"");
    return true;
}

void multipart_head_clear(struct multipart_head *head)
{
    struct multipart_head kept = *head;
    *head = (struct multipart_head){.name = kept.name, .filename = kept.filename, .type = kept.type};
    struct text *texts[] = {&head->name, &head->filename, &head->type};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        texts[i]->length = 0;
        text_append(texts[i], NULL, 0);
    }
}

void multipart_head_done(struct multipart_head *head)
{
    text_done(&head->name);
    text_done(&head->filename);
    text_done(&head->type);
}

/* ---- the request's Content-Type ---- */

static const char FORM_DATA[] = "multipart/form-data";

bool http_multipart_is(const char *content_type)
{
    size_t length = content_type ? strcspn(content_type, "; \t") : 0;
    return length == sizeof FORM_DATA - 1 && strncasecmp(content_type, FORM_DATA, length) == 0;
}

static bool is_boundary(const struct text *value)
{
    size_t length = value->length;
    return length >= 1 && length <= HTTP_MULTIPART_BOUNDARY_MAX && strspn(value->data, BCHARS) == length &&
           value->data[length - 1] != ' ';
}

bool multipart_boundary(const char *content_type, char to[static HTTP_MULTIPART_BOUNDARY_MAX + 1], struct error *err)
{
    struct parameter parameter = {0};
    if (!http_multipart_is(content_type))
        return error_set(err, ERROR_INVALID, "the Content-Type has to be multipart/form-data with a boundary");
    AUTO_FREE char *copy = memory_string(content_type);
    char *at = copy + sizeof FORM_DATA - 1;
    int got = 0, found = 0;
    while ((got = next_parameter(&at, &parameter)) == 1) {
        if (strcasecmp(parameter.name, "boundary") != 0)
            continue;
        found = found == 0 && is_boundary(&parameter.value) ? 1 : 2;
        if (found == 1)
            memcpy(to, parameter.value.data, parameter.value.length + 1);
    }
    text_done(&parameter.value);
    if (got < 0 || found != 1)
        return error_set(err, ERROR_INVALID,
                         "multipart/form-data needs one boundary of 1 to %d letters, digits and '()+_,-./:=?",
                         HTTP_MULTIPART_BOUNDARY_MAX);
    return true;
}
