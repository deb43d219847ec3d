/** console_output.h - output on its way to stdout and stderr, in the order it came, without ever waiting for who reads
 *  there: what they do not take is kept. */
#pragma once

#include "shared/base/error.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

struct console_output_piece;

/** Embedded; zero is empty. Private. */
struct console_output {
    struct console_output_piece *first, *last; /* that wait */
};

void console_output_done(struct console_output *output);

/** Writes what can be written now, and keeps the rest. The errors of fd_write_all. */
bool console_output_add(struct console_output *output, bool is_stderr, const void *data, size_t size,
                        struct error *err) MUST_USE;

/** Something is kept: add no more for now. */
bool console_output_is_waiting(const struct console_output *output) MUST_USE;

/** What to wait for then. */
struct curl_waitfd console_output_wait(const struct console_output *output) MUST_USE;

/** Writes of what is kept as much as can be. */
bool console_output_go_on(struct console_output *output, struct error *err) MUST_USE;

/** Writes all that is kept, and waits as long as it takes. */
bool console_output_finish(struct console_output *output, struct error *err) MUST_USE;
