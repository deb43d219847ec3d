/* multipart_fuzz.c - any bytes as a form: "Content-Type LF body". Whole, byte by byte and in pieces of a length that
 * the input chooses it reads the same; its bytes come out in their order; and a part's bytes, put into a form of ours,
 * come out as they are. */
#include "shared/base/text.h"
#include "shared/http/multipart.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARTS_MAX = 20 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void tell_part(struct text *seen, const struct http_multipart_part *part)
{
    require(part->name[0] != '\0' && strlen(part->name) < HTTP_MULTIPART_HEAD_MAX);
    require(!part->filename || strlen(part->filename) < HTTP_MULTIPART_HEAD_MAX);
    require(!part->type || strpbrk(part->type, "\r\n") == NULL);
    text_append_format(seen, "[%s|%s|%s]", part->name, part->filename ? part->filename : "",
                       part->type ? part->type : "");
}

/* What is read, as text; `data` gets the parts' bytes alone. */
static void read_in(const char *type, const char *body, size_t size, size_t step, struct text *seen, struct text *data)
{
    struct error err = {0};
    struct http_multipart_event event;
    AUTO(http_multipart) *reader = http_multipart_new(type, PARTS_MAX, &err);
    bool is_good = reader != NULL, is_inside = false, is_over = false;
    for (size_t at = 0, used = 0; is_good && at < size; at += used) {
        size_t there = size - at < step ? size - at : step;
        is_good = http_multipart_next(reader, body + at, there, &used, &event, &err);
        if (!is_good)
            break;
        require(used <= there && (used == there || event.kind != HTTP_MULTIPART_NONE));
        require(!is_over || event.kind == HTTP_MULTIPART_NONE);
        if (event.kind == HTTP_MULTIPART_PART) {
            require(!is_inside);
            is_inside = true;
            tell_part(seen, event.part);
        } else if (event.kind == HTTP_MULTIPART_DATA) {
            require(is_inside && event.size > 0);
            text_append(seen, event.data, event.size);
            text_append(data, event.data, event.size);
        } else if (event.kind == HTTP_MULTIPART_PART_END) {
            require(is_inside);
            is_inside = false;
            text_append(seen, ".", 1);
        } else if (event.kind == HTTP_MULTIPART_END) {
            is_over = true;
            text_append(seen, "!", 1);
        }
    }
    if (is_good)
        is_good = http_multipart_finish(reader, &err);
    require(is_good ? is_over : err.kind == ERROR_INVALID || err.kind == ERROR_TOO_LARGE);
    text_append_format(seen, " %s", is_good ? "" : err.message);
}

static void require_same(const struct text *a, const struct text *b)
{
    require(a->length == b->length && (a->length == 0 || memcmp(a->data, b->data, a->length) == 0));
}

/* The parts' bytes are where they were, in the same order. */
static void require_subsequence(const struct text *data, const char *body, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < data->length; i++, at++) {
        const char *found = at < size ? memchr(body + at, data->data[i], size - at) : NULL;
        require(found != NULL);
        at = (size_t)(found - body);
    }
}

static void require_round_trip(const char *body, size_t size)
{
    static const char BOUNDARY[] = "\r\n--0123456789abcdef";
    if (memmem(body, size, BOUNDARY, sizeof BOUNDARY - 1) || (size >= 18 && memcmp(body, BOUNDARY + 2, 18) == 0))
        return;
    AUTO_TEXT form = {0}, seen = {0}, data = {0}, wanted = {0};
    text_append_string(&form, "--0123456789abcdef\r\nContent-Disposition: form-data; name=f; filename=a\r\n\r\n");
    text_append(&form, body, size);
    text_append_format(&form, "%s--\r\n", BOUNDARY);
    read_in("multipart/form-data; boundary=0123456789abcdef", form.data, form.length, 4096, &seen, &data);
    text_append_string(&wanted, "[f|a|]");
    text_append(&wanted, body, size);
    text_append_string(&wanted, ".! ");
    require_same(&seen, &wanted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *end = size ? memchr(text, '\n', size) : NULL;
    if (end == NULL)
        return 0;
    size_t length = (size_t)(end - text);
    char *type = strndup(text, length);
    const char *body = end + 1;
    size_t body_size = size - length - 1;
    AUTO_TEXT whole = {0}, whole_data = {0}, bytes = {0}, bytes_data = {0}, pieces = {0}, pieces_data = {0};
    require(type != NULL);
    read_in(type, body, body_size, SIZE_MAX, &whole, &whole_data);
    read_in(type, body, body_size, 1, &bytes, &bytes_data);
    read_in(type, body, body_size, 2 + size % 61, &pieces, &pieces_data);
    free(type);
    require_same(&whole, &bytes);
    require_same(&whole, &pieces);
    require_subsequence(&whole_data, body, body_size);
    require_round_trip(body, body_size);
    return 0;
}
