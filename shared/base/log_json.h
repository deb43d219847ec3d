/** log_json.h - a line of the log as one JSON object; for log.c alone. */
#pragma once

#include "shared/base/log.h"

#include <stdarg.h>
#include <stddef.h>

/** Before the first line, and before threads start. */
void log_json_start(void);

/** The line with its end into `line` of `size` (PIPE_BUF + 1) bytes: always a whole object, what does not fit is cut.
 *  Returns its length. */
__attribute__((format(printf, 5, 0))) size_t log_json_line(char *line, size_t size, enum log_level level,
                                                           const char *area, const char *format, va_list arguments);
