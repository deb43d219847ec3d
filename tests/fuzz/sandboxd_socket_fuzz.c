/* sandboxd_socket_fuzz.c - a client's text frames on /ws as hostile bytes. What is taken is used as the session would:
 * every number within its bounds. */
#include "sandboxd/dialects/native/socket/socket_frames.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_start(const struct command *command)
{
    check(command != NULL && command->argument_count > 0 && command->with_stdin);
    if (command->terminal)
        check(command->columns >= 1 && command->columns <= FRONT_INIT_CELLS_MAX && command->rows >= 1 &&
              command->rows <= FRONT_INIT_CELLS_MAX);
    else
        check(command->columns == 0 && command->rows == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (text_utf8_prefix((const char *)data, size) != size)
        return 0; /* wslay has refused it */
    AUTO_SOCKET_FRAME frame = {0};
    struct error err = {0};
    if (!socket_frame_parse(&frame, (const char *)data, size, &err)) {
        check(err.kind == ERROR_INVALID && err.message[0] && frame.token == NULL && frame.data == NULL);
        return 0;
    }
    if (frame.type == SOCKET_AUTH)
        check(frame.token != NULL && strlen(frame.token) <= size);
    if (frame.type == SOCKET_START)
        check_start(frame.start.command);
    if (frame.type == SOCKET_INPUT)
        check(frame.data != NULL && frame.size <= size);
    if (frame.type == SOCKET_RESIZE)
        check(frame.columns >= 1 && frame.columns <= FRONT_INIT_CELLS_MAX);
    if (frame.type == SOCKET_SIGNAL)
        check(frame.signal >= 1 && frame.signal <= 64);
    return 0;
}
