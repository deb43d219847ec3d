#include "clients/cli/console_output.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

struct console_output_piece {
    struct console_output_piece *next;
    int fd;
    struct text bytes;
    size_t written; /* of them */
};

static void drop_first(struct console_output *output)
{
    struct console_output_piece *piece = output->first;
    output->first = piece->next;
    if (!output->first)
        output->last = NULL;
    text_done(&piece->bytes);
    free(piece);
}

void console_output_done(struct console_output *output)
{
    while (output->first)
        drop_first(output);
}

/* A pipe that is ready takes PIPE_BUF bytes without making anybody wait (pipe(7)), and so does a terminal nearly
 * always; a file is always ready. */
static size_t chunk_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? SIZE_MAX : PIPE_BUF;
}

/* O_NONBLOCK would do it as well, but all who share the descriptor would have it. */
static bool is_ready(int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLOUT};
    return poll(&wanted, 1, 0) > 0;
}

/* Counts up *written. */
static bool write_now(int fd, const char *data, size_t size, size_t *written, struct error *err)
{
    size_t chunk = chunk_of(fd);
    while (*written < size && is_ready(fd)) {
        size_t left = size - *written;
        ssize_t part = write(fd, data + *written, left < chunk ? left : chunk);
        if (part < 0 && errno == EAGAIN)
            return true;
        if (part < 0 && errno != EINTR)
            return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL, "write");
        *written += part > 0 ? (size_t)part : 0;
    }
    return true;
}

static void keep(struct console_output *output, int fd, const char *data, size_t size)
{
    struct console_output_piece *piece = output->last;
    if (!piece || piece->fd != fd) {
        piece = memory_new(sizeof *piece);
        piece->fd = fd;
        if (output->last)
            output->last->next = piece;
        else
            output->first = piece;
        output->last = piece;
    }
    text_append(&piece->bytes, data, size);
}

bool console_output_add(struct console_output *output, bool is_stderr, const void *data, size_t size, struct error *err)
{
    int fd = is_stderr ? STDERR_FILENO : STDOUT_FILENO;
    size_t written = 0;
    if (!output->first && !write_now(fd, data, size, &written, err))
        return false;
    if (written < size)
        keep(output, fd, (const char *)data + written, size - written);
    return true;
}

bool console_output_is_waiting(const struct console_output *output)
{
    return output->first != NULL;
}

struct curl_waitfd console_output_wait(const struct console_output *output)
{
    return (struct curl_waitfd){.fd = output->first->fd, .events = CURL_WAIT_POLLOUT};
}

bool console_output_go_on(struct console_output *output, struct error *err)
{
    struct console_output_piece *piece;
    while ((piece = output->first) != NULL) {
        if (!write_now(piece->fd, piece->bytes.data, piece->bytes.length, &piece->written, err))
            return false;
        if (piece->written < piece->bytes.length)
            return true;
        drop_first(output);
    }
    return true;
}

bool console_output_finish(struct console_output *output, struct error *err)
{
    struct console_output_piece *piece;
    while ((piece = output->first) != NULL) {
        struct pollfd ready = {.fd = piece->fd, .events = POLLOUT};
        if (poll(&ready, 1, -1) < 0 && errno != EINTR)
            return error_set_errno(err, ERROR_INTERNAL, "poll");
        if (!console_output_go_on(output, err))
            return false;
    }
    return true;
}
