/** log.h - one line an event on stderr: `2026-11-22T01:02:03.004Z level area: sentence key=value`.
 *  Whatever looks like a secret (an API key `pk_...`, a JWT `eyJ...`) is masked at this one place, in case it got in.
 *  Any thread; a line is one write(2). */
#pragma once

#include <stdbool.h>

enum log_format { LOG_TEXT, LOG_JSON };

/** LOG_JSON: one object a line instead, `{"time", "level", "area", "message"}` and a member for each ` key=` of the
 *  format (not of what it is filled with: a text from outside cannot add one); a number where the format has one.
 * Called once, before threads start; default LOG_TEXT. */
void log_set_format(enum log_format format);

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/** Lines below this level are dropped; default LOG_INFO. Called once, before threads start. */
void log_set_level(enum log_level level);

/** `area` names the room ("launcher"); the sentence should carry ids as key=value. Cut at 4 KiB; control characters
 *  are printed as ?. */
void log_write(enum log_level level, const char *area, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

/** As log_write; the line may wait in this thread's buffer (log_hold) until log_flush, the thread's next log_write or a
 *  full buffer, so that the order stays. Only for lines that nobody relies on: a crash loses what waits. */
void log_write_later(enum log_level level, const char *area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Whether this thread keeps lines of log_write_later: it then calls log_flush before it waits for anything. False, as
 *  at the thread's start, writes them at once, and what waited now. */
void log_hold(bool hold);
/** Writes what waits of this thread: whole lines, at most PIPE_BUF bytes a write(2), which no other thread's cut up. */
void log_flush(void);

/** Masks secrets in `line` in place (it gets shorter): what follows `pk_` (API keys), `pj_` (join tokens), `whsec_`
 * (webhook secrets) or the first 8 characters of a JWT (`eyJ...`), up to the end of its run of [A-Za-z0-9_.-], becomes
 * `***`. */
void log_redact(char *line);
