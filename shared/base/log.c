#include "shared/base/log_json.h"

#include "shared/base/cleanup.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, JWT_SHOWN = 8, MASK_LENGTH = 3 };

static enum log_level lowest = LOG_INFO;
static enum log_format form = LOG_TEXT;

/* Whole lines. One write takes no more than a pipe takes without mixing in another's bytes. */
struct held {
    size_t length;
    char lines[PIPE_BUF];
};
_Static_assert(PIPE_BUF >= LINE_BYTES, "the longest line fits when the buffer is empty");
static __thread struct held *held; /* NULL: this thread holds nothing */

void log_set_format(enum log_format format)
{
    if (format == LOG_JSON)
        log_json_start();
    form = format;
}

void log_set_level(enum log_level level)
{
    lowest = level;
}

static bool is_token_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_-.", c));
}

static bool is_base64_extra(char c)
{
    return c == '+' || c == '/' || c == '=';
}

/* How much of the secret that starts at `text` may be shown; 0: none starts there. */
static size_t shown_of_secret(const char *text)
{
    if (text[0] == 'w')
        return text_starts_with(text, "whsec_") ? 6 : 0;
    if (text[0] == 'p')
        return text_starts_with(text, "pk_") || text_starts_with(text, "pj_") ? 3 : 0;
    return text[0] == 'e' && text_starts_with(text, "eyJ") ? JWT_SHOWN : 0;
}

void log_redact(char *line)
{
    char *to = line;
    const char *from = line;
    while (*from) {
        size_t shown = shown_of_secret(from);
        bool is_webhook = shown == 6;
        if (shown == 0) {
            *to++ = *from++;
            continue;
        }
        for (size_t i = 0; i < shown && is_token_character(*from); i++)
            *to++ = *from++;
        /* The mask is short and of one length, so that it tells nothing and long tokens do not fill the log. */
        /* What stands for a key of webhooks is base64 of the other alphabet. */
        for (size_t masked = 0; is_token_character(*from) || (is_webhook && is_base64_extra(*from)); masked++, from++) {
            if (masked < MASK_LENGTH)
                *to++ = '*';
        }
    }
    *to = '\0';
}

/* A log is read on terminals: nothing that is not text gets there. C1 controls are U+0080..U+009F. */
static void blank_controls(char *line)
{
    for (size_t at = 0, length = strlen(line); at < length;) {
        uint8_t lead = (uint8_t)line[at];
        if (lead < 0x80) {
            if (lead < 0x20 || lead == 0x7F)
                line[at] = '?';
            at++;
            continue;
        }
        size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        bool valid = size <= length - at && text_utf8_prefix(line + at, size) == size;
        if (valid && !(lead == 0xC2 && (uint8_t)line[at + 1] < 0xA0)) {
            at += size;
            continue;
        }
        line[at++] = '?';
    }
}

/* The whole line with its end into line[LINE_BYTES + 1]; its length, 0 when there is nothing to write. */
__attribute__((format(printf, 4, 0))) static size_t make_line(char *line, enum log_level level, const char *area,
                                                              const char *format, va_list arguments)
{
    static const char *const LEVELS[] = {"debug", "info", "warn", "error"};
    char time[CLOCK_TEXT_BYTES];
    clock_format(time, clock_wall_ms());
    int used = snprintf(line, LINE_BYTES, "%s %s %.64s: ", time, LEVELS[level], area);
    if (used < 0)
        return 0;
    size_t left = LINE_BYTES - (size_t)used;
    int wanted = vsnprintf(line + used, left, format, arguments);
    if (wanted >= 0 && (size_t)wanted >= left)
        memcpy(line + LINE_BYTES - 4, "...", 4);
    blank_controls(line);
    log_redact(line);
    size_t length = strlen(line);
    line[length++] = '\n';
    return length;
}

static bool is_wanted(enum log_level level)
{
    return level >= lowest && level <= LOG_ERROR;
}

void log_flush(void)
{
    if (held == NULL || held->length == 0)
        return;
    ssize_t ignored UNUSED = write(STDERR_FILENO, held->lines, held->length);
    held->length = 0;
}

void log_hold(bool hold)
{
    log_flush();
    if (hold && held == NULL) {
        held = memory_new(sizeof *held);
    } else if (!hold) {
        free(held);
        held = NULL;
    }
}

static void put(const char *line, size_t length)
{
    ssize_t ignored UNUSED = write(STDERR_FILENO, line, length);
}

/* Into what is held, when it may wait and somebody holds. */
static void put_later(const char *line, size_t length)
{
    if (held == NULL || length > sizeof held->lines - held->length)
        log_flush();
    if (held == NULL) {
        put(line, length);
        return;
    }
    memcpy(held->lines + held->length, line, length);
    held->length += length;
}

static __attribute__((format(printf, 4, 0))) void write_line(bool may_wait, enum log_level level, const char *area,
                                                             const char *format, va_list arguments)
{
    if (!is_wanted(level))
        return;
    int saved_errno = errno;
    char line[LINE_BYTES + 1];
    size_t length = form == LOG_JSON ? log_json_line(line, sizeof line, level, area, format, arguments)
                                     : make_line(line, level, area, format, arguments);
    if (may_wait) {
        put_later(line, length);
    } else {
        log_flush();
        put(line, length);
    }
    errno = saved_errno;
}

void log_write(enum log_level level, const char *area, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(false, level, area, format, arguments);
    va_end(arguments);
}

void log_write_later(enum log_level level, const char *area, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(true, level, area, format, arguments);
    va_end(arguments);
}
