/* spool_text.c - a record as JSON, by hand: it is on the path of every exec. */
#include "sandboxd/journal/spool_internal.h"

#include <string.h>

enum { SHORT_MAX = 255, LONG_MAX_BYTES = 512, ESCAPED_MAX = 6 /* \u0000 */ };

/* In the order of protocol.md, 7; the number of bytes kept. */
static const struct {
    const char *name;
    size_t offset, max;
} FIELDS[] = {
#define FIELD(name, max)                                                                                               \
    {                                                                                                                  \
#name, offsetof(struct spool_record, name), max                                                                \
    }
    FIELD(principal, SHORT_MAX),  FIELD(actor, SHORT_MAX),         FIELD(thread_id, SHORT_MAX),
    FIELD(sandbox_id, SHORT_MAX), FIELD(lease, SHORT_MAX),         FIELD(jti, SHORT_MAX),
    FIELD(links, LONG_MAX_BYTES), FIELD(scope, LONG_MAX_BYTES),    FIELD(remote, SHORT_MAX),
    FIELD(request_id, SHORT_MAX), FIELD(detail, SPOOL_DETAIL_MAX),
#undef FIELD
};

_Static_assert(ESCAPED_MAX *(SPOOL_DETAIL_MAX + 2 * LONG_MAX_BYTES + 10 * SHORT_MAX) + 512 <= JOURNAL_RECORD_MAX,
               "the longest record fits");

/* Bytes that are no UTF-8 become ?, control characters are escaped. */
static char *escape(char *to, const char *from, size_t length)
{
    static const char HEX[] = "0123456789abcdef";
    size_t valid = text_utf8_prefix(from, length);
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = (uint8_t)from[i];
        if (i == valid) { /* here it is not: look on behind this byte */
            *to++ = '?';
            valid = i + 1 + text_utf8_prefix(from + i + 1, length - i - 1);
        } else if (byte == '"' || byte == '\\') {
            *to++ = '\\';
            *to++ = (char)byte;
        } else if (byte < 0x20 || byte == 0x7F) {
            memcpy(to, "\\u00", 4);
            to[4] = HEX[byte >> 4];
            to[5] = HEX[byte & 15];
            to += ESCAPED_MAX;
        } else {
            *to++ = (char)byte;
        }
    }
    return to;
}

/* At most `max` bytes, and not half a character at the cut. */
static size_t cut_length(const char *value, size_t max)
{
    size_t length = strnlen(value, max + 1);
    if (length <= max)
        return length;
    length = max;
    while (length > max - 3 && ((uint8_t)value[length] & 0xC0) == 0x80)
        length--;
    return length;
}

static void add_text(struct text *text, const char *name, const char *value, size_t max)
{
    if (!value || !value[0])
        return;
    size_t length = cut_length(value, max);
    text_append(text, ",\"", 2);
    text_append_string(text, name);
    text_append(text, "\":\"", 3);
    char small[ESCAPED_MAX * SHORT_MAX];
    AUTO_FREE char *large = length > SHORT_MAX ? malloc(ESCAPED_MAX * length) : NULL;
    char *to = large ? large : small;
    if (length > SHORT_MAX && !large)
        length = SHORT_MAX; /* out of memory: what fits */
    text_append(text, to, (size_t)(escape(to, value, length) - to));
    text_append(text, "\"", 1);
}

void spool_text_make(struct text *text, const struct spool_record *record, int64_t now_ms)
{
    text_append_format(text, "{\"time\":%lld,\"status\":%d", (long long)now_ms, record->status);
    add_text(text, "action", record->action, SHORT_MAX);
    add_text(text, "outcome", record->outcome ? record->outcome : "ok", SHORT_MAX);
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        const char *value;
        memcpy(&value, (const char *)record + FIELDS[i].offset, sizeof value);
        add_text(text, FIELDS[i].name, value, FIELDS[i].max);
    }
    text_append(text, "}", 1);
}

void spool_text_add_detail(struct text *text, const char *detail)
{
    add_text(text, "detail", detail, SPOOL_DETAIL_MAX);
    text_append(text, "}", 1);
}

void spool_text_complete(json_t *record)
{
    static const char *const OTHERS[] = {"action", "outcome"};
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (!json_object_get(record, OTHERS[i]))
            json_object_set_new(record, OTHERS[i], json_string(""));
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        if (!json_object_get(record, FIELDS[i].name))
            json_object_set_new(record, FIELDS[i].name, json_string(""));
}
