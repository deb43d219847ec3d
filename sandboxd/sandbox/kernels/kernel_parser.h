/** kernel_parser.h - large frames are read, and made into the text that a client gets, by a thread of their own: a loop
 * would stand still for it. One after the other. */
#pragma once

#include "sandboxd/sandbox/kernels/kernel_frames.h"

struct kernel_parser;

/** Its thread starts with the first frame. */
struct kernel_parser *kernel_parser_new(void) MUST_USE;
/** After kernel_parser_finish on each loop that asked. NULL is allowed. */
void kernel_parser_free(struct kernel_parser *parser);

/** Reads a line (copied) as kernel_frame_parse does; done(cookie, frame, err) is called once on the calling loop,
 * `frame` (to be taken from) or err NULL. `as_text`: the frame has `text` in place of `body`. */
void kernel_parser_start(struct kernel_parser *parser, const char *line, size_t size, bool as_text,
                         void (*done)(void *cookie, struct kernel_frame *frame, const struct error *err), void *cookie);

/** Waits until nothing that the calling loop asked for is under way; what was done is posted. As the loop ends. */
void kernel_parser_finish(struct kernel_parser *parser);
