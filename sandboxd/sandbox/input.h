/** input.h - what a command's stdin is given: bytes are accepted into a memfd and go on from there by splice, so that
 * they are never only in this process's memory. The memfd's size is what was accepted, its file position what went on
 * (init holds the same open file), and F_SEAL_GROW on it says that no more is accepted: a front that is killed between
 * any two instructions leaves a state that the next one goes on from. Belongs to the sandbox's loop. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INPUT_OFFSET_NONE UINT64_MAX /* PROCESS_OFFSET_NONE */

struct input {
    int memory; /* memfd; private, as all but what is said of it below */
    /* punched <= delivered <= accepted */
    uint64_t accepted;  /* bytes so far */
    uint64_t delivered; /* ... of these in the pipe, or beyond */
    uint64_t punched;   /* ... of these given up */
    bool is_ended;      /* nothing comes behind `accepted` */
};

/** Takes the memfd (a regular file on shmem, sealed against shrinking, whose position is not beyond its size, or
 *  ERROR_INVALID: it comes from inside a sandbox and is closed). */
struct input *input_new(int memory, struct error *err) MUST_USE;
/** NULL is allowed. */
void input_free(struct input *input);
DEFINE_AUTO(input)

/** Bytes accepted that are still here. */
uint64_t input_waiting(const struct input *input) MUST_USE;

/** How many of `size` bytes from `offset` (INPUT_OFFSET_NONE: at the end) are new, in *size; those before are known.
 *  ERROR_RANGE when bytes before `offset` are missing. */
bool input_find_new(const struct input *input, uint64_t offset, size_t *size, struct error *err) MUST_USE;

/** Accepts bytes at the end; the caller knows that they may wait, and that it has not ended. ERROR_INTERNAL when the
 * memory does not take them (what it took counts as accepted). */
bool input_append(struct input *input, const void *data, size_t size, struct error *err) MUST_USE;

/** Nothing comes any more. */
void input_end(struct input *input);

enum input_moved {
    INPUT_EMPTY, /* all that was accepted has gone on */
    INPUT_FULL,  /* the pipe takes no more now */
    INPUT_MORE,  /* stopped at the budget */
    INPUT_BROKEN /* nobody reads the pipe, or the descriptors are not what they should be */
};

/** Moves what waits into `pipe` (write end), at most `budget` bytes. Never blocks. */
enum input_moved input_move(struct input *input, int pipe, size_t budget) MUST_USE;

/** Gives up what was read from `pipe` (either end), when that is worth the call. */
void input_punch(struct input *input, int pipe);
