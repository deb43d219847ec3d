/** execd_lines.h - a command's output as this dialect tells it: a text a line. LF, CR and CRLF end a line and are not
 *  part of it; what is left at the end counts as one. A line over EXECD_LINE_BYTES comes in pieces, cut between
 *  characters, as nobody's memory holds more of it. Pure. */
#pragma once

#include "shared/base/text.h"

#include <stdbool.h>
#include <stddef.h>

#define EXECD_LINE_BYTES (256 * 1024)

/** Of one stream. Zero is its beginning. */
struct execd_lines {
    struct text pending; /* what was told last, or the beginning of a line */
    bool is_told;        /* the former */
    bool is_cut;         /* what was told is not the end of its line */
    bool after_cr;
};

/** Frees what is in it. */
void execd_lines_done(struct execd_lines *lines);

/** Takes of `data` what the next line needs: how many bytes in *used, at least one of a `size` over 0. True: *line is
 *  one, any bytes, until the next call; false: all was taken, and it goes on behind it. */
bool execd_lines_take(struct execd_lines *lines, const char *data, size_t size, size_t *used,
                      const struct text **line) MUST_USE;

/** The stream is over: true when *line was left without an end. */
bool execd_lines_rest(struct execd_lines *lines, const struct text **line) MUST_USE;
