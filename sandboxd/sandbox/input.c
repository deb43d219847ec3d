/* input.c - pwrite in, splice out, holes behind. */
#include "sandboxd/sandbox/input.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const uint64_t PUNCH_BYTES = UINT64_C(256) << 10; /* at least, so that it costs little a byte */
static const uint64_t CUT_BYTES = UINT64_C(4) << 20;     /* ... where all that waits is written anew */

struct input *input_new(int memory, struct error *err)
{
    struct stat status;
    int seals = fcntl(memory, F_GET_SEALS);
    bool is_whole = (seals & F_SEAL_SHRINK) || !fd_can_punch(); /* where there are no holes it is cut: fd_drop_front */
    if (fstat(memory, &status) != 0 || !S_ISREG(status.st_mode) || seals < 0 || !is_whole) {
        error_set(err, ERROR_INVALID, "stdin's memory is not a memfd that nobody can cut");
        fd_drop(memory);
        return NULL;
    }
    off_t position = lseek(memory, 0, SEEK_CUR);
    if (position < 0 || position > status.st_size) {
        error_set(err, ERROR_INVALID, "stdin's memory has gone on beyond its end");
        fd_drop(memory);
        return NULL;
    }
    struct input *input = memory_new(sizeof *input);
    *input = (struct input){.accepted = (uint64_t)status.st_size,
                            .delivered = (uint64_t)position,
                            .is_ended = (seals & F_SEAL_GROW) != 0,
                            .memory = memory};
    return input;
}

void input_free(struct input *input)
{
    if (!input)
        return;
    close(input->memory);
    free(input);
}

uint64_t input_waiting(const struct input *input)
{
    return input->accepted - input->delivered;
}

bool input_find_new(const struct input *input, uint64_t offset, size_t *size, struct error *err)
{
    if (offset == INPUT_OFFSET_NONE)
        return true;
    if (offset > input->accepted)
        return error_set(err, ERROR_RANGE, "stdin has %llu bytes so far: send those before %llu first",
                         (unsigned long long)input->accepted, (unsigned long long)offset);
    uint64_t known = input->accepted - offset;
    *size = known < *size ? *size - (size_t)known : 0;
    return true;
}

bool input_append(struct input *input, const void *data, size_t size, struct error *err)
{
    const char *from = data;
    while (size > 0) {
        ssize_t written = pwrite(input->memory, from, size, (off_t)input->accepted);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return error_set_errno(err, ERROR_INTERNAL, "keeping bytes for stdin");
        input->accepted += (uint64_t)written;
        from += written;
        size -= (size_t)written;
    }
    return true;
}

void input_end(struct input *input)
{
    input->is_ended = true;
    /* Whoever keeps it from being sealed, inside, loses the end of stdin with this front. */
    (void)fcntl(input->memory, F_ADD_SEALS, F_SEAL_GROW);
}

enum input_moved input_move(struct input *input, int pipe, size_t budget)
{
    while (input->delivered < input->accepted) {
        if (budget == 0)
            return INPUT_MORE;
        uint64_t waiting = input_waiting(input);
        size_t size = waiting < budget ? (size_t)waiting : budget;
        ssize_t moved = splice(input->memory, NULL, pipe, NULL, size, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0 && errno == EAGAIN)
            return INPUT_FULL;
        if (moved <= 0) /* EPIPE */
            return INPUT_BROKEN;
        input->delivered += (uint64_t)moved;
        budget -= (size_t)moved;
    }
    return INPUT_EMPTY;
}

/* A pipe holds the memory's own pages, and a hole in a part of a large one would zero what is still to be read. */
void input_punch(struct input *input, int pipe)
{
    int unread = 0;
    if (input->delivered - input->punched < PUNCH_BYTES || ioctl(pipe, FIONREAD, &unread) != 0 || unread < 0 ||
        (uint64_t)unread > input->delivered)
        return;
    uint64_t to = input->delivered - (uint64_t)unread;
    to -= to % PAGE;
    if (to < input->punched + PUNCH_BYTES / 2)
        return;
    if (fd_can_punch())
        (void)fallocate(input->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)input->punched,
                        (off_t)(to - input->punched));
    else if (!input->is_ended && to - input->punched >= CUT_BYTES) /* sealed by its end, and soon over */
        (void)fd_drop_front(input->memory, to, input->accepted);
    else
        return;
    input->punched = to;
}
