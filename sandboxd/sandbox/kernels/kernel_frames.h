/** kernel_frames.h - what a driver writes (helpers/drivers/DESIGN.md), read as what it is: bytes from inside a sandbox,
 * that its user's code may have written. Lines are put together within a bound, each is one JSON object, and of it only
 * what is known goes on, with the types it should have. Belongs to whoever calls; no state is shared. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_FRAME_MAX        (16 * 1024 * 1024)      /* bytes of a line */
#define KERNEL_FRAME_VALUES_MAX 100000                  /* JSON values in it, about */
#define KERNEL_FRAME_REALS      JSON_REAL_PRECISION(15) /* 0.1 is "0.1" */
#define KERNEL_RUN_ID_BYTES     65
#define KERNEL_WORD_BYTES       96 /* names and versions that a driver says */

/* ---- lines ---- */

/** What came and was not yet read as lines. Zero is empty; embedded, the fields are private. */
struct kernel_lines {
    struct text text;
    size_t taken;   /* bytes of lines that were given */
    size_t scanned; /* ... and from there known to hold no newline */
};

void kernel_lines_done(struct kernel_lines *lines);
/** More bytes. TOO_LARGE when a line is over KERNEL_FRAME_MAX: nothing more can be read then. */
bool kernel_lines_add(struct kernel_lines *lines, const void *data, size_t size, struct error *err) MUST_USE;
/** The next whole line without its newline, good until the next kernel_lines_add. */
bool kernel_lines_next(struct kernel_lines *lines, const char **line, size_t *size) MUST_USE;
/** Bytes that are held. */
size_t kernel_lines_held(const struct kernel_lines *lines) MUST_USE;
/** Gives memory back that no line needs any more. */
void kernel_lines_shrink(struct kernel_lines *lines);

/* ---- frames ---- */

enum kernel_frame_kind {
    KERNEL_FRAME_OTHER, /* one that nobody here knows: nothing of it is told */
    KERNEL_FRAME_READY,
    KERNEL_FRAME_STARTED,
    KERNEL_FRAME_STDOUT,
    KERNEL_FRAME_STDERR,
    KERNEL_FRAME_DISPLAY,
    KERNEL_FRAME_RESULT,
    KERNEL_FRAME_CLEAR,
    KERNEL_FRAME_ERROR,
    KERNEL_FRAME_DONE,
    KERNEL_FRAME_FAILED
};

enum kernel_frame_status { KERNEL_FRAME_OK, KERNEL_FRAME_ERRED, KERNEL_FRAME_INTERRUPTED };

struct kernel_frame {
    enum kernel_frame_kind kind;
    char run[KERNEL_RUN_ID_BYTES]; /* "" none */
    uint64_t count;                /* STARTED, RESULT, DONE: the execution count; 0: not said */
    enum kernel_frame_status status;
    bool has_exit_code;                                                 /* DONE: of a shell */
    int exit_code;                                                      /* 0..255 */
    char version[KERNEL_WORD_BYTES], implementation[KERNEL_WORD_BYTES]; /* READY; one line of UTF-8 */
    char message[160];                                                  /* FAILED */
    json_t *body; /* STDOUT .. ERROR: what a client is told beside the type; owned; NULL with: */
    char *text;   /* the same as a JSON text; owned; NULL with body */
    size_t cost;  /* bytes that it holds, about */
};

void kernel_frame_done(struct kernel_frame *frame);

/** `text` in place of `body`, where that has members. */
void kernel_frame_make_text(struct kernel_frame *frame);

/** Reads a line. INVALID: it is no JSON object, or not of a shape that a driver writes. TOO_LARGE: it has too many
 * values, or numbers that nothing here holds; a driver may have written it. Nothing is in *frame then. */
bool kernel_frame_parse(const char *line, size_t size, struct kernel_frame *frame, struct error *err) MUST_USE;
