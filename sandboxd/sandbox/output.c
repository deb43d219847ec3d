/* output.c - splice in, pread out, holes behind. */
#include "sandboxd/sandbox/output.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, CUT_BYTES = 4 << 20 };

const char *output_stream_name(enum output_stream stream)
{
    return stream == OUTPUT_STDOUT ? "stdout" : "stderr";
}

/* Where an earlier front stopped punching: the end of the hole at the start. Asked of a description of our own, because
 * seeking in the shared one would, for a moment, misplace the stream. */
static uint64_t find_kept_from(int memory, const struct stat *status, uint64_t length)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    AUTO_FD int own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (own >= 0) {
        off_t data = lseek(own, 0, SEEK_DATA);
        if (data < 0 && errno == EINVAL)
            return 0; /* a kernel that knows no holes: none was made either */
        return data < 0 || (uint64_t)data > length ? length : (uint64_t)data;
    }
    uint64_t pages = (length + PAGE - 1) / PAGE, present = (uint64_t)status->st_blocks / (PAGE / 512);
    return present < pages ? (pages - present) * PAGE : 0;
}

struct output *output_new(int memory, struct error *err)
{
    struct stat status;
    int seals = fcntl(memory, F_GET_SEALS);
    bool is_whole = (seals & F_SEAL_SHRINK) || !fd_can_punch(); /* where there are no holes it is cut: fd_drop_front */
    if (fstat(memory, &status) != 0 || !S_ISREG(status.st_mode) || seals < 0 || !is_whole) {
        error_set(err, ERROR_INVALID, "an output stream's memory is not a memfd that nobody can cut");
        fd_drop(memory);
        return NULL;
    }
    off_t position = lseek(memory, 0, SEEK_CUR);
    if (position < 0 || position > status.st_size) {
        error_set(err, ERROR_INVALID, "an output stream stands beyond the end of its memory");
        fd_drop(memory);
        return NULL;
    }
    struct output *output = memory_new(sizeof *output);
    output->references = 1;
    output->length = (uint64_t)position;
    output->kept_from = position ? find_kept_from(memory, &status, (uint64_t)position) : 0;
    output->memory = memory;
    return output;
}

struct output *output_hold(struct output *output)
{
    atomic_fetch_add(&output->references, 1);
    return output;
}

void output_release(struct output *output)
{
    if (!output || atomic_fetch_sub(&output->references, 1) != 1)
        return;
    close(output->memory);
    free(output);
}

/* init has the same open file: a position that it moves would have each splice fill other pages, which nobody punches.
 */
static bool is_where_it_should(const struct output *output)
{
    struct stat status;
    uint64_t kept = output->length - output->kept_from;
    if (!fd_can_punch()) /* such a kernel counts no holes either; a guest's init and front are one side */
        return true;
    return fstat(output->memory, &status) == 0 && (uint64_t)status.st_blocks * 512 <= kept + OUTPUT_SLACK_BYTES;
}

/* Where splice(2) says 0: that nobody writes any more; or, in gVisor, that nothing was there just now. */
static enum output_pumped why_nothing(int pipe)
{
    struct pollfd one = {.fd = pipe, .events = POLLIN};
    if (poll(&one, 1, 0) == 0)
        return OUTPUT_EMPTY;
    return one.revents & POLLIN ? OUTPUT_MORE : OUTPUT_END;
}

enum output_pumped output_pump(struct output *output, int pipe, uint64_t limit, size_t budget)
{
    uint64_t length = output->length;
    while (length < limit && budget > 0) {
        size_t room = limit - length < budget ? (size_t)(limit - length) : budget;
        ssize_t moved = splice(pipe, NULL, output->memory, NULL, room, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0 && errno == EAGAIN)
            return OUTPUT_EMPTY;
        if (moved == 0)
            return why_nothing(pipe);
        if (moved < 0)
            return OUTPUT_END;
        length += (uint64_t)moved;
        budget -= (size_t)moved;
        output->length = length;
        output->is_foul = !is_where_it_should(output);
        if (output->is_foul)
            return OUTPUT_END;
    }
    return OUTPUT_MORE;
}

/* Without holes all that is kept is written anew: seldom. */
static void drop(struct output *output, uint64_t from, uint64_t to)
{
    uint64_t start = from - from % PAGE;
    if (fd_can_punch()) {
        (void)fallocate(output->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start, (off_t)(to - start));
        return;
    }
    if (to - output->cut_to < CUT_BYTES)
        return;
    (void)fd_drop_front(output->memory, to, output->length);
    output->cut_to = to;
}

uint64_t output_punch(struct output *output, uint64_t to)
{
    uint64_t from = output->kept_from, length = output->length;
    if (to > length)
        to = length;
    to -= to % PAGE;
    if (to <= from)
        return 0;
    output->kept_from = to; /* first said, then done: a reader looks again after it has read */
    drop(output, from, to);
    return to - from;
}

uint64_t output_kept(struct output *output)
{
    return output->length - output->kept_from;
}

size_t output_there(struct output *output, uint64_t offset, size_t size, uint64_t *gap_to)
{
    uint64_t length = output->length, kept_from = output->kept_from;
    *gap_to = offset < kept_from ? kept_from : offset;
    if (offset < kept_from || offset >= length)
        return 0;
    return size > length - offset ? (size_t)(length - offset) : size;
}

size_t output_read(struct output *output, uint64_t offset, void *to, size_t size, uint64_t *gap_to)
{
    size = output_there(output, offset, size, gap_to);
    if (size == 0)
        return 0;
    ssize_t got;
    do
        got = pread(output->memory, to, size, (off_t)offset);
    while (got < 0 && errno == EINTR);
    uint64_t kept_from = output->kept_from;
    if (offset < kept_from) { /* punched meanwhile: what was read may be zeros */
        *gap_to = kept_from;
        return 0;
    }
    if (got <= 0) { /* it cannot be cut, but whatever it is: say it, do not wait for it */
        *gap_to = output->length;
        return 0;
    }
    return (size_t)got;
}
