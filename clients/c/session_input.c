#include "clients/c/session_input.h"

#include <string.h>

enum { PIECE_BYTES = 64 * 1024, KEYS_BYTES = 2 * 1024 };

void session_input_done(struct session_input *input)
{
    text_done(&input->bytes);
}

size_t session_input_room(const struct session_input *input)
{
    size_t waits = input->bytes.length;
    return waits < SESSION_INPUT_MAX_BYTES ? SESSION_INPUT_MAX_BYTES - waits : 0;
}

void session_input_add(struct session_input *input, const void *data, size_t size)
{
    text_append(&input->bytes, data, size);
}

static size_t less(size_t from, size_t what)
{
    return from > what ? from - what : 0;
}

static void drop(struct session_input *input, size_t size)
{
    memmove(input->bytes.data, input->bytes.data + size, input->bytes.length - size);
    input->bytes.length -= size;
    input->sent = less(input->sent, size);
    input->again = less(input->again, size);
}

/* Of the first `most` bytes, those that are taken. More than them: somebody else types too. */
static void take(struct session_input *input, uint64_t accepted, size_t most)
{
    uint64_t taken = accepted > input->base ? accepted - input->base : 0;
    if (taken > 0 && most > 0)
        drop(input, taken < most ? (size_t)taken : most);
    if (accepted > input->base)
        input->base = accepted;
}

void session_input_attach(struct session_input *input, uint64_t accepted)
{
    size_t before = input->sent > input->again ? input->sent : input->again;
    if (input->placed)
        take(input, accepted, before);
    input->base = accepted;
    input->placed = true;
    input->again = input->sent > input->again ? input->sent : input->again;
    input->sent = 0;
}

void session_input_acknowledge(struct session_input *input, uint64_t accepted)
{
    take(input, accepted, input->sent);
}

bool session_input_next(struct session_input *input, struct session_piece *piece)
{
    size_t left = input->bytes.length - input->sent;
    if (left == 0 || (input->sent > 0 && input->sent + left > KEYS_BYTES))
        return false;
    bool again = input->sent < input->again;
    size_t most = again ? input->again - input->sent : left;
    most = most < PIECE_BYTES ? most : PIECE_BYTES;
    *piece = (struct session_piece){.data = input->bytes.data + input->sent,
                                    .size = most,
                                    .has_offset = again,
                                    .offset = input->base + input->sent};
    input->sent += most;
    return true;
}

bool session_input_is_sent(const struct session_input *input)
{
    return input->sent == input->bytes.length;
}
