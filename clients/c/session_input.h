/** session_input.h - the input of a session that the sandbox has not yet acknowledged. Its place in the process's
 * stdin is counted from what the sandbox says; somebody else who types into the same terminal moves it on. Inside
 * libparley.
 */
#pragma once

#include "shared/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define SESSION_INPUT_MAX_BYTES (256 * 1024)

/** Embedded; zero is empty. Private. */
struct session_input {
    struct text bytes; /* not acknowledged */
    uint64_t base;     /* where they begin */
    size_t sent;       /* of them, on this connection */
    size_t again;      /* of them, those that were sent on an earlier connection */
    bool placed;       /* base is known */
};

void session_input_done(struct session_input *input);

/** Bytes it takes now. */
size_t session_input_room(const struct session_input *input) MUST_USE;
void session_input_add(struct session_input *input, const void *data, size_t size);

/** A connection begins, `accepted` bytes of stdin were taken so far: the others are to be sent again. */
void session_input_attach(struct session_input *input, uint64_t accepted);

/** The sandbox has taken `accepted` bytes of stdin. */
void session_input_acknowledge(struct session_input *input, uint64_t accepted);

/** What to send next. What was sent before carries its offset, so that what arrived all the same is not taken twice.
 * New bytes carry none: two who type into one terminal must both be heard. */
struct session_piece {
    const char *data;
    size_t size;
    bool has_offset;
    uint64_t offset;
};

/** False: nothing now. Keys go at once; a flood waits for the acknowledgement of what is under way, so that a refusal
 *  leaves no hole. The piece counts as sent. */
bool session_input_next(struct session_input *input, struct session_piece *piece) MUST_USE;

/** Nothing waits to be sent. */
bool session_input_is_sent(const struct session_input *input) MUST_USE;
