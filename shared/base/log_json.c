/* log_json.c - which parts of a line are values is seen in its format, where nobody from outside has a hand in: marks
 * that nobody can guess are put around them there, the line is printed, and cut up at the marks. */
#include "shared/base/log_json.h"

#include "shared/base/clock.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    NONCE_BYTES = 8,
    MARK_BYTES = 1 + 2 * NONCE_BYTES, /* \1 and the nonce in hex */
    MARKED_BYTES = 2048,              /* of a format with its marks */
    PRINTED_BYTES = 8192,
    FIELDS_MAX = 24,
    FIELDS_BYTES = 2048,
    END_BYTES = 16 /* the longest escape, "...", the quote, the bracket, the end of the line */
};

static char mark[MARK_BYTES + 1];

/* Where a field stands in a format: key, '=', value. */
struct field {
    const char *key, *value, *end;
    bool is_number;
};

void log_json_start(void)
{
    uint8_t nonce[NONCE_BYTES];
    random_bytes(nonce, sizeof nonce);
    mark[0] = 1;
    text_hex(mark + 1, nonce, sizeof nonce);
}

/* ---- the format ---- */

static bool is_key(const char *key, size_t length)
{
    static const char *const OURS[] = {"time", "level", "area", "message"};
    for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
        if (strlen(OURS[i]) == length && memcmp(OURS[i], key, length) == 0)
            return false;
    return length > 0;
}

/* One conversion that prints a number, and nothing else. */
static bool is_number_format(const char *value, const char *end)
{
    if (*value != '%')
        return false;
    value += 1 + strspn(value + 1, "0123456789.");
    value += strspn(value, "hlzj");
    return value + 1 == end && strchr("diuf", *value) != NULL;
}

/* Up to the next blank, without what ends a clause there. */
static const char *value_end(const char *value)
{
    const char *end = value + strcspn(value, " ");
    while (end > value && strchr(":,;)", end[-1]) != NULL)
        end--;
    return end;
}

/* Each key once. */
static size_t find_fields(const char *format, struct field *fields)
{
    size_t count = 0;
    for (const char *word = format; *word != '\0' && count < FIELDS_MAX; word += *word == ' ') {
        size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz_0123456789");
        const char *end = value_end(word + length);
        bool is_field = word[length] == '=' && is_key(word, length) && end > word + length + 1;
        for (size_t i = 0; i < count && is_field; i++)
            is_field =
                (size_t)(fields[i].value - fields[i].key) != length + 1 || memcmp(fields[i].key, word, length + 1) != 0;
        if (is_field)
            fields[count++] = (struct field){.key = word,
                                             .value = word + length + 1,
                                             .end = end,
                                             .is_number = is_number_format(word + length + 1, end)};
        word += strcspn(word, " ");
    }
    return count;
}

/* The format with a mark before and behind each value, and no key. False: it is too long. */
static bool put_marks(char *to, const char *format, const struct field *fields, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i <= count; i++) {
        const char *end = i < count ? fields[i].key : format + strlen(format);
        int length =
            snprintf(to + used, MARKED_BYTES - used, "%.*s%s", (int)(end - format), format, i < count ? mark : "");
        used += (size_t)length;
        if (used >= MARKED_BYTES || i == count)
            return used < MARKED_BYTES;
        length = snprintf(to + used, MARKED_BYTES - used, "%.*s%s", (int)(fields[i].end - fields[i].value),
                          fields[i].value, mark);
        used += (size_t)length;
        if (used >= MARKED_BYTES)
            return false;
        format = fields[i].end;
    }
    return true;
}

/* ---- writing ---- */

struct out {
    char *to;
    size_t used, size;
};

static void put(struct out *out, const char *text, size_t length)
{
    if (length > out->size - out->used)
        length = out->size - out->used;
    memcpy(out->to + out->used, text, length);
    out->used += length;
}

static void put_text(struct out *out, const char *text)
{
    put(out, text, strlen(text));
}

/* Bytes of the character at `text`; 0: it is none, or a control character of the second set (U+0080..U+009F). */
static size_t character_size(const char *text, size_t left)
{
    uint8_t lead = (uint8_t)*text;
    size_t size = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    bool is_one = size <= left && text_utf8_prefix(text, size) == size;
    return is_one && !(lead == 0xC2 && (uint8_t)text[1] < 0xA0) ? size : 0;
}

/* A string in quotes, cut before END_BYTES are all that is left. */
static void put_string(struct out *out, const char *text, size_t length)
{
    put_text(out, "\"");
    for (size_t at = 0; at < length;) {
        if (out->size - out->used < END_BYTES) {
            put_text(out, "...");
            break;
        }
        size_t size = character_size(text + at, length - at);
        char escape[8];
        if (size == 0)
            put_text(out, "?");
        else if (text[at] == '"' || text[at] == '\\')
            put(out, escape, (size_t)snprintf(escape, sizeof escape, "\\%c", text[at]));
        else if (size == 1 && ((uint8_t)text[at] < 0x20 || text[at] == 0x7F))
            put(out, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(uint8_t)text[at]));
        else
            put(out, text + at, size);
        at += size > 0 ? size : 1;
    }
    put_text(out, "\"");
}

static bool is_json_number(const char *text, size_t length)
{
    size_t sign = length > 0 && *text == '-', whole = 0, point;
    while (sign + whole < length && text[sign + whole] >= '0' && text[sign + whole] <= '9')
        whole++;
    point = sign + whole;
    bool is_whole = whole > 0 && (whole == 1 || text[sign] != '0');
    if (point == length || !is_whole)
        return is_whole && point == length;
    size_t digits = 0;
    while (point + 1 + digits < length && text[point + 1 + digits] >= '0' && text[point + 1 + digits] <= '9')
        digits++;
    return text[point] == '.' && digits > 0 && point + 1 + digits == length;
}

static void put_field(struct out *out, const struct field *field, const char *value, size_t length)
{
    if (out->size - out->used < 2 * END_BYTES + (size_t)(field->value - field->key))
        return;
    put_text(out, ",");
    put_string(out, field->key, (size_t)(field->value - field->key) - 1);
    put_text(out, ":");
    if (field->is_number && is_json_number(value, length) && length < END_BYTES)
        put(out, value, length);
    else
        put_string(out, value, length);
}

/* Cuts the printed line up: values into `fields`, all else back into `printed`, without blanks around it, and nothing
 * that leads to what is gone. */
static void take_fields(char *printed, const struct field *fields, size_t count, struct out *out)
{
    char *message = printed, *at = printed;
    for (size_t i = 0; i < count; i++) {
        char *value = strstr(at, mark);
        char *end = value != NULL ? strstr(value + MARK_BYTES, mark) : NULL;
        if (value == NULL) /* cut off */
            break;
        memmove(message, at, (size_t)(value - at));
        message += value - at;
        value += MARK_BYTES;
        put_field(out, &fields[i], value, end != NULL ? (size_t)(end - value) : strlen(value));
        at = end != NULL ? end + MARK_BYTES : value + strlen(value);
        if (message == printed)
            at += strspn(at, " ");
        if (message > printed && message[-1] == ' ' && (*at == ' ' || strchr(":,;)", *at) != NULL))
            message--;
    }
    memmove(message, at, strlen(at) + 1);
    for (size_t length = strlen(printed); length > 0 && strchr(" ,:;", printed[length - 1]) != NULL; length--)
        printed[length - 1] = '\0';
}

/* vsnprintf's format is ours with marks in it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void print(char *to, const char *marked, va_list arguments)
{
    if (vsnprintf(to, PRINTED_BYTES, marked, arguments) < 0)
        to[0] = '\0';
}
#pragma GCC diagnostic pop

size_t log_json_line(char *line, size_t size, enum log_level level, const char *area, const char *format,
                     va_list arguments)
{
    static const char *const LEVELS[] = {"debug", "info", "warn", "error"};
    struct field fields[FIELDS_MAX];
    char marked[MARKED_BYTES], printed[PRINTED_BYTES], members[FIELDS_BYTES], time[CLOCK_TEXT_BYTES];
    size_t count = find_fields(format, fields);
    if (!put_marks(marked, format, fields, count))
        count = 0;
    print(printed, count > 0 ? marked : format, arguments);
    log_redact(printed);
    struct out kept = {.to = members, .size = sizeof members};
    take_fields(printed, fields, count, &kept);
    struct out out = {.to = line, .size = size - kept.used - END_BYTES};
    clock_format(time, clock_wall_ms());
    put_text(&out, "{\"time\":\"");
    put_text(&out, time);
    put_text(&out, "\",\"level\":\"");
    put_text(&out, LEVELS[level]);
    put_text(&out, "\",\"area\":");
    put_string(&out, area, strnlen(area, 64));
    put_text(&out, ",\"message\":");
    put_string(&out, printed, strlen(printed));
    out.size = size - 1;
    put(&out, members, kept.used);
    put_text(&out, "}\n");
    return out.used;
}
