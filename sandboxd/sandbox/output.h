/** output.h - one output stream of a command: bytes move from its pipe into a memfd by splice alone, so that they are
 *  never only in this process's memory. The memfd's own file position is the stream's length (init holds the same open
 *  file), and offset in the stream == offset in the memfd: a front that is killed between any two instructions has
 *  either moved a byte or not.
 *
 *  Pumping and punching belong to one loop (the sandbox's); reading is for any thread. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_STREAMS };

/** "stdout", "stderr". */
const char *output_stream_name(enum output_stream stream) MUST_USE;

/** The kept part of a stream. Counted: the pumping loop and each reader hold it. */
struct output {
    atomic_uint references; /* private */
    int memory;             /* memfd; private */
    bool is_foul;           /* init meddled with the memfd: the pump's loop */
    uint64_t cut_to;        /* where the kernel makes no holes: bytes before this were given back; the pump's */
    /* kept_from <= length; both only rise; written by the pumping loop alone */
    _Atomic uint64_t length;    /* bytes so far */
    _Atomic uint64_t kept_from; /* bytes before this are gone */
};

/** Takes the memfd (a regular file on shmem, sealed against shrinking, whose position is not beyond its size, or
 *  ERROR_INVALID: it comes from inside a sandbox and is closed). Its position is where the stream stands. */
struct output *output_new(int memory, struct error *err) MUST_USE;
struct output *output_hold(struct output *output) MUST_USE;
/** NULL is allowed. Any thread. */
void output_release(struct output *output);

/* What lies in a memfd counts for this process, whose pages splice fills, not for the sandbox. */
#define OUTPUT_SLACK_BYTES (UINT64_C(2) << 20) /* a huge page, where shmem takes those */

enum output_pumped {
    OUTPUT_EMPTY, /* nothing is in the pipe now */
    OUTPUT_MORE,  /* stopped at the budget or the limit; there may be more */
    OUTPUT_END    /* no writer is left, or the descriptors are not what they should be: init has moved the memfd's
                     position, or filled it beside us, and OUTPUT_SLACK_BYTES more are there than are kept */
};

/** Moves what is in `pipe` (read end) until the stream is `limit` long, at most `budget` bytes. Never blocks. */
enum output_pumped output_pump(struct output *output, int pipe, uint64_t limit, size_t budget) MUST_USE;

/** Gives up what lies before `to` (rounded down to a page), but never more than what is there. Returns the bytes freed.
 */
uint64_t output_punch(struct output *output, uint64_t to);

/** Bytes kept now. */
uint64_t output_kept(struct output *output) MUST_USE;

/** Reads at most `size` bytes from `offset` into `to`; 0 when there is nothing (yet). When `offset` is no longer kept,
 *  nothing is read and *gap_to is set to the first byte that is (else it is set to `offset`). Any thread. */
size_t output_read(struct output *output, uint64_t offset, void *to, size_t size, uint64_t *gap_to) MUST_USE;

/** As output_read, without reading: how many bytes, at most `size`, are there from `offset` on. Any thread. */
size_t output_there(struct output *output, uint64_t offset, size_t size, uint64_t *gap_to) MUST_USE;
