/* streams.c - see streams.h. */
#include "sandboxd/init/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static bool failed(const char *what, struct error *err)
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
        return failed("pipe", err);
    *ours = ends[our_end];
    *theirs = ends[1 - our_end];
    if (fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 || fchmod(*theirs, 0666) < 0)
        return failed("setting up a pipe", err);
    return true;
}

/* The front may add and punch holes, yet neither end can cut what a reader was promised. */
static bool open_memory(int *fd, const char *name, struct error *err)
{
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0 || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return failed("memfd", err);
    return true;
}

static int highest(const struct streams *streams)
{
    int top = streams->stdin_end > streams->stdout_end ? streams->stdin_end : streams->stdout_end;
    if (streams->stderr_end > top)
        top = streams->stderr_end;
    for (int i = 0; i < FI_FDS; i++) {
        if (streams->kept[i] > top)
            top = streams->kept[i];
    }
    return top;
}

bool streams_open(struct streams *streams, bool with_stdin, int limit, struct error *err)
{
    struct streams made = {.kept = {-1, -1, -1, -1, -1, -1}, .stdin_end = -1, .stdout_end = -1, .stderr_end = -1};
    bool good = open_pipe(&made.kept[FI_FD_STDOUT_PIPE], &made.stdout_end, 0, err) &&
                open_pipe(&made.kept[FI_FD_STDERR_PIPE], &made.stderr_end, 0, err) &&
                open_memory(&made.kept[FI_FD_STDOUT_MEMORY], "stdout", err) &&
                open_memory(&made.kept[FI_FD_STDERR_MEMORY], "stderr", err);
    if (good && with_stdin)
        good = open_pipe(&made.kept[FI_FD_STDIN_PIPE], &made.stdin_end, 1, err);
    if (good && highest(&made) >= limit)
        good = error_set(err, ERROR_NO_CAPACITY, "no descriptors left for a command; forget ended ones");
    if (!good) {
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
}

void streams_close(struct streams *streams)
{
    streams_close_child_ends(streams);
    for (int i = 0; i < FI_FDS; i++)
        close_one(&streams->kept[i]);
}
