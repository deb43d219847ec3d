/** events.h - the events of exec and output streams (protocol.md, 5 "events") as NDJSON lines or SSE events. */
#pragma once

#include "sandboxd/sandbox/process_view.h"
#include "shared/base/error.h"
#include "shared/base/text.h"
#include "shared/http/server.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** How much of `data` makes the next event: all of it as text, a valid prefix as text, or all of it as base64. The up
 * to 3 bytes of a sequence that goes on after `data` are left out, unless `last` says that nothing follows; 0 then
 * means wait for more. *is_text tells which. */
size_t events_split(const uint8_t *data, size_t size, bool last, bool *is_text) MUST_USE;

/** Valid UTF-8 as the inside of a JSON string. */
void events_append_escaped(struct text *to, const void *from, size_t size);

/** {"type":"stdout","offset":n,"data":"..."} (or "data_b64"). Text must be valid UTF-8. */
void events_data(struct text *to, enum http_framing framing, enum output_stream stream, uint64_t offset,
                 const uint8_t *data, size_t size, bool is_text);

/** {"type":"gap","stream","from","to"}. */
void events_gap(struct text *to, enum http_framing framing, enum output_stream stream, uint64_t from, uint64_t gap_to);
void events_started(struct text *to, enum http_framing framing, const struct process_view *view);
void events_exit(struct text *to, enum http_framing framing, const struct process_view *view);
void events_error(struct text *to, enum http_framing framing, const struct error *err);
void events_keepalive(struct text *to, enum http_framing framing);

/** Puts tty, cols and rows (of a terminal) and stdin_offset into an object. */
void events_put_terminal(json_t *object, const struct process_view *view);

/** Puts exit_code, signal, oom, timed_out and usage into an object. */
void events_put_end(json_t *object, const struct process_end *end);

/** A command as `GET /processes/{id}` shows it. The caller owns it. */
json_t *events_process(const struct process_view *view) MUST_USE;

/** "SIGTERM" for 15; "SIG35" for one without a name. `to` has room for 16 bytes. */
#define EVENTS_SIGNAL_BYTES 16
void events_signal_name(char to[static EVENTS_SIGNAL_BYTES], int number);

/** "TERM", "SIGTERM", "15" or 15 -> 15; false when it is no signal 1..64. */
bool events_signal_parse(const json_t *value, int *number) MUST_USE;
