/** execd_events.h - the events of this dialect's streams as text: one JSON object and a blank line each, with "type"
 * and "timestamp" (UTC, ms), and what is neither empty nor 0 of the rest. Pure but for the clock. */
#pragma once

#include "sandboxd/sandbox/process_view.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/** An event with a text, any bytes: what is no UTF-8 becomes U+FFFD. Type "init": the id of what runs; "stdout",
 * "stderr", "status". */
void execd_event_text(struct text *to, const char *type, const void *text, size_t size);
/** Keeps the connection alive; says nothing. */
void execd_event_ping(struct text *to);
/** A line of output: an empty one is told as "\n". */
void execd_event_line(struct text *to, enum output_stream stream, const void *line, size_t size);
/** `traceback` has `count` texts; any bytes. */
void execd_event_error(struct text *to, const char *name, const char *value, const char *const *traceback,
                       size_t count);
/** It ended well, after so many ms. */
void execd_event_complete(struct text *to, uint64_t execution_ms);
/** A value by type of content; takes the reference of `results`, an object of strings. */
void execd_event_result(struct text *to, json_t *results);
/** Of a cell. */
void execd_event_count(struct text *to, int64_t execution_count);
/** How a command ended: complete when its exit code is 0, else the error CommandExecError with the exit code (-1: by a
 *  signal, or its timeout) as value. Either, never both. */
void execd_event_end(struct text *to, const struct process_end *end);

#define EXECD_END_BYTES 64
/** How a command ended: "exit status 3", "signal: killed". */
void execd_end_text(const struct process_end *end, char to[static EXECD_END_BYTES]);
/** 0..255; -1 by a signal. */
int execd_end_code(const struct process_end *end) MUST_USE;
