/* multipart.c - cuts a body at its delimiters. A delimiter begins with CR and has no other, so what turned out to be
 * none is data as a whole, and the search goes on behind it. */
#include "shared/http/multipart.h"

#include "shared/base/memory.h"
#include "shared/http/multipart_head.h"

#include <stdio.h>
#include <string.h>

enum { DELIMITER_MAX = HTTP_MULTIPART_BOUNDARY_MAX + 4 };

enum state {
    PREAMBLE,
    DELIMITED, /* behind a delimiter: "--", or blanks and CR LF */
    LAST_DASH,
    PADDING,
    PADDING_LF,
    HEAD,
    BODY,
    EPILOGUE
};

struct http_multipart {
    enum state state;
    char delimiter[DELIMITER_MAX + 1]; /* CR LF "--" boundary */
    size_t delimiter_size;
    size_t matched; /* bytes of a delimiter just read, in PREAMBLE and BODY */
    size_t owned;   /* the first of them are not the body's: the line end before it */
    size_t skipped; /* outside, or of blanks */
    size_t head_size;
    unsigned parts, parts_max;
    struct text line; /* of a head, as far as it has come */
    struct multipart_head head;
    struct http_multipart_part part;
};

struct http_multipart *http_multipart_new(const char *content_type, unsigned parts_max, struct error *err)
{
    char boundary[HTTP_MULTIPART_BOUNDARY_MAX + 1];
    if (!multipart_boundary(content_type, boundary, err))
        return NULL;
    struct http_multipart *reader = memory_new(sizeof *reader);
    int size = snprintf(reader->delimiter, sizeof reader->delimiter, "\r\n--%s", boundary);
    reader->delimiter_size = (size_t)size;
    reader->parts_max = parts_max;
    reader->matched = reader->owned = 2; /* the first one needs no line before it */
    return reader;
}

void http_multipart_free(struct http_multipart *reader)
{
    if (reader == NULL)
        return;
    text_done(&reader->line);
    multipart_head_done(&reader->head);
    free(reader);
}

/* ---- outside and between ---- */

static bool skip(struct http_multipart *reader, size_t size, struct error *err)
{
    reader->skipped += size;
    return reader->skipped <= HTTP_MULTIPART_OUTSIDE_MAX ||
           error_set(err, ERROR_TOO_LARGE, "over %d bytes of the body are outside of its parts",
                     HTTP_MULTIPART_OUTSIDE_MAX);
}

/* How much of it is before what may be a delimiter, whole or cut off by the end: in random bytes every 256th is a CR, and
 * data in such pieces would be written so. */
static size_t find_plain(const struct http_multipart *reader, const char *data, size_t size)
{
    const char *end = data + size;
    for (const char *at = data; (at = memchr(at, '\r', (size_t)(end - at))) != NULL; at++) {
        size_t left = (size_t)(end - at), compared = left < reader->delimiter_size ? left : reader->delimiter_size;
        if (memcmp(at, reader->delimiter, compared) == 0)
            return (size_t)(at - data);
    }
    return size;
}

/* Data up to what may be a delimiter, or more of that; returns how much was taken. */
static size_t search(struct http_multipart *reader, const char *data, size_t size, struct http_multipart_event *event)
{
    if (reader->matched == 0) {
        size_t plain = find_plain(reader, data, size);
        if (plain > 0) {
            *event = (struct http_multipart_event){.kind = HTTP_MULTIPART_DATA, .data = data, .size = plain};
            return plain;
        }
    }
    size_t at = 0;
    while (at < size && reader->matched < reader->delimiter_size && data[at] == reader->delimiter[reader->matched]) {
        reader->matched++;
        at++;
    }
    if (reader->matched == reader->delimiter_size) {
        event->kind = HTTP_MULTIPART_PART_END;
        reader->state = DELIMITED;
        reader->matched = reader->owned = 0;
    } else if (at < size) {
        size_t told = reader->matched - reader->owned;
        if (told > 0)
            *event = (struct http_multipart_event){
                .kind = HTTP_MULTIPART_DATA, .data = reader->delimiter + reader->owned, .size = told};
        reader->matched = reader->owned = 0;
    }
    return at;
}

static bool read_preamble(struct http_multipart *reader, const char *data, size_t size, size_t *used, struct error *err)
{
    struct http_multipart_event ignored = {0};
    *used = search(reader, data, size, &ignored);
    return skip(reader, *used, err);
}

/* One byte of the rest of a delimiter's line. */
static bool read_delimited(struct http_multipart *reader, char byte, struct http_multipart_event *event,
                           struct error *err)
{
    bool is_blank = byte == ' ' || byte == '\t';
    if (reader->state == DELIMITED && byte == '-') {
        reader->state = LAST_DASH;
    } else if (reader->state == LAST_DASH && byte == '-') {
        reader->state = EPILOGUE;
        reader->skipped = 0;
        event->kind = HTTP_MULTIPART_END;
    } else if (reader->state == PADDING_LF && byte == '\n') {
        reader->state = HEAD;
        reader->head_size = 0;
        multipart_head_clear(&reader->head);
    } else if ((reader->state == DELIMITED || reader->state == PADDING) && (is_blank || byte == '\r')) {
        reader->state = is_blank ? PADDING : PADDING_LF;
        return !is_blank || skip(reader, 1, err);
    } else {
        return error_set(err, ERROR_INVALID,
                         "a line begins with the boundary and is no delimiter: blanks may follow "
                         "it, or -- at the body's end");
    }
    return true;
}

/* ---- heads ---- */

static bool begin_part(struct http_multipart *reader, struct http_multipart_event *event, struct error *err)
{
    const struct multipart_head *head = &reader->head;
    if (!multipart_head_finish(head, err))
        return false;
    if (++reader->parts > reader->parts_max)
        return error_set(err, ERROR_TOO_LARGE, "the body has over %u parts", reader->parts_max);
    reader->part =
        (struct http_multipart_part){.name = head->name.data,
                                     .filename = head->has_filename || head->is_extended ? head->filename.data : NULL,
                                     .type = head->has_type ? head->type.data : NULL};
    reader->state = BODY;
    reader->matched = reader->owned = 2; /* the empty line's end may be a delimiter's: a part without bytes */
    *event = (struct http_multipart_event){.kind = HTTP_MULTIPART_PART, .part = &reader->part};
    return true;
}

/* A whole line, its LF taken off. */
static bool end_line(struct http_multipart *reader, struct http_multipart_event *event, struct error *err)
{
    struct text *line = &reader->line;
    if (line->length == 0 || line->data[line->length - 1] != '\r')
        return error_set(err, ERROR_INVALID, "lines of a part's head end in CR LF");
    line->data[--line->length] = '\0';
    bool is_last = line->length == 0;
    bool is_read =
        is_last ? begin_part(reader, event, err) : multipart_head_line(&reader->head, line->data, line->length, err);
    line->length = 0;
    return is_read;
}

static bool read_head(struct http_multipart *reader, const char *data, size_t size, size_t *used,
                      struct http_multipart_event *event, struct error *err)
{
    const char *end = memchr(data, '\n', size);
    size_t length = end ? (size_t)(end - data) : size;
    *used = end ? length + 1 : size;
    if (*used > HTTP_MULTIPART_HEAD_MAX - reader->head_size)
        return error_set(err, ERROR_TOO_LARGE, "a part's head is over %d bytes", HTTP_MULTIPART_HEAD_MAX);
    reader->head_size += *used;
    text_append(&reader->line, data, length);
    return !end || end_line(reader, event, err);
}

/* ---- all of it ---- */

static bool step(struct http_multipart *reader, const char *data, size_t size, size_t *used,
                 struct http_multipart_event *event, struct error *err)
{
    switch (reader->state) {
    case PREAMBLE:
        return read_preamble(reader, data, size, used, err);
    case HEAD:
        return read_head(reader, data, size, used, event, err);
    case BODY:
        *used = search(reader, data, size, event);
        return true;
    case EPILOGUE:
        *used = size;
        return skip(reader, size, err);
    case DELIMITED:
    case LAST_DASH:
    case PADDING:
    case PADDING_LF:
        break;
    }
    *used = 1;
    return read_delimited(reader, *data, event, err);
}

bool http_multipart_next(struct http_multipart *reader, const char *data, size_t size, size_t *used,
                         struct http_multipart_event *event, struct error *err)
{
    size_t taken = 0;
    *event = (struct http_multipart_event){.kind = HTTP_MULTIPART_NONE};
    while (taken < size && event->kind == HTTP_MULTIPART_NONE) {
        size_t more = 0;
        if (!step(reader, data + taken, size - taken, &more, event, err))
            return false;
        taken += more;
    }
    *used = taken;
    return true;
}

bool http_multipart_finish(const struct http_multipart *reader, struct error *err)
{
    return reader->state == EPILOGUE || error_set(err, ERROR_INVALID, "the body ends before its last delimiter");
}
