/* streams.c - see streams.h. */
#include "sandboxd/init/streams.h"

#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

bool streams_failed(const char *what, struct error *err)
{
    bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return error_set_errno(err, full ? ERROR_NO_CAPACITY : ERROR_INTERNAL, "%s", what);
}

/* ends[0] reads, ends[1] writes; ours does not block. The child's gets mode 0666: it belongs to uid 0, and the user's
 * programs open /dev/stdout, that is /proc/self/fd/1, anew. Only who may look into a process finds its pipes. */
static bool open_pipe(int *ours, int *theirs, int our_end, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return streams_failed("pipe", err);
    *ours = ends[our_end];
    *theirs = ends[1 - our_end];
    bool has_mode = fchmod(*theirs, 0666) == 0 || errno == EPERM; /* it is ours: where pipes have none (gVisor) */
    if (!has_mode || fcntl(*ours, F_SETFL, O_NONBLOCK) < 0)
        return streams_failed("setting up a pipe", err);
    return true;
}

/* The front may add and punch holes, yet neither end can cut what a reader was promised, where there are holes. */
bool streams_open_memory(int *fd, const char *name, bool sealable, struct error *err)
{
    int seals = (sealable ? 0 : F_SEAL_SEAL) | (fd_can_punch() ? F_SEAL_SHRINK : 0); /* else: fd_drop_front */
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0 || fcntl(*fd, F_ADD_SEALS, seals) < 0)
        return streams_failed("memfd", err);
    return true;
}

bool streams_check_limit(const struct streams *streams, int limit, struct error *err)
{
    const int ends[] = {streams->stdin_end, streams->stdout_end, streams->stderr_end, streams->terminal_end};
    int top = -1;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        top = ends[i] > top ? ends[i] : top;
    for (int i = 0; i < FI_FDS_MAX; i++)
        top = streams->kept[i] > top ? streams->kept[i] : top;
    if (top >= limit)
        return error_set(err, ERROR_NO_CAPACITY, "no descriptors left for a command; forget ended ones");
    return true;
}

/* The pipe's one write end goes, so that the front finds its end. */
static bool merge(struct streams *made, struct error *err)
{
    return dup3(made->stdout_end, made->stderr_end, O_CLOEXEC) >= 0 || streams_failed("merging the outputs", err);
}

bool streams_open(struct streams *streams, unsigned with, int limit, struct error *err)
{
    struct streams made = STREAMS_NONE;
    bool good = open_pipe(&made.kept[FI_FD_STDOUT_PIPE], &made.stdout_end, 0, err) &&
                open_pipe(&made.kept[FI_FD_STDERR_PIPE], &made.stderr_end, 0, err) &&
                streams_open_memory(&made.kept[FI_FD_STDOUT_MEMORY], "stdout", false, err) &&
                streams_open_memory(&made.kept[FI_FD_STDERR_MEMORY], "stderr", false, err);
    if (good && (with & STREAMS_MERGED))
        good = merge(&made, err);
    if (good && (with & STREAMS_STDIN))
        good = open_pipe(&made.kept[FI_FD_STDIN_PIPE], &made.stdin_end, 1, err) &&
               streams_open_memory(&made.kept[FI_FD_STDIN_MEMORY], "stdin", true, err);
    if (!good || !streams_check_limit(&made, limit, err)) {
        streams_close(&made);
        return false;
    }
    *streams = made;
    return true;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void streams_close_child_ends(struct streams *streams)
{
    close_one(&streams->stdin_end);
    close_one(&streams->stdout_end);
    close_one(&streams->stderr_end);
    close_one(&streams->terminal_end);
}

void streams_close(struct streams *streams)
{
    streams_close_child_ends(streams);
    for (int i = 0; i < FI_FDS_MAX; i++)
        close_one(&streams->kept[i]);
}

bool streams_have_stdin(const struct streams *streams)
{
    return streams->kept[streams->is_terminal ? (int)FI_TERMINAL_FD_MASTER : (int)FI_FD_STDIN_PIPE] >= 0;
}

size_t streams_list(const struct streams *streams, int fds[static FI_FDS_MAX])
{
    size_t count = 0;
    for (int i = 0; i < FI_FDS_MAX; i++) {
        if (streams->kept[i] >= 0) /* what is absent is absent at the end, or all but one is */
            fds[count++] = streams->kept[i];
    }
    return count;
}

/* Its position is what went on from it. */
static void close_stdin_memory(struct streams *streams, int *fd)
{
    off_t delivered = *fd >= 0 ? lseek(*fd, 0, SEEK_CUR) : -1;
    if (delivered > 0)
        streams->stdin_bytes = (uint64_t)delivered;
    close_one(fd);
}

void streams_end_stdin(struct streams *streams)
{
    close_one(&streams->kept[FI_FD_STDIN_PIPE]);
    close_stdin_memory(streams, &streams->kept[FI_FD_STDIN_MEMORY]);
}

void streams_end_terminal(struct streams *streams)
{
    close_stdin_memory(streams, &streams->kept[FI_TERMINAL_FD_STDIN_MEMORY]);
    for (int i = 0; i < FI_TERMINAL_FDS; i++) {
        if (i != FI_TERMINAL_FD_STDOUT_MEMORY)
            close_one(&streams->kept[i]);
    }
}
